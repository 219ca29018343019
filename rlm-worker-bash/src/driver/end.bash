# The second line of a call: sourced at top level, output to /dev/null. Bash gets here even if an interrupt or a syntax
# error threw it back to its top level. Rarely needed parts are in files of their own. It has no arguments: a shell that
# SIGHUP ends here would hand them on as the user's positional parameters. The next call's parts exist from now on, even
# before they are read: an interrupt may come first.
[[ -v __rlm_options ]] || \builtin . @rescue.bash@
[[ -t 0 ]] || \builtin . @stdin.bash@
if \builtin declare -F exec; then \builtin . @exec.bash@; else \exec <@COMMANDS@; fi
\builtin printf '%s\0' '@BAR@' "@BEGIN@$__rlm_nonce" "${__rlm_status-0}" "${__rlm_pipe_status-}" '@BAR@' "$__rlm_options" "${__rlm_thrown-}" \
"${__rlm_stdin-@TERMINAL@}" "${__rlm_exec-}" "${__rlm_silenced-}" "${PWD-}" "${RLM_READY-}" "${RLM_CONTENT-}" "@END@$__rlm_nonce" >@REPORT@
\builtin unset -v __rlm_end_status __rlm_status __rlm_thrown __rlm_options __rlm_pipe_status __rlm_stdin __rlm_exec __rlm_call __rlm_nonce
__rlm_call=
