# Sourced by the EXIT trap when the shell ends: hands the worker what the next shell starts with. Errexit and onecmd
# are left behind, or the next shell would end at once as well.
__rlm_s=$? __rlm_o=$-
{
\builtin trap - DEBUG ERR RETURN
\builtin set +etxv +o history
\builtin printf '\0X\0'
\builtin printf '%s\0' "$__rlm_s" "$__rlm_o" "${PWD-}" "${RLM_READY-}" "${RLM_CONTENT-}"
\builtin declare -p
\builtin shopt -p
\builtin declare -f
\builtin declare -Fx
\builtin set +o
\builtin umask -p
if [[ -z ${FUNCNAME[1]-} ]]; then
\builtin printf 'set --'
[[ $# -eq 0 ]] || \builtin printf ' %q' "$@"
\builtin printf '\n'
fi
\builtin alias -p
\builtin printf '\0Y\0'
} >@REPORT@ 2>/dev/null
\builtin unset -v __rlm_o
\builtin eval "\builtin unset -v __rlm_s; \builtin return $__rlm_s"
