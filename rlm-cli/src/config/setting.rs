//! A setting: its name, flag, variable, default and parser.

use std::fmt;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rlm_env::ContextFilter;
use rlm_rootd::MAX_TOOL_TIME_LIMIT;
use serde_json::{Map, Value as Json};

/// The longest time that is a setting.
const LONGEST_TIME: Duration = Duration::from_secs(366 * 86_400);

/// Fields of a request to a model.
pub(crate) type Fields = Map<String, Json>;

/// A setting of this type. Each source gives text, which `parse` reads.
#[derive(Debug)]
pub(crate) struct Setting<T> {
    about: About,
    pub(crate) parse: fn(&str) -> Result<T, String>,
}

/// A setting without its type.
#[derive(Debug)]
pub(crate) struct About {
    /// The name in the file: words with `_` between them.
    pub(crate) name: &'static str,
    /// The former name, which the file and the command line still take.
    pub(crate) former_name: Option<&'static str>,
    /// The variable, if that is not `RLM_` and the name in capitals.
    variable: Option<&'static str>,
    /// A variable of other programs, whose value counts where no other source has one.
    pub(crate) fallback_variable: Option<&'static str>,
    /// The name of the flag's value, for `--help`.
    pub(crate) value_name: &'static str,
    /// A description, for `--help` and the example file.
    pub(crate) help: &'static str,
    pub(crate) default: Option<&'static str>,
    /// A value for the example file, if there is no default.
    example: &'static str,
    pub(crate) form: Form,
    pub(crate) effect: Effect,
}

/// The TOML type of a value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string.
    Text,
    /// A string: a path, relative to the file's directory.
    Path,
    /// A string: a program's name, or a path with a slash, relative to the file's directory.
    Program,
    /// A number.
    Number,
    /// A number, or a string of numbers with units.
    Amount,
    /// `true` or `false`.
    Flag,
    /// A table.
    Table,
    /// A string, or a table.
    TextOrTable,
    /// A list of strings. As a text, each is a line; the flag may be given several times.
    List,
}

/// The effect of a setting on answers, which decides how it counts in the digest that results carry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// The setting can change an answer: its value counts.
    Value,
    /// A part of the value can change an answer, and counts where the text has it.
    Part(fn(&str) -> Option<String>),
    /// The file at the path can change an answer: its contents count, and its place does not.
    Contents(fn(&Path) -> std::io::Result<Vec<u8>>),
    /// The setting does not count: it is about the source, speed or price of answers, or about what is kept.
    Nothing,
}

/// A setting of whatever type.
pub(crate) trait AnySetting: fmt::Debug + Sync + Deref<Target = About> {
    /// Refuses a text that is not a valid value.
    fn check(&self, text: &str) -> Result<(), String>;
    /// The value of a valid text, in one spelling: `2m` and `120` are one time.
    fn spelling(&self, text: &str) -> String;
}

impl<T: fmt::Debug> AnySetting for Setting<T> {
    fn check(&self, text: &str) -> Result<(), String> {
        (self.parse)(text).map(drop)
    }

    fn spelling(&self, text: &str) -> String {
        (self.parse)(text).map_or_else(|_invalid| text.to_owned(), |value| format!("{value:?}"))
    }
}

impl<T> Deref for Setting<T> {
    type Target = About;

    fn deref(&self) -> &About {
        &self.about
    }
}

impl About {
    /// True for the setting's name, and for its former one.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.former_name == Some(name)
    }

    /// The setting's flag without the dashes.
    pub(crate) fn flag(&self) -> String {
        flag_of(self.name)
    }

    /// The setting's former flag without the dashes.
    pub(super) fn former_flag(&self) -> Option<String> {
        self.former_name.map(flag_of)
    }

    /// The name of its variable.
    pub(crate) fn variable_name(&self) -> String {
        self.variable.map_or_else(|| format!("RLM_{}", self.name.to_ascii_uppercase()), str::to_owned)
    }

    /// A value for the example file.
    pub(super) fn example_value(&self) -> &'static str {
        self.default.unwrap_or(self.example)
    }
}

fn flag_of(name: &str) -> String {
    name.replace('_', "-")
}

