# Runs if builtins may have been disabled: reports them, and enables those that the driver needs.
\builtin enable -n >@QUIET@
\builtin enable . builtin declare eval exec mapfile printf set trap unset
\builtin printf '\0@DISABLED@\0' >@QUIET@
