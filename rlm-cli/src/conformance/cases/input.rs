//! Input that is not a request.

use serde_json::{Value, json};

use super::super::check::{Check, fields, same, that};
use super::super::host::Worker;
use super::{Case, case, plain};

pub(super) const SECTION: &str = "Input that is not a request";

/// Largest request in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

const GARBAGE: &str = "the whole piece, up to a line that begins a document, end of file or 0.1 s without a byte \
                       (2 s if the FIFO was full), is one request with one answer";

pub(super) const CASES: &[Case] = &[
    plain("input/not-json", "not JSON, not UTF-8, not an object", not_json),
    plain("input/not-utf-8", "not JSON, not UTF-8, not an object", not_utf8),
    plain("input/not-an-object", "not JSON, not UTF-8, not an object", not_an_object),
    plain("input/wrong-fields", "a missing `code`, a wrong type, an unknown `op`", wrong_fields),
    plain(
        "input/seq-of-invalid-json",
        "`seq` is echoed if it can be found, even in a document that is not valid JSON.",
        seq_of_invalid_json,
    ),
    plain(
        "input/more-than-16-mib",
        "size and limit; the document is read to its end without being stored",
        too_large,
    ),
    plain("input/cut-off", "the number of bytes, and how it begins", cut_off),
    plain("input/garbage-is-one-request", GARBAGE, garbage),
    plain(
        "input/garbage-before-a-document",
        "up to a line that begins a document",
        garbage_before_a_document,
    ),
    plain("input/white-space", "none: it is ignored", white_space),
    plain("input/deep-nesting", "not JSON, not UTF-8, not an object", deep_nesting),
    case("input/session-is-untouched", "the session is untouched", session_is_untouched),
];

/// Checks the response to a request that was refused, whose hint names something.
pub(super) fn must_be_refused(response: &Value, named: &str) -> Check {
    fields(&json!({"status": "error", "outcome": "error", "state": "kept"}), response)?;
    let hint = response["hint"].as_str().unwrap_or_default();
    that(!hint.is_empty() && hint.contains(named), format_args!("a hint that names `{named}`"), response)
}

/// Sends bytes, which must be refused with this `seq`, and then a request, which must be served.
fn refuses(worker: &mut Worker<'_>, bytes: &[u8], seq: i64, named: &str) -> Check {
    worker.send(bytes)?;
    must_be_refused(&worker.response_to(seq)?, named)?;
    goes_on(worker)
}

fn goes_on(worker: &mut Worker<'_>) -> Check {
    fields(&json!({"outcome": "ok"}), &worker.request(json!({"op": "info"}))?)
}

fn not_json(worker: &mut Worker<'_>) -> Check {
    for bytes in [&b"{\"code\": tru}"[..], b"{'code': 'x'}", b"hello", b"{]}", b"}"] {
        refuses(worker, bytes, -1, "")?;
    }
    Ok(())
}

fn not_utf8(worker: &mut Worker<'_>) -> Check {
    refuses(worker, b"{\"seq\": 3, \"code\": \"\xff\"}", 3, "UTF-8")
}

fn not_an_object(worker: &mut Worker<'_>) -> Check {
    for bytes in [&b"42"[..], b"\"text\"", b"[1, 2]", b"null"] {
        refuses(worker, bytes, -1, "")?;
    }
    Ok(())
}

