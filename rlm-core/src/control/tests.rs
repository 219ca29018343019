use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::*;

#[test]
fn fifos_replace_existing_files() {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    let path = control.command_fifo();
    fs::write(&path, "old").unwrap();
    for _ in 0..2 {
        make_fifo(&path).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert!(meta.file_type().is_fifo());
        assert_eq!(meta.mode() & 0o777, 0o600);
    }
}

#[test]
fn damage_by_a_session_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path().join("control"));
    for _ in 0..2 {
        control.repair().unwrap();
        make_fifo(&control.command_fifo()).unwrap();
        control.set_ready().unwrap();
        control.write_answer(&Answer::default()).unwrap();
        let paths = [control.ready_flag(), control.answer_file(), temporary(&control.ready_flag())];
        for path in &paths {
            remove(path).unwrap();
            nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
        }
        for path in [control.command_fifo(), control.log_file()] {
            remove(&path).unwrap();
            fs::create_dir_all(path.join("in")).unwrap();
        }
        // Nothing here may block.
        control.set_ready().unwrap();
        control.open_log().unwrap_err();
        fs::create_dir(control.history_file()).unwrap();
        control.open_history().err().unwrap();
        fs::set_permissions(control.path(), Permissions::from_mode(0o000)).unwrap();
    }
    control.repair().unwrap();
    make_fifo(&control.command_fifo()).unwrap();
    control.set_ready().unwrap();
    control.open_log().unwrap();
    control.open_history().unwrap();
    assert!(control.log_file().with_added_extension("aside2").join("in").is_dir());
    fs::remove_dir_all(control.path()).unwrap();
    control.repair().unwrap();
    assert_eq!(fs::metadata(control.path()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn the_answer_file_is_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    for content in ["a\u{1F600}\n", ""] {
        let answer = Answer { ready: content.is_empty(), content: content.to_owned() };
        control.write_answer(&answer).unwrap();
        let read: Answer = serde_json::from_slice(&fs::read(control.answer_file()).unwrap()).unwrap();
        assert_eq!(read, answer);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
}

#[test]
fn a_context_without_a_directory_is_refused_with_the_field_and_an_example() {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    for (text, found) in [
        (r#"{"fs_root": null}"#, "`fs_root` is null"),
        (r#"{"fs_metadata": 1}"#, "`fs_root` is missing"),
        (r#"{"fs_root": ["/data"]}"#, "`fs_root` is a list"),
        ("[]", "`fs_root` is missing"),
    ] {
        fs::write(control.context_file(), text).unwrap();
        let error = control.read_context().unwrap_err();
        let fault = std::error::Error::source(&error).unwrap().to_string();
        let expected = r#"expected the path of the session's directory, such as {"fs_root": "/data"}"#;
        assert_eq!(fault, format!("{found}, {expected}"), "{text}");
    }
    fs::write(control.context_file(), r#"{"fs_root": "/data", "allowed_paths": 1}"#).unwrap();
    control.read_context().unwrap_err();
}

#[test]
fn a_repaired_directory_has_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    let answer = Answer { ready: true, content: "of the earlier session".to_owned() };
    control.write_answer(&answer).unwrap();
    assert_eq!(control.read_answer().unwrap(), Some(answer));
    control.repair().unwrap();
    assert_eq!(control.read_answer().unwrap(), None);
}

#[test]
fn an_error_names_the_path() {
    let error = make_fifo(Path::new("/does/not/exist/rlm_cmd")).unwrap_err();
    assert_eq!(error.to_string(), "cannot make the FIFO /does/not/exist/rlm_cmd");
    let error = ControlDir::new("/does/not/exist").read_context().unwrap_err();
    assert_eq!(error.to_string(), "cannot read the context file /does/not/exist/rlm_context.json");
}
