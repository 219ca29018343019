//! The configuration of a session that is a tool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::prompts::Prompts;
use crate::session::SessionConfig;
use crate::terms::ReplLanguage;

/// The configuration of a [`SessionTool`](super::SessionTool).
#[derive(Clone, Debug)]
pub struct SessionToolConfig {
    /// The session's language.
    pub language: ReplLanguage,
    /// The session. Its `control_dir` is ignored: the tool makes its own.
    pub session: SessionConfig,
    /// The directory in which the tool makes its private directory.
    pub dir: PathBuf,
    /// Time limit of calls that do not set one. Default 30 s.
    pub timeout: Duration,
    /// Largest code of one call, in bytes. Default 1 MiB.
    pub max_code_bytes: usize,
    /// Largest output of one call in bytes: streams, result and answer together. Default 512 KiB.
    pub max_output_bytes: usize,
    /// Largest script of a session, in bytes. Default 512 KiB.
    pub max_script_bytes: usize,
    /// Bound on the files of whole outputs in bytes; the oldest are removed first. Default 64 MiB.
    pub max_kept_bytes: u64,
    /// Number of calls that may wait for the running one. Default 128.
    pub max_waiting: usize,
    /// The templates of texts for models.
    pub prompts: Arc<Prompts>,
}

impl SessionToolConfig {
    /// The defaults for a language and a session. Private directories are made in `dir`.
    #[must_use]
    pub fn new(language: ReplLanguage, session: SessionConfig, dir: impl Into<PathBuf>) -> Self {
        Self {
            language,
            session,
            dir: dir.into(),
            timeout: Duration::from_secs(30),
            max_code_bytes: 1 << 20,
            max_output_bytes: 512 << 10,
            max_script_bytes: 512 << 10,
            max_kept_bytes: 64 << 20,
            max_waiting: 128,
            prompts: Arc::default(),
        }
    }
}
