//! A flag for each setting, and `--set`, which takes them all: help shows the flags of few.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::setting::{AnySetting, Form};
use super::table::{ALL, COMMON, LANGUAGE, OF_TOOLS, PYTHON};
use crate::usage::nearest;

/// The flag that names the configuration file.
const CONFIG: &str = "config";

/// The option for any setting, by its name.
const SET: &str = "set";

/// The settings on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// The text of each setting's value by its name, and the flag that gave it.
    pub(crate) values: BTreeMap<&'static str, (String, String)>,
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        augment(command, ALL)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flags for root tools and their model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolFlags(pub(crate) Flags);

impl Args for ToolFlags {
    fn augment_args(command: Command) -> Command {
        augment(command, &OF_TOOLS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ToolFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.take(matches, &OF_TOOLS)
    }
}

fn augment(command: Command, settings: &'static [&'static dyn AnySetting]) -> Command {
    let file = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("The configuration file [default: the first of RLM_CONFIG, ./rlm.toml and $XDG_CONFIG_HOME/rlm/rlm.toml]");
    settings
        .iter()
        .fold(command.next_help_heading("Settings"), |command, setting| command.arg(flag(*setting)))
        .arg(file)
        .arg(
            Arg::new(SET)
                .long(SET)
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .value_parser(Assignments(settings))
                .hide_possible_values(true)
                .help("Any setting; `rlm config` lists them, `rlm help NAME` explains one"),
        )
}

/// Reads `NAME=VALUE`.
#[derive(Clone, Debug)]
struct Assignments(&'static [&'static dyn AnySetting]);

impl Assignments {
    fn read(&self, text: &str) -> Result<(&'static str, String), String> {
        let Some((given, value)) = text.split_once('=') else {
            return Err("expected NAME=VALUE, such as max_turns=7".to_owned());
        };
        let name = given.trim().replace('-', "_");
        let Some(setting) = self.0.iter().find(|setting| setting.is_named(&name)) else {
            let near = nearest(&name, self.0.iter().map(|setting| setting.name));
            let hint = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            return Err(format!("there is no setting `{name}` here: {hint}`rlm config` lists all"));
        };
        setting.check(value)?;
        Ok((setting.name, value.to_owned()))
    }
}

impl TypedValueParser for Assignments {
    type Value = (&'static str, String);

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let this = self.clone();
        clap::builder::StringValueParser::new()
            .try_map(move |text| this.read(&text))
            .parse_ref(command, arg, value)
    }

    /// The name, as a completion to which a value is typed.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|setting| PossibleValue::new(setting.name))))
    }
}

fn flag(setting: &'static dyn AnySetting) -> Arg {
    let default = setting.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let arg = Arg::new(setting.name)
        .long(setting.flag())
        .aliases(setting.former_flag())
        .value_name(setting.value_name)
        .value_parser(parser(setting))
        .allow_negative_numbers(true)
        .hide(!COMMON.contains(&setting.name))
        .help(format!("{}{default}", setting.help));
    let arg = if setting.form == Form::List { arg.action(ArgAction::Append) } else { arg };
    // Without a value, the flag only sets the language.
    match setting.name == PYTHON.name {
        true => arg.num_args(0..=1).require_equals(true).conflicts_with(LANGUAGE.name),
        false => arg,
    }
}

fn parser(setting: &'static dyn AnySetting) -> ValueParser {
    let check = move |text: String| setting.check(&text).map(|()| text);
    match setting.check("") {
        Ok(()) => ValueParser::new(clap::builder::StringValueParser::new().try_map(check)),
        Err(_) => ValueParser::new(NonEmptyStringValueParser::new().try_map(check)),
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.take(matches, ALL)?;
        if matches.contains_id(PYTHON.name) {
            self.values.insert(LANGUAGE.name, ("python".to_owned(), "--python".to_owned()));
        }
        Ok(())
    }
}

impl Flags {
    fn take(
        &mut self,
        matches: &ArgMatches,
        settings: &[&'static dyn AnySetting],
    ) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>(CONFIG).cloned();
        for setting in settings {
            let flag = format!("--{}", setting.flag());
            // A flag whose value may be left out can have no values here.
            let texts = matches.get_many::<String>(setting.name).filter(|texts| texts.len() > 0);
            if let Some(texts) = texts {
                let text = texts.map(String::as_str).collect::<Vec<_>>().join("\n");
                self.values.insert(setting.name, (text, flag));
            }
        }
        for (name, text) in matches.get_many::<(&'static str, String)>(SET).into_iter().flatten() {
            let is_list = settings.iter().any(|setting| setting.name == *name && setting.form == Form::List);
            let flag = format!("--set {name}");
            match self.values.get_mut(name) {
                None => _ = self.values.insert(name, (text.clone(), flag)),
                Some((before, _)) if is_list => *before += &format!("\n{text}"),
                Some((_, before)) => {
                    let error =
                        format!("{name} is given twice, by {before} and by {flag}: leave one of them out");
                    return Err(clap::Error::raw(ErrorKind::ArgumentConflict, error));
                }
            }
        }
        Ok(())
    }
}
