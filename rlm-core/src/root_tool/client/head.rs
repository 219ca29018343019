//! The head of a response.

/// Most headers in a response.
const MAX_HEADERS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunks,
    ToTheEnd,
}

pub(super) struct Head {
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
}

impl Head {
    /// None if the head is not complete yet. Err: what is malformed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let header = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase())
        };
        let is_chunked = header("transfer-encoding").is_some_and(|value| value.ends_with("chunked"));
        let framing = match header("content-length") {
            _ if is_chunked => Framing::Chunks,
            Some(length) => {
                let length = length.parse();
                Framing::Length(length.map_err(|_| "its Content-Length is not a number")?)
            }
            None => Framing::ToTheEnd,
        };
        let connection = header("connection").unwrap_or_default();
        let keep_alive = match response.version {
            Some(1) => !connection.contains("close"),
            _ => connection.contains("keep-alive"),
        };
        Ok(Some(Self { length, status: response.code.unwrap_or(0), framing, keep_alive }))
    }
}
