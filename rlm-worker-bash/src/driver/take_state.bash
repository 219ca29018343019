# Part of the set-up of a new shell: takes over the state of an old one, without what the driver kept in it.
{ \builtin . @STATE_FILE@; \builtin set +o history +o histexpand; \builtin unset -v BASH_XTRACEFD __rlm_exiting __rlm_stdin_fd __rlm_silenced __rlm_stdout_fd __rlm_stderr_fd; } >/dev/null 2>&1
