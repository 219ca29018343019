//! `rlm view`: trajectories, for people.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rlm_tests::{program, signal, wait_until};

const EXAMPLE: &str = include_str!("../../../docs/trajectory-example.jsonl");

/// A file in a directory of its own.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    fs::write(&path, content).unwrap();
    (dir, path)
}

fn rlm(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("rlm"));
    command.arg("view").args(arguments).stdin(Stdio::null());
    for variable in ["PAGER", "LESS", "NO_COLOR", "COLUMNS"] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm");
    command
}

fn view(path: &Path, more: &[&str]) -> Output {
    rlm(&[&[path.to_str().unwrap()], more].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_trajectory_is_printed_as_a_tree_without_colours_where_there_is_no_terminal() {
    let (_dir, path) = file(EXAMPLE);
    let shown = view(&path, &[]);
    assert_eq!((text(&shown.stderr), shown.status.code()), ("", Some(0)));
    let tree = text(&shown.stdout);
    assert!(
        tree.starts_with(
            "rollout letters-1 · answered · 3 turns · 5.4 s · 3,433 (1,792 cached) + 214 tokens"
        ),
        "{tree}"
    );
    assert!(tree.contains("\n│  call_bash_repl · 33 ms\n│  ▏ ls -l; head"), "{tree}");
    assert!(!tree.contains('\u{1b}'));
}

#[test]
fn prompts_that_do_not_begin_with_the_one_before_are_named() {
    let (_dir, path) = file(EXAMPLE);
    let checked = view(&path, &["--check-prefixes"]);
    let words = "3 turns, 2 of 2 prompts begin with the one before (by messages)\n";
    let whole = format!("letters-1: {words}{}", words.replace("3 turns,", "1 rollout, 3 turns:"));
    assert_eq!((text(&checked.stdout), checked.status.code()), (&*whole, Some(0)));
    let full = view(&path, &["--check-prefixes", "--full"]);
    assert!(text(&full.stdout).contains("\n  turn 3: begins with the one before, by messages\n"), "{full:?}");
    // The ids of tokens, as vLLM gives them; at the third turn, the template has left something out.
    let ids = [("[1,2]", "[3]"), ("[1,2,3,4]", "[5]"), ("[1,2,4,5,6]", "[7]")];
    let mut ids = ids.iter();
    let with_ids = EXAMPLE.lines().map(|line| match line.contains("\"event\":\"model_call\"") {
        true => {
            let (prompt, reply) = ids.next().unwrap();
            let extra = format!("\"extra\":{{\"prompt_token_ids\":{prompt},\"token_ids\":{reply}}}");
            line.replace("\"extra\":null", &extra) + "\n"
        }
        false => format!("{line}\n"),
    });
    fs::write(&path, with_ids.collect::<String>()).unwrap();
    let checked = view(&path, &["--check-prefixes", "--rollout", "letters-1"]);
    assert_eq!((text(&checked.stderr), checked.status.code()), ("", Some(1)));
    let words = "letters-1: 3 turns, 1 of 2 prompts begin with the one before (by tokens)\n  turn 3: token 2 is 4, and was 3\n";
    assert!(text(&checked.stdout).starts_with(words), "{checked:?}");
    fs::write(&path, "{\"type\": \"metadata\"}\n").unwrap();
    let refused = view(&path, &["--check-prefixes"]);
    assert_eq!((text(&refused.stdout), refused.status.code()), ("", Some(2)));
    assert!(text(&refused.stderr).contains("a log of RLMLogger does not have what was sent"), "{refused:?}");
    assert_eq!(view(&path, &["--check-prefixes", "--follow"]).status.code(), Some(2));
}

#[test]
fn standard_input_is_read_for_a_dash() {
    let (_dir, path) = file(EXAMPLE);
    let shown = rlm(&["-"]).stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(shown.stdout, view(&path, &[]).stdout);
}

#[test]
fn a_truncated_file_is_shown_with_a_warning() {
    let (_dir, path) = file(&EXAMPLE[..EXAMPLE.len() - 10]);
    let shown = view(&path, &[]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stdout).ends_with("└─ no end: it runs, or its host was killed\n"));
    let remark = text(&shown.stderr);
    assert!(remark.contains("run.jsonl: line 24 is cut off after "), "{remark}");
}

#[test]
fn invalid_files_are_named() {
    let (_dir, path) = file(&format!("{EXAMPLE}nonsense\n{EXAMPLE}"));
    let refusal = |path: &Path, more: &[&str]| {
        let refused = view(path, more);
        assert_eq!((text(&refused.stdout), refused.status.code()), ("", Some(3)));
        text(&refused.stderr).replace(path.to_str().unwrap(), "FILE")
    };
    assert_eq!(
        refusal(&path, &[]),
        "rlm: FILE: line 25 is not an entry of a trajectory: expected ident at column 2\n"
    );
    fs::write(&path, EXAMPLE).unwrap();
    assert_eq!(refusal(&path, &["--rollout", "x"]), "rlm: FILE: no rollout `x`: the file has letters-1\n");
    assert_eq!(refusal(&path.join("deeper"), &[]), "rlm: FILE: Not a directory (os error 20)\n");
    let page = path.with_file_name("missing").join("page.html");
    let error = refusal(&path, &["--html", page.to_str().unwrap()]);
    assert!(error.contains("cannot write") && error.contains("missing/page.html"), "{error}");
}

#[test]
fn a_page_takes_the_place_of_another_in_one_piece() {
    let (dir, path) = file(EXAMPLE);
    let page = dir.path().join("page.html");
    fs::write(&page, "old").unwrap();
    let mut old = File::open(&page).unwrap();
    let written = view(&path, &["--html", page.to_str().unwrap()]);
    assert_eq!((text(&written.stdout), text(&written.stderr), written.status.code()), ("", "", Some(0)));
    let mut kept = String::new();
    old.read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "old", "who has the old page open reads it to its end");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!doctype html>\n") && html.ends_with("</html>\n"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left in the directory");
    let printed = view(&path, &["--html", "-"]);
    assert_eq!(text(&printed.stdout), html);
}

