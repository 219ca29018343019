//! `rlm config`: the settings in force, and the source of each.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value as Json, json};

use super::digest::{covered, digest};
use super::setting::{AnySetting, Effect, Form, header_variable};
use super::table::{ALL, HEADERS, SUB_HEADERS};
use super::{Flags, KeySource, Origin, Settings, file};
use crate::environment::Environment;

/// Forms in which `rlm config` prints the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Json,
    /// A file to start from.
    Example,
}

pub(crate) fn run(shape: Shape, flags: &Flags, environment: &Environment) -> anyhow::Result<ExitCode> {
    let text = if shape == Shape::Example {
        file::example()
    } else {
        let settings = Settings::load(flags, environment)?;
        let keys = [("api_key", settings.key(environment)?), ("sub_api_key", settings.sub_key(environment)?)];
        if shape == Shape::Json {
            in_json(&settings, &keys).to_string() + "\n"
        } else {
            in_text(&settings, &keys)
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One setting in words; None if no setting has this name, flag or variable.
pub(crate) fn explained(topic: &str) -> Option<String> {
    let name = topic.trim_start_matches('-').replace('-', "_");
    let setting = *ALL.iter().find(|setting| setting.is_named(&name) || setting.variable_name() == topic)?;
    let (name, value) = (setting.name, setting.value_name);
    let fallback = setting.fallback_variable.map(|variable| format!(", then {variable}")).unwrap_or_default();
    let counts = match setting.effect {
        Effect::Nothing => "does not change answers",
        Effect::Value | Effect::Contents(_) => {
            "may change answers: --resume refuses results of another value"
        }
        Effect::Part(_) => {
            "what it adds to requests and omits may change answers: --resume refuses results of another such part"
        }
    };
    Some(format!(
        "{name}: {}\n\n  default       {}\n  command line  --{} {value}, or --set {name}={value}\n  environment   {}{fallback}\n  \
         rlm.toml      {}\n  effect        {counts}\n\n`rlm config` shows its value, and where that came from.\n",
        setting.help,
        setting.default.unwrap_or("none"),
        setting.flag(),
        setting.variable_name(),
        file::example_line(setting),
    ))
}

fn in_text(settings: &Settings, keys: &[(&str, KeySource<'_>)]) -> String {
    let mut rows = Vec::new();
    for &setting in ALL {
        let name = setting.name.to_owned();
        rows.push(match settings.values.get(setting.name) {
            Some((text, origin)) => {
                (name, without_secrets(setting, text).replace('\n', " "), origin.to_string())
            }
            None => (name, "-".to_owned(), "not set".to_owned()),
        });
    }
    for (name, place) in keys {
        let origin = place.variable().map_or_else(|| looked_at(place), str::to_owned);
        let state = if place.key().is_some() { "set" } else { "not set" };
        rows.push(((*name).to_owned(), state.to_owned(), origin));
    }
    let width = |column: fn(&(String, String, String)) -> &str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0).min(40)
    };
    let (names, values) = (width(|row| &row.0), width(|row| &row.1));
    let file = settings.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
    let mut text = format!("file: {file}\n\n");
    for (name, value, origin) in &rows {
        text += &format!("{name:names$}  {value:values$}  {origin}\n");
    }
    let digest = digest(settings).unwrap_or_else(|error| error.to_string());
    text + &format!("\ndigest: {digest}, of {}\n", covered().collect::<Vec<_>>().join(", "))
}

fn looked_at(place: &KeySource<'_>) -> String {
    match place.variables.as_slice() {
        [] => "no key is sent".to_owned(),
        variables => variables.join(", "),
    }
}

fn in_json(settings: &Settings, keys: &[(&str, KeySource<'_>)]) -> Json {
    let mut all = Map::new();
    for &setting in ALL {
        let shown = match settings.values.get(setting.name) {
            None => json!({"value": null, "from": null, "where": null}),
            Some((text, origin)) => {
                let (from, at) = match origin {
                    Origin::Flag(flag) => ("flag", Some(flag.clone())),
                    Origin::Variable(name) => ("variable", Some(name.clone())),
                    Origin::File(place) => ("file", Some(place.to_string())),
                    Origin::Default => ("default", None),
                };
                let text = without_secrets(setting, text);
                json!({"value": value(setting, &text), "from": from, "where": at})
            }
        };
        all.insert(setting.name.to_owned(), shown);
    }
    let digest = digest(settings).ok();
    let mut shown = json!({"file": settings.file, "settings": all, "digest": digest});
    for (name, place) in keys {
        shown[*name] = json!({"is_set": place.key().is_some(), "variable": place.variable(), "looked_at": place.variables});
    }
    shown
}

fn value(setting: &dyn AnySetting, text: &str) -> Json {
    let read = match setting.form {
        Form::Number | Form::Amount | Form::Flag | Form::Table | Form::TextOrTable => {
            serde_json::from_str(text).ok()
        }
        Form::List => Some(text.lines().collect()),
        Form::Text | Form::Path | Form::Program => None,
    };
    read.unwrap_or_else(|| text.into())
}

/// The text of a setting without the credentials of an address, and without the values of headers, except for names of variables.
fn without_secrets(setting: &dyn AnySetting, text: &str) -> String {
    if ![HEADERS.name, SUB_HEADERS.name].contains(&setting.name) {
        return without_credentials(text);
    }
    let mut headers: Map<String, Json> = serde_json::from_str(text).unwrap_or_default();
    let is_variable = |value: &Json| value.as_str().and_then(header_variable).is_some();
    headers.values_mut().filter(|value| !is_variable(value)).for_each(|value| *value = "…".into());
    Json::from(headers).to_string()
}

/// A text without the credentials that a URL may hold: user, password and query.
pub(crate) fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let place = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, place)| format!("…@{place}"));
    format!("{scheme}://{place}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_credentials() {
        assert_eq!(without_credentials("https://me:secret@host/v1?key=k"), "https://…@host/v1?…");
        assert_eq!(without_credentials("http://host:80/v1"), "http://host:80/v1");
        assert_eq!(without_credentials("m@n"), "m@n");
    }

    #[test]
    fn a_header_is_shown_without_its_value() {
        let given = r#"{"api-key":"secret","X-Title":"$$mine","X-Key":"$MY_KEY"}"#;
        let shown = r#"{"api-key":"…","X-Title":"…","X-Key":"$MY_KEY"}"#;
        assert_eq!(without_secrets(&HEADERS, given), shown);
        assert_eq!(without_secrets(&SUB_HEADERS, given), shown);
    }
}
