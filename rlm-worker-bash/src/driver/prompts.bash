# Sourced if any prompt variable is set: removes them from the shell until the next call. A readonly one stays, and
# output is then redirected between calls.
{
\builtin printf '\0@PROMPTS@\0'
[[ -v PS0 ]] && \builtin printf '%s\0' PS0 "${PS0@a}" "$PS0"
[[ -v PS1 ]] && \builtin printf '%s\0' PS1 "${PS1@a}" "$PS1"
[[ -v PS2 ]] && \builtin printf '%s\0' PS2 "${PS2@a}" "$PS2"
[[ -v TMOUT ]] && \builtin printf '%s\0' TMOUT "${TMOUT@a}" "$TMOUT"
for __rlm_index in "${!PROMPT_COMMAND[@]}"; do
\builtin printf '%s\0' "PROMPT_COMMAND[$__rlm_index]" "${PROMPT_COMMAND[*]@a}" "${PROMPT_COMMAND[__rlm_index]}"
done
\builtin printf '@LIST_END@\0'
} >@QUIET@
\builtin unset -v PS0 PS1 PS2 TMOUT PROMPT_COMMAND __rlm_index
[[ -z ${PS0-}${PS1-}${PS2-}${PROMPT_COMMAND[*]-} ]] || __rlm_silenced=1
