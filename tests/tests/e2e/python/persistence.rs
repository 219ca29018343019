//! Everything persists between cells, as if they were one module.

use rlm_tests::Worker;

use crate::languages::Expected::Raises;
use crate::languages::sessions;

sessions! { Python:
    // Promise: In Python: one interpreter, yours, and one namespace.
    names_of_every_kind_persist {
        "
import math
from collections import Counter as C
x = 1
def plus_x(n):
    return n + x
class Account:
    rate = 3
    def interest(self):
        return plus_x(self.rate)
def counter():
    count = 0
    def step():
        nonlocal count
        count += 1
        return count
    return step
def set_x(value):
    global x
    x = value
step, account = counter(), Account()
" => "",
        "x, plus_x(1), account.interest(), step(), math.floor(2.5)" => "(1, 2, 4, 1, 2)",
        "x = 10" => "",
        "plus_x(1), account.interest(), step(), C('aab')['a']" => "(11, 13, 2, 2)",
        "set_x(20)\nAccount.rate = 5" => "",
        "x, account.interest(), step()" => "(20, 25, 3)",
        "del x" => "",
        "'x' in globals()" => "False",
    }
    a_generator_goes_on_where_it_was {
        "def count():\n    n = 0\n    while True:\n        got = yield n\n        n += got or 1" => "",
        "numbers = count()\nnext(numbers)" => "0",
        "next(numbers), numbers.send(10)" => "(1, 11)",
        "next(numbers)" => "12",
    }
    effects_of_a_cell_before_it_failed_remain {
        "a = 1\nb = [1]\nb.append(2); 1 / 0; a = 3" => Raises("ZeroDivisionError"),
        "a, b" => "(1, [1, 2])",
    }
    a_cell_that_does_not_compile_does_nothing {
        "a = 1\na = = 2" => Raises("SyntaxError"),
        "a = 1\nbreak" => Raises("SyntaxError"),
        "a = 1\nf(a=1, a=2)" => Raises("SyntaxError"),
        "'a' in globals()" => "False",
    }
    a_coroutine_is_awaited_in_a_later_cell {
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 'done'" => "",
        "coroutine = f()" => "",
        "await coroutine" => "'done'",
    }
    a_task_goes_on_in_later_cells {
        "import asyncio\ngate = asyncio.Event()\nasync def f():\n    await gate.wait()\n    return 7" => "",
        "task = asyncio.create_task(f())\nawait asyncio.sleep(0)\ntask.done()" => "False",
        "await asyncio.sleep(0)\n1 / 0" => Raises("ZeroDivisionError"),
        "gate.set()" => "",
        "await task" => "7",
    }
    await_works_at_top_level_in_every_form {
        "
import asyncio
async def numbers():
    for n in range(3):
        yield n
class Manager:
    async def __aenter__(self):
        seen.append('in')
        return self
    async def __aexit__(self, *exception):
        seen.append('out')
seen = []
async for n in numbers():
    seen.append(n)
async with Manager() as manager:
    seen.append('body')
seen
" => "[0, 1, 2, 'in', 'body', 'out']",
        "[n async for n in numbers()]" => "[0, 1, 2]",
        "[await asyncio.sleep(0, n) for n in range(2)]" => "[0, 1]",
        "x = await asyncio.sleep(0, 5)\nx + await asyncio.sleep(0, 1)" => "6",
    }
    every_part_of_a_cell_that_awaits_sees_a_running_loop {
        "import asyncio\nasync def f():\n    return await asyncio.sleep(0, 'done')" => "",
        "task = asyncio.create_task(f())\nawait task" => "'done'",
        "task = asyncio.current_task()\nawait asyncio.sleep(0)\ntask is asyncio.current_task()" => "True",
        "await asyncio.sleep(0)\n5" => "5",
        "await asyncio.sleep(0, 5)\nx = 1" => "",
    }
    asyncio_run_works_beside_top_level_await {
        "import asyncio\nasync def main():\n    return await asyncio.sleep(0, 'ran')" => "",
        "asyncio.run(main())" => "'ran'",
        "await main()" => "'ran'",
        "asyncio.run(main())" => "'ran'",
        "await main()" => "'ran'",
    }
    comprehensions_and_class_bodies_see_variables_of_cells {
        "n = 3" => "",
        "[i * n for i in range(n) if n], {n: (lambda: n)() for _ in 'a'}" => "([0, 3, 6], {3: 3})",
        "class A:\n    values = [n for _ in range(2)]\nA.values" => "[3, 3]",
    }
    future_flags_persist {
        "def f(a: Unknown): pass\nf.__annotations__" => Raises("NameError"),
        "from __future__ import annotations" => "",
        "x = 1" => "",
        "def f(a: Unknown): pass\nf.__annotations__" => "{'a': 'Unknown'}",
    }
    instances_of_classes_of_cells_can_be_pickled {
        "import dataclasses, pickle
@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)" => "",
        "class Plain: pass\nplain = Plain()\nplain.point = Point(1, [2])" => "",
        "copy = pickle.loads(pickle.dumps(plain))\ncopy.point, type(copy) is Plain" => "(Point(x=1, y=[2]), True)",
        "copy.point == Point(1, [2]), Point.__module__" => "(True, '__main__')",
    }
    the_namespace_is_the_main_module {
        "x = 5\nimport __main__, sys" => "",
        "__main__.x, vars(__main__) is globals(), sys.modules['__main__'] is __main__, __name__" =>
            "(5, True, True, '__main__')",
    }
    a_pool_of_forked_processes_runs_functions_of_cells {
        "import multiprocessing\nscale = 10\ndef f(n):\n    return n * scale" => "",
        "with multiprocessing.get_context('fork').Pool(2) as pool: values = pool.map(f, range(4))" => "",
        "values" => "[0, 10, 20, 30]",
    }
    the_last_two_results_have_names {
        "_" => Raises("NameError"),
        "40 + 2" => "42",
        "_ + 1" => "43",
        "None" => "",
        "x = _" => "",
        "_, __, x" => "(43, 42, 43)",
        "for _ in range(2): pass\n[_, __]" => "[1, 43]",
        "'another'" => "'another'",
        "_" => "1",
        "del _\n_" => "1",
        "await __import__('asyncio').sleep(0, 'awaited')" => "'awaited'",
        "_" => "'awaited'",
    }
    new_processes_have_the_definitions_of_cells_and_what_those_use {
        "import dataclasses, functools, math, multiprocessing
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor
scale = 10; square = lambda n: n * n; print(end='', file=open('effects', 'a')); open('effects', 'a').write('once')" => "4",
        "@dataclasses.dataclass
class Point:
    x: int
    def twice(self): return Point(self.x * 2)
Pair = namedtuple('Pair', 'a b')
origin = Point(3)
def f(n): return 'an older one'" => "",
        "@functools.lru_cache
def f(n, more=scale): return math.floor(square(n)) + more + origin.x" => "",
        "def values(method):
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        yield pool.map(f, [2]), pool.map(Point.twice, [origin]), pool.apply(Pair, (1, 2)), pool.map(math.sqrt, [4])
    with ProcessPoolExecutor(1, mp_context=context) as pool: yield pool.submit(f, 3).result()
*values('spawn'), *values('forkserver'), open('effects').read()" =>
            "(([17], [Point(x=6)], Pair(a=1, b=2), [2.0]), 22, ([17], [Point(x=6)], Pair(a=1, b=2), [2.0]), 22, 'once')",
    }
}

