//! Samples of every text in all its forms. Custom templates are checked with them on loading, and the built-in ones are
//! compared with snapshots.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rlm_core::protocol::{Confine, Outcome, Response, State};
use rlm_rootd::Budget;
use serde_json::{Value as Json, json};

use super::interception::{CallFailed, CallsRejected, ResultsCut};
use super::notices::{
    AnswerEmpty, AnswerUnfit, CallFault, ContextLow, Images, LastTurn, MalformedCall, NoCallReason,
    NoToolCall, SessionReset, Summary, SummaryRequest, reply_cut,
};
use super::output;
use super::system::{ReplTool, SubLlmPrompt, SystemPrompt, WorkingDir};
use super::templates::{PromptError, Prompts};
use super::tool::{McpDoc, McpText, StateLost, ToolFailureText, ToolOutputCut};
use super::tool_fault::ToolFault;
use super::tools::ToolDoc;
use crate::interception::{Plan, Planner, VariableNames};
use crate::terms::{CallForm, Callbacks, Limits, ReplLanguage, StopReason, Verbosity};

static SEARCH: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "How many to return."},
            "order": {"enum": ["newest", "oldest"]},
        },
    })
});
static NOTHING: LazyLock<Json> = LazyLock::new(|| json!({"properties": {}}));
static ANYTHING: LazyLock<Json> = LazyLock::new(|| json!({}));
const FILES: &str = "2 files, 48,210,440 bytes\n\n    48210332  orders.csv\n         108  README";

/// Renders all samples.
pub(super) fn render_all(prompts: &Prompts) -> Result<Vec<(String, String)>, PromptError> {
    let mut texts = Vec::new();
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        systems(prompts, language, &mut texts)?;
        notices(prompts, language, &mut texts)?;
        faults(prompts, language, &mut texts)?;
        outputs(prompts, language, &mut texts)?;
        interception(prompts, language, &mut texts)?;
        tool(prompts, language, &mut texts)?;
    }
    texts.push(("reply_cut".to_owned(), reply_cut(prompts)?));
    let doc = McpDoc {
        root: Path::new("/data"),
        timeout: Duration::from_secs(120),
        max_output_bytes: 32 << 10,
        max_sessions: 16,
        confine: Confine::Off,
    };
    for (name, text) in [
        ("mcp_ask_directory", McpText::AskDirectory),
        ("mcp_bash", McpText::Repl(ReplLanguage::Bash)),
        ("mcp_instructions", McpText::Instructions),
        ("mcp_python", McpText::Repl(ReplLanguage::Python)),
        ("mcp_reset", McpText::Reset),
        ("mcp_session_script", McpText::SessionScript),
    ] {
        texts.push((name.to_owned(), doc.render(text, prompts)?));
    }
    for (boxed, has_tools) in [(false, false), (true, true)] {
        let name = if boxed { "sub_llm_boxed_with_tools" } else { "sub_llm" };
        texts.push((name.to_owned(), SubLlmPrompt { boxed, has_tools }.render(prompts)?));
    }
    for (name, files) in [("working_dir", None), ("working_dir_with_context", Some(FILES))] {
        let (working_dir, context_dir) =
            (Path::new("/home/ada/project"), Path::new("/tmp/rlm-host-1/a/rlm_fs"));
        texts.push((name.to_owned(), WorkingDir { working_dir, context_dir, files }.render(prompts)?));
    }
    for turns in [1, 12] {
        let summary = Summary { turns, summary: "Found: 3 of 7 files hold letters.\n" };
        texts.push((format!("summary_of_{turns}"), summary.render(prompts)?));
    }
    Ok(texts)
}

type Texts = Vec<(String, String)>;

