//! Variables of a shell: they arrive byte for byte, whatever state the shell is in.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rlm_core::limits::MAX_VARIABLE_BYTES;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::{Setup, Worker};
use serde_json::{Value, json};

use super::{SEQ, ask, ask_as, set, set_is_refused};

/// Prints the elements of an array, each ended by NUL, in hexadecimal digits.
const HEX: &str = " | od -An -v -tx1 | tr -d ' \\n'";

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Splits the output of `printf '%s\0'` into its strings.
#[track_caller]
fn strings(worker: &mut Worker, words: &str) -> Vec<String> {
    let bytes = unhex(&worker.output(&format!("builtin printf '%s\\0' {words}{HEX}")));
    let text = String::from_utf8(bytes).unwrap();
    let mut strings: Vec<String> = text.split('\0').map(str::to_owned).collect();
    assert_eq!(strings.pop().as_deref(), Some(""));
    strings
}

/// Text that a shell might interpret.
fn nasty() -> impl Strategy<Value = String> {
    let short = [
        "'", "\"", "\\", "\n", "\r\n", "]", "[", "@", "*", "~", "!!", ";", "&", "|", " ", "\t", "\u{1}",
        "\u{7f}", "\u{80}", "é", "😀", "\u{202e}", "\u{feff}", "\u{fffd}", "%s", "-n", "E1", "=", "#",
        "{a,b}", "<(x)", "EOF\n", "\u{4}", "\u{3}",
    ];
    let long = ["$(touch pwned)", "`touch pwned`", "${x:-$(touch pwned)}", "a[$(touch pwned)]", "\u{1b}[31m"];
    let pieces = prop::sample::select([&short[..], &long].concat());
    let any = any::<String>().prop_map(|text| text.replace('\0', ""));
    prop_oneof![prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat()), any]
}

#[test]
fn a_shell_without_descriptors_is_replaced_at_once() {
    let mut worker = Worker::bash();
    worker.output("x=1; ulimit -n 5");
    let response = ask(&worker, json!({"op": "set", "variables": {"a": 1}}));
    assert!(response.execution_time < 5.0, "{response:?}");
    assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Reset), "{response:?}");
    let hint = "the shell could no longer report, perhaps because its limit of descriptors (`ulimit -n`) is too low; \
        a new shell has its working directory and answer, but nothing else; nothing was set";
    assert_eq!((response.exit_code, response.hint.as_deref()), (None, Some(hint)));
    assert!(response.stdout.trim().is_empty(), "nothing is added to the output of a set: {response:?}");
    assert_eq!(worker.output("echo [$x$a]").trim(), "[]");
}

#[test]
fn values_survive_the_round_trip() {
    let worker = RefCell::new(Worker::bash());
    let key = nasty().prop_filter("an empty key", |key| !key.is_empty());
    let values =
        (nasty(), prop::collection::vec(nasty(), 0..5), prop::collection::btree_map(key, nasty(), 0..5));
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&values, |(scalar, list, map)| {
        let worker = &mut *worker.borrow_mut();
        set(worker, json!({"s": scalar, "l": list, "m": map}));
        prop_assert_eq!(strings(worker, "\"$s\""), [scalar]);
        prop_assert_eq!(worker.output("echo ${#l[@]} ${#m[@]}"), format!("{} {}\n", list.len(), map.len()));
        if !list.is_empty() {
            prop_assert_eq!(strings(worker, "\"${l[@]}\""), list);
        }
        if !map.is_empty() {
            let (keys, values) = (strings(worker, "\"${!m[@]}\""), strings(worker, "\"${m[@]}\""));
            prop_assert_eq!(keys.into_iter().zip(values).collect::<BTreeMap<_, _>>(), map);
        }
        Ok(())
    });
    checked.unwrap();
    let mut worker = worker.into_inner();
    assert!(!worker.fs_root().join("pwned").exists(), "a value was evaluated");
    assert_eq!(worker.output("compgen -v | grep -c __rlm; env | grep -c '^[slm]='"), "0\n0\n");
}

