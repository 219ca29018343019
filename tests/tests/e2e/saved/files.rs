//! The file of a saved session.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{Outcome, State};
use rlm_core::saved::{self, STATE, Saved};
use rlm_tests::{Worker, set_soft_limit, wait_until};
use serde_json::json;

use super::{ask_for, load_is_refused, place, save};
use crate::languages::{Language, in_both_languages};

in_both_languages!(
    a_file_that_is_not_whole_is_refused,
    the_old_file_stays_if_a_new_one_cannot_be_written,
    a_worker_that_is_killed_half_way_leaves_the_old_file,
);

fn saved_session(language: Language, file: &Path) -> Worker {
    let mut worker = language.start();
    worker.call(language.pick("x=1", "x = 1"));
    save(&worker, file);
    worker
}

fn a_file_that_is_not_whole_is_refused(language: Language) {
    let (dir, file) = place();
    saved_session(language, &file).end();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = fs::read(&file).unwrap();
    let other = dir.path().join("other");
    saved_session(language.pick(Language::Python, Language::Bash), &other).end();
    let mut worker = language.start();
    worker.call(language.pick("mine=2; sleep 1000 &", "mine = 2"));
    let file_with = |bytes: &[u8]| fs::write(&file, bytes).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    let mut state = whole.clone();
    let header_end = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0;
    state[header_end + 5] ^= 1;
    for (bytes, fault) in [
        (&whole[..whole.len() - 1], "is damaged: it has "),
        (&whole[..40], "is damaged: its first line"),
        (&whole[..0], "is not a saved session"),
        (b"text", "is not a saved session"),
        (&changed, "is damaged: its part `history` does not have the digest"),
        (&state, "is damaged: its part `state` does not have the digest"),
        (b"rlm-saved-session 7 and more\n", "has version 7 of the format, and this program reads version 1"),
    ] {
        file_with(bytes);
        load_is_refused(&worker, &file, fault);
    }
    let language_name = language.pick("python", "bash");
    load_is_refused(&worker, &other, &format!("it is a {language_name} session"));
    load_is_refused(&worker, &dir.path().join("nothing"), "No such file or directory");
    load_is_refused(&worker, dir.path(), "is not a saved session");
    // A file that is whole, with a state that is none.
    file_with(&whole);
    let header = Saved::open(&file).unwrap().header().clone();
    let mut junk = tempfile::tempfile().unwrap();
    junk.write_all(b"junk").unwrap();
    saved::write(&file, header, &[(STATE, &junk, 0..4)]).unwrap();
    load_is_refused(&worker, &file, "this session is as it was");
    assert_eq!(
        worker
            .output(language.pick("echo $mine; jobs -r | wc -l", "print(mine, 'x' in globals(), sep='\\n')")),
        language.pick("2\n1\n", "2\nFalse\n")
    );
}

fn the_old_file_stays_if_a_new_one_cannot_be_written(language: Language) {
    let (dir, file) = place();
    let mut worker = saved_session(language, &file);
    let old = fs::read(&file).unwrap();
    worker.call(language.pick("big=$(printf '%0100000d' 7)", "big = list(range(100000))"));
    set_soft_limit(worker.server(), libc::RLIMIT_FSIZE, 15_000);
    let response = ask_for(&worker, "save", &file);
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept), "{response:?}");
    let hint = response.hint.unwrap();
    assert!(hint.contains("File too large"), "{hint}");
    set_soft_limit(worker.server(), libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
    assert_eq!(fs::read(&file).unwrap(), old);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a part of the new file is left");
    let response = ask_for(&worker, "save", &dir.path().join("nowhere/session"));
    assert!(response.hint.unwrap().contains("No such file or directory"));
    save(&worker, &file);
    assert_ne!(fs::read(&file).unwrap(), old);
}

fn a_worker_that_is_killed_half_way_leaves_the_old_file(language: Language) {
    let (_dir, file) = place();
    let mut worker = saved_session(language, &file);
    let old = fs::read(&file).unwrap();
    worker.call(language.pick("big=$(printf '%030000000d' 7)", "big = bytes(30_000_000)"));
    worker.send(json!({"op": "save", "file": file, "seq": 9}).to_string().as_bytes());
    wait_until("the new file is being written", || {
        file.with_extension("new").exists() || fs::read(&file).is_ok_and(|bytes| bytes != old)
    });
    kill(worker.server(), Signal::SIGKILL).unwrap();
    worker.wait();
    worker.assert_nothing_left();
    let now = fs::read(&file).unwrap();
    assert!(now == old || Saved::open(&file).unwrap().check().is_ok());
    let mut next = language.start();
    let _left = File::open(file.with_extension("new"));
    super::load(&next, &file);
    assert_eq!(next.output(language.pick("echo $x", "print(x)")), "1\n");
    save(&next, &file);
    assert!(!file.with_extension("new").exists());
}
