//! `answer` is read correctly, whatever a cell makes of it. Without numpy, which plain interpreters do not have.

use rlm_core::protocol::{Answer, Outcome, State};
use rlm_tests::Worker;

/// Runs a cell that must succeed, and checks the answer after it.
#[track_caller]
fn check(worker: &mut Worker, code: &str, ready: bool, content: &str) {
    let response = worker.call(code);
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
    assert_eq!(response.answer, Answer { ready, content: content.to_owned() }, "{code:?}");
}

const HOSTILE: &str = "
class Hostile:
    def __str__(self): raise ValueError
    __repr__ = __bool__ = __len__ = __eq__ = __hash__ = __str__
class HostileDict(dict):
    def __getitem__(self, key): raise ValueError
    def __getattribute__(self, name): raise ValueError
    __contains__ = __iter__ = __len__ = __eq__ = __hash__ = __bool__ = get = items = __getitem__
class HostileStr(str):
    def __str__(self): raise ValueError
    __repr__ = __eq__ = encode = __str__
    __hash__ = str.__hash__
class Leaving:
    def __str__(self): raise SystemExit
    def __bool__(self): raise KeyboardInterrupt
    def __repr__(self): return 'its repr'
";

#[test]
fn the_answer_is_what_the_dict_holds() {
    let mut worker = Worker::python();
    check(&mut worker, "1", false, "");
    check(&mut worker, "answer['content'] = 'first'", false, "first");
    check(&mut worker, "answer['ready'] = True", true, "first");
    check(&mut worker, "x = 1", true, "first");
    check(&mut worker, "answer['content'] += ' é\\n'; answer['ready'] = 0", false, "first é\n");
    check(&mut worker, "def f():\n    answer['content'] = 'inner'\nf()", false, "inner");
    let response = super::raises(&mut worker, "answer['content'] = 'kept'; 1 / 0", "ZeroDivisionError");
    assert_eq!(response.answer, Answer { ready: false, content: "kept".to_owned() });
    worker.end();
}

#[test]
fn an_answer_that_is_not_a_dict_is_its_own_content_and_never_final() {
    let mut worker = Worker::python();
    check(&mut worker, "del answer", false, "");
    check(&mut worker, "answer = 'text'", false, "text");
    check(&mut worker, "answer = ''", false, "");
    check(&mut worker, "answer = ['a', 1]", false, "['a', 1]");
    check(&mut worker, "answer = []", false, "[]");
    check(&mut worker, "answer = None", false, "None");
    check(&mut worker, "answer = {}", false, "");
    check(&mut worker, "answer['ready'] = 1", true, "");
    check(&mut worker, "answer = True", false, "True");
    check(&mut worker, "del answer; globals()['answer'] = 5", false, "5");
    worker.end();
}

#[test]
fn the_call_that_makes_the_answer_something_else_than_a_dict_is_told_how_to_finish() {
    let mut worker = Worker::python();
    let hint = worker.call("answer = 'text'").hint.expect("a hint");
    assert_eq!(
        hint,
        "`answer` is now of type str, not a dict: its text is the content, and it is not final; to finish, set \
         answer = {\"ready\": True, \"content\": ...}, or answer[\"ready\"] = True in such a dict"
    );
    for code in ["x = 1", "answer += ''"] {
        assert_eq!(worker.call(code).hint, None, "it was told already");
    }
    let hint = worker.call("answer = 5; exit()").hint.expect("a hint");
    assert!(hint.starts_with("exit only ends the cell; the session goes on; `answer` is now of type int"));
    assert_eq!(worker.call("x = 1").hint, None, "it was told already");
    assert_eq!(worker.call("answer = {'ready': True, 'content': 'x'}").hint, None);
    assert!(worker.call("answer = answer['content']").hint.is_some());
    assert_eq!(worker.call("del answer").hint, None);
    worker.end();
}

#[test]
fn content_of_any_type_is_text() {
    let mut worker = Worker::python();
    let cases = [
        ("None", ""),
        ("b'by\\xfftes \\xc3\\xa9'", "by\u{fffd}tes é"),
        ("bytearray(b'array')", "array"),
        ("1.5", "1.5"),
        ("float('nan')", "nan"),
        ("10 ** 30", "1000000000000000000000000000000"),
        ("{3}", "{3}"),
        ("True", "True"),
        ("'a\\ud800b'", "a\u{fffd}b"),
        ("['\\ud800', b'x']", "['\\ud800', b'x']"),
        ("'nul\\0 \\x1b[31m'", "nul\0 \x1b[31m"),
    ];
    for (value, content) in cases {
        check(&mut worker, &format!("answer = {{'ready': True, 'content': {value}}}"), true, content);
        check(&mut worker, "answer['content'] = 'between'", true, "between");
    }
    check(&mut worker, "l = [1]; l.append(l); answer['content'] = l", true, "[1, [...]]");
    check(&mut worker, "d = {}; d['content'] = d; answer = d", false, "{'content': {...}}");
    worker.end();
}

#[test]
fn ready_is_any_truth_value() {
    let mut worker = Worker::python();
    let cases = [
        ("1", true),
        ("0", false),
        ("'no'", true),
        ("''", false),
        ("[]", false),
        ("None", false),
        ("float('nan')", true),
    ];
    for (value, ready) in cases {
        check(&mut worker, &format!("answer = {{'ready': {value}, 'content': 'c'}}"), ready, "c");
    }
    check(&mut worker, "del answer['ready']", false, "c");
    worker.end();
}

#[test]
fn values_that_raise_harm_nothing() {
    let mut worker = Worker::python();
    worker.output(HOSTILE);
    check(
        &mut worker,
        "answer = HostileDict(ready=1, content='read past its methods')",
        true,
        "read past its methods",
    );
    check(&mut worker, "answer = {1: 2, None: 3, (): {}, 'ready': 1, 'content': 'beside'}", true, "beside");
    check(
        &mut worker,
        "answer = {'ready': Hostile(), 'content': Hostile()}",
        false,
        "<Hostile that cannot be shown>",
    );
    check(&mut worker, "answer = Hostile()", false, "<Hostile that cannot be shown>");
    check(&mut worker, "answer = {'ready': Leaving(), 'content': Leaving()}", false, "its repr");
    check(&mut worker, "answer = {'ready': True, 'content': HostileStr('subclass')}", true, "subclass");
    check(&mut worker, "answer = {HostileStr('ready'): 1, 'content': 'c'}", false, "c");
    // The code acts as if the interrupt of the cell came late.
    worker.output(
        "class Late:\n    def __str__(self):\n        Late.__str__ = lambda self: 'shown'\n        raise KeyboardInterrupt",
    );
    check(&mut worker, "answer = {'ready': True, 'content': Late()}", true, "shown");
    check(&mut worker, "answer = {'ready': True, 'content': 'last'}", true, "last");
    worker.end();
}

#[test]
fn an_answer_of_ten_megabytes_arrives_whole() {
    let mut worker = Worker::python();
    let response = worker.call("answer['content'] = 'é' * 5_000_000; answer['ready'] = True");
    assert_eq!(response.answer.content.len(), 10_000_000);
    let response = worker.call("answer['content'] += 'x'");
    assert_eq!((response.answer.ready, response.answer.content.len()), (true, 10_000_001));
    let file = std::fs::read(worker.control.answer_file()).unwrap();
    assert_eq!(serde_json::from_slice::<Answer>(&file).unwrap(), response.answer);
    worker.end();
}
