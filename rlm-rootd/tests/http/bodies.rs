//! Bodies that are too large or too slow.

use std::time::Duration;

use rlm_core::root_tool::client;
use rlm_rootd::{RolloutConfig, RootdConfig};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Client, Endpoint, echo, soon, tool_request, tools_request};

const LIMIT: usize = 1000;
const TOO_LARGE: &str = "the body is larger than 1000 bytes";

fn small() -> (Endpoint, rlm_rootd::Registration) {
    let config = RootdConfig {
        max_body_bytes: LIMIT,
        body_time_limit: Duration::from_millis(300),
        ..RootdConfig::default()
    };
    let endpoint = Endpoint::start(config);
    let tool = echo("echo", json!({"type": "object"}));
    let registration = endpoint
        .rootd
        .register("r", RolloutConfig { tools: vec![tool], ..RolloutConfig::default() })
        .unwrap();
    (endpoint, registration)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_at_the_limit_passes_and_one_byte_more_does_not() {
    let (endpoint, r) = small();
    let body = |length: usize| {
        let shell = json!({"tool_name": "echo", "serialization": "json", "args": [""]}).to_string();
        json!({"tool_name": "echo", "serialization": "json", "args": ["x".repeat(length - shell.len())]})
            .to_string()
    };
    let at = endpoint.client().await.exchange(&tools_request(&r, body(LIMIT).as_bytes())).await;
    assert_eq!(at.status, 200);
    let over = endpoint.client().await.exchange(&tools_request(&r, body(LIMIT + 1).as_bytes())).await;
    assert_eq!(over.error(), (413, TOO_LARGE.to_owned()));
    assert!(over.head.contains("\r\nconnection: close\r\n"), "{over:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_over_the_limit_is_refused_before_the_body_is_sent() {
    let (endpoint, r) = small();
    let (path, secret) = (r.tools_url(""), r.secret.reveal());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {secret}\r\nExpect: 100-continue\r\n\
         Content-Length: 99999999999\r\n\r\n"
    );
    assert_eq!(endpoint.client().await.exchange(head.as_bytes()).await.error(), (413, TOO_LARGE.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_body_in_chunks_is_refused_and_read_no_further() {
    let (endpoint, r) = small();
    let (path, secret) = (r.tools_url(""), r.secret.reveal());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {secret}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let client = endpoint.client().await;
    let (read, mut write) = client.stream.into_split();
    let mut reader = Client::new(tokio::io::join(read, tokio::io::sink()));
    write.write_all(head.as_bytes()).await.unwrap();
    let sender = tokio::spawn(async move {
        let mut sent = 0;
        let chunk = [b"100\r\n".as_slice(), &[b'x'; 0x100], b"\r\n"].concat();
        while write.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
            tokio::task::yield_now().await;
        }
        sent
    });
    assert_eq!(reader.receive().await.error(), (413, TOO_LARGE.to_owned()));
    // The part that the kernel's buffers took.
    let sent = soon(sender).await.unwrap();
    assert!(sent < 32 << 20, "{sent}");
    assert_eq!(endpoint.call(&r, "echo", json!([])).await.status, 200);
}

/// The rest of the body is not read, so the connection is reset while it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_sends_too_large_a_body_reads_the_refusal() {
    let config = RootdConfig { max_body_bytes: 8 << 20, ..RootdConfig::default() };
    let endpoint = Endpoint::start(config);
    let r = endpoint.register("r", vec![]);
    let (url, secret) = (r.tools_url(&endpoint.base_url), r.secret.reveal().to_owned());
    let post = move || {
        let client = client::Endpoint::new(&url, Some(secret)).unwrap();
        client.post(&vec![b' '; 12 << 20], &mut None, None, &mut || true).unwrap().into_ok()
    };
    let refused = soon(tokio::task::spawn_blocking(post)).await.unwrap();
    assert_eq!(refused, Err("the body is larger than 8388608 bytes".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_ends_at_its_time_limit_and_a_broken_one_at_once() {
    let (endpoint, r) = small();
    let request = tool_request(&r, "echo", json!([]));
    let mut slow = endpoint.client().await;
    let response = slow.exchange(&request[..request.len() - 1]).await;
    assert_eq!(response.error(), (408, "the body took longer than 0.3 s".to_owned()));
    // The connection is closed, too.
    assert_eq!(soon(slow.stream.read(&mut [0; 10])).await.unwrap(), 0);
    let (path, secret) = (r.tools_url(""), r.secret.reveal());
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {secret}\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
    );
    let (status, message) = endpoint.client().await.exchange(chunked.as_bytes()).await.error();
    assert_eq!(status, 400);
    assert!(message.starts_with("Invalid body: "), "{message}");
    assert_eq!(endpoint.call(&r, "echo", json!([])).await.status, 200);
}
