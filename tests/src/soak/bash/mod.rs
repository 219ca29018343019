//! The grammar of bash calls.

mod ends;

use super::draw::{Draw, Productions};
use super::step::{Effect, Step};

pub(super) const PRODUCTIONS: Productions = &[
    (120, |draw| draw.set(quote, "NAME=VALUE", &["; ", "\n", " && "])),
    (40, append),
    (15, unset),
    (100, show),
    (30, |_| show_all()),
    (25, |draw| draw.assign("function", "f1", quote, "f1() { local l=1; printf '%s\\n' VALUE; }")),
    (15, |draw| draw.assign_word("alias", "a1", "alias a1='echo VALUE'")),
    (15, |draw| draw.assign("array", "array", quote, "array=(x VALUE y)")),
    (15, map),
    (15, |draw| draw.assign("export", "exported", quote, "export exported=VALUE")),
    (10, noglob),
    (10, |_| Step::new("umask", "umask 027").effects([Effect::set("umask", "0027")])),
    (10, |draw| draw.assign("set --", "parameter", quote, "set -- VALUE b")),
    (10, |draw| draw.assign_word("trap USR1", "!usr1", "trap 'echo VALUE' USR1")),
    (10, descriptor),
    (12, trace),
    (10, strict),
    (12, unset_variable),
    (12, redirect_output),
    (10, redirect_input),
    (20, background),
    (6, nohup),
    (3, stopped),
    (15, subshell),
    (15, here_document),
    (30, syntax_error),
    (20, reader),
    (12, |draw| draw.large_output("yes abcdefghijklmno | head -c BYTES")),
    (20, without_newline),
    (15, binary),
    (15, exit_code),
    (30, ends::exit),
    (8, ends::errexit),
    (4, ends::exit_trap),
    (6, ends::exit_with_trap),
    (10, ends::kill_itself),
    (6, ends::hang_up),
    (10, ends::exec),
    (20, change_directory),
    (25, answer),
    (3, answer_x),
    (4, large_answer),
    (6, ends::endless_loop),
    (6, ends::endless_sleep),
    (2, ends::deaf_program),
    (4, ends::loop_of_programs),
    (2, ends::deaf_shell),
    (15, killed_child),
    (6, slow),
    (4, hidden),
];

/// Every name that calls set, with the code that prints its value or `gone`.
const SHOWN: [(&str, &str); 14] = [
    ("v1", "printf '%s\\n' \"${v1-gone}\""),
    ("v2", "printf '%s\\n' \"${v2-gone}\""),
    ("v3", "printf '%s\\n' \"${v3-gone}\""),
    ("v4", "printf '%s\\n' \"${v4-gone}\""),
    ("f1", "if declare -F f1 >/dev/null; then f1; else echo gone; fi"),
    ("a1", "if alias a1 >/dev/null 2>&1; then eval a1; else echo gone; fi"),
    ("array", "printf '%s\\n' \"${array[1]-gone}\""),
    (
        "map",
        "if declare -p map >/dev/null 2>&1; then printf '%s\\n' \"${map[a key]-gone}\"; else echo gone; fi",
    ),
    ("exported", "bash -c 'printf \"%s\\n\" \"${exported-gone}\"'"),
    ("noglob", "if [[ -o noglob ]]; then echo on; else echo gone; fi"),
    ("umask", "if [[ $(umask) == 0022 ]]; then echo gone; else umask; fi"),
    ("parameter", "printf '%s\\n' \"${1-gone}\""),
    ("!usr1", "if [[ -n $(trap -p USR1) ]]; then kill -USR1 $$; else echo gone; fi"),
    ("!fd7", "if [[ -e /proc/$$/fd/7 ]]; then readlink /proc/$$/fd/7; else echo gone; fi"),
];

/// Prints everything that calls set.
pub(super) fn show_all() -> Step {
    let mut code: Vec<&str> = SHOWN.iter().map(|(_, code)| *code).collect();
    code.push("echo \"${PWD##*/rlm_fs}\"");
    let effects = SHOWN.iter().map(|(name, _)| Effect::Show((*name).to_owned()));
    Step::new("show all", code.join("\n")).effects(effects).effects([Effect::ShowDir])
}

