//! `nav_read`: reads a file, lines of it, or a symbol, in chunks.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use memchr::memchr_iter;
use rlm_core::pickle::Value;

use super::chunk::{Chunk, Chunker};
use super::context::{Context, OpenFile, shown};
use super::fault::{Fault, quoted};
use super::source::{Content, Target, bare_symbol, nothing, target};
use super::stop::Stop;
use super::text::{BLOCK_BYTES, Decoder, bytes, fill, is_binary};

pub(super) fn read(context: &Context, what: &str, index: usize, stop: &Stop) -> Result<Value, Fault> {
    if what.is_empty() {
        return Err(Fault::refused(
            "symbol_or_path is empty: name a file, file:first-last, file:symbol or a symbol",
        ));
    }
    match target(context, what)? {
        Some(found) => of_target(found, index, stop),
        None => match bare_symbol(context, what, stop)? {
            Some((path, name)) => {
                let whole = format!("{}:{name}", shown(&path));
                match target(context, &whole)? {
                    Some(found) => of_target(found, index, stop),
                    None => Err(nothing(context, &whole, "file", stop)),
                }
            }
            None => Err(nothing(context, what, "file or symbol", stop)),
        },
    }
}

fn of_target(found: Target, index: usize, stop: &Stop) -> Result<Value, Fault> {
    match found {
        Target::Directory(path, _) => {
            let named = quoted(&shown(&path));
            Err(Fault::refused(format!("{named} is a directory; nav_ls({named}) lists what it holds")))
        }
        Target::File(path, open) => of_lines(&path, None, open, index, stop),
        Target::InFile(path, inner, open) => match line_range(&inner) {
            Some(lines) => of_lines(&path, Some(lines), open, index, stop),
            None => of_symbol(&path, &inner, open, index, stop).map_err(|fault| match fault {
                Fault::Refused(_) if is_like_lines(&inner) => Fault::refused(format!(
                    "{} does not name lines of {}: write them as {}",
                    quoted(&inner),
                    quoted(&shown(&path)),
                    quoted(&format!("{}:10-40", shown(&path)))
                )),
                other => other,
            }),
        },
    }
}

/// True if a text looks like a range of lines. A symbol may have such a name, too: `L10`.
fn is_like_lines(text: &str) -> bool {
    let text = text.trim_start_matches(['L', 'l']);
    let is_sign = |letter: char| letter.is_ascii_digit() || "-:.,+ Ll".contains(letter);
    text.contains(|letter: char| letter.is_ascii_digit()) && text.chars().all(is_sign)
}

/// `10-40`, `10`, or `10-` to the end.
fn line_range(text: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let last = if last.trim().is_empty() { usize::MAX } else { number(last)? };
    Some(number(first)?..=last)
}

fn of_lines(
    path: &Path,
    range: Option<RangeInclusive<usize>>,
    open: OpenFile,
    index: usize,
    stop: &Stop,
) -> Result<Value, Fault> {
    let file = shown(path);
    let lines = range.clone().unwrap_or(1..=usize::MAX);
    if lines.is_empty() || *lines.start() == 0 {
        return Err(Fault::refused(format!(
            "lines {}-{} of {} are not a range: lines count from 1, and the last must not be before the first",
            lines.start(),
            lines.end(),
            quoted(&file)
        )));
    }
    let mut chunker = Chunker::new(index);
    chunker.begin_part(*lines.start());
    let count = match pass_on(&lines, open, stop, &mut chunker) {
        Ok(LineCount::Lines(count)) => count,
        Ok(LineCount::Binary) => {
            return Err(Fault::refused(format!("{} is binary: it has NUL bytes", quoted(&file))));
        }
        Err(error) => return Err(Fault::reading(&quoted(&file), &error)),
    };
    if range.is_some() && *lines.start() > count {
        let (first, file) = (lines.start(), quoted(&file));
        return Err(Fault::refused(format!("{file} has {count} lines, so there is no line {first}")));
    }
    let again = match range {
        None => file.clone(),
        Some(lines) if *lines.end() == usize::MAX => format!("{file}:{}-", lines.start()),
        Some(lines) => format!("{file}:{}-{}", lines.start(), lines.end()),
    };
    reply(&file, &again, count, index, chunker)
}

