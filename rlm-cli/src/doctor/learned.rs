//! The rules of a server that requests have taught, as a setting.

use std::path::{Path, PathBuf};

use rlm_rootd::Rules;
use serde_json::{Map, Value as Json};

use super::found::Found;
use crate::config::table::SERVER;
use crate::config::{FILE_NAME, Settings, save};

/// Writes the rules that were learned into the file in force, or into `rlm.toml` here. Says which rules, and where.
///
/// `has_failed` is true if requests failed for reasons that no rule changes.
pub(super) fn save_rules(settings: &Settings, before: &Rules, after: &Rules, has_failed: bool) -> Found {
    let [before, after] = [before, after].map(fields);
    let mut learned = after;
    learned.retain(|name, value| before.get(name) != Some(value));
    if learned.is_empty() {
        let why = if has_failed {
            "a request failed for a reason that no rule changes"
        } else {
            "the server refused nothing that is not known"
        };
        return Ok(format!("nothing: {why}"));
    }
    let set = settings.get(&SERVER).unwrap_or_default();
    let mut server = Map::new();
    if let Some(name) = set.name {
        server.insert("name".to_owned(), name.into());
    }
    server.extend(fields(&set.rules));
    server.extend(learned);
    let value = toml::Value::try_from(&server).map_err(|error| error.to_string())?.to_string();
    let path = match settings.file() {
        Some(file) => file.to_owned(),
        None => std::path::absolute(PathBuf::from(FILE_NAME)).map_err(|error| error.to_string())?,
    };
    save(&path, &SERVER, &value)?;
    let is_hidden = settings.is_above_file(&SERVER);
    let hidden =
        if is_hidden { format!("; {} comes before it", settings.place(&SERVER)) } else { String::new() };
    Ok(format!("{} = {value} in {}{hidden}", SERVER.name, Path::display(&path)))
}

/// The rules that are not the default.
fn fields(rules: &Rules) -> Map<String, Json> {
    match serde_json::to_value(rules) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}
