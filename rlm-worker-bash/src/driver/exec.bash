# A function is named `exec`: POSIX mode finds the special builtin first.
__rlm_e=1
if [[ ! -o posix ]]; then
__rlm_b=$BASHOPTS
POSIXLY_CORRECT=y
fi
\exec <@COMMANDS@
@LEAVE_POSIX@
