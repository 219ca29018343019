# Hands on the state of the shell, which goes on, in the quiet between calls: as when it ends, and what is only in the shell then.
__rlm_options=$- __rlm_status=0
\builtin unset -v __rlm_call
__rlm_call=
\builtin . @exit.bash@
{
\builtin trap -p
\builtin printf '\0@NAMES@\0'
\builtin compgen -A variable
\builtin printf '\0'
\builtin compgen -A function
\builtin printf '\0'
\builtin compgen -A alias
\builtin printf '\0'
} >@QUIET@
