# POSIX mode finds special builtins before functions. Leaving it again must not change what the user had set.
if [[ -v __rlm_b ]]; then
\builtin unset -v POSIXLY_CORRECT
for __rlm_v in expand_aliases inherit_errexit interactive_comments shift_verbose sourcepath; do
case :$__rlm_b: in
*:"$__rlm_v":*) \builtin shopt -s "$__rlm_v" ;;
*) \builtin shopt -u "$__rlm_v" ;;
esac
done
\builtin unset -v __rlm_b __rlm_v
fi