fn show(draw: &mut Draw<'_>) -> Step {
    let (mut code, mut effects) = (Vec::new(), Vec::new());
    for _ in 0..draw.rng.u32(1..4) {
        let (name, shown) = draw.pick(&SHOWN);
        code.push(shown);
        effects.push(Effect::Show(name.to_owned()));
    }
    Step::new("show", code.join("; ")).effects(effects)
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn append(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    Step::new("append", format!("{name}+={}", quote(&value)))
        .effects([Effect::Append(name.to_owned(), value)])
}

fn unset(draw: &mut Draw<'_>) -> Step {
    let name = draw.name();
    Step::new("unset", format!("unset {name}")).effects([Effect::Unset(name.to_owned())])
}

fn map(draw: &mut Draw<'_>) -> Step {
    let value = draw.value();
    let code = format!("declare -A map; map=(['a key']={})", quote(&value));
    Step::new("map", code).effects([Effect::Unset("map".to_owned()), Effect::set("map", &value)])
}

fn noglob(draw: &mut Draw<'_>) -> Step {
    if draw.rng.bool() {
        return Step::new("set -f", "set -f").effects([Effect::set("noglob", "on")]);
    }
    Step::new("set +f", "set +f").effects([Effect::Unset("noglob".to_owned())])
}

fn descriptor(draw: &mut Draw<'_>) -> Step {
    if draw.rng.bool() {
        return Step::new("exec 7>", "exec 7>/dev/full").effects([Effect::set("!fd7", "/dev/full")]);
    }
    Step::new("exec 7>&-", "exec 7>&-").effects([Effect::Unset("!fd7".to_owned())])
}

fn trace(draw: &mut Draw<'_>) -> Step {
    let is_on = draw.rng.bool();
    let code = if is_on { "set -x; echo one" } else { "{ set +x; } 2>/dev/null; echo one" };
    Step::new("set -x", code).effects([Effect::Trace(is_on), Effect::print("one\n")])
}

fn strict(draw: &mut Draw<'_>) -> Step {
    let is_on = draw.rng.bool();
    Step::new("set -e", if is_on { "set -e" } else { "set +e" }).effects([Effect::Strict(is_on)])
}

fn unset_variable(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let code = format!("set +u; {name}={}; set -u; echo \"$nowhere\"; echo never", quote(&value));
    let effects = [Effect::set(name, &value), Effect::complain("bash: nowhere: unbound variable\n")];
    Step::new("set -u", code).effects(effects).failing()
}

fn redirect_output(draw: &mut Draw<'_>) -> Step {
    match draw.rng.u32(..4) {
        0 => Step::new("exec >file", "exec >>out").effects([Effect::Mute(true)]),
        1 => Step::new("exec >&-", "exec >/dev/null 2>/dev/tty").effects([Effect::Mute(true)]),
        _ => Step::new("exec >tty", "exec >/dev/tty 2>&1; echo back")
            .effects([Effect::Mute(false), Effect::print("back\n")]),
    }
}

fn redirect_input(draw: &mut Draw<'_>) -> Step {
    Step::new("exec <", draw.pick(&["exec </dev/null", "exec 0<&-", "exec </dev/tty", "exec <&2"]))
}

fn background(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let delay = draw.rng.f64() * 0.05;
    let job = format!("{{ sleep {delay:.3}; echo '~bg{value}~'; }} &", value = draw.word());
    let code = format!("{job}\n{name}={}; printf '%s\\n' \"${name}\"", quote(&value));
    Step::new("background", code).effects([
        Effect::Noisy,
        Effect::set(name, &value),
        Effect::Show(name.to_owned()),
    ])
}

fn nohup(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "nohup sleep 1001 >/dev/null 2>&1 &",
        "setsid sleep 1002 &",
        "setsid -f sleep 1003",
        "( (trap '' HUP TERM INT; sleep 1004) & )",
        "sleep 1005 & disown",
        "sleep 1006 | sleep 1007 &",
    ]);
    Step::new("daemon", code).effects([Effect::Noisy])
}

fn stopped(_: &mut Draw<'_>) -> Step {
    Step::new("stopped job", "sleep 1008 & kill -STOP $!").effects([Effect::Noisy, Effect::Stopped])
}

fn subshell(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let code = format!("({name}={}; printf '%s\\n' \"${name}\"; exit 3)", quote(&value));
    Step::new("subshell", code).effects([Effect::print(&format!("{value}\n"))]).exit_code(3).failing()
}

fn here_document(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.word());
    let code = format!("{name}={value}\ncat <<EOF | tr w W\n${name} \"q'\nEOF\ncat <<'EOF'\n$x\nEOF");
    let effects =
        [Effect::set(name, &value), Effect::print(&format!("{} \"q'\n$x\n", value.replace('w', "W")))];
    Step::new("here-document", code).effects(effects)
}

