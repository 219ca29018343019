# The end of the opening: saves and redirects standard output and error until the next call if a readonly prompt would
# be printed there.
[[ ! -v __rlm_silenced ]] || { \
[[ -e /proc/self/fd/1 ]] && \exec {__rlm_stdout_fd}>&1; [[ -e /proc/self/fd/2 ]] && \exec {__rlm_stderr_fd}>&2; \
\exec >/dev/null 2>&1; }
