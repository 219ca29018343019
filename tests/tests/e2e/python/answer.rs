//! `answer` is read correctly, whatever a cell makes of it. Without numpy, which plain interpreters do not have.

use rlm_core::protocol::Answer;
use rlm_tests::Worker;

use crate::languages::{draft, ready, sessions};

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
# As if the interrupt of the cell came late.
class Late:
    def __str__(self):
        Late.__str__ = lambda self: 'shown'
        raise KeyboardInterrupt
";

sessions! { Python:
    the_answer_is_what_the_dict_holds {
        "1" => draft(""),
        "answer['content'] = 'first'" => draft("first"),
        "answer['ready'] = True" => ready("first"),
        "x = 1" => ready("first"),
        "answer['content'] += ' é\\n'; answer['ready'] = 0" => draft("first é\n"),
        "def f():\n    answer['content'] = 'inner'\nf()" => draft("inner"),
    }
    an_answer_that_is_not_a_dict_is_its_own_content_and_never_final {
        "del answer" => draft(""),
        "answer = 'text'" => draft("text"),
        "answer = ''" => draft(""),
        "answer = ['a', 1]" => draft("['a', 1]"),
        "answer = []" => draft("[]"),
        "answer = None" => draft("None"),
        "answer = {}" => draft(""),
        "answer['ready'] = 1" => ready(""),
        "answer = True" => draft("True"),
        "del answer; globals()['answer'] = 5" => draft("5"),
    }
    content_of_any_type_is_text {
        "answer['content'] = b'by\\xfftes \\xc3\\xa9'" => draft("by\u{fffd}tes é"),
        "answer['content'] = None" => draft(""),
        "answer['content'] = bytearray(b'array')" => draft("array"),
        "answer['content'] = 1.5" => draft("1.5"),
        "answer['content'] = float('nan')" => draft("nan"),
        "answer['content'] = 10 ** 30" => draft("1000000000000000000000000000000"),
        "answer['content'] = {3}" => draft("{3}"),
        "answer['content'] = True" => draft("True"),
        "answer['content'] = 'a\\ud800b'" => draft("a\u{fffd}b"),
        "answer['content'] = ['\\ud800', b'x']" => draft("['\\ud800', b'x']"),
        "answer['content'] = 'nul\\0 \\x1b[31m'" => draft("nul\0 \x1b[31m"),
        "l = [1]; l.append(l); answer['content'] = l" => draft("[1, [...]]"),
        "d = {}; d['content'] = d; answer = d" => draft("{'content': {...}}"),
    }
    ready_is_any_truth_value {
        "answer = {'ready': 1, 'content': 'c'}" => ready("c"),
        "answer = {'ready': 0, 'content': 'c'}" => draft("c"),
        "answer = {'ready': 'no', 'content': 'c'}" => ready("c"),
        "answer = {'ready': '', 'content': 'c'}" => draft("c"),
        "answer = {'ready': [], 'content': 'c'}" => draft("c"),
        "answer = {'ready': None, 'content': 'c'}" => draft("c"),
        "answer = {'ready': float('nan'), 'content': 'c'}" => ready("c"),
        "del answer['ready']" => draft("c"),
    }
    values_that_raise_harm_nothing {
        HOSTILE => "",
        "answer = HostileDict(ready=1, content='read past its methods')" => ready("read past its methods"),
        "answer = {1: 2, None: 3, (): {}, 'ready': 1, 'content': 'beside'}" => ready("beside"),
        "answer = {'ready': Hostile(), 'content': Hostile()}" => draft("<Hostile that cannot be shown>"),
        "answer = Hostile()" => draft("<Hostile that cannot be shown>"),
        "answer = {'ready': Leaving(), 'content': Leaving()}" => draft("its repr"),
        "answer = {'ready': True, 'content': HostileStr('subclass')}" => ready("subclass"),
        "answer = {HostileStr('ready'): 1, 'content': 'c'}" => draft("c"),
        "answer = {'ready': True, 'content': Late()}" => ready("shown"),
        "answer = {'ready': True, 'content': 'last'}" => ready("last"),
    }
}

#[test]
fn a_cell_that_raises_may_have_set_the_answer() {
    let mut worker = Worker::python();
    let response = super::raises(&mut worker, "answer['content'] = 'kept'; 1 / 0", "ZeroDivisionError");
    assert_eq!(response.answer, Answer { ready: false, content: "kept".to_owned() });
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
}
