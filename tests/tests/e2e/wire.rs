//! The wire: both habits of hosts, and malformed input of every kind.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::frame::{Decoder, Frame};
use rlm_core::limits::MAX_REQUEST_BYTES;
use rlm_core::protocol::{Outcome, Response, State, Status};
use rlm_core::sys::waiting_bytes;
use rlm_tests::{Worker, wait_until};
use serde_json::{Value, json};

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
    answers_malformed_requests(Worker::bash(), "x=kept", "echo $x");
    answers_malformed_requests(Worker::python(), "x='kept'", "print(x)");
}

/// `keep` sets a variable, and `show` prints it.
fn answers_malformed_requests(mut worker: Worker, keep: &str, show: &str) {
    worker.output(keep);
    let too_large = format!(r#"{{"seq": 5, "code": "{}"}}"#, "x".repeat(MAX_REQUEST_BYTES));
    let limit =
        format!("request of {} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes", too_large.len());
    let cases: [(&[u8], i64, &str); 21] = [
        (b"{\"code\": tru, \"seq\": 9}", 9, "request is not valid JSON"),
        (b"{\"code\": 'x', \"seq\": 9}", 9, "request is not valid JSON"),
        (b"hello", -1, "found \"hello"),
        (b"hello\nworld\n", -1, "found \"hello"),
        (b"42", -1, "found \"42\""),
        (b"\"text\"", -1, "expected an object"),
        (b"}", -1, "expected an object"),
        (b"[1, 2]", -1, "request is an array, expected a JSON object"),
        (b"{\"seq\": 3}", 3, "no field `code`"),
        (b"{\"code\": 1, \"seq\": 3}", 3, "field `code` is the number 1, expected a string"),
        (b"{\"code\": null, \"seq\": 3}", 3, "field `code` is null"),
        (b"{\"code\": \":\", \"seq\": \"3\"}", -1, "field `seq` is a string, expected a 64-bit integer"),
        (b"{\"code\": \":\", \"seq\": 1.5}", -1, "field `seq` is the number 1.5"),
        (
            b"{\"op\": \"dance\", \"seq\": 3}",
            3,
            "unknown op `dance`: expected `execute`, `reset`, `set`, `complete` or `info`",
        ),
        (b"{\"op\": 1, \"seq\": 3}", 3, "field `op` is the number 1"),
        (b"{\"code\": \":\", \"timeout\": -1, \"seq\": 3}", 3, "field `timeout` is the number -1"),
        (
            b"{\"code\": \":\", \"max_output_bytes\": \"x\", \"seq\": 3}",
            3,
            "field `max_output_bytes` is a string",
        ),
        (b"{\"shutdown\": \"now\", \"seq\": 3}", 3, "field `shutdown` is a string"),
        (b"{\"seq\": 3, \"code\": \"\xff\"}", 3, "request is not valid UTF-8: byte 0xff at offset 20"),
        (b"{\"seq\": 7, \"code\": \"cut", 7, "request was cut off after 23 bytes"),
        (too_large.as_bytes(), 5, &limit),
    ];
    for (bytes, seq, fault) in cases {
        worker.send(bytes);
        refused(&worker.receive(), seq, fault);
        assert_eq!(worker.output(show), "kept\n");
    }
    // Deeper than the parser goes: refused, not fatal.
    worker.send("[".repeat(100_000).as_bytes());
    refused(&worker.receive(), -1, "cut off");
    worker.send(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)).as_bytes());
    refused(&worker.receive(), -1, "recursion limit");
    assert_eq!(worker.output(show), "kept\n");
    worker.end();
}

#[test]
fn an_empty_payload_is_nothing() {
    let mut worker = Worker::bash();
    for _ in 0..50 {
        worker.send(b"");
        worker.send(b" \n");
    }
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
}

#[test]
fn a_writer_that_stays_open_is_served() {
    let worker = Worker::bash();
    let mut fifo = worker.open_commands();
    for seq in 0..100 {
        fifo.write_all(json!({"code": format!("echo {seq}"), "seq": seq}).to_string().as_bytes()).unwrap();
        let response = worker.receive();
        assert_eq!((response.seq, response.stdout), (seq, format!("{seq}\n")));
    }
    fifo.write_all(b"oops").unwrap();
    refused(&worker.receive(), -1, "found \"oops\"");
    fifo.write_all(b"{\"code\": \"echo on\", \"seq\": 1}").unwrap();
    assert_eq!(worker.receive().stdout, "on\n");
    drop(fifo);
    worker.end();
}

