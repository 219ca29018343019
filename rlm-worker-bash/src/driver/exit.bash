# Hands the worker the state that the next shell starts with. It is sourced by the EXIT trap when the shell ends, which
# ignores signals until here, and, as second best, before code that may replace that trap. Errexit and onecmd are left
# out, or the next shell would end at once as well. Functions come late: if one cannot be read back, the reading ends
# there. A fork of the shell inherits the trap until it removes it: that one hands on nothing.
__rlm_exit_status=${__rlm_exit_status-$?} __rlm_flags=$-
if [[ /proc/self -ef /proc/$$ ]]; then
{
\builtin trap - DEBUG ERR RETURN
\builtin set +etxv +o history
\builtin printf '\0@STATE@\0'
\builtin printf '%s\0' "${__rlm_exiting-}" "$__rlm_flags" "${PWD-}" "${RLM_READY-}" "${RLM_CONTENT-}"
\builtin declare -p
\builtin shopt -p
__rlm_posix=
[[ ! -o posix ]] || __rlm_posix='set -o posix'
\builtin set +o posix
\builtin set +o
\builtin umask -p
if [[ -z ${FUNCNAME[1]-} ]]; then
\builtin printf 'set --'
[[ $# -eq 0 ]] || \builtin printf ' %q' "$@"
\builtin printf '\n'
fi
\builtin declare -f
\builtin declare -Fx
\builtin alias -p
\builtin printf '%s\n\0@STATE_END@\0' "$__rlm_posix"
[[ -z $__rlm_posix ]] || \builtin set -o posix
} >@REPORT@ 2>/dev/null
fi
[[ ! -v __rlm_exiting ]] || \builtin trap - INT HUP TERM
\builtin unset -v __rlm_flags __rlm_posix __rlm_exiting
\builtin eval "\builtin unset -v __rlm_exit_status; \builtin return $__rlm_exit_status"
