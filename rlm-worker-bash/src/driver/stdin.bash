# The user's standard input is not the terminal: it is put aside until the next call. When this part of the driver runs
# for a second time it is our own pipe, and the user's is put aside already.
if [[ /proc/self/fd/0 -ef @COMMANDS@ ]]; then
__rlm_stdin=${__rlm_stdin_fd+@ASIDE@}
elif [[ -e /proc/self/fd/0 ]]; then
__rlm_stdin=@ASIDE@
\exec {__rlm_stdin_fd}<&0
else
__rlm_stdin=@CLOSED@
fi
