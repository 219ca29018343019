//! The user may do anything to the shell: the session goes on, and its output contains no trace of the driver.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;

use crate::languages::{calls, sessions};

sessions! { Bash:
    strict_options_of_every_kind {
        "set -eu -o pipefail -o noclobber -o posix" => "",
        "echo $-" => "ehimuBCs\n",
        "if false; then :; fi; false || echo handled" => "handled\n",
        "echo ${unset-none}; echo x >f; cat f" => "none\nx\n",
        "set +eu; echo $?" => "0\n",
    }
    xtrace_shows_the_users_commands_and_no_others {
        "set -x; echo one" => "+++ echo one\none\n",
        "echo two" => "+++ echo two\ntwo\n",
        "false" => "+++ false\n",
        "true | true" => "+++ true\n+++ true\n",
        "set +x" => "+++ set +x\n",
        "echo off" => "off\n",
    }
    verbose_shows_the_users_lines_and_no_others {
        "set -v" => "",
        "echo one\necho two" => "echo one\none\necho two\ntwo\n",
        "echo \"open" => "echo \"open\nbash: unexpected EOF while looking for matching `\"'\n",
        "set +v" => "set +v\n",
        "echo off" => "off\n",
    }
    a_debug_trap_sees_the_users_commands {
        "trap 'echo \"<$BASH_COMMAND>\"' DEBUG" => "",
        "echo one" => "<echo one>\none\n",
        "false" => "<false>\n",
        "echo $?" => "<echo $?>\n1\n",
        "trap - DEBUG" => "<trap - DEBUG>\n",
        "echo off" => "off\n",
    }
    an_err_trap_fires_once_for_each_failure_of_the_users {
        "trap 'echo \"<err $?>\"' ERR; set -E" => "",
        "false" => "<err 1>\n",
        "echo $?" => "1\n",
        "f() { (exit 3); }; f; true" => "<err 3>\n<err 3>\n",
        "set +E; trap - ERR; false" => "",
    }
    return_exit_and_child_traps_keep_to_the_users_code {
        "trap 'echo ret' RETURN; set -T; f() { :; }; f" => "ret\n",
        "f" => "ret\n",
        "trap - RETURN; set +T; f" => "",
        "trap 'echo chld' CHLD; /bin/true" => "chld\n",
        ":" => "",
        "trap - CHLD; trap 'echo bye' EXIT; (exit 0)" => "",
        "( exit 1 ); echo on" => "on\n",
    }
    extdebug_changes_nothing_for_the_driver {
        "shopt -s extdebug; trap 'echo D' DEBUG" => "",
        "echo hi" => "D\nhi\n",
        "trap - DEBUG; shopt -u extdebug" => "D\n",
        "echo off" => "off\n",
    }
    /// Such a trap makes a shell useless for good.
    a_debug_trap_that_refuses_every_command_replaces_the_shell {
        "shopt -s extdebug; trap 'false' DEBUG" => State::Restored,
        "echo again" => "again\n",
    }
    prompts_never_show_and_keep_their_values {
        "PS0='zero ' PS1='one> ' PS2='two> '; PROMPT_COMMAND='echo prompt command'; export PS1" => "",
        "echo \"$PS0|$PS1|$PS2|$PROMPT_COMMAND\"; env | grep PS1" =>
            "zero |one> |two> |echo prompt command\nPS1=one> \n",
        "PROMPT_COMMAND=('echo a' 'echo b'); unset PS0" => "",
        "echo \"${PROMPT_COMMAND[1]} ${#PROMPT_COMMAND[@]} ${PS0-unset}\"" => "echo b 2 unset\n",
        "readonly PS1 PROMPT_COMMAND" => "",
        "echo one" => "one\n",
        "echo two; echo three >&2" => "two\nthree\n",
    }
    readonly_ifs_and_prompts_without_a_value {
        "readonly IFS PS1 PS2" => "",
        "echo a b" => "a b\n",
        "x='1 2'; echo $x" => "1 2\n",
    }
    any_field_separator {
        "IFS=x" => "",
        "v=1x2; echo $v" => "1 2\n",
        "false | true" => "",
        "echo \"${PIPESTATUS[*]}\"" => "1x0\n",
        "IFS=0123456789/_" => "",
        "echo on" => "on\n",
        "(exit 12)" => "",
        "x=$?; [[ $x == 12 ]] && echo yes" => "yes\n",
    }
    a_function_named_builtin_alone_and_gone_again {
        "builtin() { echo mine; }" => "",
        "builtin x" => "mine\n",
        "shopt -u expand_aliases; echo on" => "on\n",
        "shopt expand_aliases; set -o | grep posix" => "expand_aliases \toff\nposix          \toff\n",
        "unset -f builtin; builtin echo real" => "real\n",
        "builtin echo real" => "real\n",
    }
    disabled_builtins_stay_disabled_and_harm_nothing {
        "enable -n printf mapfile trap unset" => "",
        "enable -n" => "enable -n mapfile\nenable -n printf\nenable -n trap\nenable -n unset\n",
        "mapfile x" => "bash: mapfile: command not found\n",
        "enable printf mapfile trap unset; printf 'back\\n'" => "back\n",
        "enable -n" => "",
    }
    output_redirected_for_good {
        "exec >f" => "",
        "echo into f" => "",
        "echo to the terminal >&2; cat f >&2" => "to the terminal\ninto f\n",
        "exec >/dev/tty; echo back" => "back\n",
        "exec 2>&1" => "",
        "nothing_here; echo $?" => "bash: nothing_here: command not found\n127\n",
        "exec >&- 2>&-" => "",
        "echo lost" => "",
        "exec >/dev/tty 2>&1; echo back" => "back\n",
    }
    descriptors_of_every_number {
        "exec 3<>f 10>g 11>h 255>i; echo ten >&10" => "",
        "echo eleven >&11; cat g h" => "ten\neleven\n",
        "exec 10>&- 11>&- 3>&-; echo done" => "done\n",
    }
    stack_and_core_limits {
        "ulimit -s 4096; ulimit -c 0" => "",
        "ulimit -s" => "4096\n",
    }
    locale_and_path {
        "LC_ALL=C" => "",
        "x=é; echo ${#x}" => "2\n",
        "LC_ALL=C.UTF-8; echo ${#x}" => "1\n",
        "PATH=" => "",
        "ls" => "bash: ls: No such file or directory\n",
        "echo builtin works" => "builtin works\n",
        "PATH=/usr/bin:/bin; ls" => "",
    }
    shell_options_that_could_reach_the_driver {
        "shopt -s failglob xpg_echo lastpipe execfail huponexit checkjobs autocd localvar_inherit inherit_errexit" => "",
        "echo 'a\\tb'" => "a\tb\n",
        "echo no*match" => "bash: no match: no*match\n",
        "set -k -h -P -a -B +m; echo on" => "on\n",
        "x=exported; bash -c 'echo $x'" => "exported\n",
        "set -n; echo ignored in interactive shells" => "ignored in interactive shells\n",
        "echo on" => "on\n",
    }
    terminal_settings {
        "stty -echo raw; stty sane -echo -onlcr" => "",
        "echo on" => "on\n",
        "stty size" => "24 80\n",
        "stty tostop olcuc" => "",
        "echo on" => "ON\n",
        "stty -olcuc; echo on" => "on\n",
    }
    a_shell_that_stops_itself_goes_on {
        "kill -STOP $$; echo on" => "on\n",
        "suspend -f; echo on" => "on\n",
    }
    traps_show_nothing_of_the_driver_in_any_call {
        "echo a" => "a\n",
        "trap" => "",
        "trap -p; trap 'echo bye' EXIT" => "",
        "trap -p EXIT" => "trap -- 'echo bye' EXIT\n",
        "trap" => "trap -- 'echo bye' EXIT\n",
    }
    a_history_has_no_line_of_the_driver {
        "set -o history; echo a" => "a\n",
        "fc -l 2>&1 | grep -c rlm" => "0\n",
    }
    stopped_output_flows_again {
        "python3 -c 'import termios; termios.tcflow(1, 0)'; echo on" => "on\n",
        "echo next" => "next\n",
    }
    a_sparse_prompt_command_never_runs {
        "PROMPT_COMMAND=([3]='echo PC')" => "",
        "echo ${PROMPT_COMMAND[3]} ${!PROMPT_COMMAND[@]}" => "echo PC 3\n",
    }
    the_last_argument_is_never_the_drivers {
        "false" => "",
        "echo \"$_\" | grep -c rlm; true" => "0\n",
    }
    prompts_set_by_any_kind_of_assignment {
        "PROMPT_COMMAND+=('echo pc'); PS1+='> '; : ${PS0:=zero}" => "",
        "echo on" => "on\n",
        "echo \"$PS1|$PS0|${PROMPT_COMMAND[0]}\"" => "> |zero|echo pc\n",
    }
}

