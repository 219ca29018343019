# The EXIT trap in front of the user's own: hands on the state. It is in a group, so that a DEBUG trap shows nothing of
# it.
{ __rlm_status=$? __rlm_exiting=1; \builtin . @exit.bash@; } >/dev/null 2>&1
