# The assignments, which end by setting this to a space, and the report to the worker.
\builtin unset -f __rlm_check
[[ -n $__rlm_readonly ]] || \builtin eval -- "${__rlm_call[1]}"
\builtin printf '\0@SET@\0%s\0' "$__rlm_readonly" >@QUIET@
\builtin unset -v __rlm_readonly __rlm_attributes __rlm_key
