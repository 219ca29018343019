# Hands the worker what the next shell starts with. Sourced by the EXIT trap when the shell ends, and then no signal may
# come between; and, as second best, before code that may put another trap in its place. Errexit and onecmd are left
# behind, or the next shell would end at once as well. Functions come late: one that cannot be read back ends the reading.
__rlm_s=${__rlm_s-$?} __rlm_o=$-
[[ ! -v __rlm_x ]] || \builtin trap '' INT HUP TERM
{
\builtin trap - DEBUG ERR RETURN
\builtin set +etxv +o history
\builtin printf '\0X\0'
\builtin printf '%s\0' "$__rlm_s" "$__rlm_o" "${PWD-}" "${RLM_READY-}" "${RLM_CONTENT-}"
\builtin declare -p
\builtin shopt -p
__rlm_p=
[[ ! -o posix ]] || __rlm_p='set -o posix'
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
\builtin printf '%s\n\0Y\0' "$__rlm_p"
[[ -z $__rlm_p ]] || \builtin set -o posix
} >@REPORT@ 2>/dev/null
[[ ! -v __rlm_x ]] || \builtin trap - INT HUP TERM
\builtin unset -v __rlm_o __rlm_p __rlm_x
\builtin eval "\builtin unset -v __rlm_s; \builtin return $__rlm_s"