#[test]
fn requests_byte_by_byte_and_many_at_once() {
    let worker = Worker::bash();
    let mut fifo = worker.open_commands();
    for byte in br#"{"code": "echo \"}{\" slowly", "seq": 1}"# {
        fifo.write_all(&[*byte]).unwrap();
    }
    assert_eq!(worker.receive().stdout, "}{ slowly\n");
    let many: String =
        (2..12).map(|seq| json!({"code": format!("echo {seq}"), "seq": seq}).to_string()).collect();
    fifo.write_all(many.as_bytes()).unwrap();
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
    drop(fifo);
    worker.end();
}

#[test]
fn a_document_cut_anywhere_is_one_request_or_one_error() {
    let mut worker = Worker::bash();
    let document = br#"{"code": "echo \"a b\"", "seq": 77, "x": [1, {"y": "}"}]}"#;
    for cut in 1..document.len() {
        worker.send(&document[..cut]);
        let response = worker.receive();
        assert_eq!(response.status, Status::Error, "cut at {cut}: {response:?}");
        assert!(response.hint.is_some_and(|hint| hint.contains("cut off")), "cut at {cut}");
    }
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
}

#[test]
fn every_field_is_always_there() {
    let mut worker = Worker::bash();
    let expected = [
        "answer",
        "exception",
        "execution_count",
        "execution_time",
        "exit_code",
        "hint",
        "outcome",
        "protocol",
        "result",
        "seq",
        "state",
        "status",
        "stderr",
        "stdout",
        "truncated",
    ];
    for request in [&br#"{"code": ":", "seq": 1}"#[..], b"{}"] {
        worker.send(request);
        let response: Value = serde_json::from_slice(&worker.receive_bytes()).unwrap();
        let mut fields: Vec<&str> = response.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, expected);
        assert_eq!(response["protocol"], 1);
    }
    worker.output(":");
    worker.end();
}

#[test]
fn unknown_fields_are_ignored_and_execution_is_counted() {
    let mut worker = Worker::bash();
    let response = worker.call_with("echo on", json!({"colour": "blue", "op": "execute"}));
    assert_eq!((response.stdout.as_str(), response.execution_count), ("on\n", 1));
    worker.send(b"{}");
    assert_eq!(worker.receive().execution_count, 1);
    assert_eq!(worker.call(":").execution_count, 2);
    worker.end();
}

#[test]
fn a_reader_of_the_command_fifo_is_there_at_every_moment() {
    let mut worker = Worker::bash();
    worker.send_call("echo done; : >ran", json!({}));
    worker.wait_for_file("ran");
    for _ in 0..2000 {
        // Fails with ENXIO where there is no reader.
        drop(worker.open_commands());
    }
    worker.receive();
    for _ in 0..2000 {
        drop(worker.open_commands());
    }
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
}

#[test]
fn fifos_are_private_and_the_ready_flag_says_ready() {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let worker = Worker::bash();
    for path in [worker.control.command_fifo(), worker.control.response_fifo()] {
        let meta = std::fs::metadata(&path).unwrap();
        assert!(meta.file_type().is_fifo() && meta.mode() & 0o777 == 0o600, "{}", path.display());
    }
    assert_eq!(std::fs::read_to_string(worker.control.ready_flag()).unwrap().trim(), "ready");
    worker.end();
}

#[test]
fn one_malformed_write_gets_one_answer() {
    let mut worker = Worker::bash();
    for bytes in [&b"{]}"[..], b"nonsense\nmore\n", b"a\nb\nc", b"[] x\n"] {
        worker.send(bytes);
        assert_eq!(worker.receive().status, Status::Error);
        assert_eq!(worker.output("echo on"), "on\n", "after {:?}", String::from_utf8_lossy(bytes));
    }
    worker.send(b"{\"code\": \"echo hi\", \"seq\": 1}}");
    assert_eq!(worker.receive().stdout, "hi\n");
    assert_eq!(worker.output("echo on"), "on\n");
    // More than the FIFO holds: the host writes all of it before it reads.
    for size in [100_000, 1_000_000] {
        worker.send("a".repeat(size).as_bytes());
        assert_eq!(worker.receive().status, Status::Error);
        worker.send("line\n".repeat(size / 5).as_bytes());
        assert_eq!(worker.receive().status, Status::Error);
        assert_eq!(worker.output("echo on"), "on\n");
    }
    worker.end();
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
    worker.end();
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
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&opened)).unwrap();
        assert_eq!((response.seq, response.stdout.as_str()), (seq, "late\n"));
        drop(copy);
    }
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
}

