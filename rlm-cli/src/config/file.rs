//! `rlm.toml`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::setting::{AnySetting, Form};
use super::table::ALL;
use crate::environment::Environment;
use crate::files::{absolute, read_named};
use crate::usage::{Usage, refuse};

/// The name of the file.
pub(crate) const NAME: &str = "rlm.toml";

/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "RLM_CONFIG";

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    /// The number of the line, from 1.
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The settings of a file: the text of each value and its place, by the setting's name.
pub(crate) type Values = BTreeMap<&'static str, (String, Place)>;

/// The configuration file: the one that is named, or the first that exists.
pub(super) fn find(given: Option<&Path>, environment: &Environment) -> anyhow::Result<Option<PathBuf>> {
    let named = match given {
        Some(file) => Some((file.to_owned(), "--config")),
        None => environment.text(CONFIG_VARIABLE)?.map(|file| (PathBuf::from(file), CONFIG_VARIABLE)),
    };
    if let Some((file, by)) = named {
        let missing =
            || Usage::new(format!("{by} names {}, which does not exist or is not a file", file.display()));
        anyhow::ensure!(file.is_file(), missing());
        return absolute(&file).map(Some);
    }
    let configuration = environment.user_directory("XDG_CONFIG_HOME", ".config");
    let places = [Some(PathBuf::from(NAME)), configuration.map(|dir| dir.join("rlm").join(NAME))];
    for file in places.into_iter().flatten() {
        if is_there(&file)? {
            return absolute(&file).map(Some);
        }
    }
    Ok(None)
}

/// Reports whether this configuration file exists. Anything other than a file in its place is an error.
fn is_there(file: &Path) -> Result<bool, Usage> {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => refuse!("{} is not a file: remove it, or name another file with --config", file.display()),
        // A directory that we may not enter is not ours.
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(false),
        Err(error) => {
            refuse!("the settings cannot be read from {}: {error}", file.display())
        }
    }
}

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Values, Usage> {
    values(&read_named(file, "the settings")?, file)
}

/// Reads the text of a file.
pub(super) fn values(text: &str, file: &Path) -> Result<Values, Usage> {
    let place = |offset: usize| Place { file: file.to_owned(), line: line(text, offset) };
    let syntax = |error: toml::de::Error| {
        let place = place(error.span().map_or(0, |span| span.start));
        Usage::new(format!("{place}: {}", error.message()))
    };
    let keys = DeTable::parse(text).map_err(syntax)?;
    let mut table: toml::Table = toml::from_str(text).map_err(syntax)?;
    let mut values = Values::new();
    for key in keys.get_ref().keys() {
        let (name, place) = (key.get_ref().as_ref(), place(key.span().start));
        let setting = known(name).map_err(|reason| Usage::new(format!("{place}: {reason}")))?;
        let value = table.remove(name).expect("both readings have the same keys");
        let text = value_text(setting, value, file)
            .and_then(|text| setting.check(&text).map(|()| text))
            .map_err(|reason| Usage::new(format!("{place}: {name}: {reason}")))?;
        if values.insert(setting.name, (text, place.clone())).is_some() {
            let name = setting.name;
            refuse!("{place}: `{name}` is set twice, once by its former name");
        }
    }
    Ok(values)
}

/// The line of an offset, from 1.
fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn known(name: &str) -> Result<&'static dyn AnySetting, String> {
    if let Some(setting) = ALL.iter().find(|setting| setting.is_named(name)) {
        return Ok(*setting);
    }
    if matches!(name, "api_key" | "sub_api_key") {
        return Err(format!(
            "`{name}` does not belong in a file: put the key in a variable, and the variable's name in `{name}_env`"
        ));
    }
    let nearest = crate::usage::nearest(name, ALL.iter().map(|setting| setting.name));
    Err(match nearest {
        Some(nearest) => format!("unknown key `{name}`: did you mean `{nearest}`?"),
        None => format!("unknown key `{name}`: `rlm config --example` lists all keys"),
    })
}

fn value_text(setting: &dyn AnySetting, value: toml::Value, file: &Path) -> Result<String, String> {
    use toml::Value as Toml;
    let dir = file.parent().unwrap_or(Path::new(""));
    match (setting.form, value) {
        (Form::Text | Form::TextOrTable, Toml::String(text)) => Ok(text),
        (Form::Program, Toml::String(text)) if !text.contains('/') && !dir.join(&text).is_dir() => Ok(text),
        (Form::Path | Form::Program, Toml::String(text)) => {
            let path = dir.join(text).into_os_string().into_string();
            path.map_err(|_| "the path is not UTF-8".to_owned())
        }
        (Form::Number | Form::Amount, Toml::Integer(number)) => Ok(number.to_string()),
        (Form::Number | Form::Amount, Toml::Float(number)) => Ok(number.to_string()),
        (Form::Amount, Toml::String(text)) => Ok(text),
        (Form::Flag, Toml::Boolean(flag)) => Ok(flag.to_string()),
        (Form::Table | Form::TextOrTable, table @ Toml::Table(_)) => {
            check_numbers(&table)?;
            serde_json::to_string(&table).map_err(|error| error.to_string())
        }
        (Form::List, Toml::Array(list)) if list.iter().all(Toml::is_str) => {
            Ok(list.iter().filter_map(Toml::as_str).collect::<Vec<_>>().join("\n"))
        }
        (form, other) => {
            let expected = match form {
                Form::Text | Form::Path | Form::Program => "a string",
                Form::Number => "a number",
                Form::Amount => "a number, or a string with a unit",
                Form::Flag => "true or false",
                Form::Table => "a table",
                Form::TextOrTable => "a string or a table",
                Form::List => "a list of strings",
            };
            Err(format!("expected {expected}, found {}", with_article(other.type_str())))
        }
    }
}

