//! Rollouts as one page, `page.html`: nothing is fetched from elsewhere, and one script runs, `page.js`, known by its digest. It is
//! made of `page.ts` by `page-build`, and committed, so that a build needs no Node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::error::Error as _;
use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, context};
use rlm_core::protocol::Outcome;
use rlm_core::text::{counted, duration, grouped, size};
use rlm_env::trajectory::MessageKind;
use sha2::{Digest as _, Sha256};

use super::facts;
use super::quantity::Usage;
use super::rollouts::{Batch, Call, Node, Output, Prompt, Rollout, Rollouts, Step, Turn};
use super::text::Text;
use super::tree::MAX_INDENTS;

const SCRIPT: &str = include_str!("page.js");

/// Lines of a text that has a box of its own, with its size.
const LONG_LINES: usize = 24;

/// Places of the marks on a time line, as parts of its length.
const MARKS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Bars of a histogram, and fewest rollouts for one.
const BINS: usize = 24;
const MIN_OF_HISTOGRAM: usize = 10;

/// Writes a page atomically: an existing file stays until the new one is complete. `-` is standard output.
pub(super) fn write_to(path: &Path, title: &str, rollouts: Rollouts) -> io::Result<()> {
    if path == Path::new("-") {
        let mut output = BufWriter::new(io::stdout().lock());
        write(&mut output, title, rollouts)?;
        return output.flush();
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .prefix(".rlm-view")
        // As for any new file; the umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    let mut output = BufWriter::new(file);
    write(&mut output, title, rollouts)?;
    output.into_inner()?.persist(path)?;
    Ok(())
}

/// Writes a page. The title has gone through [`visible`](super::visible); everything is escaped here.
pub(super) fn write(output: &mut dyn Write, title: &str, rollouts: Rollouts) -> io::Result<()> {
    let list: Vec<Value> = match &rollouts.list[..] {
        [_] => Vec::new(),
        _ => overview(&rollouts.in_tree_order()),
    };
    let (states, totals, histograms) =
        (states(&rollouts.list), totals(&rollouts.list), histograms(&rollouts.list));
    // Each is rendered when it is written: a page may be larger than the free memory.
    let rollouts = Value::make_object_iterable(rollouts, |rollouts| {
        Box::new(rollouts.in_tree_order().into_iter().map(|node| rollout(node.rollout, node.level)))
    });
    let style = include_str!("page.css");
    let script_hash = format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(format!("\n{SCRIPT}"))));
    let page = environment();
    let page = page.get_template("page.html").expect("it was added");
    let written = page.render_captured_to(
        context! {
            title, style, list, states, totals, histograms, rollouts,
            script => SCRIPT,
            script_hash,
        },
        output,
    );
    written.map(drop).map_err(|error| {
        match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(source) => io::Error::new(source.kind(), error),
            None => io::Error::other(error),
        }
    })
}

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
    environment.add_template("page.html", include_str!("page.html")).expect("the template is valid");
    environment
}

/// A row for each rollout: in a tree, with when it ran and its part of the tree's cost.
fn overview(nodes: &[Node]) -> Vec<Value> {
    let mut costs: HashMap<&str, f64> = HashMap::new();
    for node in nodes {
        *costs.entry(&node.root.id).or_default() += node.rollout.usage.cost_usd;
    }
    let has_trees = nodes.iter().any(|node| node.level > 0);
    nodes.iter().map(|node| row(node, has_trees.then(|| costs[node.root.id.as_str()]))).collect()
}

fn row(node: &Node, cost: Option<f64>) -> Value {
    let (rollout, root) = (node.rollout, node.root);
    let question = rollout.start.as_ref().and_then(|start| start.question.head.lines().next());
    let answer = rollout.end.as_ref().and_then(|end| end.answer.as_ref()?.head.lines().next());
    let span = Span { began: root.began, whole: root.seconds() };
    context! {
        id => rollout.id.as_str(),
        class => class(rollout),
        level => node.level.min(MAX_INDENTS),
        state => facts::state(rollout),
        turns => facts::turns(rollout),
        calls => calls(rollout).count(),
        tokens => rollout.usage.tokens().trim_end_matches(" tokens"),
        tokens_value => rollout.usage.all_tokens(),
        cost => rollout.usage.cost().unwrap_or_default().trim_end_matches(" USD"),
        cost_value => rollout.usage.cost().map(|_| rollout.usage.cost_usd.to_string()).unwrap_or_default(),
        duration => duration(rollout.seconds()),
        seconds => format!("{:.3}", rollout.seconds()),
        question => question.unwrap_or_default(),
        answer => answer.unwrap_or_default(),
        time => cost.and_then(|_| span.part(rollout.began, rollout.seconds())),
        money => cost.and_then(|cost| Span { began: 0.0, whole: cost }.part(0.0, rollout.usage.cost_usd)),
    }
}

