//! Past sessions read from a trajectory.

use std::collections::HashSet;
use std::io::BufRead;
use std::path::Path;

use rlm_core::protocol::Response;

use super::past::{End, KnownOutput, PastCall, PastChild, PastSession, Task};
use super::source_error::{SourceError, SourceOptions, cut_off};
use crate::rollout::RolloutResult;
use crate::terms::ReplLanguage;
use crate::trajectory::{self, Event, Line, RolloutEnded, RolloutStarted};

/// Reads one rollout of a trajectory. An incomplete last line becomes a remark.
pub(super) fn read(
    input: impl BufRead,
    path: &Path,
    options: &SourceOptions,
) -> Result<PastSession, SourceError> {
    let mut rollout = Rollout::default();
    let mut children = Children::default();
    let mut there: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let mut remarks = Vec::new();
    for line in trajectory::read(input) {
        let line = line.map_err(|source| SourceError::Trajectory { path: path.to_owned(), source })?;
        match line {
            Line::Entry(entry) => {
                // Rollouts that code has started are meant only by their names.
                let is_child = entry.depth > 0;
                if seen.insert(entry.rollout.clone()) && (!is_child || options.rollout.is_some()) {
                    there.push(entry.rollout.clone());
                }
                match options.rollout.as_ref().or(there.first()) {
                    Some(asked) if entry.rollout == *asked => {
                        if matches!(entry.event, Event::RolloutStarted(_)) {
                            // If an attempt was begun again, the last one counts.
                            (rollout, children) = Default::default();
                        }
                        rollout.add(entry.event);
                    }
                    Some(asked) => children.add(asked, entry.rollout, entry.event),
                    None => {}
                }
            }
            Line::Unknown { .. } => {}
            Line::CutOff { line, bytes } => remarks.push(cut_off(path, line, bytes)),
        }
    }
    let path = path.to_owned();
    match &options.rollout {
        Some(asked) if !seen.contains(asked) => {
            return Err(SourceError::NoRollout { path, asked: asked.clone(), there });
        }
        None if there.len() > 1 => return Err(SourceError::SeveralRollouts { path, there }),
        _ => {}
    }
    let Some(started) = rollout.started else { return Err(SourceError::Empty(path)) };
    if rollout.calls.is_empty() {
        return Err(SourceError::Empty(path));
    }
    let asked = options.language.unwrap_or_default();
    let found: ReplLanguage = match started.language.parse() {
        Ok(found) if options.language.is_none_or(|asked| asked == found) => found,
        _ => return Err(SourceError::OtherLanguage { path, found: started.language, asked }),
    };
    let answer = rollout.calls.iter().rev().find_map(|call| call.answer().cloned());
    Ok(PastSession {
        language: found,
        version: None,
        model: Some(started.model),
        fs_root: None,
        fs_metadata: None,
        callbacks: started.callbacks,
        root_tools: started.root_tools,
        children: children.ended,
        has_final_functions: Some(started.final_functions),
        calls: rollout.calls,
        answer,
        remarks,
    })
}

/// A rollout, as read so far.
#[derive(Default)]
struct Rollout {
    started: Option<RolloutStarted>,
    calls: Vec<PastCall>,
    /// Ids of the calls, with their turns.
    ids: Vec<(u32, String)>,
}

impl Rollout {
    fn add(&mut self, event: Event) {
        match event {
            Event::RolloutStarted(started) => self.started = Some(started),
            Event::CallStarted(call) if self.is_repl(&call.tool) => {
                let Some(code) = call.code else { return };
                // A worker that died was replaced.
                let is_first = matches!(self.calls.last(), Some(PastCall { end: End::Failed(_), .. }));
                let number = self.calls.len() + 1;
                let task = Task::Run(code);
                self.calls.push(PastCall {
                    number,
                    task,
                    source: None,
                    end: End::Missing,
                    known: KnownOutput::All,
                    is_first,
                });
                self.ids.push((call.turn, call.call_id));
            }
            Event::CallEnded(ended) => {
                let is_it = |(turn, id): &(u32, String)| *turn == ended.turn && *id == ended.call_id;
                let Some(at) = self.ids.iter().rposition(is_it) else { return };
                self.calls[at].end = match ended.output {
                    Some(response) => {
                        End::Responded(Box::new(Response { execution_time: ended.seconds, ..response }))
                    }
                    None => End::Failed(ended.error.unwrap_or_default()),
                };
            }
            _ => {}
        }
    }

    fn is_repl(&self, tool: &str) -> bool {
        let language = self.started.as_ref().map(|started| started.language.parse::<ReplLanguage>());
        matches!(language, Some(Ok(language)) if language.tool_name() == tool)
    }
}

/// The rollouts that the code of a rollout has started.
#[derive(Default)]
struct Children {
    /// Ids and starts of running children.
    running: Vec<(String, Box<RolloutStarted>)>,
    ended: Vec<PastChild>,
}

impl Children {
    fn add(&mut self, parent: &str, id: String, event: Event) {
        match event {
            Event::RolloutStarted(started) if started.parent.as_deref() == Some(parent) => {
                self.running.push((id, Box::new(started)));
            }
            Event::RolloutEnded(ended) => {
                let Some(at) = self.running.iter().position(|(running, _)| *running == id) else { return };
                let (_, started) = self.running.remove(at);
                let RolloutStarted { question, query_digest, context_bytes, model, .. } = *started;
                let RolloutEnded { stop_reason, answer, answer_ready, error, metrics } = ended;
                let result = RolloutResult {
                    id,
                    question,
                    answer,
                    answer_ready,
                    stop_reason,
                    error,
                    refused_by_server: false,
                    metrics,
                    dir: None,
                };
                // The children are in the order of their numbers.
                let number = |id: &str| id.rsplit('.').next().and_then(|number| number.parse::<u64>().ok());
                let at = self.ended.partition_point(|before| number(&before.result.id) <= number(&result.id));
                self.ended.insert(at, PastChild { result, query_digest, context_bytes, model });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../docs/trajectory-example.jsonl");

    #[test]
    fn calls_of_the_repl_are_read_with_their_output() {
        let past = read(EXAMPLE.as_bytes(), Path::new("t"), &SourceOptions::default()).unwrap();
        assert_eq!((past.language, past.calls.len()), (ReplLanguage::Bash, 3));
        assert!(past.calls.iter().all(|call| call.fault().is_none()), "{past:?}");
        assert!(past.answer.is_some_and(|answer| answer.ready));
        assert!(past.root_tools.contains(&"llm_batch".to_owned()));
    }

    #[test]
    fn one_of_several_rollouts_is_named() {
        let two = format!("{EXAMPLE}{}", EXAMPLE.replace("letters-1", "letters-2"));
        let refusal = |text: &str, rollout: Option<&str>| {
            let options = SourceOptions { rollout: rollout.map(str::to_owned), language: None };
            read(text.as_bytes(), Path::new("t"), &options).map(|past| past.calls.len())
        };
        assert_eq!(refusal(&two, Some("letters-2")).unwrap(), 3);
        assert_eq!(
            refusal(&two, None).unwrap_err().to_string(),
            "t has several rollouts: name one with --rollout, of letters-1, letters-2"
        );
        assert_eq!(
            refusal(EXAMPLE, Some("x")).unwrap_err().to_string(),
            "t has no rollout `x`: it has letters-1"
        );
    }
}