fn systems(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let tools = [
        ToolDoc { name: "search", description: "Finds documents.", parameters: &SEARCH },
        ToolDoc { name: "anything", description: "", parameters: &ANYTHING },
    ];
    let limits = Limits {
        timeout: Some(Duration::from_secs(1800)),
        budget: Budget { tokens: Some(2_000_000), cost_usd: Some(0.5), ..Budget::default() },
        ..Limits::default()
    };
    let full = SystemPrompt {
        language,
        callbacks: Callbacks::Network,
        verbosity: Verbosity::Light,
        call_form: CallForm::Tool,
        root_tools: &tools,
        sub_llm_parallelism: Some(5),
        has_budget: true,
        has_final_functions: false,
        answer_schema: None,
        is_child: false,
        plain_answers: false,
        limits: &limits,
        files: FILES,
    };
    let bare_limits = Limits::default();
    let bare = SystemPrompt {
        call_form: CallForm::Fenced,
        root_tools: &[],
        sub_llm_parallelism: None,
        has_budget: false,
        limits: &bare_limits,
        ..full
    };
    for verbosity in [Verbosity::Light, Verbosity::Medium, Verbosity::Heavy] {
        let name = format!("{language}_system_{verbosity}");
        texts.push((format!("{name}_bare"), SystemPrompt { verbosity, ..bare }.render(prompts)?));
        texts.push((name, SystemPrompt { verbosity, ..full }.render(prompts)?));
    }
    let intercepted = SystemPrompt {
        callbacks: Callbacks::Intercept,
        verbosity: Verbosity::Heavy,
        has_final_functions: true,
        ..full
    };
    texts.push((format!("{language}_system_intercepted"), intercepted.render(prompts)?));
    let schema = Some("{\n  \"type\": \"object\"\n}");
    let with_schema = SystemPrompt { answer_schema: schema, ..bare };
    texts.push((format!("{language}_system_schema_bare"), with_schema.render(prompts)?));
    let with_plain_answers = SystemPrompt { plain_answers: true, ..bare };
    texts.push((format!("{language}_system_plain_answers_bare"), with_plain_answers.render(prompts)?));
    let recursive = [ToolDoc { name: "rlm_query", description: "", parameters: &NOTHING }];
    let child = SystemPrompt { root_tools: &recursive, is_child: true, ..bare };
    texts.push((format!("{language}_system_child_with_children_bare"), child.render(prompts)?));
    let child = SystemPrompt { callbacks: Callbacks::Intercept, ..child };
    texts.push((format!("{language}_system_child_intercepted_bare"), child.render(prompts)?));
    let navigation = [ToolDoc { name: "nav_info", description: "Counts files.", parameters: &NOTHING }];
    let alone = SystemPrompt {
        root_tools: &navigation,
        sub_llm_parallelism: None,
        has_budget: false,
        verbosity: Verbosity::Medium,
        ..intercepted
    };
    texts.push((format!("{language}_system_intercepted_without_models"), alone.render(prompts)?));
    let Limits { call_timeout, max_output_length, .. } = limits;
    let definition = ReplTool { language, call_timeout, max_output_length }.definition(prompts)?;
    texts.push((format!("{language}_repl_tool"), format!("{definition:#}")));
    Ok(())
}

fn notices(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let low = ContextLow { language, left_tokens: 6000, total_tokens: 32_768 };
    texts.push((format!("{language}_context_low"), low.render(prompts)?));
    for call_form in [CallForm::Tool, CallForm::Fenced] {
        let form = if call_form == CallForm::Tool { "tool" } else { "fenced" };
        for (reason, name) in [
            (StopReason::MaxTurns, "turns"),
            (StopReason::BudgetExhausted, "budget"),
            (StopReason::TimedOut, "time"),
            (StopReason::ContextFull, "context"),
        ] {
            let text = LastTurn { language, call_form, reason }.render(prompts)?;
            texts.push((format!("{language}_last_turn_{form}_{name}"), text));
        }
        for is_last_warning in [false, true] {
            let reason = &NoCallReason::NoCode;
            let text = NoToolCall { language, call_form, reason, is_last_warning }.render(prompts)?;
            let last = if is_last_warning { "_last" } else { "" };
            texts.push((format!("{language}_no_tool_call_{form}{last}"), text));
        }
    }
    for (reason, name) in [
        (NoCallReason::OtherLanguage("python3".to_owned()), "other_language"),
        (NoCallReason::Cut, "cut"),
        (NoCallReason::Refused("the model refused to answer".to_owned()), "refused"),
    ] {
        let text =
            NoToolCall { language, call_form: CallForm::Tool, reason: &reason, is_last_warning: false };
        texts.push((format!("{language}_no_tool_call_{name}"), text.render(prompts)?));
    }
    texts.push((format!("{language}_answer_empty"), AnswerEmpty { language }.render(prompts)?));
    texts.push((format!("{language}_images"), Images::Shown("plot.png, map.jpg").render(prompts)?));
    let refused = Images::Refused("image input is not supported by this server");
    texts.push((format!("{language}_images_refused"), refused.render(prompts)?));
    let faults =
        ["/n: \"x\" is not of type \"integer\"".to_owned(), "\"m\" is a required property".to_owned()];
    texts.push((
        format!("{language}_answer_unfit"),
        AnswerUnfit { language, faults: &faults }.render(prompts)?,
    ));
    for has_answer in [false, true] {
        let reason = "the worker was killed by SIGKILL";
        let text = SessionReset { language, reason, has_answer }.render(prompts)?;
        let answer = if has_answer { "_with_answer" } else { "" };
        texts.push((format!("{language}_session_reset{answer}"), text));
    }
    for has_summary in [false, true] {
        let text =
            SummaryRequest { language, max_words: 500, is_all: has_summary, has_summary }.render(prompts)?;
        let again = if has_summary { "_again" } else { "" };
        texts.push((format!("{language}_summary_request{again}"), text));
    }
    Ok(())
}

