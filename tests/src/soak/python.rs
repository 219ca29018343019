//! The grammar of Python cells. They write by `sys.stdout.write`, which broken builtins leave alone.

use rlm_core::protocol::{Outcome, State};
use serde_json::Value;

use super::draw::{Draw, NAMES, Productions};
use super::step::{Effect, Step};

pub(super) const PRODUCTIONS: Productions = &[
    (120, |draw| draw.set(quote, "NAME = VALUE", &["; ", "\n"])),
    (40, append),
    (15, unset),
    (100, show),
    (30, |_| show_all()),
    (30, |draw| draw.assign("def", "f1", quote, "def f1():\n    return VALUE")),
    (30, prints),
    (30, result),
    (12, large_result),
    (30, exception),
    (20, syntax_error),
    (15, exit),
    (20, input),
    (12, |draw| draw.large_output("import sys\nsys.stdout.write('abcdefghijklmno\\n' * LINES) and None")),
    (12, raw_output),
    (12, other_stdout),
    (6, closed_descriptors),
    (12, thread),
    (15, fork),
    (12, asyncio),
    (12, subprocess),
    (6, daemon),
    (10, |draw| draw.assign_word("signal handler", "!usr1", SIGNAL_HANDLER)),
    (20, change_directory),
    (25, answer),
    (6, odd_answer),
    (12, os_exit),
    (8, killed),
    (4, segmentation_fault),
    (4, exec),
    (5, broken_builtins),
    (5, endless_loop),
    (5, endless_wait),
    (3, deaf),
    (6, slow),
];

const SIGNAL_HANDLER: &str =
    "import signal, os\nh = signal.signal(10, lambda *_: 'VALUE')\nos.kill(os.getpid(), 10)";

/// The builtins that are broken, one at a time.
const BUILTINS: [&str; 6] = ["open", "len", "repr", "isinstance", "print", "str"];

/// Prints the value of each name, and the working directory.
pub(super) fn show_all() -> Step {
    let names: Vec<&str> = NAMES.into_iter().chain(["f1", "!usr1"]).collect();
    let mut code: Vec<String> = names.iter().map(|name| shown(name)).collect();
    code.push(
        "sys.stdout.write(__import__('os').getcwd().split('/rlm_fs', 1)[1] + '\\n') and None".to_owned(),
    );
    let effects = names.iter().map(|name| Effect::Show((*name).to_owned()));
    Step::new("show all", code.join("\n")).effects(effects).effects([Effect::ShowDir])
}

fn shown(name: &str) -> String {
    let value = match name {
        "f1" => "(globals()['f1']() if 'f1' in globals() else 'gone')".to_owned(),
        "!usr1" => {
            "(lambda handler: handler() if callable(handler) else 'gone')(__import__('signal').getsignal(10))"
                .to_owned()
        }
        _ => format!("globals().get('{name}', 'gone')"),
    };
    format!("import sys; sys.stdout.write({value} + '\\n') and None")
}

fn show(draw: &mut Draw<'_>) -> Step {
    let names: Vec<&str> =
        (0..draw.rng.u32(1..4)).map(|_| draw.pick(&["v1", "v2", "v3", "v4", "f1", "!usr1"])).collect();
    let code: Vec<String> = names.iter().map(|name| shown(name)).collect();
    Step::new("show", code.join("\n")).effects(names.into_iter().map(|name| Effect::Show(name.to_owned())))
}

/// The text as a literal of Python: JSON's escapes are Python's.
fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn append(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let code = format!("{name} = globals().get('{name}', '') + {}", quote(&value));
    Step::new("append", code).effects([Effect::Append(name.to_owned(), value)])
}

fn unset(draw: &mut Draw<'_>) -> Step {
    let name = draw.name();
    Step::new("del", format!("{name} = 1; del {name}")).effects([Effect::Unset(name.to_owned())])
}

fn prints(draw: &mut Draw<'_>) -> Step {
    let (out, err) = (draw.value(), draw.value());
    let code = format!(
        "import sys\nprint({})\nprint({}, file=sys.stderr)\nprint('end', end='')",
        quote(&out),
        quote(&err)
    );
    let effects =
        [Effect::print(&format!("{out}\n")), Effect::complain(&format!("{err}\n")), Effect::print("end")];
    Step::new("print", code).effects(effects)
}

fn result(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.word());
    let effects = [Effect::set(name, &value), Effect::Result(format!("'{value}'"))];
    Step::new("result", format!("{name} = '{value}'\n{name}")).effects(effects)
}

fn large_result(draw: &mut Draw<'_>) -> Step {
    let length = draw.rng.usize(1..2_000_000);
    Step::new("large result", format!("'r' * {length}"))
        .effects([Effect::Result(format!("'{}'", "r".repeat(length)))])
}

