# Sets variables in the quiet between calls, when the shell has no active traps, traces or prompts. Between this part and
# set_end.bash is a line for each name. Those lines find the readonly variables before any is touched: a local variable
# cannot have the name of a readonly one.
__rlm_options=$- __rlm_status=0 __rlm_readonly=
__rlm_check() { \builtin declare "$1" || __rlm_readonly+="$1 "; }
