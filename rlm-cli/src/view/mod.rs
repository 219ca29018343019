//! `rlm view`: trajectories as a tree or a page.

mod access;
mod arrange;
mod facts;
mod html;
mod input;
mod live;
mod pager;
mod prefixes;
mod quantity;
mod rlms;
mod rollouts;
mod row;
mod search;
mod serve;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rlm_env::trajectory::{Event, Line};

use crate::arguments::{Format, ViewOptions};
use crate::environment::Environment;
use crate::files::is_one_file;
use crate::runs::{Runs, file_or_run};
use crate::signals::AnyEndSignal;
use crate::tell;
use crate::usage::refuse;

use crate::text::{self, Length, Lengths};
use arrange::arrange;
use input::{Remarks, lines, none_of, shown_ids};
use live::{Growing, LOOK_EVERY};
use pager::Pager;
use rollouts::Rollouts;
pub(crate) use serve::Shown;
use serve::{Server, Serving};
use tree::{Following, TreeStyle};

/// Columns without a terminal.
const DEFAULT_WIDTH: usize = 100;

/// Exit status if a prompt does not begin with the one before.
const DIFFERS: u8 = 1;

/// Lengths of texts in the terminal.
const IN_TERMINAL: Lengths = Lengths {
    text: Some(Length { lines: 15, characters: 1500 }),
    code: Some(Length { lines: 60, characters: 6000 }),
    sub_call: Some(Length { lines: 3, characters: 300 }),
};

/// Lengths of texts on a page, so that a browser can show it.
const ON_A_PAGE: Lengths = Lengths {
    text: Some(Length { lines: 600, characters: 30_000 }),
    code: Some(Length { lines: 1000, characters: 60_000 }),
    sub_call: Some(Length { lines: 60, characters: 4000 }),
};

