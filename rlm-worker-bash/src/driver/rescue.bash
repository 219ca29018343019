# The quieting part was skipped, so it runs now. The first word of the report tells the worker that the shell is alive,
# because with a large answer the rest takes a while.
__rlm_status=${__rlm_status-$__rlm_end_status} __rlm_thrown=1
@include enable.bash@
\builtin printf '@BAR@\0' >@REPORT@
@include quiet.bash@
