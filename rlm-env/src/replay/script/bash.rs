//! A bash session as a script.
//!
//! A call appears verbatim if its last line cannot continue in the code after it. Otherwise it is passed to `eval`, as
//! the session does with every call. Calls before a reset run in a bash of their own.

use std::collections::BTreeMap;

use rlm_core::json::{JsonText, Part, Wtf8};
use rlm_core::pickle::Value;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_core::root_tool::print::{self, Output};
use rlm_core::root_tool::{Call, LLM_BATCH, MAX_BODY_BYTES, Reply, ToolResult, is_query};
use rlm_core::shell::quoted;

use super::shell::{here_document, stands_alone};
use super::{
    ScriptOptions, ended_the_shell, header, is_left_out, push_comment, push_title, root_tools, title,
};
use crate::replay::past::{PastCall, PastSession, Task};
use crate::replay::recording::{RecordedCall, Recording};

/// The functions that stand in for root tools.
const TOOLS: &str = include_str!("tools.sh");

/// Setup, as in a session's shell.
const BEGIN: &str = "\
exec </dev/null {__rlm_out}>&1
export TERM=dumb PAGER=cat GIT_PAGER=cat MANPAGER=cat
";

/// Part of the script's setup that the shells of earlier sessions need as well.
const INTERACTIVE: &str = "shopt -s expand_aliases\n";

/// The end: background jobs end with the session, and no EXIT trap runs.
const END: &str = "\
# The end of the session, and its answer.
\\builtin trap - EXIT DEBUG ERR RETURN
\\builtin set +eux
IFS=$' \\t\\n'
for __rlm_job in $(\\builtin jobs -p); do \\builtin kill \"$__rlm_job\" 2>/dev/null; done
";

/// Prints the answer as `rlm exec` does.
const ANSWER: &str = "\
LC_ALL=C
if [[ -n ${RLM_CONTENT-} ]]; then
  \\builtin printf '%s\\n' \"${RLM_CONTENT%$'\\n'}\"
fi >&\"$__rlm_out\"
\\builtin exit 0
";

/// Separates the words of a root tool's call.
const UNIT: char = '\u{1f}';

/// Precedes a request in JSON.
const REQUEST: char = '\u{1e}';

/// Ends each way of writing a call.
const GROUP: char = '\u{1d}';

pub(super) fn script(past: &PastSession, options: ScriptOptions<'_>) -> String {
    let (tools, called) = root_tools(past, options);
    let mut script = String::from("#!/usr/bin/env bash\n");
    push_comment(&mut script, &header(past, options, &called).join("\n"));
    script.push('\n');
    script.push_str(BEGIN);
    script.push_str(INTERACTIVE);
    push_tools(&mut script, &tools, options.recording);
    let sessions = sessions(&past.calls);
    for (at, calls) in sessions.iter().enumerate() {
        let mut text = String::new();
        let mut kinds = BTreeMap::new();
        // An alias may expand to anything, even to the beginning of a here-document.
        let mut has_aliases = false;
        for call in *calls {
            has_aliases |=
                matches!(&call.task, Task::Run(code) if code.to_ascii_lowercase().contains("alias"));
            text.push('\n');
            push_call(&mut text, call, options, has_aliases, &mut kinds);
        }
        if at + 1 == sessions.len() {
            script.push_str(&text);
            continue;
        }
        script.push_str("\n# Only the files of this session are kept: a fresh session follows.\n");
        let text = format!("{INTERACTIVE}{text}\n{END}\\builtin exit 0\n");
        let (end, document) = here_document(&text, &format!("END_OF_SESSION_{}", at + 1));
        script.push_str(&format!("\"$BASH\" /dev/fd/9 9<<'{end}'\n{document}"));
    }
    script.push('\n');
    script.push_str(END);
    if options.recording.is_some() && !tools.is_empty() {
        script.push_str("rm -rf -- \"$__rlm_answers\"\n");
    }
    script.push_str(ANSWER);
    script
}

/// The calls of each fresh session.
fn sessions(calls: &[PastCall]) -> Vec<&[PastCall]> {
    let mut sessions = Vec::new();
    let mut begin = 0;
    for (at, call) in calls.iter().enumerate().skip(1) {
        if call.is_first || (call.task == Task::Reset && call.fault().is_none()) {
            sessions.push(&calls[begin..at]);
            begin = at;
        }
    }
    sessions.push(&calls[begin..]);
    sessions
}

