//! Server-sent events, as their standard reads them (<https://html.spec.whatwg.org/multipage/server-sent-events.html>): lines end
//! in any of three ways, invalid UTF-8 is replaced, other fields and comments are skipped, and so are events without data. Crates
//! for server-sent events end the stream at such an event.

/// Takes bytes as they come, and gives the data of each event.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The bytes of a line that has not ended.
    line: Vec<u8>,
    /// The data of an event that has not ended.
    data: Option<String>,
    /// True if the byte before was a carriage return.
    was_return: bool,
    is_begun: bool,
}

impl Events {
    /// Adds bytes. `event` gets the data of each event that ends with them.
    pub(super) fn add(&mut self, bytes: &[u8], mut event: impl FnMut(String)) {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let follows_return = std::mem::take(&mut self.was_return) && at == 0 && rest[0] == b'\n';
            self.line.extend_from_slice(&rest[..at]);
            self.was_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if !follows_return {
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut event);
            }
        }
        self.was_return &= rest.is_empty();
        self.line.extend_from_slice(rest);
    }

    /// The data of an event that the end of the stream has ended, where it has no blank line behind it: gateways leave that out, and
    /// the vendors' SDKs take the event (openai/openai-node#2725).
    pub(super) fn rest(&mut self) -> Option<String> {
        let mut data = None;
        self.add(b"\n\n", |rest| data = Some(rest));
        data
    }

    /// True while the data of an event arrive.
    pub(super) fn is_within_data(&self) -> bool {
        self.data.is_some() || self.line.starts_with(b"data")
    }

    /// Bytes of the line and the event that have not ended.
    pub(super) fn pending(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(String)) {
        let mark: &[u8] = if std::mem::replace(&mut self.is_begun, true) { b"" } else { b"\xef\xbb\xbf" };
        let line = line.strip_prefix(mark).unwrap_or(line);
        if line.is_empty() {
            if let Some(data) = self.data.take().filter(|data| !data.is_empty()) {
                event(data);
            }
            return;
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = colon.map_or((line, &b""[..]), |colon| (&line[..colon], &line[colon + 1..]));
        let text = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        // llama.cpp's until late 2025 (coddy-project/coddy-agent#106).
        if field == b"error" && text.starts_with('{') {
            return event(format!("{{\"error\":{text}}}"));
        }
        if field != b"data" {
            return;
        }
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&text);
            }
            None => self.data = Some(text.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream that comes in pieces of this length.
    fn events(stream: &[u8], length: usize) -> Vec<String> {
        let (mut parsed, mut found) = (Events::default(), Vec::new());
        stream.chunks(length).for_each(|piece| parsed.add(piece, |data| found.push(data)));
        found
    }

    #[track_caller]
    fn check(stream: &[u8], expected: &[&str]) {
        for length in [1, 2, 3, 7, 1000] {
            assert_eq!(events(stream, length), expected, "in pieces of {length} bytes");
        }
    }

    #[test]
    fn events_have_data_whatever_else_they_have() {
        check(b": hello\n\nevent: message_start\nid: 7\ndata: {\"a\": 1}\nretry: 10\n\n", &["{\"a\": 1}"]);
        check(b"event: ping\n\ndata\n\ndata:\n\ndata:x\n\n", &["x"]);
        check(b"data: 1\ndata: 2\n\ndata: not ended", &["1\n2"]);
        check(b"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n", &["1"]);
    }

    #[test]
    fn an_event_may_be_a_field_of_an_error_or_end_with_the_stream() {
        check(b"error: {\"code\": 400}\n\ndata: 1\n\n", &["{\"error\":{\"code\": 400}}", "1"]);
        check(b"error: in words\n\n", &[]);
        for (stream, rest) in [
            ("data: 1\n\ndata: 2", Some("2")),
            ("data: 2\n", Some("2")),
            ("data: 2\r\n\r\n", None),
            (": 2", None),
        ] {
            let mut events = Events::default();
            events.add(stream.as_bytes(), drop);
            assert_eq!(events.rest().as_deref(), rest, "{stream:?}");
        }
    }

    #[test]
    fn lines_end_in_three_ways() {
        check(b"data: 1\r\n\r\ndata: 2\r\rdata: 3\n\ndata: 4\r\n\n", &["1", "2", "3", "4"]);
        check(b"data: a\rdata: b\r\n\r\n", &["a\nb"]);
    }

    #[test]
    fn text_that_is_no_utf8_is_replaced() {
        check("data: né\n\n".as_bytes(), &["né"]);
        check(b"data: n\xff\xc3\n\n", &["n\u{fffd}\u{fffd}"]);
    }
}
