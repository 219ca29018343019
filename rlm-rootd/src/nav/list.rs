//! `nav_ls`: lists the contents of a directory, a file or a symbol.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rlm_core::dirfd::{Directory, Entry, Kind};
use rlm_core::pickle::Value;

use super::context::{Context, open_file, shown};
use super::fault::{Fault, quoted};
use super::source::{Content, Source, Target, nothing, target};
use super::stop::Stop;
use super::symbols::Symbol;
use super::text::count_lines;
use super::value::{dict, int};
use super::walk::{Walk, is_left_out, rules_of, sorted};

/// Largest number of entries in a list.
pub(super) const MAX_ENTRIES: usize = 5000;

pub(super) fn list(context: &Context, scope: &str, stop: &Stop) -> Result<Value, Fault> {
    match target(context, scope)? {
        Some(Target::Directory(path, directory)) => of_directory(context, &directory, &path, stop),
        Some(Target::File(path, open)) => match Content::read(&path, open, stop)? {
            Content::Source(source) => Ok(members(&source, &shown(&path), "")),
            Content::Text { lines, reason } => Ok(Value::list([plain(&path, "text", lines, &reason)])),
            Content::Binary => {
                Ok(Value::list([plain(&path, "binary", 0, "it has NUL bytes, so it is not text")]))
            }
        },
        Some(Target::InFile(path, name, open)) => {
            let source = Content::source(&path, open, stop)?;
            source.definitions(&path, &name)?.for_each(drop);
            Ok(members(&source, &shown(&path), &name))
        }
        None => Err(nothing(context, scope, "file or directory", stop)),
    }
}

fn of_directory(
    context: &Context,
    directory: &Arc<Directory>,
    path: &Path,
    stop: &Stop,
) -> Result<Value, Fault> {
    let failed = |error| Fault::reading(&quoted(&shown(path)), &error);
    let rules = rules_of(context, directory, path);
    let mut entries = sorted(directory).map_err(failed)?;
    entries.retain(|entry| !is_left_out(&rules, &path.join(&entry.name), entry.kind == Kind::Directory));
    let more = entries.len().saturating_sub(MAX_ENTRIES);
    entries.truncate(MAX_ENTRIES);
    let mut values = Vec::with_capacity(entries.len() + 1);
    for entry in &entries {
        stop.check()?;
        values.push(of_entry(context, directory, path, entry, stop)?);
    }
    if more > 0 {
        values.push(note(format!("{more} more entries of the directory are not listed")));
    }
    Ok(Value::list(values))
}

fn of_entry(
    context: &Context,
    directory: &Arc<Directory>,
    path: &Path,
    entry: &Entry,
    stop: &Stop,
) -> Result<Value, Fault> {
    let path = path.join(&entry.name);
    let of = |kind: &str, bytes, lines| {
        dict([("path", Value::from(shown(&path))), ("kind", kind.into()), ("bytes", bytes), ("lines", lines)])
    };
    let none = || of("unreadable", Value::None, Value::None);
    Ok(match entry.kind {
        Kind::File => {
            let Ok(Some(open)) = open_file(directory, &entry.name) else { return Ok(none()) };
            let bytes = int(open.size);
            match count_lines(open, stop, &mut Vec::new()) {
                Ok(Some(lines)) => of("file", bytes, int(lines)),
                Ok(None) => of("binary", bytes, Value::None),
                Err(_) => {
                    stop.check()?;
                    none()
                }
            }
        }
        Kind::Directory => {
            let opened = directory.directory(&entry.name);
            let walk = opened.and_then(|directory| Walk::new(context, Arc::new(directory), &path, stop));
            let Ok(mut walk) = walk else { return Ok(none()) };
            let (mut files, mut bytes) = (0_u64, 0_u64);
            while let Some(found) = walk.next()? {
                files += 1;
                bytes += found.directory.metadata_of(found.name()).map_or(0, |file| file.len());
            }
            dict([
                ("path", Value::from(shown(&path))),
                ("kind", "directory".into()),
                ("bytes", int(bytes)),
                ("lines", Value::None),
                ("files", int(files)),
            ])
        }
        Kind::Link => of("link", Value::None, Value::None),
        Kind::Other(_) => of("other", Value::None, Value::None),
    })
}

/// The members of a symbol; for an empty name, the symbols at the top level. These include members of a symbol in
/// another file (a method in Go or C++).
fn members(source: &Source, file: &str, holder: &str) -> Value {
    let paths: HashSet<&str> = source.symbols.iter().map(|symbol| symbol.path.as_str()).collect();
    let mut held: HashMap<&str, usize> = HashMap::new();
    for symbol in &source.symbols {
        *held.entry(symbol.holder()).or_default() += 1;
    }
    let is_member =
        |symbol: &&Symbol| symbol.holder() == holder || holder.is_empty() && !paths.contains(symbol.holder());
    let members: Vec<_> = source.symbols.iter().filter(is_member).collect();
    let more = members.len().saturating_sub(MAX_ENTRIES);
    let of_symbol = |symbol: &&Symbol| {
        dict([
            ("name", Value::from(symbol.name())),
            ("kind", symbol.kind.into()),
            ("line", int(symbol.line)),
            ("end_line", int(symbol.end_line)),
            ("members", int(held.get(symbol.path.as_str()).copied().unwrap_or_default())),
            ("symbol", format!("{file}:{}", symbol.path).into()),
            ("signature", symbol.signature.as_str().into()),
        ])
    };
    let mut values: Vec<_> = members.iter().take(MAX_ENTRIES).map(of_symbol).collect();
    if more > 0 {
        values.push(note(format!("{more} more symbols are not listed")));
    }
    Value::list(values)
}

/// The entry for a file without symbols.
fn plain(path: &Path, kind: &str, lines: u64, reason: &str) -> Value {
    let path = shown(path);
    let name = path.rsplit('/').next().unwrap_or_default();
    dict([
        ("name", Value::from(name)),
        ("kind", kind.into()),
        ("line", int(i64::from(lines > 0))),
        ("end_line", int(lines)),
        ("members", int(0)),
        ("symbol", path.as_str().into()),
        ("signature", format!("no symbols: {reason}").into()),
    ])
}

/// The last entry of an incomplete list.
fn note(text: String) -> Value {
    dict([("path", Value::from("")), ("name", "".into()), ("kind", "note".into()), ("text", text.into())])
}