#[test]
fn what_a_new_process_cannot_have_is_told_where_it_is_used() {
    let mut worker = Worker::python();
    worker.output(
        "import multiprocessing, threading
lock, large = threading.Lock(), bytes(17 << 20)
def locked(n):
    with lock: return n
def measured(n): return len(large)
def failing(n): return 1 / n
if True:
    def nested(n): return n
def error_of(function):
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        try: pool.map(function, [0])
        except Exception as error: return str(error), str(error.__cause__)",
    );
    for (function, expected) in [
        ("locked", "lock is not in this process: TypeError: cannot pickle '_thread.lock' object. Give it to"),
        (
            "measured",
            "large is not in this process: PicklingError: the values that functions use have over 16 MiB. ",
        ),
    ] {
        let told = worker.value(&format!("error_of({function})[0]"));
        assert!(told.trim_matches(['\'', '"']).starts_with(expected), "{told}");
    }
    assert_eq!(worker.value("error_of(nested)"), "");
    let traceback = worker.output("print(error_of(failing)[1])");
    assert!(
        traceback.contains("File \"<cell 1>\", line 6, in failing\n    def failing(n): return 1 / n"),
        "{traceback}"
    );
}

#[test]
fn sources_of_cells_are_available() {
    let mut worker = Worker::python();
    let code = "def f(n):
    return n  # the comment too
class Plain:
    field = 1
class Full:
    def method(self):
        pass
double = lambda n: n * 2
";
    worker.output(code);
    let decorated = "import functools
def twice(f):
    @functools.wraps(f)
    def wrapper(n):
        return f(f(n))
    return wrapper
@twice
def g(n):
    return n + 1
";
    worker.output(decorated);
    worker.output("import inspect\ndef given(self):\n    pass");
    worker.output("class Assigned:\n    method = given\n");
    for cell in 0..50 {
        worker.output(&format!("class Plainer{cell}:\n    field = {cell}"));
    }
    assert_eq!(worker.value("g(1)"), "3");
    let cases = [
        ("f", "def f(n):\n    return n  # the comment too\n"),
        ("Plain", "class Plain:\n    field = 1\n"),
        ("Full", "class Full:\n    def method(self):\n        pass\n"),
        ("Full.method", "    def method(self):\n        pass\n"),
        ("double", "double = lambda n: n * 2\n"),
        ("g", "@twice\ndef g(n):\n    return n + 1\n"),
        // The method is that of another cell.
        ("Assigned", "class Assigned:\n    method = given\n"),
        ("Plainer7", "class Plainer7:\n    field = 7\n"),
    ];
    for (name, source) in cases {
        worker.output(&format!("source = inspect.getsource({name})"));
        assert_eq!(worker.output("print(source, end='')"), source, "{name}");
    }
}

