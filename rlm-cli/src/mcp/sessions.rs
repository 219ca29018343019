//! The sessions of a server, by language and name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use rlm_core::text::cut;
use rlm_env::rollout::Prompts;
use rlm_env::session::{OutputObserver, OutputStream};
use rlm_env::tool::{ToolFailure, ToolFault};
use rlm_env::{ReplLanguage, SessionConfig, SessionTool, SessionToolConfig};

use crate::live::latest_line;
use crate::lock::lock;
use crate::text::one_line;

/// The name of a session if a call does not name one.
pub(super) const DEFAULT: &str = "default";

/// Characters of a session's latest line.
const LINE_CHARS: usize = 120;

/// Longest name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The configuration of sessions, and their limits.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) bash: SessionConfig,
    pub(super) python: SessionConfig,
    /// The directory for their private directories.
    pub(super) dir: PathBuf,
    pub(super) timeout: Duration,
    pub(super) max_code_bytes: usize,
    pub(super) max_output_bytes: usize,
    /// Most sessions of both languages together.
    pub(super) max_sessions: usize,
    pub(super) prompts: Arc<Prompts>,
}

type ByName = BTreeMap<String, Opened>;

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) tool: Arc<SessionTool>,
    pub(super) latest: Arc<LatestLine>,
}

/// The latest line that a session has printed, for people who wait.
#[derive(Debug, Default)]
pub(super) struct LatestLine(Mutex<String>);

impl LatestLine {
    /// The text that it adds to a message, or an empty one.
    pub(super) fn words(&self) -> String {
        let line = lock(&self.0);
        if line.is_empty() { String::new() } else { format!(" · {line}") }
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}

impl OutputObserver for LatestLine {
    fn output(&self, _stream: OutputStream, text: &str) {
        let Some(line) = latest_line(text) else { return };
        *lock(&self.0) = one_line(&cut(line, LINE_CHARS));
    }
}

/// The sessions. Each starts when it is first used, and ends with the server.
#[derive(Debug)]
pub(super) struct Sessions {
    limits: Limits,
    /// Indexed by language.
    open: Mutex<[ByName; 2]>,
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// The session of that name, a new one if necessary.
    pub(super) fn open(&self, language: ReplLanguage, name: &str) -> Result<Opened, ToolFault> {
        let mut open = lock(&self.open);
        if let Some(opened) = open[language as usize].get(name) {
            return Ok(opened.clone());
        }
        check_name(name)?;
        let limit = self.limits.max_sessions;
        if open.iter().map(BTreeMap::len).sum::<usize>() >= limit {
            return Err(ToolFault::TooManySessions { limit, known: names(&open) });
        }
        let mut session = match language {
            ReplLanguage::Bash => self.limits.bash.clone(),
            ReplLanguage::Python => self.limits.python.clone(),
        };
        let latest = Arc::<LatestLine>::default();
        session.output = Some(latest.clone());
        let tool = Arc::new(SessionTool::new(SessionToolConfig {
            timeout: self.limits.timeout,
            max_code_bytes: self.limits.max_code_bytes,
            max_output_bytes: self.limits.max_output_bytes,
            prompts: Arc::clone(&self.limits.prompts),
            ..SessionToolConfig::new(language, session, &self.limits.dir)
        }));
        let opened = Opened { tool, latest };
        open[language as usize].insert(name.to_owned(), opened.clone());
        Ok(opened)
    }

    /// The session of that name, which must have been used before. The default one always exists.
    pub(super) fn find(&self, language: ReplLanguage, name: &str) -> Result<Arc<SessionTool>, ToolFault> {
        if name == DEFAULT {
            return Ok(self.open(language, name)?.tool);
        }
        let open = lock(&self.open);
        let found = open[language as usize].get(name).map(|opened| opened.tool.clone());
        found.ok_or_else(|| ToolFault::UnknownSession {
            name: name.chars().take(MAX_NAME_CHARS).collect(),
            known: names(&open),
        })
    }

    /// All sessions, in order.
    pub(super) fn list(&self) -> Vec<(ReplLanguage, String)> {
        let open = lock(&self.open);
        let languages = [ReplLanguage::Bash, ReplLanguage::Python];
        languages
            .into_iter()
            .flat_map(|language| open[language as usize].keys().map(move |name| (language, name.clone())))
            .collect()
    }

    /// A fault as the text for a model.
    pub(super) fn failure(&self, language: ReplLanguage, fault: &ToolFault) -> ToolFailure {
        ToolFailure::of(fault, &self.limits.prompts, language)
    }

    /// Ends all sessions, in parallel.
    pub(super) async fn close(&self) {
        let open = std::mem::take(&mut *lock(&self.open));
        join_all(open.iter().flat_map(BTreeMap::values).map(|opened| opened.tool.close())).await;
    }
}

fn names(open: &[ByName; 2]) -> Vec<String> {
    let [bash, python] = open;
    let of = |names: &ByName, language: ReplLanguage| -> Vec<String> {
        names.keys().map(|name| format!("{name} ({language})")).collect()
    };
    [of(bash, ReplLanguage::Bash), of(python, ReplLanguage::Python)].concat()
}

fn check_name(name: &str) -> Result<(), ToolFault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(is_plain) {
        return Ok(());
    }
    let expected = format!("expected 1 to {MAX_NAME_CHARS} letters, digits, dots, underscores or hyphens");
    Err(ToolFault::BadArguments(format!("the session's name cannot be used: {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(max_sessions: usize) -> Sessions {
        let session = SessionConfig::new("/does/not/exist", "/");
        Sessions::new(Limits {
            bash: session.clone(),
            python: session,
            dir: "/tmp".into(),
            timeout: Duration::from_secs(1),
            max_code_bytes: 100,
            max_output_bytes: 100,
            max_sessions,
            prompts: Arc::default(),
        })
    }

    #[test]
    fn sessions_are_told_apart_by_language_and_name() {
        let sessions = sessions(3);
        let bash = sessions.open(ReplLanguage::Bash, "a").unwrap();
        let python = sessions.open(ReplLanguage::Python, "a").unwrap();
        assert!(!Arc::ptr_eq(&bash.tool, &python.tool));
        assert!(Arc::ptr_eq(&bash.tool, &sessions.open(ReplLanguage::Bash, "a").unwrap().tool));
        assert!(Arc::ptr_eq(&bash.tool, &sessions.find(ReplLanguage::Bash, "a").unwrap()));
        sessions.find(ReplLanguage::Python, DEFAULT).unwrap();
        let known = ["a (bash)", "a (python)", "default (python)"].map(str::to_owned).to_vec();
        let fault = sessions.open(ReplLanguage::Bash, "b").unwrap_err();
        assert_eq!(fault, ToolFault::TooManySessions { limit: 3, known: known.clone() });
        let fault = sessions.find(ReplLanguage::Bash, "b").unwrap_err();
        assert_eq!(fault, ToolFault::UnknownSession { name: "b".to_owned(), known });
    }

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(65);
        for name in ["", "a b", "../a", "é", "a\n", &long] {
            assert!(sessions(1).open(ReplLanguage::Bash, name).is_err(), "{name:?}");
        }
        for name in ["a", "A.b_c-9", &long[..64]] {
            assert!(sessions(1).open(ReplLanguage::Bash, name).is_ok(), "{name:?}");
        }
    }
}
