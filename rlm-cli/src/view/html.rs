//! Rollouts as one page, `page.html`, which fetches nothing from elsewhere. One script runs, `page.js`, known by its digest. The
//! script is built from `page.ts` by `page-build`, and committed, so that a build needs no Node.
//!
//! The script draws the overview from rows, and each rollout from its HTML when it is opened: a browser can hold ten thousand
//! rollouts as text, but not as elements. A served page starts without either and asks its server for them.

use std::error::Error as _;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, context};
use rlm_core::protocol::Outcome;
use rlm_core::text::{duration, grouped, size};
use rlm_env::trajectory::{ImagePlace, MessageKind, read_image};
use sha2::{Digest as _, Sha256};

use super::facts::{self, RETRIED};
use super::rollouts::{Batch, Call, Output, Prompt, Rollout, Rollouts, Step, Thought, Turn};
use super::row::rows;
use crate::signals::AnyEndSignal;
use crate::text::{Text, word};

const SCRIPT: &str = include_str!("page.js");

const BODY: &str = concat!(include_str!("parts.html"), "{{ body(rollout) }}");
const PAGE: &str = concat!(include_str!("parts.html"), include_str!("page.html"));

/// Lines at which a text gets a box of its own, with its size.
const LONG_LINES: usize = 24;

/// Bytes at which a browser lays out a text only when it is asked for.
const LARGE_BYTES: usize = 1 << 20;

/// Places of the marks on a time line, as parts of its length.
const MARKS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Writes a page. A file stays until the new one is complete; a device or a FIFO is written to. `-` is standard output.
pub(super) fn write_to(path: &Path, title: &str, rollouts: Rollouts) -> io::Result<()> {
    let stream: Option<Box<dyn Write>> = if path == Path::new("-") {
        Some(Box::new(io::stdout().lock()))
    } else if path.metadata().is_ok_and(|found| !found.is_file()) {
        Some(Box::new(File::options().write(true).open(path)?))
    } else {
        None
    };
    if let Some(stream) = stream {
        let mut output = BufWriter::new(stream);
        write(&mut output, title, rollouts)?;
        return output.flush();
    }
    // A symbolic link is kept: its target is replaced.
    let dir_of = |path: &Path| path.parent().map(|dir| Path::new(".").join(dir)).unwrap_or_default();
    let led_to = || fs::read_link(path).map(|to| dir_of(path).join(to));
    let path = &path.canonicalize().or_else(|_| led_to()).unwrap_or_else(|_| path.to_owned());
    // Signals are caught before there is a file to remove.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { AnyEndSignal::catch() })?;
    let file = tempfile::Builder::new()
        .prefix(".rlm-view")
        // Permissions as of any new file; the umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir_of(path))?;
    if let Ok(found) = path.metadata() {
        file.as_file().set_permissions(found.permissions())?;
    }
    let unfinished = file.path().to_owned();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || runtime.block_on(remove_at(signals, &unfinished)))?;
    let mut output = BufWriter::new(file);
    write(&mut output, title, rollouts)?;
    output.into_inner()?.persist(path)?;
    Ok(())
}

/// Removes a file at a signal, and ends the program.
#[expect(clippy::exit, reason = "the main thread is busy with the page")]
async fn remove_at(mut signals: AnyEndSignal, unfinished: &Path) {
    let status = signals.next().await;
    _ = fs::remove_file(unfinished);
    std::process::exit(status.into());
}

/// Writes a page. The title has gone through [`visible`](crate::text::visible); everything is escaped here.
pub(super) fn write(output: &mut dyn Write, title: &str, rollouts: Rollouts) -> io::Result<()> {
    let rows = json(&rows(&rollouts, 0));
    // Each rollout is rendered when it is written: a page may be larger than the free memory.
    let bodies =
        Value::make_object_iterable(rollouts, |rollouts| Box::new(rollouts.list.iter().map(rollout)));
    render("page.html", context! { rows, bodies, ..page_context(title, false) }, output)
}

/// A page that is served: it asks for its rollouts.
pub(super) fn live_page(title: &str) -> String {
    rendered("page.html", context! { rows => "[]", ..page_context(title, true) })
}

/// A rollout as a part of a page that is served.
pub(super) fn body(of: &Rollout) -> String {
    rendered("body.html", context! { rollout => rollout(of) })
}

/// JSON that is safe within a script element.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("rows can be JSON").replace('<', "\\u003c")
}

fn page_context(title: &str, is_live: bool) -> Value {
    let script_hash = format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(format!("\n{SCRIPT}"))));
    context! { title, is_live, style => include_str!("page.css"), script => SCRIPT, script_hash }
}

