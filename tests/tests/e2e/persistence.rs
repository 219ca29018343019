//! Everything persists between calls.

use rlm_tests::Worker;

use crate::languages::sessions;

sessions! { Bash:
    // Promise: In bash: one interactive shell with job control, its variables, functions, traps, jobs and open descriptors.
    variables_of_every_kind_persist {
        "s=text; export e=exported; a=(1 'two words' 3); declare -A m=([k]=v); readonly r=fixed" => "",
        "declare -i n=3; declare -u up=abc; declare -n ref=s; big=$(printf '%0100000d' 7)" => "",
        r#"echo "$s ${a[1]} ${#a[@]} ${m[k]} $r $up $ref ${#big}""# => "text two words 3 v fixed ABC text 100000\n",
        "n=n+4; echo $n; bash -c 'echo $e$s'" => "7\nexported\n",
    }
    declare_at_top_level_is_global {
        "declare -i x=3; declare -a y=(1 2); typeset z=4" => "",
        "x+=1; echo $x ${y[1]} $z" => "4 2 4\n",
    }
    // Promise: In bash: one interactive shell with job control, its variables, functions, traps, jobs and open descriptors.
    functions_and_aliases_persist_and_aliases_work_in_the_same_call {
        "f() { echo \"f:$1\"; }\nalias greet='echo hello'\ngreet world" => "hello world\n",
        "f 1; greet" => "f:1\nhello\n",
    }
    options_and_positional_parameters_persist {
        "set -- a 'b c'; set -o pipefail -o noclobber; shopt -s nullglob extglob; set -f" => "",
        "echo $# \"$2\"; set -o | grep -E 'pipefail|noclobber|noglob'; shopt nullglob extglob" =>
            "2 b c\nnoclobber      \ton\nnoglob         \ton\npipefail       \ton\nnullglob       \ton\nextglob        \ton\n",
    }
    extglob_set_on_one_line_works_on_the_next {
        "shopt -s extglob\nx=aab; echo ${x##+(a)}" => "b\n",
    }
    // Promise: In bash: one interactive shell with job control, its variables, functions, traps, jobs and open descriptors.
    traps_persist_and_fire {
        "trap 'echo got usr1' USR1; trap 'echo err $?' ERR; trap 'echo bye' EXIT" => "",
        "kill -USR1 $$; (exit 7); echo on" => "got usr1\nerr 7\non\n",
        "trap -p" => "trap -- 'echo bye' EXIT\ntrap -- 'echo got usr1' SIGUSR1\ntrap -- 'echo err $?' ERR\n",
    }
    last_status_and_pipe_status_persist {
        "(exit 42)" => "",
        "echo $?" => "42\n",
        "(exit 3) | true | (exit 5)" => "",
        "echo $? ${PIPESTATUS[@]}" => "5 3 0 5\n",
        "false | true" => "",
        "echo ${PIPESTATUS[*]} $?" => "1 0 0\n",
        "for i in 1; do (exit 4) | (exit 0); done" => "",
        "echo ${PIPESTATUS[@]}" => "4 0\n",
        "cat <<E | (cat >/dev/null; exit 1)\ntext\nE" => "",
        "echo ${PIPESTATUS[@]}" => "0 1\n",
        "! true" => "",
        "echo $?" => "1\n",
        "set -o pipefail; false | true" => "",
        "echo $?" => "1\n",
        // A status that is put back is no failure.
        "set -e; ! true" => "",
        "echo $?; set +e" => "1\n",
    }
    // Promise: In bash: one interactive shell with job control, its variables, functions, traps, jobs and open descriptors.
    open_descriptors_persist {
        "printf '1\\n2\\n3\\n' >in; exec 3<in 10>out {dyn}>dyn; read -u 3 a" => "",
        "read -u 3 b; echo $a $b; echo ten >&10; echo dyn >&$dyn; cat out dyn" => "1 2\nten\ndyn\n",
        "exec <in; read x" => "",
        "read y; echo $x $y; [ -t 0 ] || echo no terminal" => "1 2\nno terminal\n",
        "exec 0<&-" => "",
        "[ -e /proc/self/fd/0 ] || echo closed" => "closed\n",
        "exec </dev/tty" => "",
        "[ -t 0 ] && tty | grep -c pts" => "1\n",
    }
}

