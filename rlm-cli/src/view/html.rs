//! Rollouts as one page: no script, and nothing that is fetched from elsewhere.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rlm_core::protocol::Outcome;
use rlm_core::text::{duration, grouped, size};
use rlm_env::trajectory::MessageKind;

use super::facts;
use super::rollouts::{Batch, Call, End, Output, Prompt, Rollout, Rollouts, Step, Turn};
use super::text::Text;

const STYLE: &str = include_str!("page.css");

/// Says to the browser what a page never needs, should something in it slip through.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'";

/// Writes a page in one piece: what was there stays until all is written. `-` is standard output.
pub(super) fn write_to(path: &Path, title: &str, rollouts: &Rollouts) -> io::Result<()> {
    if path == Path::new("-") {
        let mut output = BufWriter::new(io::stdout().lock());
        write(&mut output, title, rollouts)?;
        return output.flush();
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .prefix(".rlm-view")
        // As for any file that is made: the umask takes what it takes.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    let mut output = BufWriter::new(file);
    write(&mut output, title, rollouts)?;
    output.into_inner()?.persist(path)?;
    Ok(())
}

/// Writes a page. `title` has nothing in it that must be made visible; all else is escaped here.
pub(super) fn write(output: &mut dyn Write, title: &str, rollouts: &Rollouts) -> io::Result<()> {
    let title = escaped(title);
    write!(
        output,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    )?;
    let mut page = Page { output };
    if rollouts.list.len() > 1 {
        page.list(rollouts)?;
    }
    for (place, rollout) in rollouts.list.iter().enumerate() {
        page.rollout(place, rollout, rollouts.list.len() == 1)?;
    }
    page.raw("</body>\n</html>\n")
}

struct Page<'a> {
    output: &'a mut dyn Write,
}