fn push_call(
    script: &mut String,
    call: &PastCall,
    options: ScriptOptions<'_>,
    has_aliases: bool,
    kinds: &mut BTreeMap<String, bool>,
) {
    push_title(script, &title(call, options), call, options);
    match &call.task {
        Task::Reset => {}
        Task::Set { variables, .. } if call.fault().is_none() => push_variables(script, variables, kinds),
        Task::Set { .. } => {}
        Task::Run(code) if is_left_out(call, options) => {
            push_comment(script, call.source.as_ref().unwrap_or(code));
            if call.response().is_some_and(|response| response.state == State::Restored) {
                script.push_str("set +e # as in the shell that replaced it\n");
            }
        }
        Task::Run(code) if ended_the_shell(call) => {
            script.push_str("# In a shell of its own, because it ends the shell.\n");
            script.push_str(&format!("(\\builtin eval {})\n", quoted(code)));
        }
        Task::Run(code) if !has_aliases && call.response().is_some_and(ended_well) && stands_alone(code) => {
            script.push_str(code);
            if !code.ends_with('\n') {
                script.push('\n');
            }
        }
        Task::Run(code) => script.push_str(&format!("\\builtin eval {}\n", quoted(code))),
    }
}

/// True if the code was not a syntax error, which has another status.
fn ended_well(response: &Response) -> bool {
    response.outcome == Outcome::Ok && response.exit_code == Some(0)
}

/// Assigns variables. `kinds` tells which names are arrays.
fn push_variables(
    script: &mut String,
    variables: &BTreeMap<String, JsonText>,
    kinds: &mut BTreeMap<String, bool>,
) {
    for (name, json) in variables {
        if !super::is_identifier(name) {
            continue;
        }
        let (is_array, assignment) = match json.part() {
            Part::Null => (false, String::new()),
            Part::Array(items) => {
                let items: Vec<_> = items.into_iter().map(|item| scalar(&Part::of(item))).collect();
                (true, format!("{name}=({})\n", items.join(" ")))
            }
            Part::Object(fields) => {
                let pair =
                    |(key, value): (Wtf8, &str)| format!("[{}]={}", text(&key), scalar(&Part::of(value)));
                let pairs: Vec<_> = fields.into_iter().map(pair).collect();
                (true, format!("declare -A {name}=({})\n", pairs.join(" ")))
            }
            part => (false, format!("{name}={}\n", scalar(&part))),
        };
        // An exported variable stays exported, but an array cannot become a string.
        if is_array || assignment.is_empty() || kinds.get(name) == Some(&true) {
            script.push_str(&format!("unset -v {name}\n"));
        }
        script.push_str(&assignment);
        kinds.insert(name.clone(), is_array);
    }
}

fn scalar(part: &Part<'_>) -> String {
    match part {
        Part::Bool(value) => value.to_string(),
        Part::Number(number) => (*number).to_owned(),
        Part::String(string) => text(string),
        Part::Null | Part::Array(_) | Part::Object(_) => "''".to_owned(),
    }
}

fn text(Wtf8(bytes): &Wtf8) -> String {
    quoted(&String::from_utf8_lossy(bytes))
}

/// A function for each root tool.
fn push_tools(script: &mut String, tools: &[&str], recording: Option<&Recording>) {
    if tools.is_empty() {
        return;
    }
    script.push('\n');
    let Some(recording) = recording else {
        script.push_str("# Root tools only work within their session.\n");
        for tool in tools {
            let refusal = format!(
                "Error: {tool} is a root tool of the original session: \
                 `rlm script --recorded FILE` adds its recorded replies to the script"
            );
            script.push_str(&format!(
                "{tool}() {{ printf '%s\\n' {} >&2; return 1; }}\nexport -f {tool}\n",
                quoted(&refusal)
            ));
        }
        return;
    };
    script.push_str(TOOLS);
    script.push_str("__rlm_answers=$(mktemp -d) || exit\nexport __rlm_answers __rlm_root=\"$PWD\"\n");
    for (at, recorded) in recording.calls.iter().enumerate() {
        push_answer(script, at, recorded);
    }
    for tool in tools {
        script.push_str(&format!("{tool}() {{ __rlm_recorded {tool} \"$@\"; }}\nexport -f {tool}\n"));
    }
}