#[test]
fn values_of_every_kind() {
    let mut worker = Worker::bash();
    worker.output("gone=1; arr=(1 2); map=1");
    let request = format!(
        r#"{{"op": "set", "seq": {SEQ}, "variables": {{"s": "a b", "n": 1.0, "big": 123456789012345678901234567890, "e": 1E400,
            "t": true, "f": false, "gone": null, "never": null, "arr": ["x", 2, false], "map": {{"k k": -0, "k": "v"}},
            "none": [], "nothing": {{}}, "empty": ""}}}}"#
    );
    assert_eq!(ask_as(&worker, &request).outcome, Outcome::Ok);
    assert_eq!(
        worker.output("echo \"$s|$n|$big|$e|$t|$f|${gone-unset}|${never-unset}|$empty\""),
        "a b|1.0|123456789012345678901234567890|1E400|true|false|unset|unset|\n"
    );
    assert_eq!(
        worker.output("declare -p arr none nothing; echo \"${map[k k]} ${map[k]} ${#map[@]}\"; declare -p map | cut -c 1-10"),
        "declare -a arr=([0]=\"x\" [1]=\"2\" [2]=\"false\")\ndeclare -a none=()\ndeclare -A nothing=()\n-0 v 2\ndeclare -A\n"
    );
}

#[test]
fn the_largest_values() {
    let mut worker = Worker::bash();
    let text = "é'".repeat(MAX_VARIABLE_BYTES / 3 - 1);
    let list: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let map: BTreeMap<String, usize> = (0..60_000).map(|number| (format!("k{number}"), number)).collect();
    set(&worker, json!({"s": text, "l": list, "m": map}));
    assert_eq!(
        worker.output("echo -n \"$s\" | wc -c; echo ${#l[@]} ${l[99999]} ${#m[@]} ${m[k59999]}"),
        format!("{}\n100000 99999 60000 59999\n", text.len())
    );
    let response =
        ask(&worker, json!({"op": "set", "variables": {"fits": 1, "big": "x".repeat(MAX_VARIABLE_BYTES)}}));
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept));
    assert_eq!(
        response.hint.unwrap(),
        "variable `big` has 1048578 bytes of JSON, more than the limit of 1048576: put large data into a file of the session's directory"
    );
    assert_eq!(worker.output("echo ${#l[@]}"), "100000\n");
}

#[test]
fn one_refused_variable_sets_none() {
    let mut worker = Worker::bash();
    worker.output("a=old; readonly ro=1 ro_unset; readonly -a ro_array; declare -rn ro_ref=a; b() { :; }");
    for (bad, fault) in [
        (json!({"ro": 1}), "variable `ro` cannot be set: it is readonly"),
        (json!({"ro": null}), "`ro`"),
        (
            json!({"ro": [1], "ro_array": {}, "ro_unset": 1}),
            "variables `ro`, `ro_array`, `ro_unset` cannot be set: they are readonly",
        ),
        (json!({"ro_ref": 1}), "`ro_ref`"),
        (json!({"UID": 1}), "variable `UID` cannot be set: it is reserved by bash"),
        (json!({"BASHOPTS": 1}), "it is reserved by bash"),
        (
            json!({"RLM_CONTENT": "x"}),
            "variable `RLM_CONTENT` cannot be set: the answer can only be set by code",
        ),
        (json!({"RLM_READY": true}), "`RLM_READY`"),
        (json!({"not a name": 1}), "variable `not a name` cannot be set: a name is made of letters"),
        (json!({"x;touch pwned": 1}), "a name is made of letters"),
        (json!({"z": [1, [2]]}), "variable `z` cannot be set: z[1] is an array"),
        (json!({"z": {"k": {}}}), "z[\"k\"] is an object"),
        (json!({"z": "a\0b"}), "the value has a NUL"),
    ] {
        let mut variables = json!({"a": "new", "zz": 1});
        variables.as_object_mut().unwrap().extend(bad.as_object().unwrap().clone());
        set_is_refused(&worker, &variables, fault);
    }
    assert_eq!(
        worker.output("echo $a ${z-unset} ${zz-unset} $ro; declare -F b; ls"),
        "old unset unset 1\nb\n"
    );
    set(&worker, json!({"a": "new", "b": 1}));
    assert_eq!(worker.output("echo $a $b; declare -F b"), "new 1\nb\n");
}