fn exception(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let (code, kind) = draw.pick(&[
        ("1 / 0", "ZeroDivisionError"),
        ("nowhere", "NameError"),
        ("raise ValueError('é')", "ValueError"),
        ("import nowhere", "ModuleNotFoundError"),
        ("class E(BaseException): pass\nraise E", "E"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
    ]);
    let code = format!("{name} = {}\n{code}", quote(&value));
    Step::new("exception", code).effects([Effect::set(name, &value)]).raises(kind)
}

fn syntax_error(draw: &mut Draw<'_>) -> Step {
    Step::new("syntax error", draw.pick(&["def f(:", "x = '", "x = = 1", "(", "return 1 +", "\"\"\"open"]))
        .raises("SyntaxError")
}

fn exit(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&["exit()", "import sys; sys.exit(3)", "raise SystemExit", "quit('text')"]);
    Step::new("exit", code).raises("SystemExit")
}

fn input(_: &mut Draw<'_>) -> Step {
    Step::new("input", "input()").raises("EOFError")
}

fn raw_output(_: &mut Draw<'_>) -> Step {
    let code = "import os, sys\nprint('a\\ud800')\nos.write(1, b'\\xff\\x00\\n')\nos.write(2, b'e') and None";
    let effects = [Effect::print("a\\ud800\n\u{fffd}\0\n"), Effect::complain("e")];
    Step::new("raw output", code).effects(effects)
}

fn other_stdout(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "import io, sys; sys.stdout = io.StringIO(); print('unseen')",
        "import sys; sys.stdout = sys.stderr = None; print('unseen')",
        "import sys; del sys.stdout",
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()): print('unseen')",
    ]);
    Step::new("sys.stdout", code)
}

fn closed_descriptors(draw: &mut Draw<'_>) -> Step {
    Step::new("closed descriptors", draw.pick(&["import os; os.closerange(0, 3)", "import os; os.close(1)"]))
}

fn thread(draw: &mut Draw<'_>) -> Step {
    let (name, value, word) = (draw.name(), draw.value(), draw.word());
    let late = "import threading, time, sys\nthreading.Thread(daemon=True, target=lambda: (time.sleep(0.02), sys.stdout.write('~bg";
    let code = format!("{late}{word}~\\n'))).start()\n{name} = {}", quote(&value));
    Step::new("thread", code).effects([Effect::Noisy, Effect::set(name, &value)])
}

fn fork(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let child = draw.pick(&["sys.exit(7)", "pass", "os._exit(1)", "raise SystemExit"]);
    let code = format!(
        "import os, sys\n{name} = {}\npid = os.fork()\nif pid == 0:\n    {name} = 'child'\n    {child}\nelse:\n    os.waitpid(pid, 0)",
        quote(&value)
    );
    Step::new("fork", code).effects([Effect::set(name, &value)])
}

fn asyncio(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let (head, how) = draw.pick(&[
        ("import asyncio", "await asyncio.sleep(0.001, "),
        ("import asyncio", "asyncio.run(asyncio.sleep(0, "),
        ("import asyncio", "await asyncio.to_thread(lambda text: text, "),
    ]);
    let end = if how.contains("run") { "))" } else { ")" };
    Step::new("asyncio", format!("{head}\n{name} = {how}{}{end}", quote(&value)))
        .effects([Effect::set(name, &value)])
}

fn subprocess(draw: &mut Draw<'_>) -> Step {
    let word = draw.word();
    let code = format!(
        "import subprocess\nsubprocess.run('echo {word}; cat; echo err >&2; exit 3', shell=True).returncode"
    );
    let effects =
        [Effect::print(&format!("{word}\n")), Effect::complain("err\n"), Effect::Result("3".to_owned())];
    Step::new("subprocess", code).effects(effects)
}

fn daemon(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "import subprocess; p = subprocess.Popen(['sleep', '1001'])",
        "import subprocess; p = subprocess.Popen(['setsid', 'nohup', 'sleep', '1002'], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)",
        "import os; r = os.system(\"(trap '' HUP TERM INT; sleep 1003) &\")",
        "import os\nif os.fork() == 0: os.setsid(); os.execlp('sleep', 'sleep', '1004')",
        "import threading, time; t = threading.Thread(target=time.sleep, args=(1000,)); t.start()",
    ]);
    Step::new("daemon", code).effects([Effect::Noisy])
}

fn change_directory(draw: &mut Draw<'_>) -> Step {
    let dir = draw.pick(&["d1", "d2", "a b/c"]);
    let code = format!(
        "import os\nos.makedirs(extra_data + '/{dir}', exist_ok=True)\nos.chdir(extra_data + '/{dir}')"
    );
    Step::new("chdir", code).effects([Effect::Dir(format!("/{dir}"))])
}