/// Writes the files of one recorded call: its possible keys, and its output.
fn push_answer(script: &mut String, at: usize, RecordedCall { call, reply }: &RecordedCall) {
    let mut push = |kind: &str, text: &str| {
        let (end, document) = here_document(text, "END_OF_FILE");
        script
            .push_str(&format!("cat >\"$__rlm_answers/\"{}.{at:06}.{kind} <<'{end}'\n{document}", call.tool));
    };
    let keys: String = keys(call).iter().map(|key| format!("{key}{GROUP}")).collect();
    push("key", &keys);
    match reply {
        Err(error) => push("error", &format!("Error: {error}")),
        Ok(reply) => {
            for (kind, output) in [("text", Output::Text), ("json", Output::Json)] {
                push(kind, &printed(call, reply, output));
            }
            if is_query(&call.tool) {
                if matches!(reply.result, ToolResult::Value(Value::List(_))) {
                    // A here-document has no NUL.
                    push("nul", &printed(call, reply, Output::Nul).replace('\0', "\u{1e}"));
                }
                if print::lacks_answer(reply) {
                    push("unanswered", "");
                }
            }
        }
    }
}

fn printed(call: &Call, reply: &Reply, output: Output) -> String {
    let printed = print::reply(&call.tool, reply, output).unwrap_or_else(String::into_bytes);
    String::from_utf8_lossy(&printed).into_owned()
}

/// The one form in which the words of `rlm_query` or `rlm_query_batch` are looked up: questions, files, other options.
fn query_key(call: &Call) -> Option<String> {
    let word = |value: &Value| match value {
        Value::Str(text) => Some(text.to_string()),
        Value::Float(number) => Some(number.to_string()),
        other => String::from_utf8(other.to_json_text(MAX_BODY_BYTES).ok()?).ok(),
    };
    let list = |value: &Value| match value {
        Value::List(values) => values.iter().map(word).collect(),
        one => word(one).map(|one| vec![one]),
    };
    let option = |name: &str, value: &Value| Some(format!("--{name}={}", word(value)?));
    let mut words = list(call.args.first()?)?;
    let files = call.kwargs.get("files").or(call.args.get(1)).map_or(Some(Vec::new()), list)?;
    words.extend(files.iter().map(|file| format!("--file={file}")));
    for name in ["text", "data", "model", "language", "max_turns", "timeout", "share", "json"] {
        if let Some(value) = call.kwargs.get(name) {
            words.push(option(&name.replace('_', "-"), value)?);
        }
    }
    Some(words.into_iter().map(|word| format!("{word}{UNIT}")).collect())
}

/// The forms in which the call may be written: arguments, or a request in JSON.
fn keys(call: &Call) -> Vec<String> {
    if is_query(&call.tool) {
        return query_key(call).into_iter().collect();
    }
    let json = |value: &Value| {
        let bytes = value.to_json_text(MAX_BODY_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    };
    let by_name = Value::from(call.kwargs.clone());
    let request = |text: String| format!("{REQUEST}{text}");
    let mut keys = Vec::new();
    let args: Vec<Value> = match (call.tool.as_str(), call.args.as_slice()) {
        (LLM_BATCH, [Value::List(prompts)]) => {
            keys.extend(json(&call.args[0]).map(request));
            keys.extend(json(&call.args[0]).map(|list| request(format!("{{\"prompts\":{list}}}"))));
            prompts.to_vec()
        }
        (_, args) => args.to_vec(),
    };
    if call.kwargs.is_empty() {
        let word = |value: &Value| match value {
            Value::Str(text) => Some(text.to_string()),
            other => json(other),
        };
        if let Some(words) = args.iter().map(word).collect::<Option<Vec<_>>>() {
            keys.push(words.iter().map(|word| format!("{word}{UNIT}")).collect());
        }
    }
    if call.kwargs.is_empty() {
        if call.tool != LLM_BATCH {
            keys.extend(json(&Value::list(call.args.clone())).map(request));
            match call.args.as_slice() {
                [Value::Str(text)] => keys.push(request(text.to_string())),
                [one] => keys.extend(json(one).map(request)),
                _ => {}
            }
        }
    } else if call.args.is_empty() {
        keys.extend(json(&by_name).map(request));
    }
    if let (Some(args), Some(kwargs)) = (json(&Value::list(call.args.clone())), json(&by_name)) {
        keys.push(request(format!("{{\"args\":{args},\"kwargs\":{kwargs}}}")));
        keys.push(request(format!("{{\"kwargs\":{kwargs},\"args\":{args}}}")));
        if call.kwargs.is_empty() {
            keys.push(request(format!("{{\"args\":{args}}}")));
        }
        if call.args.is_empty() {
            keys.push(request(format!("{{\"kwargs\":{kwargs}}}")));
        }
    }
    keys
}
