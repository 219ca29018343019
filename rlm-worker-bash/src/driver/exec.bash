# A function is named `exec`: in POSIX mode the special builtin is found first.
__rlm_exec=1
if [[ ! -o posix ]]; then
__rlm_bashopts=$BASHOPTS
POSIXLY_CORRECT=y
fi
\exec <@COMMANDS@
@include leave_posix.bash@
