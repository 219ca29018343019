//! `nav_outline`: the signatures in a file, or the files of a directory, as text.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use rlm_core::dirfd::Directory;
use rlm_core::pickle::Value;

use super::context::{Context, open_file, shown};
use super::fault::{Fault, quoted};
use super::info::language_name;
use super::source::{Content, Source, Target, nothing, target};
use super::stop::Stop;
use super::symbols::Symbol;
use super::text::count_lines;
use super::walk::Walk;

/// Largest number of lines in an outline below its heading.
pub(super) const MAX_LINES: usize = 2000;

pub(super) fn outline(context: &Context, path: &str, stop: &Stop) -> Result<Value, Fault> {
    match target(context, path)? {
        Some(Target::Directory(path, directory)) => of_directory(context, &directory, &path, stop),
        Some(Target::File(path, open)) => {
            let file = shown(&path);
            match Content::read(&path, open, stop)? {
                Content::Source(source) => Ok(of_source(&file, &path, &source, "")),
                Content::Text { lines, reason } => Ok(format!("{file}: {lines} lines; {reason}\n").into()),
                Content::Binary => Ok(format!("{file}: binary\n").into()),
            }
        }
        Some(Target::InFile(path, name, open)) => {
            let source = Content::source(&path, open, stop)?;
            source.definitions(&path, &name)?.for_each(drop);
            Ok(of_source(&format!("{}:{name}", shown(&path)), &path, &source, &name))
        }
        None => Err(nothing(context, path, "file or directory", stop)),
    }
}

/// The outline of a file, or of the members of a symbol in it.
fn of_source(title: &str, path: &Path, source: &Source, holder: &str) -> Value {
    let is_shown = |symbol: &&Symbol| {
        let below = symbol.path.strip_prefix(holder);
        holder.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
    };
    let symbols: Vec<_> = source.symbols.iter().filter(is_shown).collect();
    let language = language_name(path);
    let mut text = format!("{title}: {language}, {} lines\n", source.lines);
    let width = source.lines.max(1).ilog10() as usize + 1;
    let mut add = |line: std::fmt::Arguments<'_>| {
        text.write_fmt(line).expect("a String takes all");
    };
    for symbol in symbols.iter().take(MAX_LINES) {
        let indent = "    ".repeat(symbol.depth());
        add(format_args!("{:>width$}: {indent}{}\n", symbol.line, symbol.signature));
    }
    if symbols.len() > MAX_LINES {
        add(format_args!("{} more symbols; nav_ls lists those of a class\n", symbols.len() - MAX_LINES));
    }
    text.into()
}

fn of_directory(
    context: &Context,
    directory: &Arc<Directory>,
    path: &Path,
    stop: &Stop,
) -> Result<Value, Fault> {
    let named = quoted(&shown(path));
    let mut walk =
        Walk::new(context, directory.clone(), path, stop).map_err(|error| Fault::reading(&named, &error))?;
    let (mut lines, mut files) = (String::new(), 0_usize);
    let mut buffer = Vec::new();
    while let Some(found) = walk.next()? {
        files += 1;
        if files > MAX_LINES {
            continue;
        }
        let counted = match open_file(&found.directory, found.name()) {
            Ok(Some(open)) => count_lines(open, stop, &mut buffer),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        let what = match counted {
            Ok(Some(count)) => format!("{}, {count} lines", language_name(&found.path)),
            Ok(None) => "binary".to_owned(),
            Err(_) => {
                stop.check()?;
                "unreadable".to_owned()
            }
        };
        writeln!(lines, "{}: {what}", shown(&found.path)).expect("a String takes all");
    }
    let title = if path.as_os_str().is_empty() { ".".to_owned() } else { shown(path) };
    let mut text = format!("{title}: {files} files\n{lines}");
    if files > MAX_LINES {
        let more = files - MAX_LINES;
        writeln!(text, "{more} more files; outline one directory at a time").expect("a String takes all");
    }
    Ok(text.into())
}