fn rollout(rollout: &Rollout, level: usize) -> Value {
    let start = rollout.start.as_ref();
    let end = rollout.end.as_ref().map(|end| {
        let metrics =
            end.metrics.iter().map(|(name, value)| Value::from_iter([name.as_str(), value.as_str()]));
        context! {
            facts => facts::of_end(end).join(" · "),
            error => maybe(end.error.as_ref()),
            answer => maybe(end.answer.as_ref()),
            metrics => metrics.collect::<Value>(),
        }
    });
    context! {
        id => rollout.id.as_str(),
        class => class(rollout),
        level => level.min(MAX_INDENTS),
        facts => facts::of_rollout(rollout).join(" · "),
        question => maybe(start.map(|start| &start.question)),
        start => start.map(|start| facts::of_start(start).join(" · ")),
        asked => start.and_then(|start| start.question.head.lines().next()),
        state => facts::state(rollout),
        language => start.map(|start| start.language.as_str()),
        models => models(rollout),
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
        Step::Model(call) => context! { class => "bad", text => maybe(call.error.as_ref()) },
        Step::Message(MessageKind::Reply, said) => context! { class => "", text => text(said) },
        Step::Message(kind, said) => {
            context! { class => "notice", title => facts::of_message(*kind), text => text(said) }
        }
        Step::Call(made) => context! { call => call(made) },
        Step::Batch(made) => context! { batch => batch(made) },
    }
}

fn call(call: &Call) -> Value {
    let facts = facts::of_call(call);
    context! {
        title => facts[0].as_str(),
        facts => facts[1..].join(" · "),
        has_failed => call.has_failed(),
        input => maybe(call.input.as_ref()),
        is_repl => call.output.is_some() || call.tool.as_deref().is_some_and(|tool| tool.ends_with("_repl")),
        batches => call.batches.iter().map(batch).collect::<Value>(),
        message => maybe(call.message.as_ref()),
        error => maybe(call.error.as_ref()),
        output => call.output.as_ref().map(output),
    }
}

fn output(output: &Output) -> Value {
    let (answer, is_final) = output.answer.as_ref().map(|(answer, is_final)| (answer, *is_final)).unzip();
    context! {
        stdout => text(&output.stdout),
        stderr => text(&output.stderr),
        result => maybe(output.result.as_ref()),
        has_failed => output.response.outcome == Outcome::Error,
        facts => facts::of_output(output).join(" · "),
        hint => maybe(output.hint.as_ref()),
        answer => maybe(answer),
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
        reply => maybe(prompt.reply.as_ref()),
        error => maybe(prompt.error.as_ref()),
    }
}

fn maybe(found: Option<&Text>) -> Value {
    found.map(text).unwrap_or_default()
}

/// False if the text is empty.
fn text(text: &Text) -> Value {
    if text.is_empty() {
        return false.into();
    }
    let left_out = text.left_out.map(|left_out| size(left_out.bytes as u64));
    let lines = text.head.lines().count() + text.tail.lines().count();
    let bytes = text.head.len() + text.tail.len() + text.left_out.map_or(0, |left_out| left_out.bytes);
    let size = (lines > LONG_LINES).then(|| size(bytes as u64));
    context! { head => text.head.as_str(), left_out, tail => text.tail.as_str(), size }
}

/// The scale of a bar: the time of a rollout, or its cost.
#[derive(Clone, Copy)]
struct Span {
    began: f64,
    whole: f64,
}

