//! Navigation: root tools that look through a context directory, so that code in a session need not.
//!
//! [`Navigation`] is one directory. Its tools count it, list directories and symbols, give outlines, read and search; results
//! are plain data. Symbols come from grammars, where there is one for a file's ending; other text is lines.
//!
//! Nothing outside the directory is read: every name is opened in the directory that holds it, and no symbolic link is
//! followed. Nothing is opened that could hold a call up, and no file is read further than to the size it had. The work runs
//! on threads for blocking work, in bounded memory, and ends when its call is dropped or shortly before its deadline.

mod chunk;
mod context;
mod declared;
mod definitions;
mod fault;
mod info;
mod language;
mod list;
mod near;
mod outline;
mod pattern;
mod read;
mod search;
mod source;
mod stop;
mod symbols;
mod text;
mod tool;
mod turn;
mod value;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;

use self::context::Context;
use self::definitions::Operation;
pub use self::definitions::{NAV_INFO, NAV_LS, NAV_OUTLINE, NAV_READ, NAV_SEARCH};
use self::tool::{NavigationTool, Shared};
pub use self::walk::TRANSCRIPT;
use crate::tool::Tool;

/// The names of the tools, in the order of [`Navigation::tools`].
pub const NAV_TOOLS: [&str; 5] = [NAV_INFO, NAV_LS, NAV_OUTLINE, NAV_READ, NAV_SEARCH];

/// Calls over one context that work at once; others wait for their turn.
const CALLS_AT_ONCE: usize = 4;

/// Navigation over one context directory. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Navigation(Arc<Shared>);

/// A context directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the context directory {} cannot be opened", path.display())]
pub struct NavigationError {
    /// Its path.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

impl Navigation {
    /// Opens the directory, whose own path may have symbolic links in it, and holds it open. What it holds is looked at by
    /// calls alone.
    ///
    /// # Errors
    /// [`NavigationError`]: it is not there, or no directory.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self, NavigationError> {
        let path = dir.into();
        match Context::open(&path) {
            Ok(context) => {
                let turns = Arc::new(Semaphore::new(CALLS_AT_ONCE));
                Ok(Self(Arc::new(Shared { context, turns })))
            }
            Err(source) => Err(NavigationError { path, source }),
        }
    }

    /// The five tools.
    #[must_use]
    pub fn tools(&self) -> Vec<Tool> {
        let tool = |operation| NavigationTool::new(operation, self.0.clone());
        let tools = Operation::ALL.into_iter().map(|operation| Tool::new(tool(operation)));
        tools.map(|tool| tool.expect("the names are identifiers and the schemas are valid")).collect()
    }
}
