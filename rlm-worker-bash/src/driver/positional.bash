# Sourced, without arguments, where there are positional parameters: they are told, for a shell that ends in a function
# can no longer see them.
{ \builtin printf '\0@POSITIONAL@\0%s\0' "$#"; \builtin printf '%s\0' "$@"; } >@QUIET@
