//! The transport to the client: one message per line, in both directions.
//!
//! The SDK drops messages that it cannot parse, and the client waits for an answer forever. Here a request whose id can be
//! found is passed on, to be answered with an error: see [`Unreadable`]. Any other line that is not a message is dropped.
//!
//! The client is gone when its requests end or its reader of replies is closed. That is an event.

use std::io;

use rmcp::model::{ClientRequest, CustomRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize;
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty, empty};
use tokio_util::sync::CancellationToken;

/// Longest message of a client, in bytes: more than the largest code with every character escaped. A longer one is dropped.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Capacity of the line buffer that is kept after a longer line, in bytes.
const KEPT_LINE_BYTES: usize = 64 << 10;

/// The answer to a request that cannot be parsed. Stands in the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct Unreadable(pub(super) ErrorData);

/// The requests and replies of a client.
pub(super) struct Requests<R, W: AsyncWrite> {
    reader: BufReader<R>,
    /// The line so far: the wait for the rest of it may be cancelled.
    line: Vec<u8>,
    /// True while the rest of an overlong line is skipped.
    is_dropping: bool,
    replies: AsyncRwTransport<RoleServer, Empty, W>,
    end: CancellationToken,
}

impl<R, W> Requests<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// The transport, and the event that the client is gone.
    pub(super) fn new(reader: R, writer: W) -> (Self, CancellationToken) {
        let end = CancellationToken::new();
        let requests = Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            is_dropping: false,
            replies: AsyncRwTransport::new_server(empty(), writer),
            end: end.clone(),
        };
        (requests, end)
    }

    /// Reads up to the end of a line. False at the end of the input. Cancel-safe.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(false);
            }
            let line_end = read.iter().position(|byte| *byte == b'\n');
            let count = line_end.map_or(read.len(), |at| at + 1);
            if !self.is_dropping && self.line.len() + count > MAX_MESSAGE_BYTES {
                tracing::error!(limit = MAX_MESSAGE_BYTES, "a message is too long, it is dropped");
                self.is_dropping = true;
                self.line = Vec::new();
            }
            if !self.is_dropping {
                self.line.extend_from_slice(&read[..count]);
            }
            self.reader.consume(count);
            if line_end.is_some() && !std::mem::take(&mut self.is_dropping) {
                return Ok(true);
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for Requests<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        reply: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (sent, end) = (self.replies.send(reply), self.end.clone());
        async move { sent.await.inspect_err(|_closed| end.cancel()) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot read what the client sends");
                    break;
                }
            }
            let message = message(&self.line);
            self.line.clear();
            self.line.shrink_to(KEPT_LINE_BYTES);
            if message.is_some() {
                return message;
            }
        }
        self.end.cancel();
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.replies.close().await
    }
}

/// The message in a line; None if it is not a message and no client waits for an answer.
fn message(line: &[u8]) -> Option<RxJsonRpcMessage<RoleServer>> {
    // Some clients begin with a byte order mark.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return None;
    }
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Some(message),
        Err(error) => error,
    };
    let Some((id, answer)) = refusal(line, &error) else {
        tracing::warn!(%error, "a line that is not a message is dropped");
        return None;
    };
    tracing::warn!(%id, %error, "a request cannot be read");
    let mut request = CustomRequest::new("", None);
    request.extensions.insert(Unreadable(answer));
    Some(JsonRpcMessage::request(ClientRequest::CustomRequest(request), id))
}

/// The fields of a request that can be read although others cannot: half a surrogate pair or a number out of range is an
/// error only in the field that holds it.
#[derive(Deserialize)]
struct Outline {
    id: RequestId,
    method: String,
    jsonrpc: String,
}

