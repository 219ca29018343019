//! The cost of large values in the built program.

use std::io::Write as _;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rlm_tests::wait_until;
use serde_json::json;

use crate::program::{Program, tools};
use crate::support::{tool_request, tools_request};

/// The most that the process has held so far, in MiB.
fn peak(program: &Program) -> usize {
    mebibytes(program, "VmHWM:")
}

fn mebibytes(program: &Program, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

fn metrics(program: &Program) -> String {
    program.exchange(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").1
}

#[test]
fn json_of_many_small_values_is_refused_before_it_takes_much() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::start(&["--tools", &tools(dir.path(), &[("t", "cat")]), "--rollout", "r"]);
    let r = program.registration("r");
    for piece in ["0,", "{\"\":0},"] {
        let many = piece.repeat((30 << 20) / piece.len());
        let body = format!(r#"{{"tool_name": "t", "serialization": "json", "args": [{many}0]}}"#);
        let (status, answer) = program.exchange(&tools_request(&r, body.as_bytes()));
        assert_eq!((status, &*answer), (400, r#"{"error":"Invalid JSON: more than 2097152 values"}"#));
    }
    assert!(peak(&program) < 700, "{} MiB", peak(&program));
    // The memory is given back.
    wait_until("memory is given back", || mebibytes(&program, "VmRSS:") < 150);
    assert_eq!(program.exchange(&tool_request(&r, "t", json!([1]))).0, 200);
}

#[test]
fn large_bodies_are_held_for_few_calls_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = tools(dir.path(), &[("t", "cat > /dev/null; sleep 0.2")]);
    let limit = (2 << 20).to_string();
    let program = Program::start(&["--tools", &file, "--rollout", "r", "--max-body-bytes", &limit]);
    let r = program.registration("r");
    let pickle = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        BASE64.encode([b"X", &length[..], text.as_bytes(), b"\x85."].concat())
    };
    let text = "x".repeat(1_500_000);
    let json = json!({"tool_name": "t", "serialization": "json", "args": [text]}).to_string();
    let pickle = json!({"tool_name": "t", "args": pickle(&text)}).to_string();
    for body in [json, pickle] {
        let request = tools_request(&r, body.as_bytes());
        thread::scope(|scope| {
            let calls: Vec<_> = (0..60).map(|_| scope.spawn(|| program.exchange(&request))).collect();
            for call in calls {
                assert_eq!(call.join().unwrap().0, 200);
            }
        });
    }
    // 4 MiB of bodies, and what each takes while it is decoded; all of them at once would take 100.
    assert!(peak(&program) < 45, "{} MiB", peak(&program));
}

#[test]
fn small_values_are_held_for_few_calls_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::start(&["--tools", &tools(dir.path(), &[("t", "sleep 0.2")]), "--rollout", "r"]);
    let r = program.registration("r");
    let json = json!({"tool_name": "t", "serialization": "json"}).to_string();
    let json = json.replace('}', &format!(r#","args":[[{}0]]}}"#, "[],".repeat(400_000)));
    let pickle = BASE64.encode([&b"("[..], &b"]".repeat(400_000), b"l\x85."].concat());
    let pickle = json!({"tool_name": "t", "args": pickle}).to_string();
    for body in [json, pickle] {
        let request = tools_request(&r, body.as_bytes());
        thread::scope(|scope| {
            let calls: Vec<_> = (0..12).map(|_| scope.spawn(|| program.exchange(&request))).collect();
            for call in calls {
                assert_eq!(call.join().unwrap().0, 200);
            }
        });
    }
    // A few of them at once, of 64 MiB by the estimate.
    assert!(peak(&program) < 280, "{} MiB", peak(&program));
}

#[test]
fn results_that_nobody_reads_are_few_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        tools(dir.path(), &[("large", "head -c 10000000 /dev/zero | tr '\\0' x"), ("small", "echo x")]);
    let program = Program::start(&["--tools", &file, "--rollout", "r"]);
    let r = program.registration("r");
    let request = tool_request(&r, "large", json!([]));
    let mut clients: Vec<_> = (0..60).map(|_| program.connect()).collect();
    for client in &mut clients {
        client.write_all(&request).unwrap();
        client.set_nonblocking(true).unwrap();
    }
    let answered = |count: usize| {
        let line = format!("rlm_tool_calls_total{{outcome=\"ok\"}} {count}\n");
        wait_until(&format!("{count} calls have ended"), || metrics(&program).contains(&line));
    };
    answered(4);
    // Others of the rollout run on.
    assert_eq!(program.exchange(&tool_request(&r, "small", json!([]))).0, 200);
    // Each response that is read makes room for one.
    for gone in 0..15 {
        answered(gone + 5);
        let mut place = None;
        wait_until("a response comes", || {
            place = clients.iter().position(|client| client.peek(&mut [0]).is_ok());
            place.is_some()
        });
        drop(clients.swap_remove(place.unwrap()));
    }
    // 10 MB of output each; all responses would take as much again.
    assert!(peak(&program) < 750, "{} MiB", peak(&program));
}

#[test]
fn a_text_that_is_shared_many_times_is_written_for_few_calls_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = tools(dir.path(), &[("t", "sleep 2; cat > /dev/null")]);
    let program = Program::start(&["--tools", &file, "--rollout", "r"]);
    let r = program.registration("r");
    let share = |count: usize| {
        let text = [&b"X\x30\x75\0\0"[..], &[b'a'; 30_000], b"q\0"].concat();
        let list = [&b"]("[..], &text, &b"h\0".repeat(count), b"e\x85."].concat();
        let body = json!({"tool_name": "t", "args": BASE64.encode(list)});
        tools_request(&r, body.to_string().as_bytes())
    };
    // 30 MB.
    let request = share(1000);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| program.exchange(&request))).collect();
        for call in calls {
            assert_eq!(call.join().unwrap(), (200, r#"{"result":"gANYAAAAAC4="}"#.to_owned()));
        }
    });
    // Four of them at once.
    assert!(peak(&program) < 170, "{} MiB", peak(&program));
    let (status, answer) = program.exchange(&share(3000));
    assert_eq!(status, 400);
    assert!(answer.contains("more than 67108864 bytes, with shared ones counted each time"), "{answer}");
}
