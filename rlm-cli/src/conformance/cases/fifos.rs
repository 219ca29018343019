//! The ways in which hosts write and read.

use std::fs::{File, OpenOptions};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::check::{Check, fault, fields, same, that};
use super::super::host::{Worker, document, or_fault, without_forks};
use super::{Case, case, plain};

pub(super) const SECTION: &str = "How to write and read";

/// Calls in a case that repeats one.
const REPEATED: i64 = 20;

const TO_END_OF_FILE: &str = "Open `rlm_res` for reading and read to end of file, for each response anew, before or after the request.";

const ONE_READING: &str = "One reading, from open to end of file, gives one whole response.";

pub(super) const CASES: &[Case] = &[
    case("writing/open-write-close", "open, write, close for each request", open_write_close),
    case("writing/kept-open", "keep it open and write one document after another", kept_open),
    plain(
        "writing/a-reader-at-every-moment",
        "a non-blocking open only fails (with ENXIO or ENOENT) if the worker is dead",
        reader_at_every_moment,
    ),
    case("writing/in-pieces", "keep it open and write one document after another", in_pieces),
    case("reading/to-end-of-file", TO_END_OF_FILE, to_end_of_file),
    case("reading/a-newline-ends-it", "A response ends with a newline and has no other one.", newline_at_end),
    case("reading/blocking", TO_END_OF_FILE, blocking),
    case("reading/opened-before-the-request", TO_END_OF_FILE, opened_before),
    case("reading/opened-late", ONE_READING, opened_late),
    case("reading/byte-by-byte", ONE_READING, byte_by_byte),
    case(
        "reading/kept-open",
        "A host may instead hold `rlm_res` open for reading *and* writing.",
        kept_open_for_both,
    ),
    case(
        "reading/given-up-in-the-middle",
        "A host that stops in the middle of a response gets the next one alone, however soon it opens again",
        given_up,
    ),
    case(
        "reading/given-up-before-the-first-byte",
        "If a host gave up on a response before it read any of it, its next reading gives that one alone",
        not_read_at_all,
    ),
    case(
        "reading/a-copy-that-reads-nothing",
        "a response is not lost to a reader that was there before the request and reads nothing",
        copy_that_reads_nothing,
    ),
];

fn open_write_close(worker: &mut Worker<'_>) -> Check {
    (0..REPEATED).try_for_each(|_| worker.still_works())
}

fn kept_open(worker: &mut Worker<'_>) -> Check {
    let fifo = worker.commands()?;
    for seq in 0..REPEATED {
        let request = json!({"code": worker.code.print(&format!("n{seq}")), "seq": seq});
        worker.write(&fifo, request.to_string().as_bytes())?;
        fields(&json!({"stdout": format!("n{seq}\n")}), &worker.response_to(seq)?)?;
    }
    Ok(())
}

fn reader_at_every_moment(worker: &mut Worker<'_>) -> Check {
    for _ in 0..REPEATED {
        for _ in 0..50 {
            worker.commands()?;
        }
        worker.request(json!({"op": "info"}))?;
    }
    Ok(())
}

fn in_pieces(worker: &mut Worker<'_>) -> Check {
    let fifo = worker.commands()?;
    let request = json!({"note": "}]{[\"\\", "code": worker.code.print("slowly"), "seq": 1}).to_string();
    for byte in request.as_bytes() {
        worker.write(&fifo, &[*byte])?;
    }
    fields(&json!({"stdout": "slowly\n"}), &worker.response_to(1)?)
}

fn to_end_of_file(worker: &mut Worker<'_>) -> Check {
    let response = worker.call(worker.code.prints_much)?;
    same("bytes of stdout", &100_000, &response["stdout"].as_str().map_or(0, str::len))?;
    (0..REPEATED).try_for_each(|_| worker.still_works())
}

fn newline_at_end(worker: &mut Worker<'_>) -> Check {
    for code in [worker.code.prints_much, &worker.code.print("one line")] {
        worker.send_call(code, json!({}))?;
        let fifo = worker.responses()?;
        let bytes = worker.read_to_end(&fifo, 64 << 10)?;
        same(
            "place of the first newline",
            &Some(bytes.len() - 1),
            &bytes.iter().position(|byte| *byte == b'\n'),
        )?;
    }
    Ok(())
}

