# Gives the shell variables, in the quiet between calls, where it has no traps that would run, no traces and no prompts.
# This part and the one below stand around a line for each name. It finds the readonly ones before any is touched: no local
# variable can have the name of one.
__rlm_options=$- __rlm_status=0 __rlm_readonly=
__rlm_check() { \builtin declare "$1" || __rlm_readonly+="$1 "; }
