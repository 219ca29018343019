# POSIX mode finds special builtins before functions. Leaving it must not change the options that the user had set.
if [[ -v __rlm_bashopts ]]; then
\builtin unset -v POSIXLY_CORRECT
for __rlm_option in expand_aliases inherit_errexit interactive_comments shift_verbose sourcepath; do
case :$__rlm_bashopts: in
*:"$__rlm_option":*) \builtin shopt -s "$__rlm_option" ;;
*) \builtin shopt -u "$__rlm_option" ;;
esac
done
\builtin unset -v __rlm_bashopts __rlm_option
fi
