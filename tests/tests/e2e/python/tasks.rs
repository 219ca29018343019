//! Tasks that cells start: they go on while cells await, and between calls.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::{Setup, Worker, pythons};

use super::{raises, traceback};
use crate::limits::run_out_of_time;

#[test]
fn a_cell_that_does_not_await_can_start_tasks_on_every_python() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.output("import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x");
        worker.output("one = asyncio.create_task(f(1), name='one')");
        worker.output("two = asyncio.ensure_future(f(2))");
        worker.output("both = asyncio.gather(f(3), f(4))");
        assert_eq!(worker.value("asyncio.run(f(5))"), "5", "{python:?}");
        assert_eq!(worker.value("await one, await two, await both"), "(1, 2, [3, 4])", "{python:?}");
        assert_eq!(worker.value("one.get_name()"), "'one'");
        // Other threads have no loop, as everywhere.
        let code = "import threading
def start():
    try: asyncio.create_task(f(1))
    except RuntimeError as error: print(error)
thread = threading.Thread(target=start); thread.start(); thread.join()";
        assert!(worker.output(code).starts_with("no running event loop\n"));
    }
}

#[test]
fn tasks_go_on_between_calls_and_what_they_print_belongs_to_the_next_one() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        let code = "import asyncio, os
async def count():
    while not os.path.exists('go'):
        await asyncio.sleep(0.001)
    answer['content'] = 'from a task'
    print('done')
    open('done', 'w')
task = asyncio.create_task(count())";
        worker.output(code);
        std::fs::write(worker.fs_root().join("go"), "").unwrap();
        worker.wait_for_file("done");
        let response = worker.call("task.done()");
        assert_eq!((response.result.as_deref(), response.stdout.as_str()), (Some("True"), "done\n"));
        assert_eq!(response.answer.content, "from a task");
        // A cell that has closed the loop gets another.
        worker.output("asyncio.get_event_loop_policy().get_event_loop().close()");
        std::fs::remove_file(worker.fs_root().join("go")).unwrap();
        worker.output("task = asyncio.create_task(count())");
        assert_eq!(worker.output("open('go', 'w'); await task"), "done\n", "{python:?}");
    }
}

#[test]
fn a_task_that_holds_the_loop_is_stopped_with_the_call_that_waits_for_it() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value("import asyncio, time; kept = 41");
        for hold in [
            "time.sleep(1000)",
            "while True:\n        try: time.sleep(1000)\n        except BaseException: pass",
        ] {
            let code = format!(
                "async def hold():\n    open('holds', 'w')\n    {hold}\ntask = asyncio.create_task(hold())"
            );
            worker.output(&code);
            worker.wait_for_file("holds");
            let response = run_out_of_time(&mut worker, "kept = 0", 0.2);
            assert_eq!(response.state, State::Kept, "{python:?} {hold}: {response:?}");
            let message = response.exception.unwrap().message;
            assert_eq!(
                message,
                "the code did not run: a task of an earlier cell held the session until the call was stopped"
            );
            assert_eq!(
                worker.value("import os; os.unlink('holds'); kept + 1"),
                "42",
                "{python:?} after {hold}"
            );
        }
        // A task that leaves the processor to others does not keep a call.
        worker.output(
            "async def spin():\n    while True: await asyncio.sleep(0)\ntask = asyncio.create_task(spin())",
        );
        assert_eq!(worker.value("kept + 1"), "42");
        assert_eq!(worker.value("task.cancel()"), "True");
    }
}

#[test]
fn a_task_that_ends_badly_harms_no_other() {
    let mut worker = Worker::python();
    let code = "import asyncio, os
async def leave(how):
    await asyncio.sleep(0)
    raise how
async def last():
    await asyncio.sleep(0.01)
    open('last', 'w')
tasks = [asyncio.create_task(leave(how)) for how in (SystemExit(3), KeyboardInterrupt(), ValueError('v'))]
tasks.append(asyncio.create_task(last()))";
    let first = worker.call(code);
    worker.wait_for_file("last");
    let response = worker.call("[task.done() for task in tasks]");
    assert_eq!(
        (response.outcome, response.result.as_deref()),
        (Outcome::Ok, Some("[True, True, True, True]"))
    );
    // The tasks may have run before the first call was over.
    let printed = first.stderr + &response.stderr;
    assert!(printed.contains("SystemExit: 3"), "{printed}");
    raises(&mut worker, "await tasks[2]", "ValueError");
}

#[test]
fn the_error_of_a_task_that_cannot_be_started_has_the_line_of_the_cell() {
    let mut worker = Worker::python();
    let shown = traceback(&mut worker, "import asyncio\nasyncio.create_task(3)", "TypeError");
    assert!(shown.contains("File \"<cell 1>\", line 2, in <module>\n    asyncio.create_task(3)"), "{shown}");
    assert!(!shown.contains("<rlm>"), "{shown}");
    let shown = traceback(
        &mut worker,
        "class R:\n    def __repr__(self): return 1 / 0\ndisplay(R())",
        "ZeroDivisionError",
    );
    assert!(shown.contains("line 3, in <module>") && shown.contains("line 2, in __repr__"), "{shown}");
    assert!(!shown.contains("<rlm>"), "{shown}");
}

#[test]
fn the_loop_of_a_cell_is_that_of_the_session() {
    let mut worker = Worker::python();
    worker.output("import asyncio, warnings\nasync def m():\n    await asyncio.sleep(0.001)\n    return 7");
    let by_loop = "asyncio.get_event_loop().run_until_complete(m())";
    for code in [by_loop, "await m()", by_loop, "asyncio.run(m())", by_loop, "await m()"] {
        assert_eq!(worker.value(code), "7", "{code}");
    }
    // As `nest_asyncio` runs a coroutine.
    let mut worker = Worker::python();
    worker.output("import asyncio\nasync def m(): return 7\nloop = asyncio.get_event_loop()");
    assert_eq!(worker.value("loop.run_until_complete(asyncio.ensure_future(m()))"), "7");
}
