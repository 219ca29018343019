//! The files of the control directory.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::process::Stdio;

use nix::poll::PollFlags;
use serde_json::{Value, json};

use super::super::check::{Check, fault, same, that};
use super::super::host::{Stand, Worker, document, or_fault};
use super::{Case, case, plain, plain_on_stand};

pub(super) const SECTION: &str = "The control directory";

pub(super) const CASES: &[Case] = &[
    plain("files/fifos-are-private", "the FIFOs, mode 0600", fifos_are_private),
    plain_on_stand("files/existing-files-are-replaced", "existing files are replaced", existing_files),
    plain("files/ready-flag", "`ready`, once a call can be taken; removed when the worker ends", ready_flag),
    plain_on_stand(
        "files/ready-fd",
        "With `--ready-fd N` the worker also writes `ready` and a newline to an inherited descriptor",
        ready_fd,
    ),
    case("files/answer-has-the-latest", "the latest answer, `{\"ready\": bool, \"content\": str}`", answer),
    case(
        "files/answer-comes-before-its-response",
        "replaced atomically before the response that changes it",
        answer_before_response,
    ),
    case(
        "files/answer-is-replaced-and-not-rewritten",
        "replaced atomically before the response that changes it",
        answer_is_replaced,
    ),
    plain_on_stand("files/session-begins-in-fs-root", "only `fs_root` is needed", begins_in_fs_root),
];

fn fifos_are_private(worker: &mut Worker<'_>) -> Check {
    for name in ["rlm_cmd", "rlm_res"] {
        let metadata = or_fault(name, fs::symlink_metadata(worker.stand.control(name)))?;
        that(metadata.file_type().is_fifo(), format_args!("{name} is a FIFO"), "another kind of file")?;
        same(name, &format!("{:o}", 0o600), &format!("{:o}", metadata.mode() & 0o7777))?;
    }
    Ok(())
}

fn existing_files(stand: &Stand<'_>) -> Check {
    for name in ["rlm_cmd", "rlm_res"] {
        or_fault("a file", fs::write(stand.control(name), "old"))?;
    }
    let mut worker = stand.start()?;
    worker.request(json!({"op": "info"})).map(drop)
}

fn ready_flag(worker: &mut Worker<'_>) -> Check {
    let flag = or_fault("rlm_ready", fs::read_to_string(worker.stand.control("rlm_ready")))?;
    same("rlm_ready, trimmed", &"ready", &flag.trim())?;
    worker.request(json!({"op": "info"}))?;
    worker.send(br#"{"shutdown": true}"#)?;
    worker.must_end(0)
}

fn ready_fd(stand: &Stand<'_>) -> Check {
    let mut worker = stand.spawn(&["--ready-fd", "1"], Stdio::piped(), &[])?;
    let Some(mut pipe) = worker.take_stdout() else { return fault("a pipe", "none") };
    worker.wait_fd(&pipe, PollFlags::POLLIN, "bytes on the descriptor")?;
    let mut bytes = [0; 64];
    let count = or_fault("bytes on the descriptor", pipe.read(&mut bytes))?;
    same("bytes on the descriptor", &"ready\n".into(), &String::from_utf8_lossy(&bytes[..count]))?;
    worker.request(json!({"op": "info"})).map(drop)
}

/// The answer in the file.
fn answer_file(stand: &Stand<'_>) -> Check<Value> {
    document(&or_fault("rlm_answer.json", fs::read(stand.control("rlm_answer.json")))?)
}

fn answer(worker: &mut Worker<'_>) -> Check {
    for code in [worker.code.answers, worker.code.answers_at_length] {
        let response = worker.call(code)?;
        same("rlm_answer.json", &response["answer"], &answer_file(worker.stand)?)?;
    }
    worker.still_works()?;
    let content = answer_file(worker.stand)?["content"].as_str().map_or(0, str::len);
    same("bytes of the answer in rlm_answer.json", &200_000, &content)
}

fn answer_before_response(worker: &mut Worker<'_>) -> Check {
    let fifo = worker.responses()?;
    let seq = worker.send_call(worker.code.answers, json!({}))?;
    worker.wait_fd(&fifo, PollFlags::POLLIN, "a response")?;
    let expected = json!({"ready": true, "content": "forty-two"});
    same("rlm_answer.json when the response comes", &expected, &answer_file(worker.stand)?)?;
    let response = worker.receive_from(&fifo)?;
    same("seq", &json!(seq), &response["seq"])
}

fn answer_is_replaced(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.answers_at_length)?;
    let mut old = or_fault("rlm_answer.json", File::open(worker.stand.control("rlm_answer.json")))?;
    worker.call(worker.code.answers)?;
    let mut text = Vec::new();
    or_fault("the old answer", old.read_to_end(&mut text))?;
    let content = document(&text)?["content"].as_str().map_or(0, str::len);
    same("bytes of the old answer, read through a descriptor opened before", &200_000, &content)
}

fn begins_in_fs_root(stand: &Stand<'_>) -> Check {
    let fs_root = or_fault("the session's directory", stand.file("").canonicalize())?;
    or_fault(
        "a context",
        fs::write(stand.control("rlm_context.json"), json!({"fs_root": fs_root}).to_string()),
    )?;
    let mut worker = stand.start()?;
    let info = super::operations::info(&mut worker)?;
    same("cwd of `info`", &json!(fs_root), &info["cwd"])
}