pub(crate) fn run(options: &ViewOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let lengths = match options.full {
        true => Lengths::default(),
        false if options.html.is_some() || options.serve.is_some() => ON_A_PAGE,
        false => IN_TERMINAL,
    };
    let file = file_or_run(options.file.as_deref(), environment)?;
    let is_port =
        |file: &Path| file.to_str().is_some_and(|file| file.parse::<u16>().is_ok()) && !file.exists();
    if options.serve.is_some() && is_port(&file) {
        refuse!("the port is a part of the option: --serve={}", file.display());
    }
    let is_standard_input = file == Path::new("-");
    if let Some(port) = options.serve {
        return serve(port, file, lengths, environment);
    }
    if options.follow {
        let style = Terminal::new(environment).tree_style(options.full);
        return follow(&file, options.rollout.as_deref(), Following::new(style), lengths, environment);
    }
    let name = if is_standard_input { "standard input".into() } else { file.display().to_string() };
    let input: Box<dyn BufRead> = if is_standard_input {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 16, File::open(&file).context(name.clone())?))
    };
    if options.to == Some(Format::Rlms) {
        let written = export(input, options.rollout.as_deref(), &mut BufWriter::new(io::stdout().lock()));
        return written.context(name).map(|()| ExitCode::SUCCESS);
    }
    if options.check_prefixes {
        let output = &mut BufWriter::new(io::stdout().lock());
        let checked = prefixes::check(input, options.rollout.as_deref(), options.full, output);
        let (is_good, remarks) = checked.context(name.clone())?;
        tell_all(&name, remarks);
        return Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) });
    }
    let (mut rollouts, remarks) =
        collect(input, (!is_standard_input).then_some(&*file), options.rollout.as_deref(), lengths)
            .context(name.clone())?;
    arrange(&mut rollouts, options.failed, options.sort);
    if rollouts.list.is_empty() {
        let so = if options.html.is_some() { ": no page is written" } else { "" };
        tell(format_args!("rlm: {name}: every rollout has a final answer{so}"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(page) = &options.html {
        let from = if is_standard_input { Path::new("/dev/stdin") } else { &file };
        if is_one_file(page, from) {
            refuse!("--html {} would replace the trajectory", page.display());
        }
        html::write_to(page, &text::word(&name), rollouts)
            .with_context(|| format!("cannot write {}", page.display()))?;
    } else {
        let terminal = Terminal::new(environment);
        let style = terminal.tree_style(options.full);
        let pager = if options.no_pager { None } else { terminal.pager() };
        pager::page(pager.as_ref(), |output| tree::print(&rollouts, style, output))
            .context("cannot write to standard output")?;
    }
    tell_all(&name, remarks);
    Ok(ExitCode::SUCCESS)
}

fn tell_all(name: &str, remarks: Vec<String>) {
    for remark in remarks {
        tell(format_args!("rlm: {name}: {remark}"));
    }
}

/// Prints entries as they come: until a recorded run has ended; of any other file, until Ctrl-C.
fn follow(
    file: &Path,
    asked_for: Option<&str>,
    mut following: Following,
    lengths: Lengths,
    environment: &Environment,
) -> anyhow::Result<ExitCode> {
    let runs = Runs::of(environment);
    let run = runs.as_ref().and_then(|runs| Some((runs, runs.id_of(file)?)));
    let mut growing = Growing::open(file)?;
    let mut rollouts = Rollouts::new(Some(file), lengths);
    loop {
        // Asked before reading: everything that a run wrote before its end is then read.
        let has_ended = run.as_ref().is_some_and(|(runs, id)| runs.has_ended(id));
        match growing.more().with_context(|| file.display().to_string())? {
            Some(entries) => {
                let wanted =
                    entries.into_iter().filter(|entry| asked_for.is_none_or(|id| id == entry.rollout));
                wanted.for_each(|entry| rollouts.add(entry));
                following
                    .print(&rollouts, &mut io::stdout().lock())
                    .context("cannot write to standard output")?;
            }
            None if has_ended => return Ok(ExitCode::SUCCESS),
            None if growing.is_void()? => bail!("{}: another file took its place", file.display()),
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Serves the page until a signal.
fn serve(port: u16, file: PathBuf, lengths: Lengths, environment: &Environment) -> anyhow::Result<ExitCode> {
    if file == Path::new("-") {
        refuse!("--serve takes a file: standard input cannot be read from its beginning");
    }
    // Opened here to report a file that cannot be read.
    Growing::open(&file)?;
    let shown = match Runs::of(environment).and_then(|runs| runs.id_of(&file)) {
        Some(id) => Shown::Run(id),
        None => Shown::File(file),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ends = AnyEndSignal::catch()?;
        let server = Server::new(port, shown, lengths, environment)?;
        tell(format_args!("rlm: the page is at {} until Ctrl-C", server.address()?));
        let _serving = server.start()?;
        Ok(ExitCode::from(ends.next().await))
    })
}

/// Serves the page of a run that begins, and prints its address.
pub(crate) fn serve_run(port: u16, shown: Shown, environment: &Environment) -> anyhow::Result<Serving> {
    let server = Server::new(port, shown, ON_A_PAGE, environment)?;
    tell(format_args!("rlm: the page of this run is at {}", server.address()?));
    server.start()
}

/// Writes the rollout asked for, or the only one, in the form of RLMLogger.
fn export(input: impl BufRead, asked_for: Option<&str>, output: &mut impl Write) -> anyhow::Result<()> {
    let mut wanted = asked_for.map(str::to_owned);
    let mut others = Vec::new();
    let mut entries = Vec::new();
    for line in lines(input)? {
        let Line::Entry(entry) = line? else { continue };
        if entry.depth > 0 && asked_for.is_none() {
            // Rollouts that code has started are exported only by name.
            continue;
        }
        let id = wanted.get_or_insert_with(|| entry.rollout.clone());
        if entry.rollout == *id {
            if matches!(entry.event, Event::RolloutStarted(_)) {
                // The last attempt with an id counts.
                entries.clear();
            }
            entries.push(*entry);
        } else if !others.contains(&entry.rollout) {
            others.push(entry.rollout);
        }
    }
    if entries.is_empty() {
        return Err(none_of(asked_for, &others));
    }
    if asked_for.is_none() && !others.is_empty() {
        others.extend(wanted);
        bail!("RLMLogger has a file for each rollout: choose one with --rollout ({})", shown_ids(&others));
    }
    rlms::write(entries, output).context("cannot write to standard output")
}

/// Reads the rollouts of a file, or only the one asked for, and remarks on the file.
fn collect(
    input: impl BufRead,
    file: Option<&Path>,
    asked_for: Option<&str>,
    lengths: Lengths,
) -> anyhow::Result<(Rollouts, Vec<String>)> {
    let mut rollouts = Rollouts::new(file, lengths);
    let mut others = Vec::new();
    let mut remarks = Remarks::default();
    for line in lines(input)? {
        match line? {
            Line::Entry(entry) if asked_for.is_none_or(|id| id == entry.rollout) => rollouts.add(*entry),
            Line::Entry(entry) => {
                if others.last() != Some(&entry.rollout) && !others.contains(&entry.rollout) {
                    others.push(entry.rollout);
                    rollouts.skip_one();
                }
            }
            other => remarks.add(&other),
        }
    }
    if rollouts.list.is_empty() {
        return Err(none_of(asked_for, &others));
    }
    Ok((rollouts, remarks.into_sentences()))
}

/// Properties of standard output, and the user's wishes for it.
#[derive(Debug, Default)]
struct Terminal {
    is_terminal: bool,
    width: Option<usize>,
    pager: Option<OsString>,
    has_less: bool,
    no_colour: bool,
    is_dumb: bool,
}

impl Terminal {
    fn new(environment: &Environment) -> Self {
        let columns = environment.non_empty("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
        let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let is_terminal = io::stdout().is_terminal();
        Self {
            is_terminal,
            width: terminal.filter(|_| is_terminal).or(columns),
            pager: environment.get("PAGER").map(OsString::from),
            has_less: environment.non_empty("LESS").is_some(),
            no_colour: environment.wants_no_colour(),
            is_dumb: environment.non_empty("TERM").is_none_or(|term| term == "dumb"),
        }
    }

    fn tree_style(&self, is_full: bool) -> TreeStyle {
        TreeStyle {
            width: self.width.unwrap_or(DEFAULT_WIDTH),
            has_colours: self.is_terminal && !self.no_colour && !self.is_dumb,
            is_full,
        }
    }

    /// The pager; None prints to standard output directly.
    fn pager(&self) -> Option<Pager> {
        if !self.is_terminal || (self.is_dumb && self.pager.is_none()) {
            return None;
        }
        let command = self.pager.clone().unwrap_or_else(|| "less -R".into());
        let is_none = command.is_empty() || command == "cat";
        (!is_none).then_some(Pager { command, sets_less: !self.has_less })
    }
}

#[cfg(test)]
mod tests;
