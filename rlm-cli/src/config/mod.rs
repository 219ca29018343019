//! Configuration: flags, then `RLM_*` variables, then `rlm.toml`, then defaults.

mod contents;
mod digest;
mod file;
mod flags;
mod save;
mod setting;
mod show;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rlm_core::env;
use rlm_rootd::{Api, ServerRules};

pub(crate) use self::digest::digest;
pub(crate) use self::file::NAME as FILE_NAME;
pub(crate) use self::flags::{Flags, ToolFlags};
pub(crate) use self::save::save;
pub(crate) use self::setting::{AnySetting, Fields, Form, Setting, header_variable, seconds, usd};
pub(crate) use self::show::{Shape, explained, run, without_credentials};
use self::table::{
    ALL, API, API_KEY_ENV, BASE_URL, CHECKPOINT, CONFINE, CONFINE_READ, CONFINE_TMP, CONFINE_WRITE, HEADERS,
    SERVER, SUB_API, SUB_API_KEY_ENV, SUB_BASE_URL, SUB_HEADERS, SUB_SERVER,
};
use crate::environment::Environment;
use crate::usage::Usage;

/// Variables that are tried for the root model's key.
const KEY_VARIABLES: [&str; 2] = ["RLM_API_KEY", "OPENAI_API_KEY"];

/// Variables that are tried for the key if the interface is Anthropic's: a key goes to no other vendor.
const ANTHROPIC_KEY_VARIABLES: [&str; 2] = ["RLM_API_KEY", "ANTHROPIC_API_KEY"];

