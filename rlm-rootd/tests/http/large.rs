//! The cost of large values in the built program.

use std::io::Write as _;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rlm_tests::wait_until;
use serde_json::json;

use crate::program::Program;
use crate::support::{tool_request, tools_request};

/// The answers to many calls at once: status and body.
fn at_once(program: &Program, count: usize, request: &[u8]) -> Vec<(u16, String)> {
    thread::scope(|scope| {
        let calls: Vec<_> = (0..count).map(|_| scope.spawn(|| program.exchange(request))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

/// The process has never held this much, in MiB.
fn assert_held_below(program: &Program, mebibytes: u64) {
    let peak = program.peak() >> 20;
    assert!(peak < mebibytes, "{peak} MiB");
}

fn metrics(program: &Program) -> String {
    program.exchange(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").1
}

#[test]
fn json_of_many_small_values_is_refused_before_it_takes_much() {
    let (program, r, _dir) = Program::with_tools(&[("t", "cat")], &[]);
    for piece in ["0,", "{\"\":0},"] {
        let many = piece.repeat((30 << 20) / piece.len());
        let body = format!(r#"{{"tool_name": "t", "serialization": "json", "args": [{many}0]}}"#);
        let (status, answer) = program.exchange(&tools_request(&r, body.as_bytes()));
        assert_eq!((status, &*answer), (400, r#"{"error":"Invalid JSON: more than 2097152 values"}"#));
    }
    assert_held_below(&program, 700);
    // The memory is given back.
    wait_until("memory is given back", || program.memory("VmRSS") < 150 << 20);
    assert_eq!(program.exchange(&tool_request(&r, "t", json!([1]))).0, 200);
}

#[test]
fn large_bodies_are_held_for_few_calls_at_once() {
    let limit = (2 << 20).to_string();
    let tools = [("t", "cat > /dev/null; sleep 0.2")];
    let (program, r, _dir) = Program::with_tools(&tools, &["--max-body-bytes", &limit]);
    let pickle = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        BASE64.encode([b"X", &length[..], text.as_bytes(), b"\x85."].concat())
    };
    let text = "x".repeat(1_500_000);
    let json = json!({"tool_name": "t", "serialization": "json", "args": [text]}).to_string();
    let pickle = json!({"tool_name": "t", "args": pickle(&text)}).to_string();
    for body in [json, pickle] {
        let answers = at_once(&program, 60, &tools_request(&r, body.as_bytes()));
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    }
    // 4 MiB of bodies, and what each takes while it is decoded; all of them at once would take 100.
    assert_held_below(&program, 45);
}

#[test]
fn small_values_are_held_for_few_calls_at_once() {
    let (program, r, _dir) = Program::with_tools(&[("t", "sleep 0.2")], &[]);
    let json = json!({"tool_name": "t", "serialization": "json"}).to_string();
    let json = json.replace('}', &format!(r#","args":[[{}0]]}}"#, "[],".repeat(400_000)));
    let pickle = BASE64.encode([&b"("[..], &b"]".repeat(400_000), b"l\x85."].concat());
    let pickle = json!({"tool_name": "t", "args": pickle}).to_string();
    for body in [json, pickle] {
        let answers = at_once(&program, 12, &tools_request(&r, body.as_bytes()));
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    }
    // A few of them at once, of 64 MiB by the estimate.
    assert_held_below(&program, 280);
}

#[test]
fn results_that_nobody_reads_are_few_at_once() {
    let tools = [("large", "head -c 10000000 /dev/zero | tr '\\0' x"), ("small", "echo x")];
    let (program, r, _dir) = Program::with_tools(&tools, &[]);
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
    assert_held_below(&program, 750);
}

#[test]
fn a_text_that_is_shared_many_times_is_written_for_few_calls_at_once() {
    let (program, r, _dir) = Program::with_tools(&[("t", "sleep 2; cat > /dev/null")], &[]);
    let share = |count: usize| {
        let text = [&b"X\x30\x75\0\0"[..], &[b'a'; 30_000], b"q\0"].concat();
        let list = [&b"]("[..], &text, &b"h\0".repeat(count), b"e\x85."].concat();
        let body = json!({"tool_name": "t", "args": BASE64.encode(list)});
        tools_request(&r, body.to_string().as_bytes())
    };
    // 30 MB.
    let request = share(1000);
    let answer = (200, r#"{"result":"gANYAAAAAC4="}"#.to_owned());
    assert_eq!(at_once(&program, 8, &request), vec![answer; 8]);
    // Four of them at once.
    assert_held_below(&program, 170);
    let (status, answer) = program.exchange(&share(3000));
    assert_eq!(status, 400);
    assert!(answer.contains("more than 67108864 bytes, with shared ones counted each time"), "{answer}");
}
