//! The lines of a file that is shown, and remarks on them.

use std::io::{self, BufRead};

use rlm_core::text::{counted, listed};
use rlm_env::trajectory::{Line, read};

use super::rlms;
use crate::text::word;

/// Most rollouts that an error names.
const MAX_LISTED: usize = 20;

/// The lines of a trajectory, or of a file of RLMLogger in that form.
pub(super) fn lines<'a>(
    mut input: impl BufRead + 'a,
) -> io::Result<Box<dyn Iterator<Item = anyhow::Result<Line>> + 'a>> {
    Ok(match rlms::begins(input.fill_buf()?) {
        true => Box::new(rlms::Reader::new(input)),
        false => Box::new(read(input).map(|line| line.map_err(Into::into))),
    })
}

pub(super) fn shown_ids(ids: &[String]) -> String {
    listed(&ids.iter().map(|id| word(id)).collect::<Vec<_>>(), MAX_LISTED)
}

/// The error for a file that does not have what was asked for.
pub(super) fn none_of(asked_for: Option<&str>, others: &[String]) -> anyhow::Error {
    match asked_for {
        Some(id) if !others.is_empty() => {
            anyhow::anyhow!("no rollout `{}`: the file has {}", word(id), shown_ids(others))
        }
        _ => anyhow::anyhow!("no rollout in the file"),
    }
}

/// Remarks on the lines of a file that are not entries.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    sentences: Vec<String>,
    unknown: u64,
}

impl Remarks {
    pub(super) fn add(&mut self, line: &Line) {
        match line {
            Line::Entry(_) => {}
            Line::Unknown { .. } => self.unknown += 1,
            Line::CutOff { line, bytes } => self.sentences.push(format!(
                "line {line} is cut off after {bytes} bytes: it is being written, or its writer was killed"
            )),
        }
    }

    pub(super) fn into_sentences(mut self) -> Vec<String> {
        if self.unknown > 0 {
            let entries = counted(self.unknown, "entry");
            self.sentences
                .push(format!("{entries} of an unknown kind: use a newer version of rlm to see more"));
        }
        self.sentences
    }
}
