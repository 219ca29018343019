# Part of the set-up of a new shell: takes over the state of an old one, without what the driver kept in it: the old shell may
# have ended in the middle of the driver. All its names are that of `__rlm_call` and two characters.
{
\builtin . @STATE_FILE@
\builtin set +o history +o histexpand
\builtin unset -v BASH_XTRACEFD
for __rlm_option in "${!__rlm_call@}"; do
[[ $__rlm_option != __rlm_call?? ]] || \builtin unset -v "$__rlm_option"
done
\builtin unset -v __rlm_option
} >/dev/null 2>&1
