# The second line of a call: sourced at top level with the call's nonce, output to /dev/null. Comes even when an
# interrupt or a syntax error threw bash back to its top level. What is rarely needed is in files of its own.
__rlm_t=${__rlm_t-$?}
[[ -v __rlm_o ]] || \builtin . @RESCUE@
[[ -t 0 ]] || \builtin . @STDIN@
if \builtin declare -F exec; then \builtin . @EXEC@; else \exec <@COMMANDS@; fi
\builtin printf '%s\0' '|' "B$1" "${__rlm_s-0}" "${__rlm_p[@]-}" '|' "$__rlm_o" "${__rlm_n-}" "${__rlm_f-}" \
"${__rlm_e-}" "${__rlm_w-}" "${PWD-}" "${RLM_READY-}" "${RLM_CONTENT-}" "E$1" >@REPORT@
\builtin unset -v __rlm_t __rlm_s __rlm_n __rlm_o __rlm_p __rlm_f __rlm_e __rlm
