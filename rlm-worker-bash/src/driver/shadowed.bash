# Sourced in POSIX mode where the code may have defined a function named `builtin`: there, special builtins are found before
# functions. The definition of that function goes to the worker, with those of the exported functions. POSIX mode prints
# their names only, so it is left while they are printed.
if \export -f builtin; then
\unset -v POSIXLY_CORRECT
\export -fp >@QUIET@
POSIXLY_CORRECT=y
\export -nf builtin
\unset -f builtin
__rlm_functions=@FUNCTIONS@
fi
@include leave_posix.bash@
\builtin printf '\0%s\0' "${__rlm_functions-}" >@QUIET@
\builtin unset -v __rlm_functions
\builtin . @end.bash@ "$1"
