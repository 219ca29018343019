//! The wire: what hosts do beside the cases of `rlm conformance`, and what malformed requests are told.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use rlm_core::control::ControlDir;
use rlm_core::frame::{Decoder, Frame};
use rlm_core::limits::MAX_REQUEST_BYTES;
use rlm_core::protocol::{Outcome, Response, State, Status};
use rlm_core::sys::waiting_bytes;
use rlm_tests::malformed::{MALFORMED, latin_1};
use rlm_tests::{Worker, end_of, is_ready, shell_status, signal, wait_until};
use serde_json::json;

#[track_caller]
fn refused(response: &Response, seq: i64, fault: &str) {
    assert_eq!(
        (response.status, response.outcome, response.state, response.seq),
        (Status::Error, Outcome::Error, State::Kept, seq)
    );
    let hint = response.hint.as_deref().unwrap_or_default();
    assert!(hint.contains(fault), "{hint:?} does not say {fault:?}");
}

#[test]
fn malformed_requests_are_answered_and_nothing_is_lost() {
    for (mut worker, keep, show) in
        [(Worker::bash(), "x=kept", "echo $x"), (Worker::python(), "x='kept'", "print(x)")]
    {
        worker.output(keep);
        for (text, seq, fault) in MALFORMED {
            worker.send(&latin_1(text));
            refused(&worker.receive(), seq, fault);
            assert_eq!(worker.output(show), "kept\n");
        }
        let too_large = format!(r#"{{"seq": 5, "code": "{}"}}"#, "x".repeat(MAX_REQUEST_BYTES));
        worker.send(too_large.as_bytes());
        let bytes = too_large.len();
        let limit = format!("request of {bytes} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes");
        refused(&worker.receive(), 5, &limit);
        // Deeper than the parser goes: refused, not fatal.
        worker.send("[".repeat(100_000).as_bytes());
        refused(&worker.receive(), -1, "cut off");
        worker.send(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)).as_bytes());
        refused(&worker.receive(), -1, "recursion limit");
        assert_eq!(worker.output(show), "kept\n");
    }
}

#[test]
fn many_requests_at_once_are_answered_in_their_order() {
    let worker = Worker::bash();
    let many: String =
        (2..12).map(|seq| json!({"code": format!("echo {seq}"), "seq": seq}).to_string()).collect();
    worker.send(many.as_bytes());
    // Responses to requests that did not wait for each other may meet in the FIFO.
    let mut decoder = Decoder::new(1 << 20);
    for seq in 2..12 {
        let document = loop {
            match decoder.next_frame() {
                Some(Frame::Document(document)) => break document,
                Some(other) => panic!("{other:?}"),
                None => decoder.push(&worker.receive_bytes()),
            }
        };
        let response: Response = serde_json::from_slice(&document).unwrap();
        assert_eq!((response.seq, response.stdout), (seq, format!("{seq}\n")));
    }
}

#[test]
fn a_reader_of_the_command_fifo_is_there_while_a_response_is_not_read() {
    let mut worker = Worker::bash();
    worker.send_call("echo done; : >ran", json!({}));
    worker.wait_for_file("ran");
    for _ in 0..2000 {
        // Fails with ENXIO where there is no reader.
        drop(worker.open_commands());
    }
    worker.receive();
    assert_eq!(worker.output("echo on"), "on\n");
}

/// The test is for the last reader of a host, held by a process that it forks until that executes its program.
#[test]
fn a_response_is_not_lost_to_a_reader_that_the_host_forked() {
    let mut worker = Worker::bash();
    for bytes in [1, 300_000, 3_000_000] {
        let code = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        let check = |text: &[u8], seq: i64| {
            let response: Response = serde_json::from_slice(text).unwrap();
            assert_eq!((response.seq, response.stdout.len()), (seq, bytes));
        };
        let copy = worker.open_responses();
        let seq = worker.send_call(&code, json!({}));
        check(&rlm_tests::read_to_end(&copy), seq);
        // The host's next reader has the response to the end, with the copy still there.
        let seq = worker.send_call(&code, json!({}));
        check(&worker.receive_bytes(), seq);
        // It comes when the copy is gone.
        let copy = worker.open_responses();
        let seq = worker.send_call(&code, json!({}));
        wait_until("the response comes", || waiting_bytes(&copy).unwrap() > 0);
        drop(copy);
        check(&worker.receive_bytes(), seq);
    }
    assert_eq!(worker.output("echo on"), "on\n");
}

