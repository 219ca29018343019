# A function is named `exec`: POSIX mode finds the special builtin first.
__rlm_exec=1
if [[ ! -o posix ]]; then
__rlm_bashopts=$BASHOPTS
POSIXLY_CORRECT=y
fi
\exec <@COMMANDS@
@include leave_posix.bash@
