//! The configuration of a session that is a tool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::prompts::Prompts;
use crate::session::SessionConfig;
use crate::terms::ReplLanguage;

/// How a [`SessionTool`](super::SessionTool) is set up.
#[derive(Clone, Debug)]
pub struct SessionToolConfig {
    /// The session's language.
    pub language: ReplLanguage,
    /// The session. Its control directory is the tool's own, whatever is named here.
    pub session: SessionConfig,
    /// Where the tool makes its private directory.
    pub dir: PathBuf,
    /// Time limit of calls that bring none. Default 30 s.
    pub timeout: Duration,
    /// Largest code of one call, in bytes. Default 1 MiB.
    pub max_code_bytes: usize,
    /// Most output that a call gives back, in bytes: its streams, its result and the answer together. Default 512 KiB.
    pub max_output_bytes: usize,
    /// Most bytes of whole outputs that are kept in files; the oldest go first. Default 64 MiB.
    pub max_kept_bytes: u64,
    /// How many calls may wait for the one that runs. Default 128.
    pub max_waiting: usize,
    /// What models are told.
    pub prompts: Arc<Prompts>,
}

impl SessionToolConfig {
    /// The defaults, for a language and a session; private directories are made in `dir`.
    #[must_use]
    pub fn new(language: ReplLanguage, session: SessionConfig, dir: impl Into<PathBuf>) -> Self {
        Self {
            language,
            session,
            dir: dir.into(),
            timeout: Duration::from_secs(30),
            max_code_bytes: 1 << 20,
            max_output_bytes: 512 << 10,
            max_kept_bytes: 64 << 20,
            max_waiting: 128,
            prompts: Arc::default(),
        }
    }
}
