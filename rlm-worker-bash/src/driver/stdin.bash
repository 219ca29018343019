# The user's standard input is not the terminal: it is saved until the next call. If this part of the driver runs a
# second time, standard input is our own pipe, and the user's is already saved.
if [[ /proc/self/fd/0 -ef @COMMANDS@ ]]; then
__rlm_stdin=${__rlm_stdin_fd+@SAVED@}
elif [[ -e /proc/self/fd/0 ]]; then
__rlm_stdin=@SAVED@
\exec {__rlm_stdin_fd}<&0
else
__rlm_stdin=@CLOSED@
fi