/// The variable that is tried for the key of the sub-LLMs' server.
const SUB_KEY_VARIABLES: [&str; 1] = ["RLM_SUB_API_KEY"];

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag, with its dashes.
    Flag(String),
    /// A variable.
    Variable(String),
    /// A line of the file.
    File(file::Place),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Variable(name) => f.write_str(name),
            Self::File(place) => place.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    file: Option<PathBuf>,
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Settings {
    /// Reads all sources.
    pub(crate) fn load(flags: &Flags, environment: &Environment) -> anyhow::Result<Self> {
        let file = file::find(flags.file.as_deref(), environment)?;
        let mut in_file = file.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let mut values = BTreeMap::new();
        for &setting in ALL {
            let name = setting.name;
            let in_file = in_file.remove(name).map(|(text, place)| (text, Origin::File(place)));
            let default = setting.default.map(|text| (text.to_owned(), Origin::Default));
            let found = match flags.values.get(name) {
                Some((text, flag)) => Some((text.clone(), Origin::Flag(flag.clone()))),
                None => match of_variable(setting, &setting.variable_name(), environment)?.or(in_file) {
                    None => match setting.fallback_variable {
                        Some(variable) => of_variable(setting, variable, environment)?,
                        None => default,
                    },
                    found => found,
                },
            };
            if let Some(found) = found {
                values.insert(name, found);
            }
        }
        Ok(Self { file, values })
    }

    /// The environment with the settings of sessions in the form in which workers read them.
    pub(crate) fn for_sessions(&self, environment: &Environment) -> Environment {
        let mut variables = environment.clone();
        let mut set = |variable: &str, value: Option<String>| {
            if let Some(value) = value {
                variables = variables.with(variable, &value);
            }
        };
        let paths = |setting: &Setting<Vec<PathBuf>>| {
            let paths = self.get(setting)?;
            Some(paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":"))
        };
        set(env::CONFINE, self.get(&CONFINE).map(|level| level.to_string()));
        set(env::CONFINE_READ, paths(&CONFINE_READ));
        set(env::CONFINE_WRITE, paths(&CONFINE_WRITE));
        set(env::CONFINE_TMP, self.get(&CONFINE_TMP).map(|bytes| bytes.to_string()));
        set(env::CHECKPOINT, self.get(&CHECKPOINT));
        variables
    }

    /// The file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The value of a setting, if it has one.
    pub(crate) fn get<T>(&self, setting: &Setting<T>) -> Option<T> {
        let (text, _) = self.values.get(setting.name)?;
        Some((setting.parse)(text).expect("each source checks what it takes"))
    }

    /// The value of a setting that has a default.
    pub(crate) fn value<T>(&self, setting: &Setting<T>) -> T {
        self.get(setting).expect("the setting has a default")
    }

    /// The value of a setting that must be set.
    pub(crate) fn require<T: fmt::Debug>(&self, setting: &Setting<T>, what: &str) -> Result<T, Usage> {
        self.get(setting).ok_or_else(|| {
            let (flag, variable) = (setting.flag(), setting.variable_name());
            Usage::new(format!(
                "{what} is not set: give --{flag}, {variable}, or `{}` in {}",
                setting.name,
                file::NAME
            ))
        })
    }

    /// The name of a setting and the source of its value.
    pub(crate) fn place<T>(&self, setting: &Setting<T>) -> String {
        match self.values.get(setting.name) {
            Some((_, origin)) => format!("{} ({origin})", setting.name),
            None => setting.name.to_owned(),
        }
    }

    /// True if a value in the file would not be in force: a flag or a variable has one.
    pub(crate) fn is_above_file<T>(&self, setting: &Setting<T>) -> bool {
        let origin = self.values.get(setting.name).map(|(_, origin)| origin);
        matches!(origin, Some(Origin::Flag(_) | Origin::Variable(_)))
    }

    /// The source of a setting's value.
    #[cfg(test)]
    fn origin<T>(&self, setting: &Setting<T>) -> Option<&Origin> {
        self.values.get(setting.name).map(|(_, origin)| origin)
    }

    /// The root model's key, and the variables that may hold it.
    pub(crate) fn key<'a>(&self, environment: &'a Environment) -> Result<KeySource<'a>, Usage> {
        let base_url = self.get(&BASE_URL).unwrap_or_default();
        let variables = match self.get(&API).or_else(|| Api::of_url(&base_url)) {
            Some(Api::Anthropic) => &ANTHROPIC_KEY_VARIABLES,
            _ => &KEY_VARIABLES,
        };
        self.key_source(&API_KEY_ENV, variables, environment)
    }

    /// The key of the sub-LLMs' server. A server of their own never gets the root model's key by default.
    pub(crate) fn sub_key<'a>(&self, environment: &'a Environment) -> Result<KeySource<'a>, Usage> {
        if self.has_one_server() && self.get(&SUB_API_KEY_ENV).is_none() {
            return self.key(environment);
        }
        self.key_source(&SUB_API_KEY_ENV, &SUB_KEY_VARIABLES, environment)
    }

    /// The setting with the headers for the sub-LLMs' server.
    pub(crate) fn sub_headers(&self) -> &'static Setting<Fields> {
        if self.has_one_server() && self.get(&SUB_HEADERS).is_none() { &HEADERS } else { &SUB_HEADERS }
    }

    /// The settings with the interface and the rules of the sub-LLMs' server.
    pub(crate) fn sub_server(&self) -> (&'static Setting<Api>, &'static Setting<ServerRules>) {
        let is_roots = |is_set: bool| self.has_one_server() && !is_set;
        let api = if is_roots(self.get(&SUB_API).is_some()) { &API } else { &SUB_API };
        (api, if is_roots(self.get(&SUB_SERVER).is_some()) { &SERVER } else { &SUB_SERVER })
    }

    fn has_one_server(&self) -> bool {
        self.get(&SUB_BASE_URL).is_none_or(|sub_base_url| Some(sub_base_url) == self.get(&BASE_URL))
    }

    fn key_source<'a>(
        &self,
        setting: &Setting<String>,
        defaults: &[&str],
        environment: &'a Environment,
    ) -> Result<KeySource<'a>, Usage> {
        let named = self.get(setting);
        let variables: Vec<String> = match &named {
            Some(name) if name.is_empty() => Vec::new(),
            Some(name) => vec![name.clone()],
            None => defaults.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (at, name) in variables.iter().enumerate() {
            if let Some(key) = environment.text(name)?.map(str::trim).filter(|key| !key.is_empty()) {
                return Ok(KeySource { set: Some((at, key)), variables, is_named: named.is_some() });
            }
        }
        Ok(KeySource { set: None, variables, is_named: named.is_some() })
    }
}

