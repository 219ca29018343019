//! `rlm repl` at a terminal.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;

use portable_pty::{Child, MasterPty, PtySize, native_pty_system};
use rlm_tests::{Place, wait_until};

use crate::pty::{Screen, at_pty};

const BASH: &[&str] = &[];
const PYTHON: &[&str] = &["--python"];

/// The command at a terminal of its own.
struct Repl<'a> {
    place: &'a Place,
    child: Box<dyn Child + Send + Sync>,
    terminal: Box<dyn MasterPty + Send>,
    input: Option<Box<dyn Write + Send>>,
    screen: Screen,
    /// The text on the terminal before the first prompt.
    banner: String,
}

impl<'a> Repl<'a> {
    /// Starts it, and waits for its first prompt.
    fn start(place: &'a Place, arguments: &[&str]) -> Self {
        let terminal = native_pty_system().openpty(size(80)).unwrap();
        let command = at_pty(place, &place.rlm(&[&["repl"], arguments].concat()));
        let child = terminal.slave.spawn_command(command).unwrap();
        let input = Some(terminal.master.take_writer().unwrap());
        let screen = Screen::new(&*terminal.master);
        let banner = String::new();
        let mut repl = Self { place, child, terminal: terminal.master, input, screen, banner };
        repl.banner = repl.expect("> ");
        repl.screen.shown.insert_str(0, "> ");
        repl
    }

    /// Types a text, in one write.
    fn send(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Reads until the terminal shows a text. Returns what came before it.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        self.screen.expect(text)
    }

    /// Types a text, and reads until the terminal shows another. Returns what came before it.
    #[track_caller]
    fn ask(&mut self, typed: &str, shown: &str) -> String {
        self.send(typed);
        self.expect(shown)
    }

    /// Waits for the prompt, leaves by Ctrl-D, and checks that nothing is left. Returns the rest of what the terminal showed.
    #[track_caller]
    fn leave(mut self) -> String {
        // The terminal itself would take a Ctrl-D that comes before.
        let mut rest = self.expect("> ");
        self.send("\x04");
        while self.screen.read() {}
        assert!(self.child.wait().unwrap().success());
        self.place.assert_nothing_left();
        rest += &self.screen.shown;
        rest
    }
}

fn size(cols: u16) -> PtySize {
    PtySize { rows: 24, cols, pixel_width: 0, pixel_height: 0 }
}

#[test]
fn the_first_line_says_what_runs_where_and_how_to_leave() {
    for (arguments, language) in [(BASH, "bash "), (PYTHON, "python 3.")] {
        let place = Place::new();
        let repl = Repl::start(&place, arguments);
        let dir = place.path("work").canonicalize().unwrap();
        let place_and_keys = format!(" in {}; Ctrl-C stops a call, Ctrl-D leaves\r\n", dir.display());
        assert!(
            repl.banner.starts_with(language) && repl.banner.contains(&place_and_keys),
            "{}",
            repl.banner
        );
        repl.leave();
    }
}

#[test]
fn code_that_would_leave_another_shell_tells_how_to_leave_this_one() {
    for (arguments, exit) in [(BASH, "exit"), (PYTHON, "quit()")] {
        let place = Place::new();
        let mut repl = Repl::start(&place, arguments);
        repl.ask(&format!("{exit}\r"), "rlm: the call ");
        repl.expect("; Ctrl-D leaves\r\n");
        repl.leave();
    }
}

#[test]
fn lines_typed_ahead_all_run() {
    for (arguments, lines) in [
        (BASH, "echo $((1))a\recho $((2))b\recho $((3))c\r"),
        (PYTHON, "print(1, 'a', sep='')\rprint(2, 'b', sep='')\rprint(3, 'c', sep='')\r"),
    ] {
        let place = Place::new();
        let mut repl = Repl::start(&place, arguments);
        repl.send(lines);
        for output in ["\n1a\r\n", "\n2b\r\n", "\n3c\r\n"] {
            repl.expect(output);
        }
        repl.leave();
    }
}

#[test]
fn a_paste_without_brackets_runs_behind_its_blank_lines_and_shows_marks() {
    let place = Place::new();
    let mut repl = Repl::start(&place, PYTHON);
    repl.send(
        "def g(n):\r    s = n\r    return s * 2\r\rg(4)\rfor i in range(2):\r    print('i', i)\r\r6 * 7\r",
    );
    for shown in ["    ... ", "    ... ", "\n8\r\n", "    ... ", "\ni 0\r\ni 1\r\n", "\n42\r\n"] {
        repl.expect(shown);
    }
    repl.leave();

    let mut repl = Repl::start(&place, BASH);
    repl.send("for i in 1 2; do\recho $i$i\rdone\recho 'a\rb' $((6 * 7))\r");
    for shown in ["    > ", "    > ", "\n11\r\n22\r\n", "    > ", "\na\r\nb 42\r\n"] {
        repl.expect(shown);
    }
    repl.leave();
}

#[test]
fn a_bracketed_paste_is_one_call() {
    let place = Place::new();
    let mut repl = Repl::start(&place, PYTHON);
    repl.ask("\x1b[200~def g(n):\n    s = n\n\n    return s * 2\ng(21)\x1b[201~\r", "\n42\r\n");
    repl.leave();
}

