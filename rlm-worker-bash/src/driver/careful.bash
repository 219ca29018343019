# Sourced in POSIX mode where the code may have defined a function named `builtin`: special builtins alone are sure.
# The function's definition goes to the worker, with those of the exported functions. POSIX mode prints names only, so it
# is left for the moment of printing.
if \export -f builtin; then
\unset -v POSIXLY_CORRECT
\export -fp >@QUIET_PIPE@
POSIXLY_CORRECT=y
\export -nf builtin
\unset -f builtin
__rlm_g=1
fi
@LEAVE_POSIX@
\builtin printf '\0%s\0' "F${__rlm_g-}" >@QUIET_PIPE@
\builtin unset -v __rlm_g
\builtin . @END@ "$1"
