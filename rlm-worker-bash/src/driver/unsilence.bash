# The start of the next opening: undoes `silence.bash`.
if [[ -v __rlm_stdout_fd ]]; then \exec >&"$__rlm_stdout_fd" {__rlm_stdout_fd}>&-; else \exec >&-; fi
if [[ -v __rlm_stderr_fd ]]; then \exec 2>&"$__rlm_stderr_fd" {__rlm_stderr_fd}>&-; else \exec 2>&-; fi
\builtin unset -v __rlm_stdout_fd __rlm_stderr_fd __rlm_silenced