/// A setting without a description, and without a default.
pub(super) const fn setting<T>(
    name: &'static str,
    value_name: &'static str,
    form: Form,
    effect: Effect,
    parse: fn(&str) -> Result<T, String>,
) -> Setting<T> {
    let about = About {
        name,
        former_name: None,
        variable: None,
        fallback_variable: None,
        value_name,
        help: "",
        default: None,
        example: "",
        form,
        effect,
    };
    Setting { about, parse }
}

/// Defines methods that set one field of a setting.
macro_rules! with {
    ($($field:ident: $value:expr),*) => {
        impl<T> Setting<T> {
            $(pub(super) const fn $field(mut self, $field: &'static str) -> Self {
                self.about.$field = $value;
                self
            })*
        }
    };
}

with! {
    former_name: Some(former_name),
    variable: Some(variable),
    fallback_variable: Some(fallback_variable),
    help: help,
    default: Some(default),
    example: example
}

/// Any text.
#[expect(clippy::unnecessary_wraps, reason = "all parsers have one type")]
pub(super) fn any_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A text that is not empty.
pub(super) fn some_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("expected some text".to_owned()) } else { Ok(text.to_owned()) }
}

/// A path.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected a path".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// A whole number above 0.
pub(super) fn count<T: FromStr + Default + PartialOrd>(text: &str) -> Result<T, String> {
    let count = text.parse::<T>().ok().filter(|count| *count > T::default());
    count.ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// A whole number.
pub(super) fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number".to_owned())
}

/// A value of `RLM_CHECKPOINT`.
pub(super) fn checkpoint(text: &str) -> Result<String, String> {
    let is_known = rlm_core::limits::checkpoint_bytes(text).is_some();
    is_known
        .then(|| text.to_owned())
        .ok_or_else(|| format!("expected {}", rlm_core::limits::CHECKPOINT_EXPECTED))
}

/// A number of bytes above 0, perhaps with a unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_size::parse_size(text).ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "expected bytes above 0, such as 500000, 10MB or 1GiB".to_owned())
}

/// A time: seconds, or numbers with units.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    seconds_up_to(text, LONGEST_TIME)
}

/// A time in seconds, of one call.
pub(super) fn call_seconds(text: &str) -> Result<Duration, String> {
    seconds_up_to(text, MAX_TOOL_TIME_LIMIT)
}

fn seconds_up_to(text: &str, most: Duration) -> Result<Duration, String> {
    let expected = "expected a number of seconds above 0, or a time such as 5m or 1h30m";
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => humantime::parse_duration(text).map_err(|_| expected)?.as_secs_f64(),
    };
    if !(seconds > 0.0 && seconds.is_finite()) {
        return Err(expected.to_owned());
    }
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= most);
    time.ok_or_else(|| {
        let days = most.as_secs() / 86_400;
        format!("expected at most {} seconds ({days} days)", most.as_secs())
    })
}

/// An amount in USD.
pub(crate) fn usd(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount > 0.0);
    amount.ok_or_else(|| "expected an amount in USD above 0".to_owned())
}

/// A value in its own spelling.
pub(super) fn parsed<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Yes or no.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("expected `true` or `false`".to_owned()),
    }
}

/// Patterns in the syntax of `.gitignore`, one a line.
pub(super) fn patterns(text: &str) -> Result<Vec<String>, String> {
    let patterns: Vec<String> = text.lines().map(str::to_owned).collect();
    ContextFilter::new(true, &patterns).map_err(|error| error.to_string())?;
    Ok(patterns)
}

/// Paths, one a line or with colons between them, as a worker takes them. Relative ones begin at the working directory.
pub(super) fn paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let paths = text.split(['\n', ':']).filter(|path| !path.is_empty());
    let whole = |path: &str| {
        let has_parent = Path::new(path).components().any(|part| part == Component::ParentDir);
        // A link stays in a path without `..`.
        let real = if has_parent { std::fs::canonicalize(path).ok() } else { None };
        real.map_or_else(|| std::path::absolute(path), Ok).map_err(|error| error.to_string())
    };
    paths.map(whole).collect()
}

/// Names, one a line.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.lines().map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) { Err("expected names".to_owned()) } else { Ok(names) }
}

/// Names of Python modules, with commas, spaces or line breaks between them, as a worker takes them.
pub(super) fn modules(text: &str) -> Result<Vec<String>, String> {
    let modules: Vec<String> = rlm_core::env::list(text).map(str::to_owned).collect();
    let is_module = |name: &String| name.split('.').all(rlm_core::ids::is_identifier);
    match modules.iter().find(|name| !is_module(name)) {
        Some(name) => Err(format!("expected names of Python modules, and `{name}` is none")),
        None => Ok(modules),
    }
}

