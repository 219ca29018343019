//! `rlm doctor`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rlm_tests::Place;

use super::{shown, text};

/// Answers a request for the list of models, and returns the request.
fn serve(listener: &TcpListener, status: &str, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    String::from_utf8(head).unwrap()
}

/// The last line, which is about the model, after this reply.
fn said(model: &str, status: &str, body: &str) -> (String, Option<i32>, String) {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut command = place.rlm(&["doctor", "--model", model]);
    let child = command.env("OPENAI_BASE_URL", &url).env("RLM_API_KEY", "secret-key").spawn().unwrap();
    let request = serve(&listener, status, body);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    let all = text(&output.stdout).to_owned();
    assert!(!all.contains("secret-key"), "{all}");
    for line in ["ok  bash      5.", "ok  python    3."] {
        assert!(all.contains(line), "{all}");
    }
    place.assert_nothing_left();
    (all.lines().last().unwrap().replace(&url, "URL"), output.status.code(), request)
}

#[test]
fn it_says_whether_the_server_has_the_model() {
    let list = r#"{"object": "list", "data": [{"id": "large-model"}, {"id": "small-model"}]}"#;
    let (line, status, request) = said("large-model", "200 OK", list);
    let place = "from model (--model); base_url (OPENAI_BASE_URL): ";
    let expected =
        format!("ok  model     large-model, {place}the server answers, and lists it among 2 models");
    assert_eq!((line, status), (expected, Some(0)));
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer secret-key"), "{request}");
    let (line, status, _) = said("large-mode", "200 OK", list);
    let expected = format!(
        "--  model     large-mode, {place}the server lists 2 models, but not this one: is large-model meant?"
    );
    assert_eq!((line, status), (expected, Some(3)));
    let (line, status, _) = said("m", "401 Unauthorized", r#"{"error": {"message": "no secret-key"}}"#);
    let expected = format!(
        "--  model     m, {place}the model's server answered 401: no [key] (asked URL/models 1 time: is the key right?)"
    );
    assert_eq!((line, status), (expected, Some(3)));
    let (line, status, _) = said("m", "200 OK", "<html></html>");
    assert!(line.contains("malformed") && line.contains("is this an interface like OpenAI's?"), "{line}");
    assert_eq!(status, Some(3));
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_shown() {
    let place = Place::new();
    let output = place.rlm(&["doctor", "--python=/nowhere/python"]).output().unwrap();
    let (seen, errors, status) = shown(&output);
    assert_eq!((errors, status), ("", Some(3)));
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines[0].starts_with("ok  rlm       ") && lines[1].starts_with("ok  bash      "), "{seen}");
    assert!(lines[2].starts_with("--  python    ") && seen.contains("/nowhere/python"), "{seen}");
    assert!(seen.contains("ok  settings  no file; `rlm config` shows all\n"), "{seen}");
    let expected = "--  model     the model is not set: give --model, RLM_MODEL, or `model` in rlm.toml";
    assert_eq!(lines.last(), Some(&expected));
    place.assert_nothing_left();
}