fn wrong_fields(worker: &mut Worker<'_>) -> Check {
    for (request, named) in [
        (json!({}), "code"),
        (json!({"code": 1}), "code"),
        (json!({"code": null}), "code"),
        (json!({"code": "", "source": 1}), "source"),
        (json!({"code": "", "timeout": -1}), "timeout"),
        (json!({"code": "", "timeout": 0}), "timeout"),
        (json!({"code": "", "timeout": "1"}), "timeout"),
        (json!({"code": "", "max_output_bytes": "1000"}), "max_output_bytes"),
        (json!({"code": "", "max_output_bytes": 1000.5}), "max_output_bytes"),
        (json!({"op": "dance"}), "dance"),
        (json!({"op": 1}), "op"),
        (json!({"op": "set"}), "variables"),
        (json!({"op": "set", "variables": []}), "variables"),
        (json!({"shutdown": "now"}), "shutdown"),
    ] {
        let mut request = request;
        request["seq"] = 3.into();
        refuses(worker, request.to_string().as_bytes(), 3, named)?;
    }
    refuses(worker, br#"{"code": "", "seq": "3"}"#, -1, "seq")?;
    refuses(worker, br#"{"code": "", "seq": 1.5}"#, -1, "seq")
}

fn seq_of_invalid_json(worker: &mut Worker<'_>) -> Check {
    refuses(worker, br#"{"code": tru, "seq": 9}"#, 9, "")?;
    refuses(worker, br#"{"seq": -12, "code": 'x'}"#, -12, "")?;
    refuses(worker, br#"{"seq": 7, "code": "cut"#, 7, "")
}

fn too_large(worker: &mut Worker<'_>) -> Check {
    let of_size = |bytes: usize| {
        let head = r#"{"op": "info", "seq": 5, "note": ""#;
        format!("{head}{}\"}}", "x".repeat(bytes - head.len() - 2))
    };
    worker.send(of_size(MAX_REQUEST_BYTES).as_bytes())?;
    fields(&json!({"outcome": "ok"}), &worker.response_to(5)?)?;
    let bytes = MAX_REQUEST_BYTES + 1;
    refuses(worker, of_size(bytes).as_bytes(), 5, &bytes.to_string())
}

fn cut_off(worker: &mut Worker<'_>) -> Check {
    let request = br#"{"op": "info", "note": [1, {"a": "}"}], "seq": 77}"#;
    for cut in 1..request.len() {
        worker.send(&request[..cut])?;
        let response = worker.receive()?;
        must_be_refused(&response, &cut.to_string())?;
    }
    goes_on(worker)
}

fn garbage(worker: &mut Worker<'_>) -> Check {
    for bytes in [&b"nonsense\nmore\n"[..], b"a\nb\nc", "line\n".repeat(100_000).as_bytes()] {
        refuses(worker, bytes, -1, "")?;
    }
    let fifo = worker.commands()?;
    worker.write(&fifo, b"oops")?;
    must_be_refused(&worker.response_to(-1)?, "oops")?;
    worker.write(&fifo, br#"{"op": "info", "seq": 1}"#)?;
    fields(&json!({"outcome": "ok"}), &worker.response_to(1)?)
}

fn garbage_before_a_document(worker: &mut Worker<'_>) -> Check {
    worker.send(b"oops\n{\"op\": \"info\", \"seq\": 4}")?;
    // Two requests that did not wait for each other: their responses may meet in the FIFO.
    let mut bytes = Vec::new();
    let mut documents: Vec<Value> = Vec::new();
    while documents.len() < 2 {
        let fifo = worker.responses()?;
        bytes.extend(worker.read_to_end(&fifo, 64 << 10)?);
        documents = serde_json::Deserializer::from_slice(&bytes).into_iter().map_while(Result::ok).collect();
    }
    must_be_refused(&documents[0], "oops")?;
    same("`seq` of both", &[&json!(-1), &json!(4)], &[&documents[0]["seq"], &documents[1]["seq"]])
}

fn white_space(worker: &mut Worker<'_>) -> Check {
    for bytes in [&b""[..], b" \n", b"\n\n\t\r\n"] {
        worker.send(bytes)?;
    }
    goes_on(worker)?;
    worker.send(b"\n {\"op\": \"info\", \"seq\": 3}\n\n")?;
    worker.response_to(3)?;
    goes_on(worker)
}

fn deep_nesting(worker: &mut Worker<'_>) -> Check {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    refuses(worker, deep.as_bytes(), -1, "")
}

fn session_is_untouched(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.keeps)?;
    let answered = worker.call(worker.code.answers)?;
    refuses(worker, b"nonsense", -1, "nonsense")?;
    let response = worker.call(worker.code.shows_kept)?;
    fields(&json!({"stdout": "[value]", "execution_count": 3, "answer": answered["answer"]}), &response)
}
