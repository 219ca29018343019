# Sourced in POSIX mode if the code may have defined a function named `builtin`: in that mode special builtins are found
# before functions. Sends the definitions of that function and of the exported ones to the worker. POSIX mode only
# prints their names, so it is left while they are printed.
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
\builtin . @end.bash@