#[test]
fn functions_named_like_builtins() {
    let names = [
        "printf", "read", "eval", "exec", "test", "[", "trap", "builtin", "command", "set", "unset",
        "declare", "mapfile", "enable", "source", "shopt", "echo", "return", "exit", "cd",
    ];
    let of_each = |text: &dyn Fn(&str) -> String| names.map(text).concat();
    let definitions = of_each(&|name| format!("{name}() {{ /bin/echo \"my {name}\"; }}\n"));
    let uses = of_each(&|name| format!("{name} 1\n"));
    let printed = of_each(&|name| format!("my {name}\n"));
    let mut worker = Worker::bash();
    let session = [
        (&*definitions, ""),
        (&uses, &*printed),
        ("/bin/echo again", "again\n"),
        (&uses, &printed),
        ("/bin/false", ""),
        ("/bin/echo $?", "1\n"),
    ];
    calls(&mut worker, &session);
}

#[test]
fn aliases_named_like_builtins_and_reserved_words() {
    let names =
        ["printf", "read", "eval", "exec", "test", "trap", "builtin", "command", "unset", "mapfile", "set"];
    let mut worker = Worker::bash();
    worker.output(&names.map(|name| format!("alias {name}='echo my-{name}'\n")).concat());
    let session = [
        ("printf x; builtin y", "my-printf x\nmy-builtin y\n"),
        ("echo on", "on\n"),
        ("unalias -a", ""),
        ("builtin echo real", "real\n"),
    ];
    calls(&mut worker, &session);
}

