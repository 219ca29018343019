//! The client of the Python SDK, over pipes and over HTTP.

use std::io::{BufRead as _, BufReader};

use crate::venv::python_with_mcp;

use super::*;

/// The Python SDK's client, in a virtual environment that is kept in Cargo's target directory.
#[test]
fn the_python_sdk_speaks_with_it() {
    let Some(python) = python_with_mcp() else { return };
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(repository().join("tests/mcp_client.py"))
        .arg(program("rlm"))
        .arg(dir.path())
        .env("RLM_PYTHON", default_python())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all is well\n", "{errors}");
}

#[test]
fn the_python_sdk_asks_a_model_about_a_directory() {
    let Some(python) = python_with_mcp() else { return };
    let place = Place::new();
    std::fs::create_dir(place.file("logs")).unwrap();
    place.write("logs/a.log", "web-3 is down\n");
    std::os::unix::fs::symlink("/etc", place.file("link")).unwrap();
    let at = |name: &str| place.file(name).display().to_string();
    let model = ScriptedModel::start([
        Rule::on("Which host failed first?").calls(
            "call_bash_repl",
            &format!("until [ -e {} ]; do sleep 0.01; done; cat *; touch new", at("go")),
        ),
        Rule::on("web-3 is down").calls("call_bash_repl", "RLM_CONTENT=web-3 RLM_READY=1"),
        Rule::on("Wait for ever.")
            .calls("call_bash_repl", &format!("echo $$ >{0}.new; mv {0}.new {0}; sleep 1000", at("begun"))),
        Rule::on("Fail.").status(400, "no such model"),
    ]);
    let output = place
        .command(python)
        .env("RLM_BASE_URL", model.base_url())
        .env("RLM_MODEL", "root")
        .arg(repository().join("tests/mcp_ask.py"))
        .arg(program("rlm"))
        .arg(place.path(""))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all is well\n", "{errors}");
}

#[test]
fn the_python_sdk_speaks_with_it_over_http() {
    let Some(python) = python_with_mcp() else { return };
    let Server { mut rlm, place } = Server::new(&["--listen", "127.0.0.1:0"]);
    rlm.env("RLM_MCP_TOKEN", "the token").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut rlm = rlm.spawn().unwrap();
    let mut errors = BufReader::new(rlm.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("rlm: serving MCP on ").unwrap();
    let mut client = Command::new(python)
        .arg(repository().join("tests/mcp_http.py"))
        .args([url, "the token"])
        .arg(place.path("work"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).unwrap();
    rlm_tests::signal(&rlm, Signal::SIGTERM);
    let status = rlm.wait().unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!((line.as_str(), status.code()), ("in the middle of a call\n", Some(143)));
    place.assert_nothing_left();
}

#[test]
fn http_needs_a_token_and_a_loopback_address() {
    for (address, token, error) in [
        (
            "127.0.0.1:0",
            "",
            "rlm: RLM_MCP_TOKEN is not set: it must hold the token that clients of --listen present\n",
        ),
        ("0.0.0.0:0", "t", "rlm: --listen 0.0.0.0:0: expected a loopback address, 127.0.0.1 or [::1]\n"),
    ] {
        let mut server = Server::new(&["--listen", address]);
        let output = server.rlm.env("RLM_MCP_TOKEN", token).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), error);
    }
}
