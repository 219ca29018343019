# Part of the set-up of a new shell: takes over the state of an old one, without what the driver kept in it: the old shell may
# have ended in the middle of the driver. The values of large arrays follow the two parts of the set-up's file.
{
\builtin mapfile -u 3 -d '' -n 2 __rlm_option
\builtin . @STATE_FILE@
\builtin set +o history +o histexpand
\builtin unset -v BASH_XTRACEFD
\builtin unset -v @VARIABLES@
} 3<@CODE@ >/dev/null 2>&1