enum LineCount {
    Lines(usize),
    Binary,
}

/// Passes a range of lines to a chunker, and counts all lines.
fn pass_on(
    lines: &RangeInclusive<usize>,
    open: OpenFile,
    stop: &Stop,
    chunker: &mut Chunker,
) -> io::Result<LineCount> {
    let mut reader = bytes(open, stop);
    let (mut block, mut decoder) = (Vec::with_capacity(BLOCK_BYTES), Decoder::default());
    let (mut before, mut ends_open) = (0, false);
    for number in 0.. {
        block.clear();
        fill(&mut reader, &mut block, BLOCK_BYTES)?;
        if number == 0 && is_binary(&block) {
            return Ok(LineCount::Binary);
        }
        let Some(last) = block.last() else { break };
        ends_open = *last != b'\n';
        let within = part_of(&block, before, lines);
        if !within.is_empty() {
            chunker.push(&decoder.decode(within));
        }
        before += memchr_iter(b'\n', &block).count();
    }
    chunker.push(&decoder.finish());
    Ok(LineCount::Lines(before + usize::from(ends_open)))
}

/// The part of a block that belongs to a range of lines; `before` line ends precede the block.
fn part_of<'a>(block: &'a [u8], before: usize, lines: &RangeInclusive<usize>) -> &'a [u8] {
    // The block begins in line `before + 1`.
    let start_of = |line: usize| match line.checked_sub(before + 1) {
        None | Some(0) => 0,
        Some(ends) => memchr_iter(b'\n', block).nth(ends - 1).map_or(block.len(), |at| at + 1),
    };
    let start = start_of(*lines.start());
    let end = if *lines.end() == usize::MAX {
        block.len()
    } else if *lines.end() <= before {
        0
    } else {
        start_of(lines.end() + 1)
    };
    &block[start.min(end)..end]
}

fn of_symbol(path: &Path, name: &str, open: OpenFile, index: usize, stop: &Stop) -> Result<Value, Fault> {
    let source = Content::source(path, open, stop)?;
    let mut chunker = Chunker::new(index);
    let mut end = 0;
    for symbol in source.definitions(path, name)? {
        if symbol.bytes.start < end {
            // The symbol is in the previous one.
            continue;
        }
        end = symbol.bytes.end;
        // The text begins with the symbol's line, to keep the indentation.
        let line = memchr::memrchr(b'\n', &source.bytes[..symbol.bytes.start]).map_or(0, |at| at + 1);
        let blank = source.bytes[line..symbol.bytes.start].iter().all(u8::is_ascii_whitespace);
        let start = if blank { line } else { symbol.bytes.start };
        chunker.begin_part(symbol.first_line);
        let text = String::from_utf8_lossy(&source.bytes[start..end]);
        chunker.push(text.trim_end_matches(['\n', '\r']));
        chunker.push("\n");
    }
    let title = format!("{}:{name}", shown(path));
    reply(&title, &title, source.lines, index, chunker)
}

/// The chunk with a heading that tells how to get the next one.
fn reply(title: &str, again: &str, lines: usize, index: usize, chunker: Chunker) -> Result<Value, Fault> {
    match chunker.finish() {
        (Some(chunk), _) => {
            Ok(format!("{}\n{}", head(title, again, lines, index, &chunk), chunk.text).into())
        }
        (None, count) => {
            let has = match count {
                1 => "1 chunk, chunk_index 0".to_owned(),
                _ => format!("{count} chunks, chunk_index 0 to {}", count - 1),
            };
            let title = quoted(title);
            Err(Fault::refused(format!("chunk_index {index} is past the end: {title} has {has}")))
        }
    }
}

fn head(title: &str, again: &str, lines: usize, index: usize, chunk: &Chunk) -> String {
    let ranges: Vec<_> =
        chunk.lines.iter().map(|lines| format!("{}-{}", lines.start(), lines.end())).collect();
    let ranges = if ranges.is_empty() { "none".to_owned() } else { ranges.join(", ") };
    let next = match index + 1 {
        next if next < chunk.count => format!("; next: nav_read({again:?}, {next})"),
        _ => String::new(),
    };
    format!("[{title}, lines {ranges} of {lines}, chunk {} of {}{next}]", index + 1, chunk.count)
}