#[test]
fn a_page_goes_where_a_link_leads_and_into_a_fifo() {
    let (dir, path) = file(EXAMPLE);
    let (page, link, fifo) = (dir.path().join("page.html"), dir.path().join("link"), dir.path().join("fifo"));
    fs::write(&page, "old").unwrap();
    symlink(&page, &link).unwrap();
    assert!(view(&path, &["--html", link.to_str().unwrap()]).status.success());
    assert!(link.is_symlink());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.ends_with("</html>\n"));
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let mut child = rlm(&[path.to_str().unwrap(), "--html", fifo.to_str().unwrap()]).spawn().unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), html);
    assert!(child.wait().unwrap().success());
    assert!(fifo.metadata().unwrap().file_type().is_fifo());
    // A private page stays one, a link may lead to what is not there yet, and a trajectory is no page.
    fs::set_permissions(&page, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(view(&path, &["--html", link.to_str().unwrap()]).status.success());
    assert_eq!(page.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&page).unwrap();
    assert!(view(&path, &["--html", link.to_str().unwrap()]).status.success());
    assert!(link.is_symlink() && page.is_file());
    let input = || File::open(&path).unwrap();
    for file in [path.as_path(), "-".as_ref()] {
        let same = [file.to_str().unwrap(), "--html", path.to_str().unwrap()];
        let refused = rlm(&same).stdin(input()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), EXAMPLE);
    }
}

#[test]
fn nothing_is_left_of_a_page_that_is_given_up() {
    let entry = EXAMPLE.lines().find(|line| line.contains("\"event\":\"call_ended\"")).unwrap();
    let large = entry.replace("\"stdout\":\"", &format!("\"stdout\":\"{}", "<".repeat(1 << 20)));
    assert_ne!(large, entry);
    let (dir, path) = file(&format!("{large}\n").repeat(60));
    let page = dir.path().join("page.html");
    let mut child =
        rlm(&[path.to_str().unwrap(), "--full", "--html", page.to_str().unwrap()]).spawn().unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().count();
    wait_until("a part of the page is written", || files() > 1);
    signal(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(), 1);
}

#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    // More than a pipe holds.
    let (_dir, path) = file(&EXAMPLE.repeat(200));
    let mut child = rlm(&[path.to_str().unwrap(), "--full"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((text(&ended.stderr), ended.status.code()), ("", Some(0)));
}

/// The output on a terminal, and the input of the pager, which is a program that writes it to a file.
fn on_a_terminal(environment: &[(&str, &str)], more: &[&str]) -> (String, Option<String>) {
    let (dir, path) = file(EXAMPLE);
    let paged = dir.path().join("paged");
    let terminal = openpty(None, None).unwrap();
    let mut command = rlm(&[&[path.to_str().unwrap()], more].concat());
    command.env("PAGER", format!("cat > {}; printf %s \"$LESS\" >> {0}", paged.display()));
    command.envs(environment.iter().copied());
    let mut child = command.stdout(terminal.slave).stderr(Stdio::null()).spawn().unwrap();
    // The command holds the other end of the terminal.
    drop(command);
    let mut printed = Vec::new();
    let mut master = File::from(terminal.master);
    let mut piece = [0; 4096];
    // EIO: nobody has the terminal open any more.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        printed.write_all(&piece[..count]).unwrap();
    }
    assert!(child.wait().unwrap().success());
    (String::from_utf8(printed).unwrap(), fs::read_to_string(paged).ok())
}

#[test]
fn on_a_terminal_there_are_colours_and_a_pager() {
    let (printed, paged) = on_a_terminal(&[], &[]);
    let paged = paged.unwrap();
    assert_eq!(printed, "");
    assert!(paged.contains("\u{1b}[36mls -l;") && paged.ends_with("FRX"), "{paged}");

    let (_, paged) = on_a_terminal(&[("LESS", "-i"), ("NO_COLOR", "1")], &[]);
    let paged = paged.unwrap();
    assert!(!paged.contains('\u{1b}') && paged.ends_with("-i"), "{paged}");

    let (printed, paged) = on_a_terminal(&[], &["--no-pager"]);
    assert_eq!(paged, None);
    assert!(printed.contains("\u{1b}[36mls -l;"), "{printed}");
}

#[test]
fn where_the_pager_cannot_be_found_the_tree_is_printed() {
    let (printed, paged) = on_a_terminal(&[("PAGER", "no-such-pager-anywhere")], &[]);
    assert_eq!(paged, None);
    assert!(printed.contains("\u{1b}[36mls -l;"), "{printed}");
}
