# Runs right after the user's code, with output to /dev/null. Hands traps and prompts to the worker, which restores them
# before the next call, and turns off everything that would show or act between calls. A DEBUG trap runs before each
# command here until it is removed. History would fill with the driver's lines. If the shell ends between calls, it
# hands on its state.
__rlm_options=$-
\builtin trap -p DEBUG ERR RETURN EXIT >@QUIET@
\builtin trap - DEBUG ERR RETURN
\builtin set +exv +o history
\builtin trap -- '@include exit_hook.bash@' EXIT
[[ -z ${PS0+x}${PS1+x}${PS2+x}${TMOUT+x}${PROMPT_COMMAND[*]+x} ]] || \builtin . @prompts.bash@