#[test]
fn attributes_evaluate_nothing() {
    let mut worker = Worker::bash();
    let value = "a[$(touch pwned)]+1";
    worker.output("declare -i i=1; declare -ia ia=(1); declare -n ref=target; declare -n open; declare -u up; declare -l low; declare -A was=([k]=1); target=old; export ex=1; export never");
    set(
        &worker,
        json!({"i": value, "ia": [value], "ref": value, "open": value, "up": "aB", "low": "aB", "was": value, "ex": value}),
    );
    assert_eq!(
        worker.output("echo \"$i|${ia[0]}|$ref|$open|$up|$low|$was|$target\""),
        format!("{value}|{value}|{value}|{value}|aB|aB|{value}|old\n")
    );
    assert_eq!(worker.output("bash -c 'echo \"$ex ${i-unset}\"'; ls"), format!("{value} unset\n"));
}

/// Brings the shell into a state, sets variables of all kinds, and checks them and everything that must not change.
#[track_caller]
fn check_in(state: &str) {
    let mut worker = Worker::bash();
    worker.call(state);
    let value = "it's \"$x\" `y` \\ 1 2 *\n";
    let response = set(
        &worker,
        json!({"s": value, "l": [value, ""], "m": {"k": value, "@": "at", "a]b": 1}, "n": null}),
    );
    assert_eq!(response.exit_code, None);
    // Through files, because in some states the output shows more than what is printed.
    let show =
        "/usr/bin/printf '%s\\0' \"$s\" \"${l[@]}\" \"${m[k]}\" \"${#m[@]}\" \"${n-unset}\" >|/dev/stderr";
    let response = worker.call(show);
    let expected = [value, value, "", value, "3", "unset"].join("\0") + "\0";
    assert!(response.stdout.contains(&expected), "{state:?}: {response:?}");
    assert_eq!(response.state, State::Kept, "{state:?}");
}

#[test]
fn variables_are_set_in_every_state_of_the_shell() {
    for state in [
        "set -eu -o pipefail -o noclobber -o posix",
        "set -x",
        "set -v",
        "set -f -a -k -B -T -E",
        "IFS=\"it's 1\"",
        "unset IFS",
        "trap 'echo \"<$BASH_COMMAND>\"' DEBUG; trap 'echo err' ERR; trap 'echo ret' RETURN; trap 'echo bye' EXIT",
        "shopt -s extdebug nocasematch nullglob failglob extglob xpg_echo; trap ':' DEBUG",
        "shopt -s localvar_inherit localvar_unset assoc_expand_once lastpipe",
        "declare() { echo mine; }; printf() { echo mine; }; unset() { echo mine; }; mapfile() { echo mine; }; eval() { echo mine; }",
        "builtin() { echo mine; }",
        "exec() { echo mine; }",
        "alias declare='echo a' printf='echo b' unset='echo c' builtin='echo d' mapfile='echo e' eval='echo f' s='echo g' l='echo h' m='echo i'",
        "enable -n printf declare unset",
        "PS1='$ '; PS0='> '; PROMPT_COMMAND='echo prompt'; PS4='+$(echo x)'",
        "readonly PS1='$ '",
        "exec >/dev/null 2>/dev/stderr; exec </dev/null",
        "exec 1>&-; exec 0<&-; exec 2>/dev/tty",
        "FUNCNEST=1; LC_ALL=C; POSIXLY_CORRECT=1",
        "cd /; rmdir nothing; PATH=; umask 777",
        "ulimit -f 0; ulimit -n 20",
        "echo \"open",
        "sleep 1000 & (exit 5)",
    ] {
        check_in(state);
    }
}

#[test]
fn nothing_else_of_the_shell_changes() {
    let mut worker = Worker::bash();
    worker.output("sleep 1000 & job=$!; set -- p 'q r'; trap 'echo usr' USR1; set -u; OPTIND=3; [[ ab =~ a(.) ]]; read REPLY <<<r; mkdir d; cd d");
    let look = "echo $? ${PIPESTATUS[*]}; [[ $! == $job ]] && echo $# $2 $- $OPTIND ${BASH_REMATCH[1]} $REPLY ${PWD##*/}; trap -p; jobs; history; \
                declare -F; compgen -v | grep -c rlm; ls -l /proc/$$/fd | wc -l";
    worker.call("false | (exit 3)");
    let expected = worker.output(look);
    worker.call("false | (exit 3)");
    let response = set(&worker, json!({"a": 1, "b": [1], "c": {"k": 1}, "d": null}));
    assert_eq!((response.execution_count, response.execution_time < 5.0), (4, true));
    assert_eq!(worker.output(look), expected);
    assert!(expected.starts_with("3 1 3\n2 q r"), "{expected}");
    worker.call("false");
    set(&worker, json!({"a": 1}));
    assert_eq!(worker.output("echo $?; set -x"), "1\n");
    set(&worker, json!({"a": 2}));
    assert_eq!(worker.output("echo $a"), "+++ echo 2\n2\n");
}

