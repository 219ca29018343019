//! Past sessions read from a worker's history.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use rlm_core::jsonl::{self, Lines};
use rlm_core::protocol::{HistoryEntry, HistorySession, Operation, Outcome, Response};

use super::past::{End, KnownOutput, PastCall, PastSession, Task};
use super::source_error::{SourceError, SourceOptions, at, cut_off};
use crate::terms::Callbacks;
use crate::terms::ReplLanguage;

/// Reads a history. An incomplete last line becomes a remark.
pub(super) fn read(
    input: impl BufRead,
    path: &Path,
    options: &SourceOptions,
) -> Result<PastSession, SourceError> {
    if options.rollout.is_some() {
        return Err(SourceError::RolloutOfHistory(path.to_owned()));
    }
    let (entries, remarks) = entries(input, path)?;
    if entries.is_empty() {
        return Err(SourceError::Empty(path.to_owned()));
    }
    let told = entries.iter().rev().find_map(|entry| entry.session.as_ref());
    let language = language(&entries, told, path, options)?;
    let told = told.cloned();
    let mut calls = Vec::new();
    for entry in entries {
        calls.extend(call(calls.len() + 1, entry));
    }
    Ok(PastSession {
        language,
        version: told.as_ref().map(|told| told.version.clone()),
        model: None,
        fs_root: told.as_ref().map(|told| PathBuf::from(&told.fs_root)),
        fs_metadata: None,
        callbacks: Callbacks::Network,
        children: Vec::new(),
        has_final_functions: told.as_ref().map(|told| told.final_functions),
        root_tools: told.map(|told| told.root_tools).unwrap_or_default(),
        calls,
        answer: None,
        remarks,
    })
}

fn entries(input: impl BufRead, path: &Path) -> Result<(Vec<HistoryEntry>, Vec<String>), SourceError> {
    let (mut entries, mut remarks, mut lines) = (Vec::new(), Vec::new(), Lines::new(input));
    while let Some(line) = lines.next_line().map_err(at(path))? {
        match serde_json::from_slice(line.text) {
            Ok(entry) => entries.push(entry),
            Err(_) if !line.is_finished => remarks.push(cut_off(path, line.number, line.text.len())),
            Err(error) => {
                let (line, reason) = (line.number, jsonl::fault(&error));
                return Err(SourceError::BadLine { path: path.to_owned(), line, reason });
            }
        }
    }
    Ok((entries, remarks))
}

/// The language that the history names, or that its calls imply: only bash calls have exit codes, and each one that
/// ended has.
fn language(
    entries: &[HistoryEntry],
    told: Option<&HistorySession>,
    path: &Path,
    options: &SourceOptions,
) -> Result<ReplLanguage, SourceError> {
    let ended = |entry: &&HistoryEntry| entry.op == Operation::Execute && entry.outcome == Outcome::Ok;
    let found = match told {
        Some(told) => told.language.parse().map_err(|_unknown| SourceError::OtherLanguage {
            path: path.to_owned(),
            found: told.language.clone(),
            asked: options.language.unwrap_or_default(),
        })?,
        None if entries.iter().any(|entry| entry.exit_code.is_some()) => ReplLanguage::Bash,
        None if entries.iter().any(|entry| ended(&entry)) => ReplLanguage::Python,
        None => options.language.ok_or_else(|| SourceError::NoLanguage(path.to_owned()))?,
    };
    match options.language {
        Some(asked) if asked != found => {
            let found = found.to_string();
            Err(SourceError::OtherLanguage { path: path.to_owned(), found, asked })
        }
        _ => Ok(found),
    }
}

fn call(number: usize, entry: HistoryEntry) -> Option<PastCall> {
    let known = match entry.output_digest {
        None => KnownOutput::Nothing,
        Some(digest) => {
            KnownOutput::Digest { digest, bytes: entry.output_bytes, has_result: entry.has_result }
        }
    };
    let response = Response {
        seq: entry.seq,
        exit_code: entry.exit_code,
        execution_time: entry.execution_time,
        ..Response::new(entry.outcome, entry.state)
    };
    let task = match entry.op {
        Operation::Execute => Task::Run(entry.code),
        Operation::Reset => Task::Reset,
        Operation::Set => {
            let variables = entry.variables.unwrap_or_default();
            Task::Set { variables, omitted: entry.variables_omitted }
        }
        // The calls of a session that was loaded precede the load, and a save changes nothing.
        Operation::Save | Operation::Load => return None,
    };
    let is_first = number > 1 && entry.session.is_some();
    let end = End::Responded(Box::new(response));
    Some(PastCall { number, task, source: entry.source, end, known, is_first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: &str, outcome: &str, exit_code: &str) -> String {
        let code = serde_json::json!(code);
        format!(
            r#"{{"seq":1,"code":{code},"outcome":"{outcome}","state":"kept","exit_code":{exit_code},"started_at":1,"execution_time":1}}"#
        )
    }

    fn read_with(text: &str, language: Option<ReplLanguage>) -> Result<PastSession, SourceError> {
        read(text.as_bytes(), Path::new("h"), &SourceOptions { rollout: None, language })
    }

    #[test]
    fn the_language_is_named_or_inferred() {
        let language = |text: &str| read_with(text, None).map(|past| past.language);
        assert_eq!(language(&line("x", "timed_out", "130")).unwrap(), ReplLanguage::Bash);
        assert_eq!(language(&line("x", "ok", "null")).unwrap(), ReplLanguage::Python);
        let unknown = line("x", "timed_out", "null");
        assert!(matches!(language(&unknown), Err(SourceError::NoLanguage(_))));
        assert_eq!(read_with(&unknown, Some(ReplLanguage::Python)).unwrap().language, ReplLanguage::Python);
        let told = unknown.replace(
            r#""seq""#,
            r#""session":{"language":"python","version":"3.11.2","fs_root":"/data"},"seq""#,
        );
        let past = read_with(&format!("{told}\n{told}\n"), None).unwrap();
        assert_eq!((past.language, past.version.as_deref()), (ReplLanguage::Python, Some("3.11.2")));
        assert_eq!(past.calls.iter().map(|call| call.is_first).collect::<Vec<_>>(), [false, true]);
        let error = read_with(&told, Some(ReplLanguage::Bash)).unwrap_err();
        assert_eq!(error.to_string(), "h is a python session, not bash");
    }

    #[test]
    fn an_incomplete_last_line_is_a_remark_and_any_other_an_error() {
        let good = line("x", "ok", "0");
        let past = read_with(&format!("{good}\n\n{}", &good[..20]), None).unwrap();
        assert_eq!(past.calls.len(), 1);
        assert_eq!(
            past.remarks,
            ["h: line 3 is cut off after 20 bytes: it is being written, or its writer was killed"]
        );
        let error = read_with(&format!("{good}\n{}\n{good}\n", &good[..20]), None).unwrap_err();
        assert!(error.to_string().starts_with("h: line 2 is not an entry of a history: EOF"), "{error}");
    }
}
