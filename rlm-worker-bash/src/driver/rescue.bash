# The quieting part was skipped: its turn is now.
__rlm_s=${__rlm_s-$__rlm_t} __rlm_n=1
@ENABLE@
@QUIET@