#[test]
fn ten_thousand_pasted_lines_all_run_in_order() {
    let count = rlm_tests::scaled(10_000, 1_000);
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    let paste: String = (0..count).map(|number| format!("echo {number} >>log\r")).collect();
    let mut input = repl.input.take().unwrap();
    // The terminal takes no more than it shows.
    let typing = std::thread::spawn(move || {
        input.write_all(paste.as_bytes()).unwrap();
        input.write_all(b"echo all $((6 * 7))\r").unwrap();
        input
    });
    repl.expect("\nall 42\r\n");
    repl.input = Some(typing.join().unwrap());
    let expected: String = (0..count).map(|number| format!("{number}\n")).collect();
    assert!(place.read("log") == expected, "lines are lost or out of order");
    repl.leave();
}

#[test]
fn hundreds_of_pasted_lines_all_run_in_python() {
    let place = Place::new();
    let mut repl = Repl::start(&place, PYTHON);
    let paste: String = (0..500).map(|number| format!("seen.append({number})\r")).collect();
    repl.send("seen = []\r");
    repl.send(&paste);
    repl.ask("seen == list(range(500)), len(seen)\r", "\n(True, 500)\r\n");
    repl.leave();
}

#[test]
fn ctrl_c_clears_a_line_and_stops_a_call() {
    for (arguments, block, long, check) in [
        (BASH, "if true; then\r", "x=7; : >started; sleep 1000\r", "echo $((x * 6))\r"),
        (PYTHON, "def f():\r", "x = 7; import time; open('started', 'w'); time.sleep(1000)\r", "x * 6\r"),
    ] {
        let place = Place::new();
        let mut repl = Repl::start(&place, arguments);
        repl.ask("never typed to the end", "the end");
        repl.ask(&format!("\x03{block}"), "    ");
        repl.send(&format!("\x03{long}"));
        wait_until("the call runs", || place.file("started").exists());
        repl.ask("\x03", "was interrupted");
        repl.ask(check, "\n42\r\n");
        repl.leave();
    }
}

#[test]
fn ctrl_c_leaves_the_beginning_and_the_end_of_a_long_output() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    // More than the FIFO takes: nobody reads the terminal until all of it is printed.
    repl.send("echo first$((1 + 1)); seq 1000000; : >started; sleep 1000\r");
    wait_until("the call runs", || place.file("started").exists());
    repl.send("\x03");
    let shown = repl.expect("was interrupted");
    assert!(shown.contains("first2\r\n1\r\n2\r\n"), "{shown}");
    assert!(shown.contains(" left out …\r\n") && shown.contains("\r\n1000000\r\n"));
    // The output on its way to the terminal, at most the FIFO's 1 MiB, and the shortened rest of 6.9 MB.
    assert!(shown.len() < 2_000_000, "{} bytes", shown.len());
    repl.ask("echo $((6 * 7))\r", "\n42\r\n");
    repl.leave();
}

#[test]
fn ctrl_c_clears_all_lines_of_code_that_continues() {
    for (arguments, block, check) in [
        (BASH, "if true; then\recho no$((1 + 1))\r", "echo $((6 * 7))\r"),
        (PYTHON, "if True:\r    print('no' + str(1 + 1))\r", "6 * 7\r"),
    ] {
        let place = Place::new();
        let mut repl = Repl::start(&place, arguments);
        repl.send(block);
        for _line in block.matches('\r') {
            // The editor turns bracketed paste on when it begins to edit a line.
            repl.expect("\x1b[?2004h");
        }
        repl.ask("half a line", "half a line");
        assert!(!repl.ask(&format!("\x03{check}"), "\n42\r\n").contains("no2"));
        repl.leave();
    }
}

#[test]
fn ctrl_c_before_the_first_call_ends_nothing() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(repl.child.process_id().unwrap()).unwrap()),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    repl.ask("echo $((6 * 7))\r", "\n42\r\n");
    repl.leave();
}

#[test]
fn a_call_outlives_a_change_of_the_windows_size() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    repl.send("x=6; : >started; until [ -e go ]; do read -t 0.01 < <(sleep 9); done; echo $((x * 7))\r");
    wait_until("the call runs", || place.file("started").exists());
    repl.terminal.resize(size(20)).unwrap();
    place.write("go", "");
    repl.expect("\n42\r\n");
    repl.ask("echo a line that is wider than the window $((6 * 7))\r", "window 42\r\n");
    repl.leave();
}

#[test]
fn characters_of_several_code_points_are_typed_and_pasted_whole() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    let text = "e\u{301} 日本 👩\u{200d}👧 ❤\u{fe0f}";
    repl.ask(&format!("echo '{text}' >typed; echo $((6 * 7))\r"), "\n42\r\n");
    repl.ask(&format!("\x1b[200~echo '{text}' >pasted; echo $((6 * 8))\x1b[201~\r"), "\n48\r\n");
    assert_eq!(place.read("typed"), format!("{text}\n"));
    assert_eq!(place.read("pasted"), format!("{text}\n"));
    repl.leave();
}

