# Prints what can complete a word, in the quiet between calls. This shell itself looks, and nothing in it changes.
__rlm_options=$- __rlm_status=0
{
\builtin printf '\0@COMPLETIONS@\0'
\builtin compgen -A "${__rlm_call[1]}" -- "${__rlm_call[2]}"
\builtin printf '\0@DIRECTORIES@\0'
\builtin compgen -A directory -- "${__rlm_call[2]}"
\builtin printf '\0'
} >@QUIET@
