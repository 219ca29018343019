//! The known facts of a server before it is started.

use std::fmt;
use std::path::PathBuf;

use crate::llm::Key;

/// An MCP server, and the way to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct McpServer {
    /// The server's name, the first part of its tools' names. Characters other than letters, digits and `_` become `_` there.
    pub name: String,
    /// The way to reach the server.
    pub transport: McpTransport,
}

/// The way to reach an MCP server. No formatting shows it, since it may hold credentials.
#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program that is started and speaks over its standard streams.
    Stdio {
        /// The program: a path with a slash is relative to `cwd`, and a name is looked up on `PATH`.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Variables besides the usual ones: `PATH`, `HOME` and the like.
        env: Vec<(String, String)>,
        /// The directory in which the program runs.
        cwd: PathBuf,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// The address of the server.
        url: String,
        /// Headers of each request.
        headers: Vec<(String, String)>,
    },
}

impl McpServer {
    /// A sentence about the server, without the values of its variables and headers.
    pub(super) fn about(&self, predicate: &str) -> String {
        format!("the MCP server '{}' {}", self.name, self.redact(predicate))
    }

    /// A text of the server without the values of its variables and headers.
    pub(super) fn redact(&self, text: &str) -> String {
        let (McpTransport::Stdio { env: pairs, .. } | McpTransport::Http { headers: pairs, .. }) =
            &self.transport;
        pairs.iter().fold(text.to_owned(), |text, (_, value)| Key::new(value).redact(&text))
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "Stdio { .. }",
            Self::Http { .. } => "Http { .. }",
        })
    }
}
