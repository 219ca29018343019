//! A shell that goes on in another worker.

use rlm_core::protocol::State;
use rlm_tests::Worker;

use super::{load, place, save};
use crate::languages::calls;

#[test]
fn a_shell_goes_on_with_everything_but_jobs_and_descriptors() {
    let (_dir, file) = place();
    let mut old = Worker::bash();
    for code in [
        "s='it'\\''s \"$x\" \\ `'; export e=exported; a=(1 'two words' [5]=3); declare -A m=([k]=v [\"a b\"]=$'c\\nd'); readonly r=fixed",
        "declare -i n=3; declare -u up=abc; declare -n ref=s; big=$(printf '%0100000d' 7); bytes=$'\\xff\\x01é'; E=",
        "f() { local l=1; echo \"f:$1:$l:$s\"; }; export -f f; g() { f \"$@\" | cat; }; alias greet='echo hello'",
        "shopt -s extglob nullglob; set -o pipefail -o noclobber; set -u; umask 027; set -- p1 'p 2' ''",
        "trap 'echo usr' USR1; trap 'echo err $?' ERR; trap 'echo bye' EXIT; PS1='> '; PROMPT_COMMAND=(one two); enable -n let",
        "sleep 1000 & until [[ $(</proc/$!/comm) == sleep ]]; do :; done; exec 7>file; RLM_CONTENT='the answer'; IFS=:",
    ] {
        old.call(code);
    }
    old.call("(exit 3) | (exit 42)");
    let hint = save(&old, &file);
    assert!(
        hint.starts_with("left out: process ") && hint.ends_with(" (sleep) (it is a running program)"),
        "{hint}"
    );
    let mut new = Worker::bash();
    assert_eq!(load(&new, &file), "");
    calls(
        &mut new,
        &[
            ("echo $? \"${PIPESTATUS[@]}\"", "42 3 42\n"),
            (
                "echo \"$s|${a[1]}|${!a[*]}|${m[k]}|${m[a b]}|$r|$up|$ref|${#big}|$bytes|${E-unset}\"",
                "it's \"$x\" \\ `|two words|0:1:5|v|c\nd|fixed|ABC|it's \"$x\" \\ `|100000|\u{fffd}\u{1}é|\n",
            ),
            (
                "n+=4; echo $n; bash -c 'echo $e; declare -F f'; g 3",
                "7\nexported\nf\nf:3:1:it's \"$x\" \\ `\n",
            ),
            (
                "greet you; shopt extglob nullglob; [[ -o pipefail && -o noclobber && -o nounset ]] && umask; echo $# \"$2\" \"$3\"",
                "hello you\nextglob        \ton\nnullglob       \ton\n0027\n3 p 2 \n",
            ),
            (
                "trap -p; enable -n; declare -p PS1 PROMPT_COMMAND",
                "trap -- 'echo bye' EXIT\ntrap -- 'echo usr' SIGUSR1\ntrap -- 'echo err $?' ERR\nenable -n let\n\
          declare -- PS1=\"> \"\ndeclare -a PROMPT_COMMAND=([0]=\"one\" [1]=\"two\")\n",
            ),
            (
                "(exit 7); kill -USR1 $$; jobs; [[ -e /proc/self/fd/7 ]] || echo closed",
                "err 7\nusr\nclosed\n",
            ),
            (
                "[[ $(compgen -v) != *__rlm* ]] && echo clean; unset IFS; history | wc -l; echo ${HISTFILE-none}",
                "clean\n0\nnone\n",
            ),
        ],
    );
}

#[test]
fn large_arrays_and_old_values_go_on_as_they_are() {
    let (_dir, file) = place();
    let mut old = Worker::bash();
    for code in [
        "for ((n = 0; n < 3000; n++)); do a[n]=\"it's $n\"$'\\n\\x01\\xff'\"\\`é\\\\\"; done; unset 'a[7]'; a[99999]=far; readonly a",
        "declare -A m; for ((n = 0; n < 3000; n++)); do m[\"k $n]\"]=\"v $n\"; done; numbers=({1..3000} 2+2); declare -ix numbers",
        "low=ABC; declare -l low; sum=2+2; declare -i sum; few=(X y); declare -u few",
    ] {
        old.call(code);
    }
    let probe = "for n in \"${!m[@]}\"; do printf '%s\\n' \"$n=${m[$n]}\"; done | sort | cat - <(declare -p a numbers low sum few) | sha256sum; \
                 printf '%s|' \"${a[6]}\" \"${a[8]-gone}\" \"${a[7]-gone}\" \"${a[99999]}\" \"${numbers[3000]}\" $low $sum ${few[*]}";
    let before = old.output(probe);
    assert!(
        before.ends_with("\\|gone|far|2+2|ABC|2+2|X|y|") && before.contains("|it's 8\n\u{1}\u{fffd}`é\\|"),
        "{before}"
    );
    save(&old, &file);
    let mut new = Worker::bash();
    load(&new, &file);
    assert_eq!(new.output(probe), before);
    // A shell that ends hands its state on in the same way.
    assert_eq!(new.call("exit 3").state, State::Restored);
    assert_eq!(new.output(probe), before);
    assert_eq!(new.output("ls /proc/$$/fd | wc -l"), old.output("ls /proc/$$/fd | wc -l"));
}

#[test]
fn what_the_host_gives_is_that_of_the_new_host() {
    let (_dir, file) = place();
    let mut old = rlm_tests::Setup::bash()
        .env("RLM_PASS_ENV", "A B SECRET")
        .env("A", "old")
        .env("B", "old")
        .env("SECRET", "s3cret")
        .start();
    old.call("B=changed; PATH+=:/mine");
    save(&old, &file);
    assert!(!String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains("s3cret"));
    let mut new = rlm_tests::Setup::bash().env("RLM_PASS_ENV", "A B").env("A", "new").env("B", "new").start();
    load(&new, &file);
    let home = new.output("echo $A $B ${PATH##*:} ${SECRET-gone}; echo \"$HOME\"");
    assert!(
        home.starts_with("new changed /mine gone\n")
            && home.contains(new.fs_root().parent().unwrap().to_str().unwrap()),
        "{home}"
    );
}

#[test]
fn a_function_named_builtin_goes_on() {
    let (_dir, file) = place();
    let mut old = Worker::bash();
    old.call("builtin() { echo mine; }; export -f builtin; exit() { echo no; }");
    save(&old, &file);
    assert_eq!(old.output("builtin; exit"), "mine\nno\n");
    let mut new = Worker::bash();
    load(&new, &file);
    assert_eq!(new.output("builtin; exit"), "mine\nno\n");
}

#[test]
fn a_value_that_takes_a_while_is_loaded_each_time() {
    let (_dir, file) = place();
    let mut worker = Worker::bash();
    worker.output("x=$(head -c 10000000 /dev/zero | tr '\\0' a); y=2");
    save(&worker, &file);
    worker.end();
    // The worker looks after a shell every 50 ms, also when that is about to report.
    for _ in 0..6 {
        let mut worker = Worker::bash();
        assert_eq!(load(&worker, &file), "");
        assert_eq!(worker.output("echo ${#x} $y"), "10000000 2\n");
        worker.end();
    }
}