#[test]
fn modules_in_the_working_directory_can_be_imported_and_hide_no_others() {
    let mut worker = Worker::python();
    std::fs::write(worker.fs_root().join("helper.py"), "value = 5\n").unwrap();
    std::fs::write(worker.fs_root().join("string.py"), "value = 'wrong'\n").unwrap();
    assert_eq!(
        worker.value("import helper, string, sys\nhelper.value, string.digits, sys.path[-1]"),
        "(5, '0123456789', '')"
    );
}

// Promise: In Python: one interpreter, yours, and one namespace.
#[test]
fn threads_go_on_between_cells() {
    let mut worker = Worker::python();
    let code = "
import os, threading
os.mkfifo('gate')
def work():
    read.append(open('gate').read())
    open('worked', 'w').close()
read = []
threading.Thread(target=work).start()
";
    worker.output(code);
    std::fs::write(worker.fs_root().join("gate"), "go").unwrap();
    // The thread does this while no cell runs.
    worker.wait_for_file("worked");
    assert_eq!(worker.value("read"), "['go']");
}

#[test]
fn whatever_a_cell_does_to_its_loop_the_next_one_can_await() {
    let mut worker = Worker::python();
    worker.value("import asyncio");
    for code in [
        "asyncio._set_running_loop(asyncio.new_event_loop())",
        "await asyncio.sleep(0); asyncio.get_running_loop().stop()",
        "await asyncio.sleep(0); asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)",
        "asyncio.set_event_loop(None)",
        "asyncio.get_event_loop_policy().set_event_loop(None)",
    ] {
        worker.call(code);
        assert_eq!(worker.value("await asyncio.sleep(0, 'slept')"), "'slept'", "after {code:?}");
        assert_eq!(worker.value("asyncio.run(asyncio.sleep(0, 'ran'))"), "'ran'", "after {code:?}");
    }
}

#[test]
fn context_variables_stay_behind_an_await_too() {
    let mut worker = Worker::python();
    worker.output("import asyncio, contextvars, decimal\nv = contextvars.ContextVar('v', default=0)");
    for (code, value) in
        [("v.set(1)", "1"), ("await asyncio.sleep(0); v.set(2)", "2"), ("await asyncio.sleep(0)", "2")]
    {
        worker.call(code);
        assert_eq!(worker.value("v.get()"), value, "{code}");
    }
    worker.output("await asyncio.sleep(0); decimal.getcontext().prec = 60");
    assert_eq!(worker.value("decimal.getcontext().prec"), "60");
}

#[test]
fn code_that_is_indented_as_a_whole_runs() {
    let mut worker = Worker::python();
    assert_eq!(
        worker.value("    # A comment\n    x = 1\n    for i in range(3):\n        x += i\n\n    x"),
        "4"
    );
    assert_eq!(worker.value("\tdef f():\n\t\treturn 7\n\tf()"), "7");
    assert_eq!(worker.value("  # A comment\nx = 5\nx"), "5");
}