/// Refuses numbers that JSON cannot represent.
fn check_numbers(value: &toml::Value) -> Result<(), String> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => {
            Err(format!("a request cannot hold the number {number}"))
        }
        toml::Value::Array(values) => values.iter().try_for_each(check_numbers),
        toml::Value::Table(table) => table
            .iter()
            .try_for_each(|(name, value)| check_numbers(value).map_err(|reason| format!("{name}: {reason}"))),
        _ => Ok(()),
    }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// A file with all settings, commented out.
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# Settings of `rlm run`. Flags and variables take precedence over this file.\n\
         # Paths are relative to this file's directory.\n",
    );
    for &setting in ALL {
        let default = if setting.default.is_some() { ", by default:" } else { "." };
        text += &format!(
            "\n# {}{default}\n# --{}, {}\n#{}\n",
            setting.help,
            setting.flag(),
            setting.variable_name(),
            example_line(setting)
        );
    }
    text
}

/// A line of the file that sets a setting.
pub(super) fn example_line(setting: &dyn AnySetting) -> String {
    let (name, value) = (setting.name, setting.example_value());
    match setting.form {
        Form::Text | Form::TextOrTable | Form::Path | Form::Program => format!("{name} = \"{value}\""),
        Form::Number | Form::Amount | Form::Flag | Form::Table | Form::List => format!("{name} = {value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_with_the_line_of_their_key() {
        let text = "# mine\nmodel = \"m\"\n\nmax_turns = 7\ntimeout = 1.5\nkeep = \"kept\"\nexclude = [\n\"a\", \"b\"]\n[sampling]\ntop_p = 1\n";
        let values = values(text, Path::new("/c/rlm.toml")).unwrap();
        let seen: Vec<_> =
            values.iter().map(|(name, (text, place))| (*name, text.as_str(), place.line)).collect();
        assert_eq!(
            seen,
            [
                ("exclude", "a\nb", 7),
                ("keep", "/c/kept", 6),
                ("max_turns", "7", 4),
                ("model", "m", 2),
                ("sampling", "{\"top_p\":1}", 9),
                ("timeout", "1.5", 5),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (what, text, begins) in [
            ("an unknown key", "\nmax_turn = 3", "2: unknown key `max_turn`: did you mean `max_turns`?"),
            ("another one", "colour = 3", "1: unknown key `colour`: `rlm config --example` lists all keys"),
            (
                "a key of a server",
                "api_key = \"sk-1\"",
                "1: `api_key` does not belong in a file: put the key in a variable, and the variable's name in `api_key_env`",
            ),
            ("a string", "max_turns = \"3\"", "1: max_turns: expected a number, found a string"),
            ("a fraction", "max_turns = 1.5", "1: max_turns: expected a whole number above 0"),
            ("a number", "model = 3", "1: model: expected a string, found an integer"),
            ("no table", "sampling = 3", "1: sampling: expected a table, found an integer"),
            ("no list", "exclude = \"a\"", "1: exclude: expected a list of strings, found a string"),
            (
                "no number",
                "\n[sampling]\na = { temperature = [nan] }",
                "2: sampling: a: temperature: a request cannot hold the number NaN",
            ),
            (
                "two names",
                "max_output_length = 1\nmax_output_chars = 2",
                "2: `max_output_chars` is set twice, once by its former name",
            ),
            ("one name twice", "model = \"m\"\nmodel = \"n\"", "2: "),
            ("no value", "model =\n", "1: "),
        ] {
            let error = values(text, Path::new("/c/rlm.toml")).unwrap_err().to_string();
            let is_whole = begins.len() < 4 || error.len() == "/c/rlm.toml:".len() + begins.len();
            assert!(error.starts_with(&format!("/c/rlm.toml:{begins}")) && is_whole, "{what}: {error}");
        }
    }

    #[test]
    fn a_former_name_sets_the_same() {
        for (former, name) in
            [("max_output_length", "max_output_chars"), ("max_parallel", "server_parallelism")]
        {
            let value = |name| values(&format!("{name} = 3"), Path::new("/c/rlm.toml")).unwrap();
            assert_eq!(value(former), value(name));
        }
    }

    #[test]
    fn a_program_without_a_slash_is_a_name() {
        let python = |text: &str| values(text, Path::new("/c/rlm.toml")).unwrap()["python"].0.clone();
        assert_eq!(python("python = \"python3.12\""), "python3.12");
        assert_eq!(python("python = \"./venv\""), "/c/./venv");
    }

    #[test]
    fn the_example_is_a_file_that_sets_every_setting_once_its_comments_are_opened() {
        assert_eq!(values(&example(), Path::new("rlm.toml")).unwrap(), Values::new());
        let opened: String = example()
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n"
            })
            .collect();
        assert_eq!(values(&opened, Path::new("rlm.toml")).unwrap().len(), ALL.len());
    }
}
