//! Damaged histories and difficult calls.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use rlm_tests::{Place, Setup};

use super::{replay, replays_alike, rlm, run, script_of, seen, session, shown, text};

#[test]
fn calls_of_any_text_and_size_are_replayed_alike() {
    let place = Place::new();
    let large_text = "x'\"\\\n".repeat(200_000);
    let large_bash = format!("x=$(cat <<'END'\n{large_text}\nEND\n); echo ${{#x}}");
    let large_answer = "RLM_CONTENT=$(head -c 200000 /dev/zero | tr '\\0' 'é')";
    let bash = [
        large_bash.as_str(),
        "printf '\\377\\376\\n'",
        "echo \\\\\\\\ '\\' \"\\\\\"",
        "cat <<A; cat <<-B\none\nA\n\ttwo\n\tB",
        "echo $'a\\tb' \"$(cat <<'Q'\nin 'quotes'\nQ\n)\"",
        "echo end # \\",
        "echo \\\n\n",
        "if true; then\n  echo yes\nfi",
        "echo 'END_OF_FILE'\n# '",
        large_answer,
    ];
    let (kept, responses) = session(&place, Setup::bash(), &[], &bash);
    let output = run(&place, &script_of(&place, &kept, &[]));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((printed, text(&output.stderr)), (seen(&responses), ""));
    assert!(output.stdout.len() > 200_000);
    replays_alike(&place, &kept, &[], 10);

    let large_python = format!("x = {:?}; print(len(x))", "y'".repeat(500_000));
    let python = [
        large_python.as_str(),
        "import sys; sys.stdout.buffer.write(b'\\xff\\n') and None",
        "'''a'''; \"\"\"b\"\"\"",
        "print('''\n# %% no call\n''')\n#\\",
        "r'\\\\'",
        "print('a\u{c}b')\r\nprint(2)\rprint(3)",
        "answer['content'] = 'é' * 200_000",
    ];
    let (kept, responses) = session(&place, Setup::python(), &[], &python);
    let script = script_of(&place, &kept, &[]);
    let output = run(&place, &script);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((printed, text(&output.stderr)), (seen(&responses), ""));
    assert!(output.stdout.len() > 400_000);
    replays_alike(&place, &kept, &[], 7);
}

#[test]
fn a_truncated_last_line_gives_a_warning() {
    let place = Place::new();
    let (kept, _) = session(&place, Setup::bash(), &[], &["echo a", "echo b"]);
    let history = kept.join("rlm_history.jsonl");
    let whole = fs::read_to_string(&history).unwrap();
    fs::write(&history, &whole[..whole.len() - 20]).unwrap();
    let written = rlm(&place, &["script", history.to_str().unwrap()]);
    assert_eq!(written.status.code(), Some(0));
    assert!(text(&written.stderr).contains("line 2 is cut off after"), "{written:?}");
    assert_eq!(shown(&run(&place, text(&written.stdout))), ("a\n", "", Some(0)));
    let replayed = replay(&place, &history, &[]);
    assert_eq!((text(&replayed.stdout), replayed.status.code()), ("equal: 1 call\n", Some(0)));
}

#[test]
fn unreadable_input_is_named() {
    let place = Place::new();
    let dir = place.file("control");
    fs::create_dir(&dir).unwrap();
    let history = dir.join("rlm_history.jsonl");
    let refusal = || {
        let refused = rlm(&place, &["script", "control"]);
        assert_eq!((text(&refused.stdout), refused.status.code()), ("", Some(3)), "{refused:?}");
        assert_eq!(replay(&place, &dir, &[]).status.code(), Some(3));
        text(&refused.stderr).to_owned()
    };
    assert!(refusal().starts_with("rlm: control holds neither rlm_history.jsonl nor "), "{}", refusal());
    nix::unistd::mkfifo(&history, Mode::S_IRWXU).unwrap();
    assert_eq!(refusal(), "rlm: control/rlm_history.jsonl is not a regular file\n");
    fs::remove_file(&history).unwrap();
    symlink("/etc/passwd", &history).unwrap();
    assert!(refusal().starts_with("rlm: cannot read control/rlm_history.jsonl: "), "{}", refusal());
    fs::remove_file(&history).unwrap();
    fs::write(&history, "").unwrap();
    assert_eq!(refusal(), "rlm: control/rlm_history.jsonl holds no calls\n");
    fs::write(&history, "{}\n").unwrap();
    let reason = "line 1 is not an entry of a history: missing field `seq` at column 2\n";
    assert!(refusal().ends_with(reason), "{}", refusal());
    let (kept, _) = session(&place, Setup::bash(), &[], &["echo a"]);
    let line = fs::read_to_string(kept.join("rlm_history.jsonl")).unwrap();
    fs::write(&history, format!("{line}{{\"seq\":\n{line}")).unwrap();
    assert!(
        refusal().starts_with("rlm: control/rlm_history.jsonl: line 2 is not an entry of a history: "),
        "{}",
        refusal()
    );
    fs::File::create(&history).unwrap().set_len((256 << 20) + 1).unwrap();
    assert!(refusal().contains("has 268435457 bytes, more than the limit of"), "{}", refusal());
    assert_eq!(rlm(&place, &["script", "missing"]).status.code(), Some(3));
}

#[test]
fn hostile_files_next_to_a_history_do_not_block() {
    let place = Place::new();
    let (kept, _) = session(&place, Setup::python(), &[], &["print(fs_metadata)"]);
    for name in ["rlm_answer.json", "rlm_context.json"] {
        fs::remove_file(kept.join(name)).unwrap();
        nix::unistd::mkfifo(&kept.join(name), Mode::S_IRWXU).unwrap();
    }
    let written = rlm(&place, &["script", kept.to_str().unwrap()]);
    assert_eq!(written.status.code(), Some(0));
    for name in ["rlm_answer.json", "rlm_context.json"] {
        assert!(
            text(&written.stderr).contains(&format!("{name} is not a regular file: it is ignored\n")),
            "{written:?}"
        );
    }
    assert_eq!(text(&run(&place, text(&written.stdout)).stdout), "None\n");
}

#[test]
fn calls_without_an_end_do_not_count_as_success() {
    let place = Place::new();
    let example = include_str!("../../../../docs/trajectory-example.jsonl");
    let begun: Vec<_> = example.lines().filter(|line| !line.contains("\"call_ended\"")).collect();
    assert!(begun.len() < example.lines().count(), "{example}");
    let trajectory = place.write("t.jsonl", &(begun.join("\n") + "\n"));
    let replayed = replay(&place, &trajectory, &[]);
    let (stdout, _, status) = shown(&replayed);
    assert!(stdout.ends_with("\nequal as far as it was run again: 0 of 3 calls\n"), "{stdout}");
    assert_eq!(status, Some(1));
}