#[test]
fn a_limit_of_file_sizes() {
    let mut worker = Worker::bash();
    worker.output("ulimit -f 0");
    assert_eq!(worker.output("echo terminal"), "terminal\n");
    // The signal for a file at the size limit ends the shell, as it would at a terminal.
    let response = worker.call("echo file >f");
    assert_eq!((response.outcome, response.exit_code), (Outcome::Exited, Some(153)), "{response:?}");
    assert_eq!(worker.output("echo on; echo file >f; cat f"), "on\nfile\n");
}

/// A shell may bear a state for a while before it is replaced.
#[test]
fn states_that_a_shell_may_not_survive_do_not_end_the_session() {
    for changes in [
        // Too few descriptors for the driver.
        &["ulimit -n 4", "echo on", "echo on", "echo on"][..],
        // A restricted shell.
        &["set -r", "echo on"],
        // A shell that wants to leave after one command.
        &["x=1; set -t", "echo x"],
    ] {
        let mut worker = Worker::bash();
        for code in changes {
            worker.call(code);
        }
        assert_eq!(worker.output("cd /; echo $PWD >/dev/null; echo free"), "free\n", "{changes:?}");
    }
}

#[test]
fn a_working_directory_that_is_removed() {
    let mut worker = Worker::bash();
    worker.output("mkdir d; cd d; rmdir ../d");
    assert_eq!(worker.output("echo on"), "on\n");
    assert_eq!(worker.output("cd ..; pwd"), format!("{}\n", worker.fs_root().display()));
    worker.output("mkdir d; cd d; rmdir ../d");
    // A new shell cannot start there, so it starts at the root.
    worker.call("exit");
    assert_eq!(worker.output("pwd"), format!("{}\n", worker.fs_root().display()));
}

#[test]
fn a_time_limit_on_prompts_does_not_end_the_idle_shell() {
    let mut worker = Worker::bash();
    worker.output("TMOUT=1");
    // Longer than the limit: if it applied, the shell would be gone.
    std::thread::sleep(std::time::Duration::from_millis(1300));
    assert_eq!(worker.output("echo $TMOUT"), "1\n");
}

/// This ends bash 5.2 itself, by a bug of its own; its state is restored.
#[test]
fn a_line_editing_mode_does_no_harm() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    let response = worker.call("set -o vi");
    assert!(matches!(response.state, State::Kept | State::Restored), "{response:?}");
    assert_eq!(worker.output("echo $x"), "1\n");
}