#[test]
fn ctrl_c_drops_what_was_typed_ahead_of_it_and_nothing_behind() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    repl.send(": >started; sleep 1000\recho late$((1 + 1))\r");
    wait_until("the call runs", || place.file("started").exists());
    assert!(!repl.ask("\x03echo $((6 * 7))\r", "\n42\r\n").contains("late2"));
    repl.leave();
}

#[test]
fn a_line_outlives_a_change_of_the_windows_size() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    repl.ask("echo a line that is wider than the window $((6 ", "$((6 ");
    repl.terminal.resize(size(20)).unwrap();
    repl.ask("* 7))\r", "window 42\r\n");
    repl.leave();
}

#[test]
fn characters_of_several_bytes_are_typed_and_erased_as_one() {
    let place = Place::new();
    let mut repl = Repl::start(&place, BASH);
    repl.ask("echo 'äé\x7f日本語\x7f😀' >out; echo $((6 * 7))\r", "\n42\r\n");
    assert_eq!(place.read("out"), "ä日本😀\n");
    repl.leave();
}

#[test]
fn tab_completes_what_the_shell_has() {
    let place = Place::new();
    place.write("a file.txt", "forty-two\n");
    fs::create_dir(place.file("subdirectory")).unwrap();
    let mut repl = Repl::start(&place, BASH);
    repl.send(
        "say_hello() { echo \"hello $1\"; }; alias greeting=say_hello; my_long_variable=$((6 * 7)); false\r",
    );
    repl.ask("echo $? $my_lo\t\r", "\n1 42\r\n");
    repl.ask("say_h\t there\r", "\nhello there\r\n");
    repl.ask("greet\t you\r", "\nhello you\r\n");
    repl.ask("cat a\t\r", "\nforty-two\r\n");
    repl.ask("cd subdir\t; echo ${PWD##*/}$((6 * 7))\r", "\nsubdirectory42\r\n");
    repl.ask("if true; then\r", "    > ");
    repl.ask("say_h\t block; fi\r", "\nhello block\r\n");
    repl.leave();
}

#[test]
fn tab_completes_what_the_interpreter_has_and_runs_no_property() {
    let place = Place::new();
    let mut repl = Repl::start(&place, PYTHON);
    let class = "class Careful:\r    attribute_of_it = 6 * 7\r    @property\r    def trap(self):\r        print('sprung')\r\r";
    repl.send(class);
    repl.ask("my_long_name = Careful(); import os.path; 6 * 8\r", "\n48\r\n");
    repl.expect("> ");
    repl.ask("my_lo\t.attri\t\r", "\n42\r\n");
    repl.expect("> ");
    assert!(
        !repl
            .ask("my_long_name.trap.\t\x15os.path.isab\t('/'), 6 * 7\r", "\n(True, 42)\r\n")
            .contains("sprung")
    );
    repl.ask("if True:\r", "    ... ");
    repl.ask("\tprint('indented', 6 * 7)\r\r", "\nindented 42\r\n");
    repl.send("1 / 0\r");
    // Completion is not a cell.
    repl.expect("<cell 6>");
    repl.expect("ZeroDivisionError: division by zero\r\n");
    assert!(!repl.leave().contains("rlm:"), "a traceback says enough");
}

#[test]
fn a_completion_that_hangs_is_stopped() {
    let place = Place::new();
    let mut repl = Repl::start(&place, PYTHON);
    repl.send("class Endless:\r    def __dir__(self):\r        while True: pass\r\r");
    repl.ask("endless = Endless(); 'defined'\r", "\n'defined'\r\n");
    repl.expect("> ");
    repl.ask("endless.\t\x156 * 7\r", "\n42\r\n");
    repl.leave();
}

#[test]
fn each_language_has_a_history_for_the_next_start() {
    let place = Place::new();
    for (arguments, code) in [(BASH, "echo $((6 * 7))"), (PYTHON, "6 * 7")] {
        let mut repl = Repl::start(&place, arguments);
        repl.ask(&format!("{code}\r"), "\n42\r\n");
        repl.leave();
    }
    for arguments in [BASH, PYTHON] {
        let mut repl = Repl::start(&place, arguments);
        repl.ask("\x1b[A\r", "\n42\r\n");
        repl.leave();
    }
    for language in ["bash", "python"] {
        let file = place.path("home").join(".local/state/rlm").join(format!("history-{language}"));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_code_can_call_the_tools_of_a_file() {
    let place = Place::new();
    rlm_tests::write_program(&place.file("say.sh"), "#!/bin/sh\ncat\n");
    let tool = "[[tool]]\nname = 'say'\ndescription = 'Gives it back.'\ncommand = ['./say.sh']\n";
    place.write("tools.toml", tool);
    for (arguments, call) in [(BASH, "say a$((6 * 7))\r"), (PYTHON, "str(say('a' + str(6 * 7)))\r")] {
        let mut repl = Repl::start(&place, &[arguments, &["--tools", "tools.toml"]].concat());
        repl.ask(call, "a42");
        repl.leave();
    }
}