impl Span {
    /// Where a part begins and how wide it is, in percent. None without a width of the whole.
    fn part(self, began: f64, width: f64) -> Option<Value> {
        (self.whole > 0.0).then(|| {
            let start = ((began - self.began) / self.whole * 100.0).clamp(0.0, 100.0);
            let width = (width / self.whole * 100.0).clamp(0.0, 100.0 - start);
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
        Step::Message(..) => Vec::new(),
    });
    (span.whole > 0.0).then(|| bars.collect())
}

fn steps(rollout: &Rollout) -> impl Iterator<Item = &Step> {
    rollout.turns.iter().flat_map(|turn| &turn.steps)
}

fn calls(rollout: &Rollout) -> impl Iterator<Item = &Call> {
    steps(rollout).filter_map(|step| if let Step::Call(call) = step { Some(&**call) } else { None })
}

fn batches(rollout: &Rollout) -> impl Iterator<Item = &Batch> {
    steps(rollout).flat_map(|step| match step {
        Step::Call(call) => &call.batches[..],
        Step::Batch(batch) => std::slice::from_ref(batch),
        _ => &[],
    })
}

/// The requests to each model and their cost: a row of its name, requests, tokens and cost.
fn models(rollout: &Rollout) -> Value {
    let mut models: BTreeMap<&str, (u32, Usage)> = BTreeMap::new();
    let mut add = |model, requests, usage| {
        let (all, sum) = models.entry(model).or_default();
        *all += requests;
        sum.add(usage);
    };
    for step in steps(rollout) {
        if let Step::Model(call) = step {
            add(&*call.model, 1, call.usage);
        }
    }
    for prompt in batches(rollout).flat_map(|batch| batch.prompts.values()) {
        add(&*prompt.model, prompt.requests, prompt.usage);
    }
    let rows = models.into_iter().map(|(model, (requests, usage))| {
        let cost = usage.cost().unwrap_or_else(|| "unknown".to_owned());
        Value::from(vec![model.to_owned(), grouped(requests.into()), usage.tokens(), cost])
    });
    rows.collect()
}

/// Where the time of a rollout went, in words.
fn times(rollout: &Rollout) -> String {
    let of_models = |step: &Step| if let Step::Model(call) = step { call.seconds } else { 0.0 };
    let models: f64 = steps(rollout).map(of_models).sum();
    let sub_calls: f64 = batches(rollout).map(Batch::seconds).sum();
    let inner: f64 = calls(rollout).flat_map(|call| &call.batches).map(Batch::seconds).sum();
    let code = (calls(rollout).filter_map(|call| call.seconds).sum::<f64>() - inner).max(0.0);
    let rest = (rollout.seconds() - models - sub_calls - code).max(0.0);
    format!(
        "model {} · code {} · sub-calls {} · the rest {}",
        duration(models),
        duration(code),
        duration(sub_calls),
        duration(rest)
    )
}

/// The states of rollouts, the most frequent first.
fn states(rollouts: &[Rollout]) -> Vec<Value> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for rollout in rollouts {
        *counts.entry(facts::state(rollout)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.into_iter().map(|(name, count)| context! { name, count }).collect()
}

fn totals(rollouts: &[Rollout]) -> String {
    let mut usage = Usage::default();
    rollouts.iter().for_each(|rollout| usage.add(rollout.usage));
    let answered = rollouts.iter().filter(|rollout| facts::has_answer(rollout)).count();
    let mut words = vec![
        counted(rollouts.len() as u64, "rollout"),
        format!("{} answered", grouped(answered as u64)),
        usage.tokens(),
    ];
    words.extend(usage.cost());
    words.join(" · ")
}

/// The distributions of cost and time, if there are enough rollouts for them.
fn histograms(rollouts: &[Rollout]) -> Vec<Value> {
    if rollouts.len() < MIN_OF_HISTOGRAM {
        return Vec::new();
    }
    let costs = rollouts.iter().map(|rollout| rollout.usage.cost_usd).collect::<Vec<_>>();
    let times = rollouts.iter().map(Rollout::seconds).collect::<Vec<_>>();
    let money = |cost: f64| format!("{cost:.4} USD");
    [histogram("cost", &costs, money), histogram("time", &times, duration)].into_iter().flatten().collect()
}

/// None if all are the same.
fn histogram(of: &str, values: &[f64], shown: impl Fn(f64) -> String) -> Option<Value> {
    let (least, most) =
        values.iter().fold((f64::MAX, f64::MIN), |(least, most), value| (value.min(least), value.max(most)));
    let width = (most - least) / BINS as f64;
    (width > 0.0).then(|| {
        let mut counts = [0_u64; BINS];
        for value in values {
            counts[(((value - least) / width) as usize).min(BINS - 1)] += 1;
        }
        let highest = counts.into_iter().max().unwrap_or(1);
        let bins = counts.iter().enumerate().map(|(at, count)| {
            let (from, to) = (least + width * at as f64, least + width * (at + 1) as f64);
            let title = format!("{}: {} to {}", counted(*count, "rollout"), shown(from), shown(to));
            context! { title, height => count * 100 / highest }
        });
        context! { of, least => shown(least), most => shown(most), bins => bins.collect::<Value>() }
    })
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
