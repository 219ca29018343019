//! Files with their symbols, and the resolution of names that a caller gives.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memchr_iter;
use memchr::memmem;
use rlm_core::dirfd::Directory;

use super::context::{Context, OpenFile, Place, open_file, shown};
use super::fault::{Fault, did_you_mean, quoted};
use super::language::Language;
use super::parse_permit::parse_permit;
use super::stop::Stop;
use super::suggestions::{Suggestions, similar_paths};
use super::symbols::{MAX_PARSED_BYTES, Symbol, Unparsed, symbols};
use super::text::{bytes, count_lines, fill, is_binary};
use super::walk::Walk;

/// Largest number of candidates that an error lists.
const MAX_CANDIDATES: usize = 10;

/// Number of colons in a text at which its path is tried to end.
const MAX_COLONS: usize = 8;

/// The target that a text names.
#[derive(Debug)]
pub(super) enum Target {
    Directory(PathBuf, Arc<Directory>),
    File(PathBuf, OpenFile),
    /// A file, and the text after the colon.
    InFile(PathBuf, String, OpenFile),
}

/// A file in memory, with its symbols.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: usize,
    pub(super) symbols: Vec<Symbol>,
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum Content {
    Source(Source),
    /// Text without symbols, and the reason.
    Text {
        lines: u64,
        reason: String,
    },
    Binary,
}

impl Content {
    /// Reads a file.
    pub(super) fn read(path: &Path, open: OpenFile, stop: &Stop) -> Result<Self, Fault> {
        let failed = |error| Fault::reading(&quoted(&shown(path)), &error);
        let Some(language) = Language::of(path) else {
            let reason = "there is no grammar for files of its kind".to_owned();
            return Self::text(open, reason, stop).map_err(failed);
        };
        if open.size > MAX_PARSED_BYTES {
            let reason = format!("files above {MAX_PARSED_BYTES} bytes are not parsed");
            return Self::text(open, reason, stop).map_err(failed);
        }
        let mut content = Vec::new();
        fill(&mut bytes(open, stop), &mut content, usize::MAX).map_err(failed)?;
        if is_binary(&content) {
            return Ok(Self::Binary);
        }
        let ends_open = content.last().is_some_and(|last| *last != b'\n');
        let lines = memchr_iter(b'\n', &content).count() + usize::from(ends_open);
        let text = |reason: String| Self::Text { lines: lines as u64, reason };
        let _turn = parse_permit(content.len(), stop)?;
        match symbols(language, &content, stop) {
            Ok(symbols) if symbols.is_empty() => Ok(text(format!("{} without symbols", language.name))),
            Ok(symbols) => Ok(Self::Source(Source { bytes: content, lines, symbols })),
            Err(Unparsed::Stopped) => Err(Fault::Stopped),
            Err(slow) => Ok(text(slow.to_string())),
        }
    }

    fn text(open: OpenFile, reason: String, stop: &Stop) -> std::io::Result<Self> {
        let lines = count_lines(open, stop, &mut Vec::new())?;
        Ok(lines.map_or(Self::Binary, |lines| Self::Text { lines, reason }))
    }

    /// The symbols of a file; an error if it has none.
    pub(super) fn source(path: &Path, open: OpenFile, stop: &Stop) -> Result<Source, Fault> {
        let named = quoted(&shown(path));
        match Self::read(path, open, stop)? {
            Self::Source(source) => Ok(source),
            Self::Text { reason, .. } => {
                Err(Fault::refused(format!("the symbols of {named} are not known: {reason}")))
            }
            Self::Binary => Err(Fault::refused(format!("{named} is binary"))),
        }
    }
}

impl Source {
    /// The definitions of a name in order: an overloaded function, or a type and its `impl`s, has several.
    pub(super) fn definitions<'a>(
        &'a self,
        path: &Path,
        name: &'a str,
    ) -> Result<impl Iterator<Item = &'a Symbol>, Fault> {
        if !self.symbols.iter().any(|symbol| symbol.path == name) {
            let mut suggestions = Suggestions::new(name);
            for symbol in &self.symbols {
                suggestions.consider(&symbol.path, || symbol.path.clone());
                if symbol.name() != symbol.path {
                    suggestions.consider(symbol.name(), || symbol.path.clone());
                }
            }
            let file = shown(path);
            let meant: Vec<_> = suggestions.names().iter().map(|name| format!("{file}:{name}")).collect();
            let hint = match meant.is_empty() {
                true => format!("; nav_ls({file:?}) lists its symbols"),
                false => did_you_mean(&meant),
            };
            let (file, name) = (quoted(&file), quoted(name));
            return Err(Fault::refused(format!("there is no symbol {name} in {file}{hint}")));
        }
        Ok(self.symbols.iter().filter(move |symbol| symbol.path == name))
    }
}