fn rendered(template: &str, values: Value) -> String {
    let mut output = Vec::new();
    render(template, values, &mut output).expect("memory can be written");
    String::from_utf8(output).expect("templates and values are UTF-8")
}

fn render(template: &str, values: Value, output: &mut dyn Write) -> io::Result<()> {
    let template = ENVIRONMENT.get_template(template).expect("it was added");
    let written = template.render_captured_to(values, output);
    written.map(drop).map_err(|error| {
        match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(source) => io::Error::new(source.kind(), error),
            None => io::Error::other(error),
        }
    })
}

/// The templates, which a served page renders again and again.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_formatter(|output, _state, value| {
        let text = value.to_string();
        let text = if value.is_safe() { text } else { escaped(&text) };
        Ok(output.write_str(&text)?)
    });
    for (name, template) in [("body.html", BODY), ("page.html", PAGE)] {
        environment.add_template(name, template).expect("the template is valid");
    }
    environment
}

fn rollout(rollout: &Rollout) -> Value {
    let start = rollout.start.as_ref();
    let end = rollout.end.as_ref().map(|end| {
        let metrics =
            end.metrics.iter().map(|(name, value)| Value::from_iter([name.as_str(), value.as_str()]));
        context! {
            facts => facts::of_end(end).join(" · "),
            error => text(&end.error),
            answer => text(&end.answer),
            metrics => metrics.collect::<Value>(),
        }
    });
    context! {
        id => rollout.id.as_str(),
        at => rollout.at,
        class => class(rollout),
        facts => facts::of_rollout(rollout).join(" · "),
        question => text(start.map(|start| &start.question)),
        start => start.map(|start| facts::of_start(start).join(" · ")),
        language => start.map(|start| start.language.as_str()),
        times => times(rollout),
        marks => MARKS.iter().map(|part| duration(rollout.seconds() * part)).collect::<Value>(),
        bars => bars(rollout),
        system => rollout.system.as_ref().map(text),
        turns => rollout.turns.iter().map(turn).collect::<Value>(),
        end,
    }
}

fn class(rollout: &Rollout) -> &'static str {
    if facts::has_answer(rollout) { "good" } else { "bad" }
}

fn turn(turn: &Turn) -> Value {
    let facts = facts::of_turn(turn);
    context! {
        number => turn.number,
        title => facts[0].as_str(),
        facts => facts[1..].join(" · "),
        steps => turn.steps.iter().map(step).collect::<Value>(),
    }
}

fn step(step: &Step) -> Value {
    match step {
        Step::Model(call) => {
            let notes = call.adapted.iter().map(|sentence| facts::of_adapted(sentence)).collect::<Value>();
            context! { class => "bad", notes, text => text(&call.error) }
        }
        Step::Thought(made) => context! { thought => thought(made) },
        Step::Message(MessageKind::Reply, said) => context! { class => "", text => text(said) },
        Step::Message(kind, said) => {
            context! { class => "notice", title => facts::of_message(*kind), text => text(said) }
        }
        Step::Image(place) => image(place),
        Step::Retry(error) => context! { class => "bad", title => RETRIED, text => text(error) },
        Step::Call(made) => context! { call => call(made) },
        Step::Batch(made) => context! { batch => batch(made) },
    }
}

fn image(place: &ImagePlace) -> Value {
    match place {
        ImagePlace::Url(url) => context! { image => url.as_str() },
        ImagePlace::File(file, media_type) => match read_image(file) {
            Ok(data) => {
                context! { image => format!("data:{media_type};base64,{}", BASE64_STANDARD.encode(data)) }
            }
            Err(error) => {
                context! { class => "bad", title => word(&format!("the image {} cannot be shown: {error}", file.display())) }
            }
        },
    }
}

fn thought(thought: &Thought) -> Value {
    context! { line => thought.line.as_str(), text => text(&thought.text) }
}

fn call(call: &Call) -> Value {
    let facts = facts::of_call(call);
    context! {
        id => word(&call.id),
        title => facts[0].as_str(),
        facts => facts[1..].join(" · "),
        has_failed => call.has_failed(),
        input => text(&call.input),
        is_repl => call.output.is_some() || call.tool.as_deref().is_some_and(|tool| tool.ends_with("_repl")),
        batches => call.batches.iter().map(batch).collect::<Value>(),
        message => text(&call.message),
        error => text(&call.error),
        output => call.output.as_ref().map(output),
    }
}

fn output(output: &Output) -> Value {
    let (answer, is_final) = output.answer.as_ref().map(|(answer, is_final)| (answer, *is_final)).unzip();
    context! {
        stdout => text(&output.stdout),
        stderr => text(&output.stderr),
        result => text(&output.result),
        has_failed => output.response.outcome == Outcome::Error,
        facts => facts::of_output(output).join(" · "),
        hint => text(&output.hint),
        answer => text(answer),
        answer_title => is_final.map(|is_final| if is_final { "answer, final" } else { "answer, not final" }),
    }
}

