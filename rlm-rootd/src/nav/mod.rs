//! Navigation: root tools that explore a context directory for code in a session.
//!
//! A [`Navigation`] covers one directory. Its tools count it, list directories and symbols, return outlines, read and
//! search; results are plain data. Symbols come from grammars if there is one for a file's extension; other text is
//! plain lines.
//!
//! Nothing outside the directory is read: every name is opened in its own parent directory, and symbolic links are not
//! followed. Nothing is opened that could block, and no file is read beyond the size it had. The work runs on threads
//! for blocking work, in bounded memory, and ends when its call is dropped or shortly before its deadline.

mod chunk;
mod context;
mod declared;
mod definitions;
mod fault;
mod info;
mod language;
mod list;
mod outline;
mod parse_permit;
mod pattern;
mod read;
mod rules;
mod search;
mod source;
mod stop;
mod suggestions;
mod symbols;
mod text;
mod tool;
mod value;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;

use self::context::Context;
use self::definitions::TOOLS;
pub use self::definitions::{NAV_INFO, NAV_LS, NAV_OUTLINE, NAV_READ, NAV_SEARCH};
pub use self::rules::{IgnoreRules, Ignored, InvalidPattern, is_version_control};
use self::tool::{NavigationTool, Shared};
pub use self::walk::TRANSCRIPT;
use crate::tool::Tool;

/// The names of the tools, in the order of [`Navigation::tools`].
pub const NAV_TOOLS: [&str; 5] = [NAV_INFO, NAV_LS, NAV_OUTLINE, NAV_READ, NAV_SEARCH];

/// Number of calls over one context that run at once; others wait.
const CALLS_AT_ONCE: usize = 4;

/// Navigation of one context directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Navigation(Arc<Shared>);

/// A context directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the context directory {} cannot be opened", path.display())]
pub struct NavigationError {
    /// The path of the directory.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub source: std::io::Error,
}

impl Navigation {
    /// Opens the directory and holds it open. Symbolic links in the directory's own path are followed. Its contents are
    /// read only by calls.
    ///
    /// # Errors
    /// [`NavigationError`]: it does not exist, or is not a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self, NavigationError> {
        let path = dir.into();
        match Context::open(&path) {
            Ok(context) => {
                let permits = Arc::new(Semaphore::new(CALLS_AT_ONCE));
                Ok(Self(Arc::new(Shared { context, permits })))
            }
            Err(source) => Err(NavigationError { path, source }),
        }
    }

    /// The five tools.
    #[must_use]
    pub fn tools(&self) -> Vec<Tool> {
        let tools = TOOLS.iter().map(|tool| Tool::new(NavigationTool::new(tool, self.0.clone())));
        tools.map(|tool| tool.expect("the names are identifiers and the schemas are valid")).collect()
    }
}
