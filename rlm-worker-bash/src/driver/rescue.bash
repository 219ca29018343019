# The quieting part was skipped: its turn is now. The first word of the report tells the worker that the shell is alive,
# for with a large answer the rest takes a while.
__rlm_s=${__rlm_s-$__rlm_t} __rlm_n=1
@ENABLE@
\builtin printf '|\0' >@REPORT@
@QUIET@
