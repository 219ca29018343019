//! The file that declares MCP servers, in the form that MCP clients share: `{"mcpServers": {"name": {…}}}`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::spec::{McpServer, McpTransport};

/// An invalid file of MCP servers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpFileError {
    /// The text is not JSON of this shape.
    #[error("expected {{\"mcpServers\": {{\"name\": {{…}}}}}}: {0}")]
    Syntax(#[source] serde_json::Error),
    /// An invalid server.
    #[error("server '{server}': {reason}")]
    Server {
        /// The name of the server.
        server: String,
        /// The fault, with its key.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    mcp_servers: Map<String, Json>,
}

/// Each client has keys of its own, so others are ignored.
#[derive(Deserialize)]
struct Declaration {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Reads MCP servers from the text of a file. Programs run in `dir` unless they have a `cwd`, which is relative to it. In
/// every value, `${NAME}` is a variable of `environment`, and `${NAME:-text}` is the text if that is not set.
///
/// # Errors
/// [`McpFileError`] names the server and the key.
pub fn load_mcp_servers(
    text: &str,
    dir: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<Vec<McpServer>, McpFileError> {
    let file: File = serde_json::from_str(text).map_err(McpFileError::Syntax)?;
    let servers = file.mcp_servers.into_iter().map(|(name, declared)| {
        let declared = Declaration::deserialize(declared).map_err(|error| error.to_string());
        let transport = declared.and_then(|declared| transport(declared, dir, environment));
        match transport {
            Ok(transport) => Ok(McpServer { name, transport }),
            Err(reason) => Err(McpFileError::Server { server: name, reason }),
        }
    });
    servers.collect()
}

fn transport(
    declared: Declaration,
    dir: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<McpTransport, String> {
    let expand =
        |key: &str, text: &str| expanded(text, environment).map_err(|reason| format!("{key}: {reason}"));
    let pairs = |key: &str, pairs: BTreeMap<String, String>| {
        let expanded = pairs.into_iter().map(|(name, value)| {
            let value = expand(&format!("{key}.{name}"), &value)?;
            Ok((name, value))
        });
        expanded.collect::<Result<Vec<_>, String>>()
    };
    match (declared.r#type.as_deref(), declared.command, declared.url) {
        (Some("sse"), ..) => {
            Err("type: \"sse\", the former HTTP transport, is not supported: most servers speak \
                                  \"http\" at another address"
                .to_owned())
        }
        (None | Some("stdio"), Some(command), None) => Ok(McpTransport::Stdio {
            command: expand("command", &command)?,
            args: declared.args.iter().map(|text| expand("args", text)).collect::<Result<_, _>>()?,
            env: pairs("env", declared.env)?,
            cwd: dir.join(expand("cwd", &declared.cwd.unwrap_or_default())?),
        }),
        (None | Some("http" | "streamable-http"), None, Some(url)) => {
            Ok(McpTransport::Http { url: expand("url", &url)?, headers: pairs("headers", declared.headers)? })
        }
        (None, Some(_), Some(_)) => Err("expected `command` or `url`, not both".to_owned()),
        (None, None, None) => Err("expected `command`, or `url`".to_owned()),
        (Some("stdio"), ..) => Err("a server of type \"stdio\" has a `command`, and no `url`".to_owned()),
        (Some("http" | "streamable-http"), ..) => {
            Err("a server of type \"http\" has a `url`, and no `command`".to_owned())
        }
        (Some(other), ..) => Err(format!("type: {other:?}, expected \"stdio\" or \"http\"")),
    }
}

/// The text with the values of variables.
fn expanded(text: &str, environment: &BTreeMap<OsString, OsString>) -> Result<String, String> {
    let mut pieces = text.split("${");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (inner, after) = piece.split_once('}').ok_or("`${` without `}`")?;
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, it)| (name, Some(it)));
        let value = environment.get(OsStr::new(name)).and_then(|value| value.to_str());
        let value = value.filter(|value| !value.is_empty()).or(default);
        whole += value.ok_or_else(|| format!("the variable {name} is not set"))?;
        whole += after;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Vec<McpServer>, String> {
        let environment = [("TOKEN", "t-1"), ("EMPTY", "")].map(|(name, value)| (name.into(), value.into()));
        load_mcp_servers(text, Path::new("/dir"), &BTreeMap::from(environment))
            .map_err(|error| error.to_string())
    }

    /// The server of this declaration.
    fn one(declaration: &str) -> Result<McpTransport, String> {
        let servers = load(&format!(r#"{{"mcpServers": {{"x": {declaration}}}}}"#))?;
        Ok(servers.into_iter().next().unwrap().transport)
    }

    fn pair(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn servers_are_programs_or_addresses() {
        let stdio = McpTransport::Stdio {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "t-1".to_owned()],
            env: pair("KEY", "Bearer t-1"),
            cwd: "/dir/sub".into(),
        };
        let declared = r#"{"command": "npx", "args": ["-y", "${TOKEN}"], "env": {"KEY": "Bearer ${TOKEN}"}, "cwd": "sub",
                           "disabledTools": [], "type": "stdio"}"#;
        assert!(one(declared).unwrap() == stdio);
        let bare =
            McpTransport::Stdio { command: "a".into(), args: vec![], env: vec![], cwd: "/dir/".into() };
        assert!(one(r#"{"command": "a"}"#).unwrap() == bare);
        let http = McpTransport::Http { url: "http://h/t-1".to_owned(), headers: pair("A", "d}") };
        for kind in ["", r#""type": "http","#, r#""type": "streamable-http","#] {
            let declared =
                format!(r#"{{{kind} "url": "http://h/${{TOKEN}}", "headers": {{"A": "${{EMPTY:-d}}}}"}}}}"#);
            assert!(one(&declared).unwrap() == http, "{declared}");
        }
    }

    #[test]
    fn servers_keep_their_order() {
        let servers =
            load(r#"{"mcpServers": {"b": {"command": "x"}, "a": {"url": "y"}}, "other": 1}"#).unwrap();
        assert_eq!(servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn faults_name_the_server_and_the_key() {
        for (declaration, fault) in [
            ("{}", "expected `command`, or `url`"),
            (r#"{"command": "a", "url": "b"}"#, "expected `command` or `url`, not both"),
            (
                r#"{"type": "http", "command": "a"}"#,
                "a server of type \"http\" has a `url`, and no `command`",
            ),
            (r#"{"type": "stdio", "url": "a"}"#, "a server of type \"stdio\" has a `command`, and no `url`"),
            (r#"{"type": "ws", "url": "a"}"#, "type: \"ws\", expected \"stdio\" or \"http\""),
            (
                r#"{"type": "sse", "url": "a"}"#,
                "type: \"sse\", the former HTTP transport, is not supported: most servers speak \"http\" at another address",
            ),
            (r#"{"command": "a", "env": {"K": "${NO}"}}"#, "env.K: the variable NO is not set"),
            (r#"{"command": "${EMPTY}"}"#, "command: the variable EMPTY is not set"),
            (r#"{"command": "a", "args": ["${TOKEN"]}"#, "args: `${` without `}`"),
            (r#"{"command": 1}"#, "invalid type: integer `1`, expected a string"),
        ] {
            assert_eq!(one(declaration).err(), Some(format!("server 'x': {fault}")), "{declaration}");
        }
        let error = load("{}").unwrap_err();
        assert!(error.starts_with("expected {\"mcpServers\": {\"name\": {…}}}: missing field"), "{error}");
    }

    #[test]
    fn no_formatting_shows_a_credential() {
        let servers =
            load(r#"{"mcpServers": {"x": {"url": "${TOKEN}", "headers": {"A": "${TOKEN}"}}}}"#).unwrap();
        assert!(!format!("{servers:?} {:?}", servers[0].transport).contains("t-1"));
    }
}