fn blocking(worker: &mut Worker<'_>) -> Check {
    let path = worker.stand.control("rlm_res");
    // The thread is not joined: one that waits for ever ends with the process.
    let (sender, documents) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..REPEATED {
            // Nobody receives it if the case has failed.
            let _failed = sender.send(std::fs::read(&path));
        }
    });
    for _ in 0..REPEATED {
        let seq = worker.send_call(&worker.code.print("on"), json!({}))?;
        let mut read = None;
        worker.wait_for("a response for a blocking reader", |_| {
            read = documents.recv_timeout(Duration::from_millis(1)).ok();
            read.is_some()
        })?;
        let Some(read) = read else { return fault("a response", "none") };
        let response = document(&or_fault("a response", read)?)?;
        fields(&json!({"seq": seq, "stdout": "on\n"}), &response)?;
    }
    Ok(())
}

fn opened_before(worker: &mut Worker<'_>) -> Check {
    for _ in 0..REPEATED {
        let fifo = worker.responses()?;
        let seq = worker.send_call(&worker.code.print("on"), json!({}))?;
        fields(&json!({"seq": seq, "stdout": "on\n"}), &worker.receive_from(&fifo)?)?;
    }
    Ok(())
}

fn opened_late(worker: &mut Worker<'_>) -> Check {
    let seq = worker.send_call(&worker.code.print("late"), json!({}))?;
    wait_for_history(worker, 1)?;
    fields(&json!({"stdout": "late\n"}), &worker.response_to(seq)?)?;
    worker.still_works()
}

/// Waits until the history has this many lines: calls that have ended.
fn wait_for_history(worker: &mut Worker<'_>, count: usize) -> Check {
    worker.wait_for("a line of the history for each call", |worker| {
        let history = std::fs::read_to_string(worker.stand.control("rlm_history.jsonl")).unwrap_or_default();
        history.lines().count() >= count
    })
}

fn byte_by_byte(worker: &mut Worker<'_>) -> Check {
    for _ in 0..3 {
        let seq = worker.send_call(&worker.code.print("on"), json!({}))?;
        let fifo = worker.responses()?;
        let bytes = worker.read_to_end(&fifo, 1)?;
        fields(&json!({"seq": seq, "stdout": "on\n"}), &document(&bytes)?)?;
    }
    Ok(())
}

fn kept_open_for_both(worker: &mut Worker<'_>) -> Check {
    let opened = OpenOptions::new().read(true).write(true).open(worker.stand.control("rlm_res"));
    let fifo = or_fault("a response FIFO", opened)?;
    for _ in 0..REPEATED {
        let seq = worker.send_call(&worker.code.print("on"), json!({}))?;
        let response = until_brackets_close(worker, &fifo)?;
        fields(&json!({"seq": seq, "stdout": "on\n"}), &response)?;
    }
    Ok(())
}

/// Reads a document to its last bracket. What follows must be white space.
fn until_brackets_close(worker: &mut Worker<'_>, fifo: &File) -> Check<Value> {
    let mut bytes = Vec::new();
    loop {
        bytes.extend(worker.read_some(fifo, 64 << 10)?);
        let mut documents = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
        match documents.next() {
            Some(Ok(_)) => return document(&bytes),
            Some(Err(error)) if !error.is_eof() => return document(&bytes),
            _ => {}
        }
    }
}

fn given_up(worker: &mut Worker<'_>) -> Check {
    for count in [1, 1000, 70_000] {
        worker.send_call(worker.code.prints_much, json!({}))?;
        {
            // With a copy of the reader, the rest would wait for the next one.
            let _no_copy = without_forks();
            let fifo = worker.responses()?;
            let read = worker.read_some(&fifo, count)?;
            that(!read.is_empty(), "a response", "end of file")?;
        }
        // Once the next call runs, the worker has dropped the rest.
        let name = format!("next{count}");
        let seq = worker.send_call(&worker.code.print_and_mark(&name), json!({}))?;
        worker.wait_for_file(&name)?;
        fields(&json!({"stdout": format!("{name}\n")}), &worker.response_to(seq)?)?;
    }
    Ok(())
}

fn not_read_at_all(worker: &mut Worker<'_>) -> Check {
    for _ in 0..REPEATED {
        let seq = worker.send_call(&worker.code.print("on"), json!({}))?;
        for _ in 0..3 {
            let fifo = worker.responses()?;
            worker.wait_fd(&fifo, nix::poll::PollFlags::POLLIN, "a response for the next reader")?;
        }
        fields(&json!({"stdout": "on\n"}), &worker.response_to(seq)?)?;
    }
    Ok(())
}

fn copy_that_reads_nothing(worker: &mut Worker<'_>) -> Check {
    for code in [worker.code.print("on").as_str(), worker.code.prints_much] {
        let copy = worker.responses()?;
        let seq = worker.send_call(code, json!({}))?;
        let fifo = worker.responses()?;
        fields(&json!({"seq": seq, "outcome": "ok"}), &worker.receive_from(&fifo)?)?;
        drop(copy);
    }
    worker.still_works()
}