/// Such a host waits for a writer when the worker has written already.
#[test]
fn a_host_that_opens_the_fifo_to_wait_gets_a_response_that_was_written_before() {
    let mut worker = Worker::bash();
    for is_copy_kept in [true, false] {
        let copy = worker.open_responses();
        let seq = worker.send_call("echo late", json!({}));
        wait_until("the response comes", || waiting_bytes(&copy).unwrap() > 0);
        let copy = is_copy_kept.then_some(copy);
        let opened = File::open(worker.control.response_fifo()).unwrap();
        let response = worker.receive_from(&opened);
        assert_eq!((response.seq, response.stdout.as_str()), (seq, "late\n"));
        drop(copy);
    }
    assert_eq!(worker.output("echo on"), "on\n");
}

#[test]
fn a_host_that_holds_the_fifo_for_reading_and_writing_gets_each_response() {
    let mut worker = Worker::bash();
    let path = worker.control.response_fifo();
    for _ in 0..3 {
        let holder = File::options().read(true).write(true).open(&path).unwrap();
        let mut decoder = Decoder::new(1 << 20);
        for _ in 0..100 {
            let seq = worker.send_call("echo on", json!({}));
            assert_eq!(next_response(&mut decoder, &holder).seq, seq);
        }
        // A reader at the path comes first, then the host that holds the FIFO again.
        let reader = worker.open_responses();
        let seq = worker.send_call("echo on", json!({}));
        let response = worker.receive_from(&reader);
        assert_eq!(response.seq, seq);
        let seq = worker.send_call("echo on", json!({}));
        assert_eq!(next_response(&mut decoder, &holder).seq, seq);
        drop(holder);
        assert_eq!(worker.output("echo on"), "on\n");
    }
}

/// The next response on a reader that stays open.
fn next_response(decoder: &mut Decoder, mut reader: &File) -> Response {
    loop {
        match decoder.next_frame() {
            Some(Frame::Document(document)) => return serde_json::from_slice(&document).unwrap(),
            Some(other) => panic!("{other:?}"),
            None => wait_until("a response comes", || waiting_bytes(reader).unwrap() > 0),
        }
        let mut bytes = vec![0; waiting_bytes(reader).unwrap()];
        reader.read_exact(&mut bytes).unwrap();
        decoder.push(&bytes);
    }
}

/// Each process that it forks has a copy of the reader that is open at that time.
#[test]
fn a_host_that_forks_all_the_time_gets_each_response_with_its_end() {
    let mut worker = Worker::bash();
    let mut last_copy = None;
    for is_copy_early in [true, false].repeat(50) {
        let early = is_copy_early.then(|| worker.open_responses());
        let seq = worker.send_call("echo on", json!({}));
        let reader = early.unwrap_or_else(|| worker.open_responses());
        let copy = reader.try_clone().unwrap();
        let response = worker.receive_from(&reader);
        assert_eq!(response.seq, seq);
        drop(reader);
        // The copy of the call before goes, and this one is there when the next request comes.
        last_copy = Some(copy);
    }
    drop(last_copy);
    assert_eq!(worker.output("echo on"), "on\n");
}

/// It gave up on the first, or does not wait its turn.
#[test]
fn a_late_response_is_alone_in_its_reading() {
    let mut worker = Worker::bash();
    for has_reader in [false, true].repeat(30) {
        let reader = has_reader.then(|| worker.open_responses());
        let first = worker.send_call("echo first", json!({}));
        if let Some(reader) = &reader {
            wait_until("the response comes", || waiting_bytes(reader).unwrap() > 0);
        }
        let second = worker.send_call("echo second", json!({}));
        let reader = reader.unwrap_or_else(|| worker.open_responses());
        let response = worker.receive_from(&reader);
        assert_eq!(response.seq, first);
        assert_eq!(worker.receive().seq, second);
    }
    assert_eq!(worker.output("echo on"), "on\n");
}

#[test]
fn a_host_that_closes_in_the_middle_of_a_response_gets_the_next_one_alone() {
    let mut worker = Worker::bash();
    for bytes in [1, 20_000, 300_000].repeat(20) {
        for is_opened_before in [true, false] {
            let early = is_opened_before.then(|| worker.open_responses());
            worker.send_call(&format!("head -c {bytes} /dev/zero | tr '\\0' x"), json!({}));
            let reader = early.unwrap_or_else(|| worker.open_responses());
            rlm_tests::wait_readable(&reader, rlm_tests::PATIENCE);
            assert_eq!((&reader).read(&mut [0; 1]).unwrap(), 1);
            drop(reader);
            assert_eq!(worker.output("echo on"), "on\n");
        }
    }
}