impl Page<'_> {
    fn list(&mut self, rollouts: &Rollouts) -> io::Result<()> {
        self.raw("<table>\n<tr><th>rollout</th><th></th><th>question</th></tr>\n")?;
        for (place, rollout) in rollouts.list.iter().enumerate() {
            let question = rollout
                .start
                .as_ref()
                .map_or("", |start| start.question.head.lines().next().unwrap_or_default());
            writeln!(
                self.output,
                "<tr><td><a href=\"#r{place}\">{}</a></td><td class=\"{}\">{}</td><td>{}</td></tr>",
                escaped(&rollout.id),
                if facts::has_answer(rollout) { "good" } else { "bad" },
                escaped(&facts::of_rollout(rollout).join(" · ")),
                escaped(question),
            )?;
        }
        self.raw("</table>\n")
    }

    fn rollout(&mut self, place: usize, rollout: &Rollout, is_only: bool) -> io::Result<()> {
        let open = if is_only { " open" } else { "" };
        writeln!(
            self.output,
            "<details class=\"rollout\" id=\"r{place}\"{open}>\n<summary><h2>{}</h2> {}</summary>",
            escaped(&rollout.id),
            facts_of(&facts::of_rollout(rollout)),
        )?;
        if let Some(start) = &rollout.start {
            self.text("question", &start.question)?;
            writeln!(self.output, "<p>{}</p>", facts_of(&facts::of_start(start)))?;
        }
        self.times(rollout)?;
        if let Some(system) = &rollout.system {
            self.raw("<details>\n<summary>system prompt</summary>\n")?;
            self.text("", system)?;
            self.raw("</details>\n")?;
        }
        for turn in &rollout.turns {
            self.turn(turn)?;
        }
        match &rollout.end {
            Some(end) => self.end(end, facts::has_answer(rollout))?,
            None => self.raw("<p class=\"notice\">no end: it runs, or its host was killed</p>\n")?,
        }
        self.raw("</details>\n")
    }

    /// A bar for each request to the root model, each call and each batch, from the beginning of the rollout to its end.
    fn times(&mut self, rollout: &Rollout) -> io::Result<()> {
        let whole = rollout.last - rollout.began;
        if whole <= 0.0 {
            return Ok(());
        }
        self.raw("<ol class=\"times\">\n")?;
        for turn in &rollout.turns {
            for step in &turn.steps {
                match step {
                    Step::Model(call) => {
                        let label = format!("turn {} · {}", turn.number, call.model);
                        self.bar("model", &label, call.began - rollout.began, call.seconds, whole)?;
                    }
                    Step::Call(call) => {
                        let label = call.tool.as_deref().unwrap_or("call");
                        if let Some(time) = call.seconds {
                            self.bar("call", label, call.began - rollout.began, time, whole)?;
                        }
                        for batch in &call.batches {
                            self.batch_bar(batch, rollout.began, whole)?;
                        }
                    }
                    Step::Batch(batch) => self.batch_bar(batch, rollout.began, whole)?,
                    Step::Said(..) => {}
                }
            }
        }
        self.raw("</ol>\n")
    }

    fn batch_bar(&mut self, batch: &Batch, began: f64, whole: f64) -> io::Result<()> {
        let label = format!("llm_batch × {}", grouped(batch.prompts.len() as u64));
        self.bar("batch", &label, batch.began - began, batch.ended - batch.began, whole)
    }

    fn bar(&mut self, class: &str, label: &str, after: f64, time: f64, whole: f64) -> io::Result<()> {
        let start = (after / whole * 100.0).clamp(0.0, 100.0);
        let width = (time / whole * 100.0).clamp(0.0, 100.0 - start);
        writeln!(
            self.output,
            "<li><span class=\"label\">{}</span><span class=\"track\"><span class=\"bar {class}\" \
             style=\"margin-left:{start:.2}%;width:{width:.2}%\"></span></span>\
             <span class=\"seconds\">{}</span></li>",
            escaped(label),
            duration(time),
        )
    }

    fn turn(&mut self, turn: &Turn) -> io::Result<()> {
        let facts = facts::of_turn(turn);
        writeln!(
            self.output,
            "<details class=\"turn\" open>\n<summary>{} {}</summary>",
            escaped(&facts[0]),
            facts_of(&facts[1..])
        )?;
        for step in &turn.steps {
            match step {
                Step::Model(call) => {
                    if let Some(error) = &call.error {
                        self.text("bad", error)?;
                    }
                }
                Step::Said(MessageKind::Reply, text) => self.text("", text)?,
                Step::Said(kind, text) => {
                    writeln!(self.output, "<p class=\"notice\">{}</p>", facts::of_message(*kind))?;
                    self.text("notice", text)?;
                }
                Step::Call(call) => self.call(call)?,
                Step::Batch(batch) => self.batch(batch)?,
            }
        }
        self.raw("</details>\n")
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let facts = facts::of_call(call);
        let class = if call.has_failed() { " class=\"bad\"" } else { "" };
        writeln!(
            self.output,
            "<div class=\"call\">\n<p{class}>{} {}</p>",
            escaped(&facts[0]),
            facts_of(&facts[1..])
        )?;
        if let Some(input) = &call.input {
            self.text("code", input)?;
        }
        for batch in &call.batches {
            self.batch(batch)?;
        }
        if let Some(message) = &call.message {
            self.text("", message)?;
        }
        if let Some(error) = &call.error {
            self.text("bad", error)?;
        }
        if let Some(output) = &call.output {
            self.call_output(output)?;
        }
        self.raw("</div>\n")
    }

    fn call_output(&mut self, output: &Output) -> io::Result<()> {
        self.text("", &output.stdout)?;
        self.text("notice", &output.stderr)?;
        if let Some(result) = &output.result {
            self.text(if output.response.outcome == Outcome::Error { "bad" } else { "" }, result)?;
        }
        let facts = facts::of_output(output);
        if !facts.is_empty() {
            writeln!(self.output, "<p class=\"bad\">{}</p>", escaped(&facts.join(" · ")))?;
        }
        if let Some(hint) = &output.hint {
            self.text("notice", hint)?;
        }
        if let Some((answer, is_ready)) = &output.answer {
            let word = if *is_ready { "answer, final" } else { "answer, not final" };
            writeln!(self.output, "<p class=\"good\">{word}</p>")?;
            self.text("good", answer)?;
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Batch) -> io::Result<()> {
        let facts = facts::of_batch(batch);
        let class = if batch.failed() > 0 { " class=\"bad\"" } else { "" };
        writeln!(
            self.output,
            "<details class=\"batch\">\n<summary{class}>{} {}</summary>",
            escaped(&facts[0]),
            facts_of(&facts[1..])
        )?;
        for (index, prompt) in &batch.prompts {
            self.prompt(*index, prompt)?;
        }
        self.raw("</details>\n")
    }

    fn prompt(&mut self, index: usize, prompt: &Prompt) -> io::Result<()> {
        writeln!(
            self.output,
            "<div class=\"prompt\">\n<p>#{index} {}</p>",
            facts_of(&facts::of_prompt(prompt))
        )?;
        self.text("code", &prompt.prompt)?;
        if let Some(reply) = &prompt.reply {
            self.text("", reply)?;
        }
        if let Some(error) = &prompt.error {
            self.text("bad", error)?;
        }
        self.raw("</div>\n")
    }

    fn end(&mut self, end: &End, is_good: bool) -> io::Result<()> {
        let class = if is_good { "good" } else { "bad" };
        writeln!(self.output, "<p class=\"{class}\">{}</p>", escaped(&facts::of_end(end).join(" · ")))?;
        if let Some(error) = &end.error {
            self.text("bad", error)?;
        }
        if let Some(answer) = &end.answer {
            self.text(class, answer)?;
        }
        self.raw("<details>\n<summary>metrics</summary>\n<table>\n")?;
        for (name, value) in &end.metrics {
            writeln!(self.output, "<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value))?;
        }
        self.raw("</table>\n</details>\n")
    }

    fn text(&mut self, class: &str, text: &Text) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        // A line break behind the tag is dropped by browsers, so that one at the text's own beginning stays.
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        write!(self.output, "<pre{class}>\n{}", escaped(&text.head))?;
        if let Some(left_out) = text.left_out {
            let size = size(left_out.bytes as u64);
            write!(self.output, "\n<span class=\"left-out\">… {size} left out (--full holds it)</span>\n")?;
        }
        writeln!(self.output, "{}</pre>", escaped(&text.tail))
    }

    fn raw(&mut self, html: &str) -> io::Result<()> {
        self.output.write_all(html.as_bytes())
    }
}

fn facts_of(facts: &[String]) -> String {
    format!("<span class=\"facts\">{}</span>", escaped(&facts.join(" · ")))
}

/// Text that is safe between tags and in quoted attributes.
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
