# Sourced without arguments if there are positional parameters. Reports them now, because a shell that ends in a
# function can no longer see them.
{ \builtin printf '\0@POSITIONAL@\0'; \builtin printf '%s\0' "$@" '@LIST_END@'; } >@QUIET@
