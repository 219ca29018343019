# The quieting part was skipped, so it runs now. The first word of the report tells the worker that the shell is alive,
# because with a large answer the rest takes a while. As long as the call's parts exist, the code has not begun.
__rlm_status=${__rlm_status-$__rlm_end_status} __rlm_thrown=1${__rlm_call+@EARLY@}
@include enable.bash@
\builtin printf '@BAR@\0' >@REPORT@
@include quiet.bash@