/// A key for a server, and the variables that may hold it.
#[derive(Clone)]
pub(crate) struct KeySource<'a> {
    /// The variables that may hold it; empty if no key is to be sent.
    pub(crate) variables: Vec<String>,
    /// True if a setting named the variable.
    pub(crate) is_named: bool,
    /// The index of the variable that holds the key, and the key.
    set: Option<(usize, &'a str)>,
}

impl<'a> KeySource<'a> {
    pub(crate) fn key(&self) -> Option<&'a str> {
        self.set.map(|(_, key)| key)
    }

    /// The variable that holds it.
    pub(crate) fn variable(&self) -> Option<&str> {
        self.set.map(|(at, _)| self.variables[at].as_str())
    }
}

/// Never shows the key.
impl fmt::Debug for KeySource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySource")
            .field("variables", &self.variables)
            .field("set", &self.set.is_some())
            .finish()
    }
}

fn of_variable(
    setting: &dyn AnySetting,
    variable: &str,
    environment: &Environment,
) -> Result<Option<(String, Origin)>, Usage> {
    let Some(text) = environment.text(variable)? else { return Ok(None) };
    setting.check(text).map_err(|reason| Usage::new(format!("{variable}: {reason}, found `{text}`")))?;
    Ok(Some((text.to_owned(), Origin::Variable(variable.to_owned()))))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::table::{CALL_TIMEOUT, LANGUAGE, MAX_TURNS, PYTHON};
    use super::*;

    fn flags(arguments: &[&str]) -> Flags {
        let command = Flags::augment_args(clap::Command::new("rlm"));
        let matches = command.try_get_matches_from(["rlm"].iter().chain(arguments)).unwrap();
        Flags::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn any_setting_is_set_by_its_name() {
        let set = |arguments: &[&str]| {
            let command = Flags::augment_args(clap::Command::new("rlm"));
            let options = arguments.iter().flat_map(|argument| ["--set", argument]);
            let matches = command.try_get_matches_from(["rlm"].into_iter().chain(options))?;
            Flags::from_arg_matches(&matches).map(|flags| flags.values)
        };
        let values =
            set(&["max_turns=7", "call-timeout=2m", "exclude=a", "exclude=b", "sampling={\"a\": 1}"])
                .unwrap();
        let text = |name: &str| values[name].0.as_str();
        assert_eq!((text("max_turns"), text("call_timeout"), text("exclude")), ("7", "2m", "a\nb"));
        assert_eq!(values["sampling"].1, "--set sampling");
        for (given, fault) in [
            ("max_turns", "expected NAME=VALUE, such as max_turns=7"),
            (
                "max_turnss=7",
                "there is no setting `max_turnss` here: did you mean `max_turns`? `rlm config` lists all",
            ),
            ("colour=red", "there is no setting `colour` here: `rlm config` lists all"),
            ("max_turns=many", "expected a whole number above 0"),
        ] {
            let error = set(&[given]).unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
        let twice = set(&["max_turns=7", "max_turns=8"]).unwrap_err().to_string();
        assert!(
            twice.contains("max_turns is given twice, by --set max_turns and by --set max_turns"),
            "{twice}"
        );
        assert!(explained("--max-turns").unwrap().contains("RLM_MAX_TURNS"));
        assert_eq!((explained("RLM_MAX_TURNS"), explained("colour")), (explained("max_turns"), None));
    }

    /// Settings with a file of this text.
    fn load<const N: usize>(
        arguments: &[&str],
        variables: [(&str, &str); N],
        text: &str,
    ) -> anyhow::Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rlm.toml");
        std::fs::write(&file, text).unwrap();
        let flags = Flags { file: Some(file), ..flags(arguments) };
        Settings::load(&flags, &Environment::from(variables))
    }

    #[test]
    fn a_flag_comes_before_a_variable_before_the_file_before_the_default() {
        let turns = |settings: &Settings| {
            (settings.value(&MAX_TURNS), settings.origin(&MAX_TURNS).unwrap().to_string())
        };
        let settings = load(&["--max-turns", "1"], [("RLM_MAX_TURNS", "2")], "max_turns = 3").unwrap();
        assert_eq!(turns(&settings), (1, "--max-turns".to_owned()));
        let settings = load(&[], [("RLM_MAX_TURNS", "2")], "max_turns = 3").unwrap();
        assert_eq!(turns(&settings), (2, "RLM_MAX_TURNS".to_owned()));
        let settings = load(&[], [("RLM_MAX_TURNS", "")], "\nmax_turns = 3").unwrap();
        let (value, origin) = turns(&settings);
        assert_eq!(value, 3);
        assert!(origin.ends_with("/rlm.toml:2"), "{origin}");
        assert_eq!(turns(&load(&[], [], "").unwrap()), (50, "default".to_owned()));
    }

    #[test]
    fn a_variable_of_other_programs_comes_after_the_file() {
        use super::table::BASE_URL;
        let url = |text| {
            let settings = load(&[], [("OPENAI_BASE_URL", "http://other/v1")], text).unwrap();
            (settings.get(&BASE_URL).unwrap(), settings.origin(&BASE_URL).unwrap().to_string())
        };
        assert_eq!(url("base_url = \"http://mine/v1\"").0, "http://mine/v1");
        assert_eq!(url(""), ("http://other/v1".to_owned(), "OPENAI_BASE_URL".to_owned()));
    }

    #[test]
    fn an_error_in_a_variable_names_it() {
        let error = load(&[], [("RLM_EXEC_TIMEOUT", "soon")], "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "RLM_EXEC_TIMEOUT: expected a number of seconds above 0, or a time such as 5m or 1h30m, found `soon`"
        );
        assert!(error.is::<Usage>());
        assert_eq!(
            load(&[], [("RLM_EXEC_TIMEOUT", "2")], "").unwrap().value(&CALL_TIMEOUT),
            std::time::Duration::from_secs(2)
        );
    }

    #[test]
    fn the_flag_python_is_a_language_and_may_name_an_interpreter() {
        let settings = load(&["--python"], [], "language = \"bash\"").unwrap();
        assert_eq!(settings.value(&LANGUAGE), rlm_env::ReplLanguage::Python);
        assert_eq!(settings.get(&PYTHON), None);
        let settings = load(&["--python=/venv"], [("RLM_PYTHON", "/other")], "").unwrap();
        assert_eq!(settings.value(&LANGUAGE), rlm_env::ReplLanguage::Python);
        assert_eq!(settings.get(&PYTHON), Some(PathBuf::from("/venv")));
        let settings = load(&[], [("RLM_PYTHON", "/other")], "").unwrap();
        assert_eq!(
            settings.value(&LANGUAGE),
            rlm_env::ReplLanguage::Bash,
            "a variable names the interpreter alone"
        );
    }

    #[test]
    fn keys_are_found_by_the_names_of_their_variables_and_never_shown() {
        let environment =
            Environment::from([("OPENAI_API_KEY", "k1"), ("MINE", " k2\n"), ("RLM_SUB_API_KEY", "k3")]);
        let settings = |text| load(&[], [], text).unwrap();
        let both = |text| {
            let settings = settings(text);
            let (key, sub_key) =
                (settings.key(&environment).unwrap(), settings.sub_key(&environment).unwrap());
            assert!(!format!("{key:?}{sub_key:?}").contains("k1"));
            (key.key(), sub_key.key())
        };
        assert_eq!(both(""), (Some("k1"), Some("k1")));
        assert_eq!(both("api_key_env = \"MINE\""), (Some("k2"), Some("k2")));
        assert_eq!(both("api_key_env = \"\""), (None, None));
        assert_eq!(both("base_url = \"http://a\"\nsub_base_url = \"http://a\""), (Some("k1"), Some("k1")));
        assert_eq!(
            both("sub_base_url = \"http://b\""),
            (Some("k1"), Some("k3")),
            "a key goes to its own server"
        );
        assert_eq!(both("sub_base_url = \"http://b\"\nsub_api_key_env = \"MINE\""), (Some("k1"), Some("k2")));
    }

    #[test]
    fn the_digest_covers_what_can_change_an_answer_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("tools.toml"), "").unwrap();
        let of = |arguments: &[&str]| digest(&load(arguments, [], "model = \"m\"").unwrap()).unwrap();
        let bare = of(&[]);
        assert_eq!((bare.len(), &bare), (16, &of(&["--call-timeout", "2m", "--sub-model", "m"])));
        for same in ["--base-url=http://a", "--server-parallelism=2", "--keep=kept", "--api-key-env=K"] {
            assert_eq!(of(&[same]), bare, "{same}");
        }
        let tools = format!("--tools={}", path("tools.toml"));
        for other in ["--model=n", "--sub-model=n", "--python", "--max-turns=7", "--verbosity=light", &tools]
        {
            assert_ne!(of(&[other]), bare, "{other}");
        }
        let with_tools = of(&[&tools]);
        std::fs::rename(path("tools.toml"), path("moved.toml")).unwrap();
        let moved = format!("--tools={}", path("moved.toml"));
        assert_eq!(of(&[&moved]), with_tools);
        std::fs::write(path("moved.toml"), "[[tool]]\nname = \"a\"\n").unwrap();
        assert_ne!(of(&[&moved]), with_tools);
        assert!(digest(&load(&[&tools], [], "").unwrap()).unwrap_err().to_string().starts_with("tools: "));
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let flags = Flags { file: Some(PathBuf::from("/does/not/exist")), ..Flags::default() };
        let error = Settings::load(&flags, &Environment::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--config names /does/not/exist, which does not exist or is not a file"
        );
        let environment = Environment::from([("RLM_CONFIG", "/does/not/exist")]);
        let error = Settings::load(&Flags::default(), &environment).unwrap_err();
        assert_eq!(
            error.to_string(),
            "RLM_CONFIG names /does/not/exist, which does not exist or is not a file"
        );
    }

    #[test]
    fn anything_but_a_file_in_its_place_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("rlm/rlm.toml");
        let refused = || {
            let environment = Environment::from([("XDG_CONFIG_HOME", dir.path().to_str().unwrap())]);
            let error = Settings::load(&Flags::default(), &environment).unwrap_err();
            assert!(error.is::<Usage>());
            error.to_string()
        };
        std::fs::create_dir_all(&place).unwrap();
        let not_a_file =
            format!("{} is not a file: remove it, or name another file with --config", place.display());
        assert_eq!(refused(), not_a_file);
        std::fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &place).unwrap();
        assert_eq!(refused(), not_a_file);
        std::fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("rlm.toml", &place).unwrap();
        let error = refused();
        assert!(
            error.starts_with(&format!("the settings cannot be read from {}: Too many", place.display())),
            "{error}"
        );
    }

    #[test]
    fn the_users_file_is_read_if_the_directory_has_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("rlm")).unwrap();
        std::fs::write(dir.path().join("rlm/rlm.toml"), "max_turns = 9").unwrap();
        let environment = Environment::from([("XDG_CONFIG_HOME", dir.path().to_str().unwrap())]);
        let settings = Settings::load(&Flags::default(), &environment).unwrap();
        assert_eq!(settings.value(&MAX_TURNS), 9);
    }
}
