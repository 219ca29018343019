//! Input that is not a request, and the answer to it.

/// Bytes as [`latin_1`] reads them, the `seq` of the answer, and a part of its hint.
pub const MALFORMED: [(&str, i64, &str); 22] = [
    ("{\"code\": tru, \"seq\": 9}", 9, "request is not valid JSON"),
    ("{\"code\": 'x', \"seq\": 9}", 9, "request is not valid JSON"),
    ("hello", -1, "found \"hello"),
    ("hello\nworld\n", -1, "found \"hello"),
    ("42", -1, "found \"42\""),
    ("\"text\"", -1, "expected an object"),
    ("}", -1, "expected an object"),
    ("[1, 2]", -1, "request is an array, expected a JSON object"),
    ("[] x\n", -1, "request is an array, expected a JSON object"),
    ("{\"seq\": 3}", 3, "no field `code`"),
    ("{\"code\": 1, \"seq\": 3}", 3, "field `code` is the number 1, expected a string"),
    ("{\"code\": null, \"seq\": 3}", 3, "field `code` is null"),
    ("{\"code\": \":\", \"seq\": \"3\"}", -1, "field `seq` is a string, expected a 64-bit integer"),
    ("{\"code\": \":\", \"seq\": 1.5}", -1, "field `seq` is the number 1.5"),
    (
        "{\"op\": \"dance\", \"seq\": 3}",
        3,
        "unknown op `dance`: expected `execute`, `reset`, `set`, `complete`, `info`, `save`, `load` or `branch`",
    ),
    ("{\"op\": \"branch\", \"seq\": 3}", 3, "no field `name`, a name of 1 to 107 bytes"),
    ("{\"op\": 1, \"seq\": 3}", 3, "field `op` is the number 1"),
    ("{\"code\": \":\", \"timeout\": -1, \"seq\": 3}", 3, "field `timeout` is the number -1"),
    ("{\"code\": \":\", \"max_output_bytes\": \"x\", \"seq\": 3}", 3, "field `max_output_bytes` is a string"),
    ("{\"shutdown\": \"now\", \"seq\": 3}", 3, "field `shutdown` is a string"),
    ("{\"seq\": 3, \"code\": \"\u{ff}\"}", 3, "request is not valid UTF-8: byte 0xff at offset 20"),
    ("{\"seq\": 7, \"code\": \"cut", 7, "request was cut off after 23 bytes"),
];

/// The bytes that these characters, U+0000 to U+00FF, stand for.
#[must_use]
pub fn latin_1(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(u32::from(char)).unwrap_or(b'?')).collect()
}
