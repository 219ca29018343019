# The assignments, which end by making this a space, and what the worker is told of them.
\builtin unset -f __rlm_q
[[ -n $__rlm_u ]] || \builtin eval -- "${__rlm[1]}"
\builtin printf '\0S\0%s\0' "$__rlm_u" >@QUIET_PIPE@
\builtin unset -v __rlm_u __rlm_k