/// A hang-up or an end of file before the response would look like the response of a dead worker.
#[test]
fn a_reader_that_does_not_wait_sees_no_end_of_file_before_the_response() {
    for mut worker in [Worker::bash(), Worker::python()] {
        for _ in 0..3 {
            let reader = worker.open_responses();
            assert!(!is_ready(&reader, PollFlags::POLLIN, Duration::ZERO));
            assert_eq!((&reader).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            let seq = worker.send_call("1", json!({}));
            let response = worker.receive_from(&reader);
            assert_eq!(response.seq, seq);
        }
    }
}

/// However it arrives: the host may be in the middle of a write, and its reader may be there before.
#[test]
fn bytes_between_documents_get_one_answer_however_many_they_are() {
    let mut worker = Worker::bash();
    for bytes in [70_000, 200_000, 1_000_000] {
        for (is_opened_before, is_kept) in [(true, true), (true, false), (false, true), (false, false)] {
            let early = is_opened_before.then(|| worker.open_responses());
            let mut commands = worker.open_commands();
            for piece in vec![b'x'; bytes].chunks(65_536) {
                commands.write_all(piece).unwrap();
                // A host that is not scheduled for a while.
                std::thread::sleep(Duration::from_millis(5));
            }
            let kept = is_kept.then_some(commands);
            let response = worker.receive_from(&early.unwrap_or_else(|| worker.open_responses()));
            assert_eq!((response.status, response.seq), (Status::Error, -1));
            assert_eq!(worker.output("echo on"), "on\n", "{bytes} {is_opened_before} {is_kept}");
            drop(kept);
        }
    }
}

#[test]
fn a_worker_whose_fifo_is_replaced_ends_with_the_reason_in_its_log() {
    for path in
        [|control: &ControlDir| control.command_fifo(), |control: &ControlDir| control.response_fifo()]
    {
        let mut worker = Worker::bash();
        let path = path(&worker.control);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(shell_status(worker.wait()), 3);
        assert!(worker.log().contains(&format!("cannot serve {}", path.display())), "{}", worker.log());
        worker.assert_nothing_left();
    }
}

#[test]
fn a_second_worker_in_a_control_directory_takes_the_place_of_the_first() {
    let mut first = Worker::bash();
    first.call("x=1");
    let mut second = Command::new(rlm_tests::program("rlm-worker-bash"))
        .arg("--control-dir")
        .arg(first.control.path())
        .spawn()
        .unwrap();
    let (fifo, is_over) = (first.control.command_fifo(), AtomicBool::new(false));
    let status = thread::scope(|scope| {
        // A host that comes in between reaches one of them.
        scope.spawn(|| {
            let mut host = OpenOptions::new();
            host.write(true).custom_flags(libc::O_NONBLOCK);
            while !is_over.load(Ordering::Relaxed) {
                host.open(&fifo).expect("a reader");
            }
        });
        let status = first.wait();
        is_over.store(true, Ordering::Relaxed);
        status
    });
    assert_eq!(shell_status(status), 3);
    first.assert_nothing_left();
    assert_eq!(first.output("echo ${x-none}"), "none\n");
    signal(&second, Signal::SIGTERM);
    assert_eq!(shell_status(end_of(&mut second)), 143);
    assert!(!first.control.ready_flag().exists());
}

/// The system has 128 of them for a user, and takes milliseconds to let go of one: more workers must be no worse.
#[test]
fn no_worker_takes_an_inotify_instance() {
    for mut worker in [Worker::bash(), Worker::python()] {
        worker.call("1");
        let links = [worker.pid(), worker.server()].map(|pid| format!("/proc/{pid}/fd"));
        let links = links.iter().flat_map(|path| std::fs::read_dir(path).unwrap());
        let kinds: Vec<_> =
            links.map(|link| std::fs::read_link(link.unwrap().path()).unwrap_or_default()).collect();
        assert!(kinds.iter().any(|kind| kind.ends_with("anon_inode:[signalfd]")), "{kinds:?}");
        assert!(!kinds.iter().any(|kind| kind.to_string_lossy().contains("inotify")), "{kinds:?}");
    }
}
