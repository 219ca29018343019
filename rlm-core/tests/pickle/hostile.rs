//! Pickles from hostile senders and truncated ones: each is refused, naming the fault and its place.

use rlm_core::pickle::{Limits, Value, decode};

use super::fixtures::cases;

#[track_caller]
fn refused(pickle: &[u8], error: &str) {
    match decode(pickle, &Limits::default()) {
        Ok(value) => panic!("read as {value:?}"),
        Err(found) => assert_eq!(found.to_string(), format!("pickle, {error}")),
    }
}

#[track_caller]
fn taken(pickle: &[u8], repr: &str) {
    match decode(pickle, &Limits::default()) {
        Ok(value) => assert_eq!(value.repr(10_000).unwrap(), repr),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn everything_but_plain_data_is_refused_by_name() {
    refused(b"cos\nsystem\n(S'id'\ntR.", r#"byte 0: global "os.system" refused: only plain data is read"#);
    refused(
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        r#"byte 18: global "builtins.eval" refused: only plain data is read"#,
    );
    refused(
        b"cbuiltins\nset.__class__\n.",
        r#"byte 0: global "builtins.set.__class__" refused: only plain data is read"#,
    );
    refused(
        b"ccopyreg\n_reconstructor\n.",
        r#"byte 0: global "copyreg._reconstructor" refused: only plain data is read"#,
    );
    refused(
        b"cpathlib\nPosixPath\n(S'a'\ntR.",
        r#"byte 0: global "pathlib.PosixPath" refused: write str(path) for a path"#,
    );
    refused(b"(ios\nsystem\n.", r#"byte 1: INST of "os.system" refused: only plain data is read"#);
    refused(b"(cbuiltins\nset\no.", "byte 15: OBJ refused: only plain data is read");
    refused(b"cbuiltins\nset\n)\x81.", "byte 15: NEWOBJ refused: only plain data is read");
    refused(b"cbuiltins\nset\n)}\x92.", "byte 16: NEWOBJ_EX refused: only plain data is read");
    refused(b"]}b.", "byte 2: BUILD refused: only plain data is read");
    refused(b"Pid\n.", r#"byte 0: PERSID "id" refused: only plain data is read"#);
    refused(b"NQ.", "byte 1: BINPERSID refused: only plain data is read");
    refused(b"\x82\x07.", "byte 0: EXT1 7 refused: only plain data is read");
    refused(b"\x83\x07\x01.", "byte 0: EXT2 263 refused: only plain data is read");
    refused(b"\x84\x07\0\0\0.", "byte 0: EXT4 7 refused: only plain data is read");
    refused(b"\x97.", "byte 0: NEXT_BUFFER refused: only plain data is read");
    refused(b"N\x98.", "byte 1: READONLY_BUFFER refused: only plain data is read");
    refused(b"]cbuiltins\nset\na.", "byte 0: class set as a value refused: only plain data is read");
    refused(
        b"c_codecs\nencode\n.",
        "byte 16: class _codecs.encode as a value refused: only plain data is read",
    );
    let long = [b"c", &b"m\xff\""[..], &[b'x'; 1000], b"\nname\n."].concat();
    let shown = format!(r#"m\xff\"{}"#, "x".repeat(77));
    refused(&long, &format!(r#"byte 0: global "{shown}"… refused: only plain data is read"#));
}

#[test]
fn allowed_classes_may_only_be_called_as_plain_data_does() {
    taken(b"cbuiltins\nset\n]\x85R.", "set()");
    taken(b"c__builtin__\nfrozenset\n(K\x01K\x02K\x01t\x85R.", "frozenset({1, 2})");
    taken(b"cbuiltins\nbytes\n)R.", "b''");
    taken(b"cbuiltins\nbytearray\nC\x02ab\x85R.", "bytearray(b'ab')");
    taken(b"cbuiltins\nbytearray\n(K\x01K\xfft\x85R.", r"bytearray(b'\x01\xff')");
    taken(b"cbuiltins\nbytearray\n(X\x02\0\0\0\xc3\xa9U\x07latin-1tR.", r"bytearray(b'\xe9')");
    refused(b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "byte 26: call of bytearray(int) refused");
    refused(b"cbuiltins\nbytes\nK\x01\x85R.", "byte 19: call of bytes(int) refused");
    refused(b"cbuiltins\nbytes\n(M\0\x01t\x85R.", "byte 22: call of bytes(tuple) refused");
    refused(b"cbuiltins\nset\n}\x85R.", "byte 16: call of set(dict) refused");
    refused(b"cbuiltins\nset\n]]\x86R.", "byte 17: call of set(list, list) refused");
    refused(b"cbuiltins\nset\n(]t\x85R.", "byte 18: unhashable list as a key");
    refused(
        b"c_codecs\nencode\nX\x01\0\0\0aU\x04utf8\x86R.",
        "byte 29: call of _codecs.encode(str, str) refused",
    );
    refused(
        b"c_codecs\nencode\nX\x02\0\0\0\xc4\x80U\x06latin1\x86R.",
        "byte 32: call of _codecs.encode(str, str) refused",
    );
    refused(b"c_codecs\nencode\n)R.", "byte 17: call of _codecs.encode() refused");
    refused(b"cbuiltins\nset\n]R.", "byte 15: REDUCE on list, expected tuple");
    refused(b"])R.", "byte 2: REDUCE on list, expected class");
    refused(b"NN\x93.", "byte 2: STACK_GLOBAL on NoneType, expected str");
}

#[test]
fn malformed_pickles_are_refused() {
    refused(b"", "byte 0: truncated: 1 more bytes expected, 0 left");
    refused(b"N", "byte 1: truncated: 1 more bytes expected, 0 left");
    refused(b".", "byte 0: stack underflow in STOP");
    refused(b"(.", "byte 1: stack underflow in STOP");
    refused(b"NN.", "byte 2: STOP with 2 values on the stack, expected 1");
    refused(b"N.N.", "byte 1: 2 bytes after STOP");
    refused(b"\x80\x06N.", "byte 0: protocol 6 unknown, expected 0 to 5");
    refused(b"\x80\xffN.", "byte 0: protocol 255 unknown, expected 0 to 5");
    refused(b"\xff.", "byte 0: unknown opcode 0xff");
    refused(b"{}", "byte 0: unknown opcode 0x7b");
    refused(b"0.", "byte 0: stack underflow in POP");
    refused(b"1.", "byte 0: no mark for POP_MARK");
    refused(b"N(2.", "byte 2: stack underflow in DUP");
    refused(b"Na.", "byte 1: stack underflow in APPEND");
    refused(b"](Na.", "byte 3: stack underflow in APPEND");
    refused(b"(Ne.", "byte 2: stack underflow in APPENDS");
    refused(b"]N\x86a.", "byte 3: stack underflow in APPEND");
    refused(b"NNa.", "byte 2: APPEND on NoneType, expected list");
    refused(b")Na.", "byte 2: APPEND on tuple, expected list");
    refused(b"](NNu.", "byte 4: SETITEMS on list, expected dict");
    refused(b"}(NNNu.", "byte 5: SETITEMS with an odd number of items");
    refused(b"(Nd.", "byte 2: DICT with an odd number of items");
    refused(b"}]Ns.", "byte 3: unhashable list as a key");
    refused(b"}N}\x86Ns.", "byte 5: unhashable tuple as a key");
    refused(b"\x8f(\x8f\x90.", "byte 3: unhashable set as a key");
    refused(b"(\x96\0\0\0\0\0\0\0\0\x91.", "byte 10: unhashable bytearray as a key");
    refused(b"t.", "byte 0: no mark for TUPLE");
    refused(b"N\x87.", "byte 1: stack underflow in TUPLE3");
    refused(b"h\x05.", "byte 0: no memo entry 5");
    refused(b"q\0.", "byte 0: stack underflow in BINPUT");
    refused(b"g-1\n.", r#"byte 0: GET argument "-1" is not a memo index"#);
    refused(b"NpX\n.", r#"byte 1: PUT argument "X" is not a memo index"#);
    refused(b"I0x10\n.", r#"byte 0: INT argument "0x10" is not a decimal int"#);
    refused(b"I\n.", r#"byte 0: INT argument "" is not a decimal int"#);
    refused(b"L1LL\n.", r#"byte 0: LONG argument "1LL" is not a decimal int"#);
    refused(b"F1_0\n.", r#"byte 0: FLOAT argument "1_0" is not a float"#);
    refused(b"S'a\n.", r#"byte 0: STRING argument "\'a" is not a quoted string"#);
    refused(b"S'\\xe9'\n.", r#"byte 0: STRING argument "\'\\xe9\'" is not ASCII"#);
    refused(b"U\x01\xe9.", r#"byte 0: SHORT_BINSTRING argument "\xe9" is not ASCII"#);
    refused(b"T\xff\xff\xff\xff.", r#"byte 0: BINSTRING argument "-1" is not a length of 0 or more"#);
    refused(b"\x8b\xff\xff\xff\xff.", r#"byte 0: LONG4 argument "-1" is not a length of 0 or more"#);
    refused(b"X\x01\0\0\0\xff.", r#"byte 0: BINUNICODE argument "\xff" is not UTF-8"#);
    refused(b"V\\u12\n.", r#"byte 0: UNICODE argument "\\u12" is not text with \u escapes"#);
    refused(b"I1", "byte 0: truncated: no end of line after 1 bytes");
}

#[test]
fn opcodes_of_old_picklers_are_read() {
    taken(b"(lp0\nI1\naI01\naL5L\na.", "[1, True, 5]");
    taken(b"(S'a'\nI-2\nV\\u00e9\nF1.5\nd.", "{'a': -2, 'é': 1.5}");
    taken(b"T\x01\0\0\0aU\x01b\x86.", "('a', 'b')");
    taken(b"N(NN1.", "None");
    taken(b"N(0.", "None");
    taken(b"Nr\xff\xff\xff\0j\xff\xff\xff\0\x86.", "(None, None)");
    taken(b"](e](e\x86.", "([], [])");
    taken(b"}(u(K\x01NK\x02\x88u\x8f(\x90\x86.", "({1: None, 2: True}, set())");
}

#[test]
fn declared_lengths_are_not_believed() {
    let all = u64::MAX;
    refused(b"X\xff\xff\xff\xff.", "byte 0: truncated: 4294967295 more bytes expected, 1 left");
    refused(
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        &format!("byte 0: truncated: {all} more bytes expected, 1 left"),
    );
    refused(
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        &format!("byte 0: truncated: {all} more bytes expected, 1 left"),
    );
    refused(
        b"\x96\xff\xff\xff\xff\xff\xff\xff\xff.",
        &format!("byte 0: truncated: {all} more bytes expected, 1 left"),
    );
    refused(
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.",
        &format!("byte 0: truncated: {all} more bytes expected, 2 left"),
    );
    refused(b"\x8b\xff\xff\xff\x7f.", "byte 0: more than 4096 bytes in an int");
    taken(b"\x95\0\0\0\0\0\0\0\0N.", "None");
}

#[test]
fn numbers_are_bounded() {
    let digits = |opcode: &str, count| [opcode.as_bytes(), &vec![b'9'; count], b"\n."].concat();
    refused(&digits("L", 2_000_000), "byte 0: more than 4300 digits in a number");
    refused(&digits("I", 5000), "byte 0: more than 4300 digits in a number");
    refused(&digits("F", 5000), "byte 0: more than 4300 digits in a number");
    refused(&digits("g", 5000), "byte 0: more than 4300 digits in a number");
    taken(&digits("L-", 4300), &format!("-{}", "9".repeat(4300)));
    refused(b"Nr\0\0\0\x10.", "byte 1: memo index 268435456 over the limit of 16777216");
    refused(
        b"Np99999999999999999999\n.",
        r#"byte 1: PUT argument "99999999999999999999" is not a memo index"#,
    );
}

#[test]
fn a_structure_that_contains_itself_is_refused() {
    refused(b"]q\0h\0a.", "byte 0: recursive structure: this list contains itself");
    refused(b"\x80\x04}\x94Nh\0s.", "byte 2: recursive structure: this dict contains itself");
    refused(b"]q\0h\0\x85a.", "byte 0: recursive structure: this list contains itself");
    refused(b"]q\0h\0\x85q\x01a0h\x01.", "byte 5: recursive structure: this tuple contains itself");
    refused(b"]q\0](h\0h\0ea.", "byte 0: recursive structure: this list contains itself");
    // A cycle that the result does not reach does not matter.
    taken(b"]q\0h\0a0N.", "None");
}

#[test]
fn depth_is_bounded_on_every_path() {
    let nested = |levels: usize| [vec![b')'], vec![0x85; levels - 1], vec![b'.']].concat();
    // The innermost of the outermost 201 levels is the first one over the limit.
    refused(&nested(201), "byte 0: more than 200 levels of nesting");
    refused(&nested(1_000_000), "byte 999799: more than 200 levels of nesting");
    let two_ways = [&b"](K\x01)q\0"[..], &[0x85; 150], b"q\x01h\x01", &[0x85; 49], b"e."].concat();
    refused(&two_ways, "byte 0: more than 200 levels of nesting");
}

#[test]
fn deep_values_are_read_walked_and_dropped_on_a_small_stack() {
    let walk = || {
        let lists = [&vec![b']'; 200][..], &[b'a'; 199], b"."].concat();
        let tuples = [&b")"[..], &[0x85; 199], b"."].concat();
        let dicts = [&b"}N".repeat(199)[..], b"}", &[b's'; 199], b"."].concat();
        let keys = [&b"}"[..], b")", &[0x85; 198], b"Ns."].concat();
        for pickle in [lists, tuples, dicts, keys] {
            let value = decode(&pickle, &Limits::default()).unwrap();
            let again = decode(&pickle, &Limits::default()).unwrap();
            assert_eq!(value, again);
            assert!(value.repr(10_000).is_ok());
            let json = value.to_json(10_000);
            assert_eq!(json.is_ok(), !pickle.starts_with(b"})"), "{json:?}");
            if let Ok(json) = json {
                assert!(Value::from_json(&json).is_ok());
            }
            let written = rlm_core::pickle::encode(&value).unwrap();
            assert_eq!(decode(&written, &Limits::default()).unwrap(), value);
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(walk).unwrap().join().unwrap();
}

#[test]
fn a_pickle_cut_anywhere_is_refused() {
    for case in cases().iter().filter(|case| !case.name.contains("batches")) {
        for pickle in case.pickles() {
            for end in 0..pickle.len() {
                let error = decode(&pickle[..end], &Limits::default()).expect_err("it is truncated");
                assert!(error.to_string().contains("truncated"), "{}, cut at {end}: {error}", case.name);
            }
        }
    }
}

#[test]
fn limits_may_be_tighter() {
    let none = Limits { payload_bytes: 3, opcodes: 2, ..Limits::default() };
    assert_eq!(
        decode(b"NNN.", &none).unwrap_err().to_string(),
        "pickle, byte 3: more than 3 bytes of payload"
    );
    assert_eq!(decode(b"NN.", &none).unwrap_err().to_string(), "pickle, byte 2: more than 2 opcodes");
    let few = Limits { stack: 1, memo_entries: 1, ..Limits::default() };
    assert_eq!(
        decode(b"NN.", &few).unwrap_err().to_string(),
        "pickle, byte 1: more than 1 values on the stack"
    );
    assert_eq!(
        decode(b"Nq\0q\x01.", &few).unwrap_err().to_string(),
        "pickle, byte 3: more than 1 memo entries"
    );
}