/// A JSON object.
pub(super) fn fields(text: &str) -> Result<Fields, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("expected a JSON object such as {{\"temperature\": 0.2}}: {error}"))
}

/// A JSON object of texts.
pub(super) fn headers(text: &str) -> Result<Fields, String> {
    let headers: Fields = serde_json::from_str(text)
        .map_err(|error| format!("expected a JSON object such as {{\"X-Title\": \"rlm\"}}: {error}"))?;
    match headers.iter().find(|(_, value)| !value.is_string()) {
        Some((name, value)) => Err(format!("expected a string for the header {name}, found {value}")),
        None => Ok(headers),
    }
}

/// The variable that a header's value names, as `$NAME`. None: it is a text, whose first `$` is written as `$$`.
pub(crate) fn header_variable(value: &str) -> Option<&str> {
    value.strip_prefix('$').filter(|name| !name.starts_with('$'))
}

#[cfg(test)]
mod tests {
    use rlm_rootd::ServerRules;

    use super::*;

    /// Checks that these texts are refused, with errors that begin so.
    #[track_caller]
    fn refuses<T: fmt::Debug>(parse: fn(&str) -> Result<T, String>, begins: &str, texts: &[&str]) {
        for text in texts {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(begins), "{text}: {error}");
        }
    }

    #[test]
    fn a_time_limit_is_seconds_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(seconds("1h 30m"), Ok(Duration::from_mins(90)));
        refuses(seconds, "expected a number of seconds above 0", &["0", "-1", "NaN", "soon", "1e999"]);
        assert_eq!(call_seconds("604800"), Ok(MAX_TOOL_TIME_LIMIT));
        refuses(call_seconds, "expected at most 604800 seconds (7 days)", &["604800.5"]);
        refuses(seconds, "expected at most 31622400 seconds (366 days)", &["1e19"]);
    }

    #[test]
    fn a_size_is_bytes_and_may_have_a_unit() {
        assert_eq!(["500000", "10MB", "1 GiB"].map(bytes), [Ok(500_000), Ok(10_000_000), Ok(1 << 30)]);
        refuses(bytes, "expected bytes above 0", &["0", "-1", "much", "", "1XB"]);
    }

    #[test]
    fn numbers_are_above_zero() {
        assert_eq!((count::<u32>("7"), usd("0.5")), (Ok(7), Ok(0.5)));
        refuses(count::<u32>, "expected a whole number above 0", &["0", "-1", "1.5", "", "4294967296"]);
        refuses(usd, "expected an amount in USD above 0", &["0", "-1", "inf", "NaN", "$1"]);
    }

    #[test]
    fn patterns_are_lines() {
        assert_eq!(patterns("*.csv\n/data/"), Ok(vec!["*.csv".to_owned(), "/data/".to_owned()]));
        assert_eq!(patterns(""), Ok(Vec::new()));
        refuses(patterns, "the pattern `[z-a]` is not valid: ", &["a\n[z-a]"]);
    }

    #[test]
    fn a_server_is_a_name_or_rules() {
        assert_eq!(parsed::<ServerRules>("deepseek").unwrap().name.as_deref(), Some("deepseek"));
        let own =
            parsed::<ServerRules>("{\"name\": \"vllm\", \"bound\": \"max_completion_tokens\"}").unwrap();
        assert_eq!(
            (own.name.as_deref(), own.rules.bound.as_deref()),
            (Some("vllm"), Some("max_completion_tokens"))
        );
        let server = parsed::<ServerRules>;
        refuses(server, "\"deepsek\" is not a server that is known: expected one of ", &["deepsek"]);
        refuses(server, "unknown field `bounds`, expected one of `api`, ", &["{\"bounds\": 1}"]);
    }

    #[test]
    fn fields_and_headers_are_json_objects() {
        assert_eq!(fields("{\"top_p\": 1}").unwrap()["top_p"], 1);
        assert_eq!(headers("{\"a\": \"b\"}").unwrap()["a"], "b");
        refuses(fields, "expected a JSON object", &["1", "[]", "temperature=1"]);
        refuses(headers, "expected a JSON object", &["a: b"]);
        refuses(headers, "expected a string for the header a, found 1", &["{\"a\": 1}"]);
    }
}