fn syntax_error(draw: &mut Draw<'_>) -> Step {
    const END: &str = "bash: syntax error: unexpected end of file\n";
    const CASES: [(&str, &str); 11] = [
        ("echo \"open", "bash: unexpected EOF while looking for matching `\"'\n"),
        ("echo 'open", "bash: unexpected EOF while looking for matching `''\n"),
        ("echo $(open", "bash: unexpected EOF while looking for matching `)'\n"),
        ("echo `open", "bash: unexpected EOF while looking for matching ``'\n"),
        ("if true; then echo a", END),
        ("while true; do", END),
        ("f1() {", END),
        ("case x in", END),
        ("echo a |", END),
        ("fi", "bash: syntax error near unexpected token `fi'\n"),
        ("echo a | | b", "bash: syntax error near unexpected token `|'\n"),
    ];
    let (code, message) = draw.pick(&CASES);
    Step::new("syntax error", code).effects([Effect::complain(message)]).failing()
}

fn reader(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "cat 2>/dev/null; echo after",
        "read v1 2>/dev/null </dev/tty || v1=; echo after",
        "while read line; do echo $line; done 2>/dev/null; echo after",
        "bash -c cat 2>/dev/null; echo after",
        "read -t 5 -n 1 key </dev/null; echo after",
    ]);
    let is_set = code.starts_with("read v1");
    Step::new("reader", code)
        .effects(is_set.then(|| Effect::set("v1", "")))
        .effects([Effect::print("after\n")])
        .failing()
}

fn without_newline(draw: &mut Draw<'_>) -> Step {
    let word = draw.word();
    Step::new("no newline", format!("printf {word}")).effects([Effect::print(&word)])
}

fn binary(_: &mut Draw<'_>) -> Step {
    Step::new("binary", "printf '\\377\\376x\\0\\001\\033\\n'")
        .effects([Effect::print("\u{fffd}\u{fffd}x\0\u{1}\u{1b}\n")])
}

fn exit_code(draw: &mut Draw<'_>) -> Step {
    let code = draw.rng.i32(0..256);
    let step = Step::new("exit code", format!("(exit {code})")).exit_code(code);
    if code == 0 { step } else { step.failing() }
}

fn change_directory(draw: &mut Draw<'_>) -> Step {
    let dir = draw.pick(&["d1", "d2", "a b/c"]);
    let code = format!("cd \"${{PWD%%/rlm_fs*}}/rlm_fs\"; mkdir -p '{dir}'; cd '{dir}'");
    Step::new("cd", code).effects([Effect::Dir(String::new()), Effect::Dir(format!("/{dir}"))])
}

fn answer(draw: &mut Draw<'_>) -> Step {
    let content = draw.value();
    let (ready, is_ready) =
        draw.pick(&[("1", true), ("yes", true), ("On", true), ("0", false), ("maybe", false)]);
    let code = format!("RLM_CONTENT={}; RLM_READY={ready}", quote(&content));
    Step::new("answer", code).effects([Effect::Content(content), Effect::Ready(is_ready)])
}

/// The letter that the driver adds to values of its own.
fn answer_x(_: &mut Draw<'_>) -> Step {
    Step::new("answer X", "RLM_CONTENT=X").effects([Effect::Content("X".to_owned())])
}

fn large_answer(draw: &mut Draw<'_>) -> Step {
    let bytes = draw.rng.usize(1..100_000);
    let code = format!("printf -v RLM_CONTENT '%0*d' {bytes} 7");
    Step::new("large answer", code).effects([Effect::Content(format!("{}7", "0".repeat(bytes - 1)))])
}

fn killed_child(draw: &mut Draw<'_>) -> Step {
    let word = draw.word();
    let code = format!("sh -c 'kill -9 $$' || echo \"$? {word}\"");
    Step::new("killed child", code)
        .effects([Effect::complain("Killed\n"), Effect::print(&format!("137 {word}\n"))])
}

/// A call that lasts long enough to be disturbed.
fn slow(draw: &mut Draw<'_>) -> Step {
    let name = draw.name();
    let (first, second) = (draw.value(), draw.value());
    let code = format!("{name}={}; sleep 0.02; sleep 0.02; {name}={}", quote(&first), quote(&second));
    Step::new("slow", code)
        .effects([Effect::set(name, &first), Effect::set(name, &second)])
        .with_free_output()
        .failing()
}

/// Functions and aliases that are named like builtins.
fn hidden(draw: &mut Draw<'_>) -> Step {
    let name = draw.pick(&["trap", "read", "eval", "builtin", "set", "unset", "mapfile", "declare"]);
    let code = format!("{name}() {{ :; }}; {name}; unset -f {name}");
    let code =
        if name == "unset" { "unset() { command unset \"$@\"; }; unset -f unset".to_owned() } else { code };
    Step::new("hidden builtin", code)
}