#[test]
fn working_directory_and_umask_persist() {
    let mut worker = Worker::bash();
    worker.output("mkdir -p 'a b/c'; cd 'a b/c'; umask 027");
    assert_eq!(
        worker.output("pwd; umask; cd - >/dev/null; basename \"$PWD\""),
        format!("{}/a b/c\n0027\nrlm_fs\n", worker.fs_root().display())
    );
}

// Promise: In bash: one interactive shell with job control, its variables, functions, traps, jobs and open descriptors.
#[test]
fn jobs_persist() {
    let mut worker = Worker::bash();
    worker.output("mkfifo gate; cat gate >got & job=$!");
    assert_eq!(worker.output("jobs"), "[1]+  Running                 cat gate > got &\n");
    assert_eq!(
        worker.output("echo through >gate; wait $job; echo $?; cat got"),
        "[1]+  Done                    cat gate > got\n0\nthrough\n"
    );
    worker.output("(exit 9) & job=$!");
    assert_eq!(worker.output("wait $job; echo $? $((job == $!))").lines().last().unwrap_or(""), "9 1");
    let cat = worker.output("cat gate & echo $!").lines().last().unwrap().to_owned();
    worker.send_call("fg", serde_json::json!({}));
    rlm_tests::wait_until("the job is in the foreground", || {
        let stat = std::fs::read_to_string(format!("/proc/{cat}/stat")).unwrap();
        let fields: Vec<&str> = stat.split(' ').collect();
        // Process group, and the terminal's foreground group.
        fields[4] == fields[7]
    });
    std::fs::write(worker.fs_root().join("gate"), "front\n").unwrap();
    assert_eq!(worker.receive().stdout, "cat gate\nfront\n");
}

#[test]
fn last_background_pid_persists() {
    let mut worker = Worker::bash();
    let printed = worker.output("true & echo $!");
    let pid = printed.lines().nth(1).unwrap().to_owned();
    assert!(worker.output("echo $!").lines().any(|line| line == pid));
}

#[test]
fn nothing_of_the_driver_is_open_or_set() {
    let mut worker = Worker::bash();
    assert_eq!(
        worker.output(
            "for fd in /proc/$$/fd/*; do [[ -e $fd ]] && echo ${fd##*/}; done; unset fd; declare -F; alias; compgen -A function"
        ),
        "0\n1\n2\n255\n"
    );
    assert_eq!(worker.output("echo $_"), "\n");
    worker.output("x=1; f() { :; }");
    let seen = worker.output("set; declare -p; declare -f; compgen -v; env; export -p; trap; history; jobs; shopt -p; set -o; dirs; hash 2>&1");
    assert!(!seen.contains("__rlm"), "{seen}");
    assert!(!seen.contains("/proc/"), "{seen}");
}

#[test]
fn a_thousand_calls_leave_no_descriptor_open() {
    let mut worker = Worker::bash();
    let count = |worker: &Worker| [worker.server(), worker.interpreter()].map(rlm_tests::open_descriptors);
    worker.output(":");
    rlm_tests::wait_until("the shell is idle", || rlm_tests::open_descriptors(worker.interpreter()) == 4);
    let before = count(&worker);
    for call in 0..1000 {
        assert_eq!(worker.output(&format!("echo {call}")), format!("{call}\n"));
    }
    // The shell may still be closing files of its last report.
    rlm_tests::wait_until("there are no more descriptors than before", || {
        count(&worker).iter().zip(before).all(|(now, before)| *now <= before)
    });
}