/// It waits for the next response as soon as it has the last, long before the request, and sees nothing in between.
#[test]
fn a_thread_that_opens_and_reads_all_the_time_gets_one_document_each_time() {
    let mut worker = Worker::bash();
    let path = worker.control.response_fifo();
    let (documents, received) = std::sync::mpsc::channel();
    let calls = 100;
    let reader = std::thread::spawn(move || {
        for _ in 0..calls {
            documents.send(std::fs::read(&path).unwrap()).unwrap();
        }
    });
    for _ in 0..calls {
        let seq = worker.send_call("echo on", json!({}));
        let text = received.recv_timeout(rlm_tests::PATIENCE).unwrap();
        let response: Response = serde_json::from_slice(&text).unwrap();
        assert_eq!(response.seq, seq);
    }
    reader.join().unwrap();
    worker.end();
}

#[test]
fn a_reader_that_is_opened_before_the_request_gets_the_response_alone() {
    let mut worker = Worker::bash();
    for _ in 0..100 {
        let reader = worker.open_responses();
        let seq = worker.send_call("echo on", json!({}));
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
        assert_eq!(response.seq, seq);
    }
    worker.end();
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
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
        assert_eq!(response.seq, seq);
        let seq = worker.send_call("echo on", json!({}));
        assert_eq!(next_response(&mut decoder, &holder).seq, seq);
        drop(holder);
        assert_eq!(worker.output("echo on"), "on\n");
    }
    worker.end();
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
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
        assert_eq!(response.seq, seq);
        drop(reader);
        // The copy of the call before goes, and this one is there when the next request comes.
        last_copy = Some(copy);
    }
    drop(last_copy);
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
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
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
        assert_eq!(response.seq, first);
        assert_eq!(worker.receive().seq, second);
    }
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
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
    worker.end();
}

/// A hang-up or an end of file before the response would look like the response of a dead worker.
#[test]
fn a_reader_that_does_not_wait_sees_no_end_of_file_before_the_response() {
    for mut worker in [Worker::bash(), Worker::python()] {
        for _ in 0..3 {
            let reader = worker.open_responses();
            let ready = poll(&mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
            let nothing_yet = (&reader).read(&mut [0]).unwrap_err().kind();
            assert_eq!((ready, nothing_yet), (Ok(0), std::io::ErrorKind::WouldBlock));
            let seq = worker.send_call("1", json!({}));
            let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
            assert_eq!(response.seq, seq);
        }
        worker.end();
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
            let text = rlm_tests::read_to_end(&early.unwrap_or_else(|| worker.open_responses()));
            let response: Response = serde_json::from_slice(&text).unwrap();
            assert_eq!((response.status, response.seq), (Status::Error, -1));
            assert_eq!(worker.output("echo on"), "on\n", "{bytes} {is_opened_before} {is_kept}");
            drop(kept);
        }
    }
    worker.end();
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
        assert_eq!(rlm_tests::shell_status(worker.wait()), 3);
        let log = std::fs::read_to_string(worker.control.log_file()).unwrap();
        assert!(log.contains(&format!("cannot serve {}", path.display())), "{log}");
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
    assert_eq!(rlm_tests::shell_status(status), 3);
    first.assert_nothing_left();
    assert_eq!(first.output("echo ${x-none}"), "none\n");
    kill(Pid::from_raw(second.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(rlm_tests::shell_status(second.wait().unwrap()), 143);
    assert!(!first.control.ready_flag().exists());
}

/// Whenever it was opened, and however soon the host opens another: that one gets the response, and its end.
#[test]
fn a_response_outlives_readers_that_read_nothing() {
    let mut worker = Worker::bash();
    for is_opened_before in [true, false].repeat(50) {
        let early = is_opened_before.then(|| worker.open_responses());
        let seq = worker.send_call("echo on", json!({}));
        let mut reader = early.unwrap_or_else(|| worker.open_responses());
        for _ in 0..3 {
            rlm_tests::wait_readable(&reader, rlm_tests::PATIENCE);
            drop(reader);
            reader = worker.open_responses();
        }
        let response: Response = serde_json::from_slice(&rlm_tests::read_to_end(&reader)).unwrap();
        assert_eq!(response.seq, seq);
    }
    worker.end();
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
        worker.end();
    }
}