#[test]
fn the_output_of_a_job_is_kept_for_the_next_call() {
    let mut worker = Worker::bash();
    worker.output("(until [ -e go ]; do sleep 0.01; done; echo late; touch done) 2>/dev/null & disown");
    std::fs::write(worker.fs_root().join("go"), "").unwrap();
    worker.wait_for_file("done");
    set(&worker, json!({"x": 1}));
    assert_eq!(worker.output("echo $x"), "late\n1\n");
}

#[test]
fn a_shell_that_is_busy_with_a_trap_is_stopped_at_the_limit() {
    let mut worker = Setup::bash().env("RLM_EXEC_TIMEOUT", 0.5).start();
    worker.output("x=1; trap 'while :; do :; done' USR1; (until [ -e go ]; do sleep 0.01; done; kill -USR1 $$; touch done) & disown");
    std::fs::write(worker.fs_root().join("go"), "").unwrap();
    worker.wait_for_file("done");
    let response = ask(&worker, json!({"op": "set", "variables": {"y": 1, "z": 1}}));
    // The interrupt throws the shell out of its trap and everything else; bash 5.2 may crash.
    assert_eq!(response.outcome, Outcome::TimedOut, "{response:?}");
    let hint = response.hint.unwrap();
    match response.state {
        State::Kept => assert!(hint.ends_with("and may have some of the variables"), "{hint}"),
        State::Restored => assert!(hint.ends_with("; variables may be missing"), "{hint}"),
        State::Reset => panic!("{hint}"),
    }
    assert_eq!(worker.output("echo $x"), "1\n");
    set(&worker, json!({"y": 2}));
    assert_eq!(worker.output("echo $y"), "2\n");
}

#[test]
fn variables_that_change_the_shell_itself() {
    let mut worker = Worker::bash();
    set(
        &worker,
        json!({"PATH": "/nowhere", "IFS": "x", "LC_ALL": "C", "HOME": null, "PS3": "$(exit)", "OPTIND": 2, "FUNCNEST": 1, "HISTFILE": "h"}),
    );
    assert_eq!(
        worker.output("echo \"$PATH|$IFS|$LC_ALL|${HOME-unset}\"; ls"),
        "/nowhere|x|C|unset\nbash: ls: command not found\n"
    );
    set(&worker, json!({"PATH": "/usr/bin:/bin", "IFS": null, "LC_ALL": null}));
    assert_eq!(worker.output("/bin/sh -c 'echo $PATH'; ls"), "/usr/bin:/bin\n");
}

#[test]
fn invalid_requests_are_refused() {
    let worker = Worker::bash();
    for (request, fault) in [
        (json!({"op": "set"}), "op `set` has no field `variables`, an object of names and values"),
        (
            json!({"op": "set", "variables": [1]}),
            "field `variables` is an array, expected an object of names and values",
        ),
        (
            json!({"op": "set", "variables": null}),
            "field `variables` is null, expected an object of names and values",
        ),
    ] {
        let response = ask(&worker, request);
        assert_eq!(
            (response.outcome, response.state, response.hint.as_deref()),
            (Outcome::Error, State::Kept, Some(fault))
        );
    }
    let deep = format!(
        r#"{{"op": "set", "seq": {SEQ}, "variables": {{"x": {}{}}}}}"#,
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let hint = ask_as(&worker, &deep).hint.unwrap();
    assert_eq!(hint, "variable `x` is nested 200000 levels deep, more than the limit of 100");
    assert_eq!(set(&worker, Value::Object(serde_json::Map::new())).outcome, Outcome::Ok);
}