/// Resolves a path, `path:symbol` or `path:lines`; None if there is no such file.
pub(super) fn target(context: &Context, text: &str) -> Result<Option<Target>, Fault> {
    let path = context.relative(text)?;
    match context.place(&path)? {
        Some(Place::Directory(directory)) => return Ok(Some(Target::Directory(path, directory))),
        Some(Place::File(open)) => return Ok(Some(Target::File(path, open))),
        None => {}
    }
    let colons: Vec<_> = text.match_indices(':').map(|(colon, _)| colon).take(MAX_COLONS).collect();
    // If several such paths exist, the longest wins.
    for colon in colons.into_iter().rev() {
        let (path, inner) = (&text[..colon], &text[colon + 1..]);
        if path.is_empty() {
            continue;
        }
        let path = context.relative(path)?;
        if let Some(Place::File(open)) = context.place(&path)? {
            let inner = inner.trim_start_matches(':').replace("::", ".");
            return Ok(Some(match inner.is_empty() {
                true => Target::File(path, open),
                false => Target::InFile(path, inner, open),
            }));
        }
    }
    Ok(None)
}

/// The error for a text that does not name a file.
pub(super) fn nothing(context: &Context, text: &str, what: &str, stop: &Stop) -> Fault {
    // The error for `missing.py:name` is about the path.
    let path = text.split(':').next().unwrap_or_default();
    match similar_paths(context, path, stop) {
        Ok(names) => {
            let hint = match names.is_empty() {
                true => "; nav_ls(\"\") lists what there is, nav_search finds text".to_owned(),
                false => did_you_mean(&names),
            };
            Fault::refused(format!("there is no {what} {} in the context{hint}", quoted(text)))
        }
        Err(fault) => fault,
    }
}

/// The only symbol with a name in the whole context, as path and name; holders may be left out.
pub(super) fn bare_symbol(
    context: &Context,
    name: &str,
    stop: &Stop,
) -> Result<Option<(PathBuf, String)>, Fault> {
    let name = name.replace("::", ".");
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.is_empty() || name.contains(['/', ' ', ':']) {
        return Ok(None);
    }
    let finder = memmem::Finder::new(last);
    let root = context.root.clone();
    let mut walk = Walk::new(context, root, Path::new(""), stop)
        .map_err(|error| Fault::reading("the context directory", &error))?;
    let mut candidates: Vec<(PathBuf, String)> = Vec::new();
    while candidates.len() <= MAX_CANDIDATES
        && let Some(found) = walk.next()?
    {
        let Some(language) = Language::of(&found.path) else { continue };
        let Ok(Some(open)) = open_file(&found.directory, found.name()) else { continue };
        if open.size > MAX_PARSED_BYTES {
            continue;
        }
        let mut content = Vec::new();
        if let Err(error) = fill(&mut bytes(open, stop), &mut content, usize::MAX) {
            stop.check()?;
            tracing::debug!(%error, "a file cannot be read");
            continue;
        }
        if finder.find(&content).is_none() || is_binary(&content) {
            continue;
        }
        let _turn = parse_permit(content.len(), stop)?;
        let symbols = match symbols(language, &content, stop) {
            Ok(symbols) => symbols,
            Err(Unparsed::Stopped) => return Err(Fault::Stopped),
            Err(Unparsed::TooSlow | Unparsed::TooLarge) => continue,
        };
        let mut named: Vec<String> = symbols.into_iter().map(|symbol| symbol.path).collect();
        named.retain(|path| is_named(path, &name));
        named.sort();
        named.dedup();
        // A constructor has the same name as its class and is part of it.
        let holds = |outer: &String, path: &String| {
            path.strip_prefix(outer.as_str()).is_some_and(|below| below.starts_with('.'))
        };
        let outermost = named.iter().filter(|path| !named.iter().any(|outer| holds(outer, path)));
        candidates.extend(outermost.map(|path| (found.path.clone(), path.clone())));
    }
    match candidates.as_slice() {
        [] => Ok(None),
        [_] => Ok(candidates.pop()),
        _ => {
            let more = candidates.len() > MAX_CANDIDATES;
            let listed = candidates.iter().take(MAX_CANDIDATES);
            let listed: Vec<_> = listed.map(|(path, name)| format!("{}:{name}", shown(path))).collect();
            let (name, listed) = (quoted(&name), listed.join(", "));
            let more = if more { ", …" } else { "" };
            Err(Fault::refused(format!("several symbols are named {name}: take one of {listed}{more}")))
        }
    }
}

/// True if a symbol's path is this name or ends with it.
fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}
