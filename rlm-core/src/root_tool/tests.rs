use super::*;

fn call() -> Call {
    let kwargs = Dict::from_pairs([(Value::from("limit"), Value::from(3))]).unwrap();
    Call { tool: "search".to_owned(), args: vec![Value::from("a"), Value::from(1.5)], kwargs }
}

#[test]
fn a_call_survives_the_round_trip() {
    for serialization in [Serialization::Pickle, Serialization::Json] {
        let body = call().to_body(serialization).unwrap();
        let envelope = Envelope::parse(&body, &Limits::default()).unwrap();
        assert_eq!(envelope.tool_name().unwrap(), "search");
        assert_eq!(envelope.serialization().unwrap(), serialization);
        assert_eq!(envelope.into_call(&Limits::default()).unwrap(), call());
    }
}

#[test]
fn a_reply_survives_the_round_trip_or_becomes_its_repr_in_json() {
    let reply = Reply {
        result: ToolResult::Value(Value::tuple([Value::None, Value::from("x")])),
        print_lines: vec!["one".to_owned()],
    };
    let limits = Limits::default();
    let body = reply.to_body(Serialization::Pickle).unwrap();
    assert_eq!(Reply::from_body(&body, Serialization::Pickle, &limits).unwrap(), reply);
    let bytes = Reply::of(Value::Bytes(b"\x00".as_slice().into())).to_body(Serialization::Json).unwrap();
    assert_eq!(String::from_utf8(bytes.clone()).unwrap(), r#"{"result_repr":"b'\\x00'"}"#);
    let read = Reply::from_body(&bytes, Serialization::Json, &limits).unwrap();
    assert_eq!(read.result, ToolResult::Repr("b'\\x00'".to_owned()));
    let none = Reply::of(Value::None).to_body(Serialization::Json).unwrap();
    assert_eq!(Reply::from_body(&none, Serialization::Json, &limits).unwrap(), Reply::of(Value::None));
}

#[test]
fn an_error_without_a_result_is_the_reply() {
    let read = |body: &str| {
        let reply = Reply::from_body(body.as_bytes(), Serialization::Json, &Limits::default());
        reply.map_err(|error| error.in_reply_of("t"))
    };
    assert_eq!(read(r#"{"error": "it broke"}"#), Err("it broke".to_owned()));
    assert_eq!(read(r#"{"error": {"code": 3}}"#), Err(r#"{"code":3}"#.to_owned()));
    assert_eq!(read(r#"{"error": "a remark", "result": 5}"#), Ok(Reply::of(5)));
    assert_eq!(read(r#"{"error": "a remark", "result": null}"#), Ok(Reply::of(Value::None)));
    let unreadable = "the answer to t cannot be read: result must be there, not missing";
    assert_eq!(read(r#"{"error": null}"#), Err(unreadable.to_owned()));
}

#[test]
fn errors_name_the_fault() {
    let error = |body: &str| {
        let envelope = Envelope::parse(body.as_bytes(), &Limits::default()).unwrap();
        envelope.into_call(&Limits::default()).unwrap_err().to_string()
    };
    let unread = |body: &str| Envelope::parse(body.as_bytes(), &Limits::default()).unwrap_err().to_string();
    assert!(unread("{").starts_with("Invalid JSON: EOF while parsing"));
    let list = unread(r#"["t", "json", [1], {}]"#);
    assert_eq!(list, "Invalid JSON: the body must be a JSON object, not list");
    assert_eq!(error("{}"), "Tool name not provided");
    assert_eq!(error(r#"{"tool_name": ""}"#), "Tool name not provided");
    assert_eq!(
        error(r#"{"tool_name": "t", "serialization": "yaml"}"#),
        "serialization is \"yaml\", expected \"pickle\" or \"json\""
    );
    assert_eq!(
        error(r#"{"tool_name": "t", "args": "?"}"#),
        "args is not base64: Invalid symbol 63, offset 0."
    );
    assert_eq!(error(r#"{"tool_name": "t", "args": [1]}"#), "args must be base64 text, not \"[1]\"");
    // An empty list, where a tuple is expected.
    assert_eq!(error(r#"{"tool_name": "t", "args": "gARdlC4="}"#), "args must be a tuple, not list");
    assert_eq!(
        error(r#"{"tool_name": "t", "serialization": "json", "args": {}}"#),
        "args must be a list, not dict"
    );
}
