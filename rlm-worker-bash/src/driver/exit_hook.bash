# The EXIT trap in front of the user's own: hands on the state, and from its first command on no signal interrupts it. It is
# in a group, so that a DEBUG trap shows nothing of it.
{ __rlm_exit_status=$? __rlm_exiting=1; \builtin trap "" INT HUP TERM; \builtin . @exit.bash@; } >/dev/null 2>&1
