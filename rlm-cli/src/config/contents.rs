//! The contents of files that settings name, and of rules of servers, as far as they can change an answer.

use std::io;
use std::path::Path;

use rlm_rootd::ServerRules;
use serde_json::{Map, Value as Json, json};

/// Fields of a tool that say where it is reached, and nothing about what it does.
const PLACE_OF_TOOL: [&str; 2] = ["url", "secret_env"];

/// The declarations of a file of tools, TOML or JSON, without comments and addresses.
pub(super) fn of_tools(file: &Path) -> io::Result<Vec<u8>> {
    let text = std::fs::read_to_string(file)?;
    let declared: Option<Json> = serde_json::from_str(&text).ok().or_else(|| toml::from_str(&text).ok());
    // An invalid file is refused elsewhere.
    let Some(mut declared) = declared else { return Ok(text.into_bytes()) };
    for tool in declared["tool"].as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut) {
        tool.retain(|field, _| !PLACE_OF_TOOL.contains(&field.as_str()));
    }
    Ok(declared.to_string().into_bytes())
}

/// The names, programs and arguments of the servers in a file of MCP servers. The rest says where they are, or is secret.
pub(super) fn of_mcp_servers(file: &Path) -> io::Result<Vec<u8>> {
    let text = std::fs::read_to_string(file)?;
    // An invalid file is refused elsewhere.
    let Ok(mut declared) = serde_json::from_str::<Json>(&text) else { return Ok(text.into_bytes()) };
    let servers = &mut declared["mcpServers"];
    for server in
        servers.as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Json::as_object_mut)
    {
        server.retain(|key, _| ["command", "args"].contains(&key.as_str()));
    }
    Ok(servers.to_string().into_bytes())
}

/// The fields that rules of a server add to requests, and those that they leave out.
pub(super) fn of_server(text: &str) -> Option<String> {
    let rules = text.parse::<ServerRules>().ok()?.rules;
    let changes_requests = !rules.add.is_empty() || !rules.omit.is_empty();
    changes_requests.then(|| json!({"add": rules.add, "omit": rules.omit}).to_string())
}

/// A file as it is.
pub(super) fn of_file(file: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(file)
}

/// The Markdown files of a directory and of those in it, in the order of their names.
pub(super) fn of_directory(dir: &Path) -> io::Result<Vec<u8>> {
    let mut entries: Vec<_> =
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    let mut contents = Vec::new();
    for path in entries {
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        let held = match path.is_dir() {
            true => of_directory(&path)?,
            false if is_markdown => std::fs::read(&path)?,
            false => continue,
        };
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        contents.extend_from_slice(&[name, &held.len().to_le_bytes()].concat());
        contents.extend(held);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tools_are_their_declarations_whatever_the_form_and_the_address() {
        let dir = tempfile::tempdir().unwrap();
        let contents = |text: &str| {
            fs::write(dir.path().join("tools"), text).unwrap();
            of_tools(&dir.path().join("tools")).unwrap()
        };
        let here = contents(r#"{"tool": [{"name": "a", "url": "http://here", "secret_env": "S"}]}"#);
        assert_eq!(here, contents(r#"{"tool": [{"name": "a", "url": "http://there"}]}"#));
        assert_eq!(here, contents("# mine\n[[tool]]\nname = \"a\"\n"));
        assert_ne!(here, contents("[[tool]]\nname = \"b\"\n"));
    }

    #[test]
    fn mcp_servers_are_what_they_run_wherever_that_is_and_whatever_it_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let contents = |servers: &str| {
            fs::write(dir.path().join("mcp"), format!(r#"{{"mcpServers": {servers}}}"#)).unwrap();
            of_mcp_servers(&dir.path().join("mcp")).unwrap()
        };
        let one = contents(
            r#"{"a": {"command": "x", "env": {"KEY": "1"}, "cwd": "c"}, "b": {"url": "http://here"}}"#,
        );
        assert_eq!(
            one,
            contents(r#"{"a": {"command": "x"}, "b": {"url": "http://there", "headers": {"K": "2"}}}"#)
        );
        assert_ne!(one, contents(r#"{"a": {"command": "y"}, "b": {"url": "http://here"}}"#));
        assert_ne!(one, contents(r#"{"a": {"command": "x"}, "c": {"url": "http://here"}}"#));
    }

    #[test]
    fn a_server_is_the_fields_that_it_changes_in_requests() {
        assert_eq!([of_server("vllm"), of_server(r#"{"bound": "max_tokens"}"#)], [None, None]);
        let [add, other, omit] =
            [r#"{"add": {"top_p": 1}}"#, r#"{"add": {"top_p": 0.5}}"#, r#"{"omit": ["top_p"]}"#]
                .map(of_server);
        assert!(add.is_some() && add != other && add != omit && omit.is_some());
    }

    #[test]
    fn a_directory_is_its_markdown_files() {
        let dir = tempfile::tempdir().unwrap();
        let contents = || of_directory(dir.path()).unwrap();
        fs::create_dir(dir.path().join("bash")).unwrap();
        fs::write(dir.path().join("bash/system.md"), "a").unwrap();
        let before = contents();
        fs::write(dir.path().join("bash/.system.md.swp"), "b").unwrap();
        assert_eq!(contents(), before);
        fs::write(dir.path().join("bash/system.md"), "b").unwrap();
        assert_ne!(contents(), before);
    }
}
