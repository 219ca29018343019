//! The answer is the worker's: any size, any bytes, and it outlives the shell.

use rlm_core::protocol::Answer;
use rlm_tests::Worker;

fn file(worker: &Worker) -> Answer {
    serde_json::from_slice(&std::fs::read(worker.control.answer_file()).unwrap()).unwrap()
}

#[test]
fn the_answer_is_read_after_every_call() {
    let mut worker = Worker::bash();
    assert_eq!(file(&worker), Answer::default());
    let cases = [
        ("RLM_CONTENT='first'", false, "first"),
        ("RLM_READY=1", true, "first"),
        ("RLM_READY=' Yes '; RLM_CONTENT=$'two\\nlines\\n'", true, "two\nlines\n"),
        ("export RLM_READY=no RLM_CONTENT=exported", false, "exported"),
        ("unset RLM_READY RLM_CONTENT", false, ""),
        ("RLM_CONTENT=$'\\xff bytes'; RLM_READY=ON", true, "\u{fffd} bytes"),
        ("f() { local RLM_CONTENT=inner; }; f; false", true, "\u{fffd} bytes"),
        ("echo \"open", true, "\u{fffd} bytes"),
    ];
    for (code, ready, content) in cases {
        let answer = Answer { ready, content: content.to_owned() };
        assert_eq!(worker.call(code).answer, answer, "{code}");
        assert_eq!(file(&worker), answer, "{code}");
    }
    worker.end();
}

#[test]
fn an_answer_of_ten_megabytes_arrives_whole_and_does_not_reach_commands() {
    let mut worker = Worker::bash();
    let response =
        worker.call("RLM_CONTENT=$(head -c 10000000 /dev/zero | tr '\\0' x); RLM_READY=1; /bin/echo on");
    assert_eq!((response.stdout.as_str(), response.answer.content.len()), ("on\n", 10_000_000));
    assert_eq!(worker.output("/bin/echo still; env | grep -c RLM_CONTENT"), "still\n0\n");
    assert_eq!(file(&worker).content.len(), 10_000_000);
    worker.end();
}

#[test]
fn history_holds_every_executed_call() {
    let mut worker = Worker::bash();
    worker.output("echo 'é\n'");
    worker.call("exit 3");
    worker.send(b"{}");
    worker.receive();
    let text = std::fs::read_to_string(worker.control.history_file()).unwrap();
    let entries: Vec<rlm_core::protocol::HistoryEntry> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.seq, entry.code.as_str(), entry.exit_code)).collect();
    assert_eq!(seen, [(1, "echo 'é\n'", Some(0)), (2, "exit 3", Some(3))]);
    assert!(entries.iter().all(|entry| entry.started_at > 1.7e9 && entry.execution_time > 0.0));
    worker.end();
}