fn batch(batch: &Batch) -> Value {
    let facts = facts::of_batch(batch);
    context! {
        title => facts[0].as_str(),
        facts => facts[1..].join(" · "),
        has_failed => batch.failed() > 0,
        prompts => batch.prompts.iter().map(|(index, made)| prompt(*index, made)).collect::<Value>(),
    }
}

fn prompt(index: usize, prompt: &Prompt) -> Value {
    context! {
        index,
        facts => facts::of_prompt(prompt).join(" · "),
        prompt => text(&prompt.prompt),
        thought => prompt.thought.as_ref().map(thought),
        reply => text(&prompt.reply),
        error => text(&prompt.error),
    }
}

/// A text as a value of a template, where an absent or empty text is false.
fn text<'t>(text: impl Into<Option<&'t Text>>) -> Value {
    let Some(text) = text.into().filter(|text| !text.is_empty()) else { return false.into() };
    let left_out = text.left_out.map(|left_out| size(left_out.bytes as u64));
    let lines = text.head.lines().count() + text.tail.lines().count();
    let bytes = text.head.len() + text.tail.len() + text.left_out.map_or(0, |left_out| left_out.bytes);
    let is_large = text.head.len() > LARGE_BYTES;
    let size = (is_large || lines > LONG_LINES).then(|| size(bytes as u64));
    context! { head => text.head.as_str(), left_out, tail => text.tail.as_str(), size, is_large }
}

/// The scale of a bar: the time of a rollout.
#[derive(Clone, Copy)]
struct Span {
    began: f64,
    whole: f64,
}

impl Span {
    /// The start and the width of a part, in percent. None if the whole has no width.
    fn part(self, began: f64, width: f64) -> Option<Value> {
        let (start, width) = ((began - self.began) / self.whole * 100.0, width / self.whole * 100.0);
        // Numbers in a file may be too large to be added.
        (self.whole > 0.0 && start.is_finite() && width.is_finite()).then(|| {
            let start = start.clamp(0.0, 100.0);
            let width = width.clamp(0.0, 100.0 - start);
            let (start, width) = (format!("{start:.2}"), format!("{width:.2}"));
            context! { start, width }
        })
    }
}

/// A bar for each request to the root model, each call and each batch, on the time line of the rollout. None if the rollout
/// took no time.
fn bars(rollout: &Rollout) -> Option<Value> {
    let span = Span { began: rollout.began, whole: rollout.seconds() };
    let bar = |turn: &Turn, class: &str, label: String, began: f64, time: f64| {
        context! { turn => turn.number, class, label, part => span.part(began, time), time => duration(time) }
    };
    let batch = |turn: &Turn, batch: &Batch| {
        let label = format!("llm_batch × {}", grouped(batch.prompts.len() as u64));
        bar(turn, "batch", label, batch.began, batch.seconds())
    };
    let bars = rollout.turns.iter().flat_map(|turn| turn.steps.iter().map(move |step| (turn, step)));
    let bars = bars.flat_map(|(turn, step)| match step {
        Step::Model(call) => {
            let label = format!("turn {} · {}", turn.number, call.model);
            vec![bar(turn, "model", label, call.began, call.seconds)]
        }
        Step::Call(call) => {
            let label = call.tool.as_deref().unwrap_or("call");
            let own = call.seconds.map(|time| bar(turn, "call", label.to_owned(), call.began, time));
            own.into_iter().chain(call.batches.iter().map(|made| batch(turn, made))).collect()
        }
        Step::Batch(made) => vec![batch(turn, made)],
        Step::Message(..) | Step::Image(..) | Step::Thought(_) | Step::Retry(_) => Vec::new(),
    });
    (span.whole > 0.0).then(|| bars.collect())
}

/// Where the time of a rollout went, in words.
fn times(rollout: &Rollout) -> String {
    let of_models = |step: &Step| if let Step::Model(call) = step { call.seconds } else { 0.0 };
    let models: f64 = rollout.steps().map(of_models).sum();
    let sub_calls: f64 = rollout.batches().map(Batch::seconds).sum();
    let inner: f64 = rollout.calls().flat_map(|call| &call.batches).map(Batch::seconds).sum();
    let code = (rollout.calls().filter_map(|call| call.seconds).sum::<f64>() - inner).max(0.0);
    let rest = (rollout.seconds() - models - sub_calls - code).max(0.0);
    format!(
        "model {} · code {} · sub-calls {} · the rest {}",
        duration(models),
        duration(code),
        duration(sub_calls),
        duration(rest)
    )
}

/// Text escaped for use between tags and in quoted attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}