/// The id of a request that cannot be parsed, and its answer.
fn refusal(line: &[u8], error: &serde_json::Error) -> Option<(RequestId, ErrorData)> {
    let outline: Outline = serde_json::from_str(&String::from_utf8_lossy(line)).ok()?;
    let (code, message) = match error.classify() {
        Category::Data if outline.jsonrpc == "2.0" => {
            (ErrorCode::INVALID_PARAMS, format!("the parameters of `{}` cannot be read", outline.method))
        }
        Category::Data => {
            (ErrorCode::INVALID_REQUEST, format!("`jsonrpc` is `{}`, expected `2.0`", outline.jsonrpc))
        }
        Category::Syntax | Category::Eof | Category::Io => {
            (ErrorCode::PARSE_ERROR, format!("the message cannot be read: {error}"))
        }
    };
    Some((outline.id, ErrorData::new(code, message, None)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncWriteExt, duplex, sink};

    use super::*;

    async fn methods(input: &[u8]) -> Vec<String> {
        let (mut requests, end) = Requests::new(input, sink());
        let mut methods = Vec::new();
        while let Some(message) = requests.receive().await {
            assert!(!end.is_cancelled());
            match message {
                JsonRpcMessage::Request(request) => methods.push(request.request.method().to_owned()),
                other => panic!("{other:?}"),
            }
        }
        assert!(end.is_cancelled());
        methods
    }

    #[tokio::test]
    async fn messages_are_lines_and_other_lines_are_dropped() {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        let long = "x".repeat(MAX_MESSAGE_BYTES + 1);
        let input = format!("\u{feff}{ping}\r\n\n {{}}\n[{ping}]\n{{\n{long}\n{ping}\n{ping}");
        assert_eq!(methods(input.as_bytes()).await, ["ping", "ping"]);
    }

    #[tokio::test]
    async fn reading_a_line_continues_after_it_was_cancelled() {
        let (theirs, mut ours) = duplex(64);
        let (mut requests, _end) = Requests::new(theirs, sink());
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        let (head, tail) = ping.split_at(10);
        for part in [head, tail] {
            ours.write_all(part.as_bytes()).await.unwrap();
            tokio::select! {
                biased;
                message = requests.receive() => panic!("{message:?}"),
                () = std::future::ready(()) => {}
            }
        }
        ours.write_all(b"\n").await.unwrap();
        assert!(requests.receive().await.is_some());
    }

    #[tokio::test]
    async fn a_client_that_reads_no_replies_is_gone() {
        let (theirs, ours) = duplex(64);
        let (mut requests, end) = Requests::new(empty(), ours);
        drop(theirs);
        let reply = JsonRpcMessage::error(ErrorData::internal_error("x", None), None);
        requests.send(reply).await.unwrap_err();
        assert!(end.is_cancelled());
    }

    #[test]
    fn a_request_that_cannot_be_read_is_answered() {
        let answer = |line: &[u8]| match message(line) {
            Some(JsonRpcMessage::Request(request)) => {
                let ClientRequest::CustomRequest(custom) = request.request else { panic!("{line:?}") };
                let Unreadable(error) = custom.extensions.get().cloned().unwrap();
                Some((request.id.to_string(), error.code.0, error.message.into_owned()))
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        let error = |id: &str, code, message: &str| Some((id.to_owned(), code, message.to_owned()));
        let call = |arguments: &str| {
            format!(
                r#"{{"method":"tools/call","params":{{"name":"bash","arguments":{arguments}}},"jsonrpc":"2.0","id":"a"}}"#
            )
        };
        let half = answer(call(r#"{"code":"\ud800"}"#).as_bytes()).unwrap();
        assert_eq!((half.0.as_str(), half.1), ("a", -32700));
        assert!(half.2.starts_with("the message cannot be read: "), "{}", half.2);
        let deep = call(&format!("{}{}", "[".repeat(200), "]".repeat(200)));
        for line in [
            call(r#"{"timeout":1e400}"#).as_bytes(),
            deep.as_bytes(),
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"\xff\"}",
        ] {
            assert_eq!(answer(line).map(|(id, code, _)| (id, code)), Some(("a".to_owned(), -32700)));
        }
        assert_eq!(
            answer(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#),
            error("7", -32602, "the parameters of `tools/call` cannot be read")
        );
        assert_eq!(
            answer(br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#),
            error("7", -32600, "`jsonrpc` is `1.0`, expected `2.0`")
        );
        // A notification, a response, or a message without a readable id.
        for line in [
            &br#"{"jsonrpc":"2.0","method":"x","params":"\ud800"}"#[..],
            b"{\"id\":7",
            b"7",
            br#"{"id":7,"result":1e400}"#,
        ] {
            assert_eq!(answer(line), None);
        }
    }
}