/// One text with a line for each fault.
fn faults(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let repl = language.tool_name();
    let cases = [
        ("call_shell", CallFault::UnknownTool),
        (repl, CallFault::NotJson("EOF while parsing a string at line 1 column 12".to_owned())),
        (repl, CallFault::NotAnObject("a list".to_owned())),
        (repl, CallFault::Missing("code".to_owned())),
        (repl, CallFault::NotAString("code".to_owned())),
        (repl, CallFault::UnknownArgument("command".to_owned())),
        (repl, CallFault::OpenBlock),
        (repl, CallFault::Cut),
        (repl, CallFault::Refused("the model refused to answer".to_owned())),
        (repl, CallFault::TooLarge { bytes: 2_000_000, limit: 1_048_576 }),
        ("lookup", CallFault::Other("argument 'id' of lookup is missing".to_owned())),
    ];
    let tools = [repl, "lookup"];
    let lines = cases
        .iter()
        .map(|(tool, fault)| MalformedCall { language, tool, tools: &tools, fault }.render(prompts));
    texts.push((format!("{language}_malformed_calls"), lines.collect::<Result<Vec<_>, _>>()?.join("\n")));
    Ok(())
}

/// One text with the notes on every outcome.
fn outputs(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let mut lines = Vec::new();
    for outcome in [
        Outcome::Ok,
        Outcome::Error,
        Outcome::TimedOut,
        Outcome::Interrupted,
        Outcome::Exited,
        Outcome::Crashed,
    ] {
        for (state, hint, exit_code) in [
            (State::Kept, None, None),
            (State::Reset, None, Some(0)),
            (State::Restored, Some("why"), Some(2)),
        ] {
            let hint = hint.map(str::to_owned);
            let response = Response { hint, exit_code, ..Response::new(outcome, state) };
            lines.push(format!("{outcome:?} {state:?}: {}", output::note(&response, prompts)?));
        }
    }
    for dropped_bytes in [0, 4096] {
        let cut = output::OutputCut { language: Some(language), cut: 12_345, total: 20_537, dropped_bytes };
        lines.push(cut.render(prompts)?);
    }
    let of_a_tool = output::OutputCut { language: None, cut: 12_345, total: 20_537, dropped_bytes: 0 };
    lines.push(of_a_tool.render(prompts)?);
    texts.push((format!("{language}_output_notes"), lines.join("\n")));
    Ok(())
}

/// One text with every reply of interception.
fn interception(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let mut lines = Vec::new();
    let code = match language {
        ReplLanguage::Bash => "x=1\nsearch 'a b' | wc -l\nfor i in 1 2; do\n  y=$(search \"$i\")\ndone\n",
        ReplLanguage::Python => "x = 1\nprint(len(search('a b')))\nfor i in range(2):\n    y = search(i)\n",
    };
    let plan = Planner { language, python: None, tools: &["search"] }.plan(code, &mut VariableNames::new(7));
    if let Plan::Rejected(rejections) = &plan {
        lines.push(CallsRejected { language, rejections }.render(prompts)?);
    }
    for calls_before in [0, 1, 2] {
        let (call, error) = ("search('a b')", "there is no index");
        lines.push(CallFailed { language, line: 3, call, error, calls_before }.render(prompts)?);
    }
    let calls = ["search('a')".to_owned(), "search('b')".to_owned()];
    lines.push(ResultsCut { calls: &calls }.render(prompts)?);
    texts.push((format!("{language}_interception"), lines.join("\n")));
    Ok(())
}

/// One text with every reply of a session as a tool.
fn tool(prompts: &Prompts, language: ReplLanguage, texts: &mut Texts) -> Result<(), PromptError> {
    let why = || "the worker died (exit status: 137); its log ends with: ".to_owned();
    let known = || vec!["default".to_owned(), "build".to_owned()];
    let faults = [
        ToolFault::CodeTooLarge { bytes: 2_000_000, limit: 1_048_576 },
        ToolFault::Busy { waiting: 1 },
        ToolFault::Busy { waiting: 129 },
        ToolFault::NotStarted("cannot start the worker /bin/worker: No such file or directory".to_owned()),
        ToolFault::Died(why()),
        ToolFault::Broken("the worker broke the protocol".to_owned()),
        ToolFault::Closed,
        ToolFault::NoHistory("Permission denied".to_owned()),
        ToolFault::ScriptTooLarge { bytes: 2_000_000, limit: 524_288 },
        ToolFault::UnknownSession { name: "other".to_owned(), known: known() },
        ToolFault::UnknownSession { name: "other".to_owned(), known: Vec::new() },
        ToolFault::TooManySessions { limit: 16, known: known() },
        ToolFault::BadArguments("missing field `code`".to_owned()),
    ];
    let mut lines = Vec::new();
    for fault in &faults {
        let text = ToolFailureText { language, fault };
        lines.push(format!("{} / {}", text.render_error(prompts)?, text.render_hint(prompts)?));
    }
    for state in [State::Restored, State::Reset] {
        lines.push(StateLost { language, state, reason: &why() }.render(prompts)?);
    }
    for (lost_bytes, file) in [(0, Some("/tmp/outputs/3-stdout.txt")), (4096, None)] {
        lines.push(ToolOutputCut { language, omitted_bytes: 1_000_000, lost_bytes, file }.render(prompts)?);
    }
    texts.push((format!("{language}_tool"), lines.join("\n")));
    Ok(())
}