fn answer(draw: &mut Draw<'_>) -> Step {
    let content = draw.value();
    let is_ready = draw.rng.bool();
    let ready = if is_ready { "True" } else { "False" };
    let code = format!("answer = {{}}\nanswer['content'] = {}; answer['ready'] = {ready}", quote(&content));
    Step::new("answer", code).effects([
        Effect::Content(String::new()),
        Effect::Ready(false),
        Effect::Content(content),
        Effect::Ready(is_ready),
    ])
}

fn odd_answer(draw: &mut Draw<'_>) -> Step {
    let (code, content, is_ready) = draw.pick(&[
        ("answer = {}; del answer", "", false),
        ("answer = 'text'", "text", false),
        ("answer = 0", "0", false),
        ("answer = {'content': None, 'ready': 1}", "", true),
        ("answer = {'content': b'bytes', 'ready': []}", "bytes", false),
        ("answer = {'content': '\\ud800'}", "\u{fffd}", false),
    ]);
    // The code is one assignment, but the model changes an answer piece by piece.
    Step::new("odd answer", code).effects([Effect::Content(content.to_owned()), Effect::Ready(is_ready)])
}

/// A cell that ends the interpreter.
fn crash(draw: &mut Draw<'_>, kind: &str, code: &str) -> Step {
    let value = draw.value();
    let code = format!("import os, sys\nv1 = {}\nprint('last'); sys.stdout.flush()\n{code}", quote(&value));
    Step::new(kind, code)
        .effects([Effect::set("v1", &value), Effect::print("last\n")])
        .ends(Outcome::Crashed, State::Reset)
}

fn os_exit(draw: &mut Draw<'_>) -> Step {
    crash(draw, "os._exit", "os._exit(3)")
}

fn killed(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 1)",
        "os.abort()",
        "os.kill(os.getpid(), 15)",
    ]);
    crash(draw, "killed", code)
}

fn segmentation_fault(draw: &mut Draw<'_>) -> Step {
    crash(draw, "segmentation fault", "import ctypes; ctypes.string_at(0)")
}

fn exec(draw: &mut Draw<'_>) -> Step {
    crash(draw, "exec", "os.execv('/bin/echo', ['echo', '-n'])")
}

fn broken_builtins(draw: &mut Draw<'_>) -> Step {
    let name = draw.pick(&BUILTINS);
    let value = draw.pick(&["None", "lambda *_: 1 / 0"]);
    let code = format!(
        "import builtins\nif not hasattr(builtins, 'kept'): builtins.kept = dict(vars(builtins))\nbuiltins.{name} = {value}"
    );
    Step::new("broken builtin", code).effects([Effect::Broken(true)])
}

/// Makes the builtins whole.
pub(super) fn mend() -> Step {
    Step::new(
        "mended builtins",
        "import builtins\nif 'kept' in vars(builtins): vars(builtins).update(builtins.kept)",
    )
    .effects([Effect::Broken(false)])
}

/// A cell that runs until its time limit.
fn endless(draw: &mut Draw<'_>, kind: &str, code: &str) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let is_package = code.contains("asyncio");
    let import = if is_package { "asyncio" } else { "os, signal, subprocess, threading, time" };
    let code = format!("import {import}\n{name} = {}\n{code}", quote(&value));
    // The limit must not pass while the package is imported.
    let limit = if is_package { 1.5 } else { f64::from(draw.rng.u32(1..30)) / 100.0 };
    Step::new(kind, code)
        .effects([Effect::set(name, &value), Effect::Noisy])
        .ends(Outcome::TimedOut, State::Kept)
        .field("timeout", limit)
}

fn endless_loop(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "while True: pass",
        "x = 0\nwhile True: x += 1",
        "sum(1 for _ in iter(int, 1))",
        "__import__('re').match(r'(a*)*b', 'a' * 40)",
    ]);
    endless(draw, "endless loop", code)
}

fn endless_wait(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "time.sleep(1e6)",
        "subprocess.run(['sleep', '1000'])",
        "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "await asyncio.sleep(100)",
        "asyncio.run(asyncio.sleep(100))",
        "r, w = os.pipe(); os.read(r, 1)",
    ]);
    endless(draw, "endless wait", code)
}

fn deaf(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "while True:\n    try: time.sleep(100)\n    except BaseException: pass",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)",
        "os.system('sleep 1000')",
        "os.system(\"trap '' INT TERM; sleep 1000\")",
    ]);
    endless(draw, "deaf", code)
}

/// A cell that lasts long enough to be disturbed.
fn slow(draw: &mut Draw<'_>) -> Step {
    let name = draw.name();
    let (first, second) = (draw.value(), draw.value());
    let code = format!(
        "import subprocess, time\n{name} = {}\ntime.sleep(0.02); r = subprocess.run(['sleep', '0.02'])\n{name} = {}",
        quote(&first),
        quote(&second)
    );
    Step::new("slow", code)
        .effects([Effect::set(name, &first), Effect::set(name, &second)])
        .with_free_output()
}
