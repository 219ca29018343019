//! `nav_info`: counts the context.

use std::collections::BTreeMap;
use std::path::Path;

use rlm_core::pickle::Value;

use super::context::{Context, is_gone, open_file, shown};
use super::fault::Fault;
use super::language::Language;
use super::stop::{Stop, is_stopped};
use super::text::count_lines;
use super::value::{dict, int, of_pairs};
use super::walk::Walk;

/// Number of languages in the result; the lines of the others are added up.
const MAX_LANGUAGES: usize = 30;

/// Estimated bytes of text per token.
const TOKEN_BYTES: u64 = 4;

#[derive(Debug, Default)]
struct Totals {
    files: u64,
    bytes: u64,
    lines: u64,
    text_bytes: u64,
    binary_files: u64,
    unreadable: u64,
    languages: BTreeMap<String, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    files: u64,
    lines: u64,
}

pub(super) fn info(context: &Context, stop: &Stop) -> Result<Value, Fault> {
    let mut totals = Totals::default();
    let is_complete = totals.count(context, stop)?;
    Ok(totals.into_value(is_complete))
}

impl Totals {
    /// Counts all files. False if the time limit was reached before the end.
    fn count(&mut self, context: &Context, stop: &Stop) -> Result<bool, Fault> {
        let mut walk = Walk::new(context, context.root.clone(), Path::new(""), stop)
            .map_err(|error| Fault::reading("the context directory", &error))?;
        let mut buffer = Vec::new();
        let is_complete = loop {
            let Ok(found) = walk.next() else { break false };
            let Some(found) = found else { break true };
            let open = match open_file(&found.directory, found.name()) {
                Ok(Some(open)) => open,
                Ok(None) => continue,
                Err(error) => {
                    self.unreadable += u64::from(!is_gone(&error));
                    continue;
                }
            };
            let size = open.size;
            match count_lines(open, stop, &mut buffer) {
                Ok(lines) => self.add(&found.path, size, lines),
                Err(error) if is_stopped(&error) => break false,
                Err(_) => self.unreadable += 1,
            }
        };
        self.unreadable += walk.unread;
        Ok(is_complete)
    }

    fn add(&mut self, path: &Path, size: u64, lines: Option<u64>) {
        self.files += 1;
        self.bytes += size;
        let Some(lines) = lines else {
            self.binary_files += 1;
            return;
        };
        self.lines += lines;
        self.text_bytes += size;
        let count = self.languages.entry(language_name(path)).or_default();
        count.files += 1;
        count.lines += lines;
    }

    fn into_value(self, is_complete: bool) -> Value {
        let mut languages: Vec<_> = self.languages.into_iter().collect();
        languages.sort_by_key(|(_, count)| std::cmp::Reverse((count.lines, count.files)));
        let rest = languages.split_off(languages.len().min(MAX_LANGUAGES));
        if !rest.is_empty() {
            let sum = rest.iter().fold(Count::default(), |sum, (_, count)| Count {
                files: sum.files + count.files,
                lines: sum.lines + count.lines,
            });
            languages.push(("other".to_owned(), sum));
        }
        let languages = languages.into_iter().map(|(name, count)| {
            (Value::from(name), dict([("files", int(count.files)), ("lines", int(count.lines))]))
        });
        dict([
            ("files", int(self.files)),
            ("bytes", int(self.bytes)),
            ("lines", int(self.lines)),
            ("estimated_tokens", int(self.text_bytes.div_ceil(TOKEN_BYTES))),
            ("languages", of_pairs(languages)),
            ("binary_files", int(self.binary_files)),
            ("unreadable", int(self.unreadable)),
            ("complete", Value::from(is_complete)),
        ])
    }
}

/// The language of a file, or its extension with the dot, or `text`.
pub(super) fn language_name(path: &Path) -> String {
    match (Language::of(path), path.extension()) {
        (Some(language), _) => language.name.to_owned(),
        (None, Some(ending)) => format!(".{}", shown(Path::new(ending)).to_lowercase()),
        (None, None) => "text".to_owned(),
    }
}
