//! Configurations, and the addresses that they make.

use super::super::key::Key;
use super::super::limits::is_same_model;
use super::*;

#[test]
fn requests_go_to_paths_under_the_base_url() {
    let url = |base| {
        base_url(base)?;
        Ok(Models::new(ModelsConfig::new(base, "m")).unwrap().url.to_string())
    };
    let expected = Ok("https://host/v1/chat/completions".to_owned());
    assert_eq!(url("https://host/v1"), expected);
    assert_eq!(url("https://host/v1/"), expected);
    assert_eq!(url("http://host/a?v=2"), Ok("http://host/a/chat/completions?v=2".to_owned()));
    assert_eq!(url("https://api.anthropic.com/v1"), Ok("https://api.anthropic.com/v1/messages".to_owned()));
    let error = url("host/v1").unwrap_err();
    assert_eq!(
        error,
        "cannot be read: relative URL without a base; expected http://… or https://…, up to the version"
    );
    assert_eq!(url("host:80/v1"), Err("begins with host:, expected http: or https:".to_owned()));
    let error = url("https://me:secret@host/v1").unwrap_err();
    assert_eq!(error, "has a user name or password in it: give a key instead");
    let (url, socket) = base_url("http+unix://%2Ftmp%2Fa.sock/v1").unwrap();
    assert_eq!(url.as_str(), "http://localhost/v1");
    assert_eq!(socket, Some("/tmp/a.sock".into()));
    let error = base_url("http+unix://tmp/v1").unwrap_err();
    assert_eq!(error, "cannot be used: the socket's path is not absolute");
}

#[test]
fn a_model_is_found_in_the_lists_of_servers() {
    assert!(is_same_model("models/gemini-2.5-flash", "gemini-2.5-flash"));
    assert!(is_same_model("llama3:latest", "llama3") && is_same_model("llama3", "llama3:latest"));
    assert!(!is_same_model("llama3:8b", "llama3") && !is_same_model("org/models/m", "org/m"));
    let list = |api| {
        let config = ModelsConfig { api: Some(api), ..ModelsConfig::new("https://host/v1", "m") };
        Models::new(config).unwrap().list_url().to_string()
    };
    assert_eq!(list(Api::Chat), "https://host/v1/models");
    assert_eq!(list(Api::Anthropic), "https://host/v1/models?limit=1000");
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let error = |change: fn(&mut ModelsConfig)| {
        let mut config = ModelsConfig::new("http://127.0.0.1:1/v1", "m");
        change(&mut config);
        Models::new(config).unwrap_err().to_string()
    };
    assert_eq!(error(|config| config.model.clear()), "the name of the model is empty");
    assert_eq!(
        error(|config| config.parallelism = 0),
        "the parallelism of the models is 0, expected 1 or more"
    );
    let key = error(|config| config.key = Some(Key::new("se\ncret")));
    assert_eq!(key, "the key of the models has characters that a header cannot hold");
    let header = error(|config| config.headers.push(("api key".to_owned(), Key::new("x"))));
    assert_eq!(header, "the header api key of the models has a name or a value that cannot be sent");
    assert!(error(|config| config.base_url.clear()).starts_with("the base URL of the models cannot be read"));
}

#[test]
fn a_reply_that_is_compressed_unasked_is_called_that() {
    let models = Models::new(ModelsConfig::new("https://host/v1", "m")).unwrap();
    let said = models.json(b"\x1f\x8b\x08\0").unwrap_err().error.to_string();
    assert_eq!(said, "the model's reply is malformed: it is compressed by gzip, which was not asked for");
}
