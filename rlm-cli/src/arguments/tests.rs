use std::path::Path;

use clap::CommandFactory;
use rlm_env::ReplLanguage;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

/// Subcommand, what else its command line needs, former name, name, value.
const FORMER_NAMES: &[(&str, &[&str], &str, &str, &str)] = &[
    ("exec", &[":"], "--context", "--workdir", "dir"),
    ("exec", &[":"], "--repl-language", "--language", "python"),
    ("exec", &[":"], "--timeout", "--call-timeout", "7"),
    ("exec", &[":"], "--max-parallel", "--server-parallelism", "7"),
    ("repl", &[], "--context", "--workdir", "dir"),
    ("repl", &[], "--repl-language", "--language", "python"),
    ("repl", &[], "--timeout", "--call-timeout", "7"),
    ("repl", &[], "--max-parallel", "--server-parallelism", "7"),
    ("run", &["Why?"], "--rollouts", "--attempts", "7"),
    ("run", &["Why?"], "--parallel", "--jobs", "7"),
    ("run", &["Why?"], "--max-output-length", "--max-output-chars", "7"),
    ("run", &["Why?"], "--max-parallel", "--server-parallelism", "7"),
    ("config", &[], "--max-output-length", "--max-output-chars", "7"),
    ("config", &[], "--max-parallel", "--server-parallelism", "7"),
    ("script", &["kept"], "--repl-language", "--language", "python"),
    ("replay", &["kept"], "--repl-language", "--language", "python"),
    ("replay", &["kept"], "--root", "--workdir", "dir"),
    ("replay", &["kept"], "--timeout", "--call-timeout", "7"),
    ("replay", &["kept"], "--max-parallel", "--server-parallelism", "7"),
    ("mcp", &[], "--root", "--workdir", "dir"),
    ("mcp", &[], "--timeout", "--call-timeout", "7"),
    ("worker", &["--control-dir", "c"], "--repl-language", "--language", "python"),
];

#[test]
fn former_names_of_options_mean_the_same() {
    for (subcommand, needed, former, name, value) in FORMER_NAMES {
        let parsed = |option| {
            let arguments = ["rlm", subcommand, option, value];
            let parsed = Arguments::try_parse_from(arguments.iter().chain(*needed));
            format!("{:?}", parsed.unwrap_or_else(|error| panic!("{subcommand} {option}: {error}")))
        };
        assert_eq!(parsed(former), parsed(name), "{subcommand} {former}");
    }
}

#[test]
fn help_and_completions_show_the_names_in_use_alone() {
    let mut command = Arguments::command();
    let mut completions = Vec::new();
    clap_complete::generate(clap_complete::Shell::Bash, &mut command, "rlm", &mut completions);
    for (subcommand, _, former, name, _) in FORMER_NAMES {
        let help = crate::help::of_command(subcommand).unwrap();
        let shows = |option: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            help.split(|c| !is_part(c)).any(|word| word == option)
        };
        assert!(shows(name) && !shows(former), "{help}");
    }
    let completions = String::from_utf8(completions).unwrap();
    for former in ["--repl-language", "--root ", "--rollouts", "--parallel", "--max-parallel"] {
        assert!(!completions.contains(former), "{former}");
    }
}

/// Lines of a screen on which a help must fit.
const SCREEN: usize = 50;

#[test]
fn the_help_of_each_command_fits_on_a_screen_and_names_the_rest() {
    let mut command = Arguments::command();
    command.build();
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "rootd") {
        let name = subcommand.get_name();
        let help = Arguments::try_parse_from(["rlm", name, "--help"]).unwrap_err().to_string();
        assert!(help.lines().count() <= SCREEN, "{name}: {} lines\n{help}", help.lines().count());
        let has_more = subcommand.get_arguments().any(clap::Arg::is_hide_set);
        assert_eq!(help.contains(&format!("rlm help {name}")), has_more, "{help}");
    }
}

#[test]
fn each_option_has_one_value_in_all_subcommands() {
    let mut values = std::collections::BTreeMap::new();
    for subcommand in Arguments::command().get_subcommands() {
        for option in subcommand.get_opts().filter(|option| option.get_action().takes_values()) {
            let name = option.get_long().unwrap().to_owned();
            let value = option.get_value_names().map(|names| names[0].to_string());
            let known = values.entry(name.clone()).or_insert_with(|| value.clone());
            assert_eq!(*known, value, "{} --{name}", subcommand.get_name());
        }
    }
}

#[test]
fn python_is_a_language_and_may_name_an_interpreter() {
    let session = |arguments: &[&str]| {
        let arguments = ["rlm", "exec"].iter().chain(arguments).chain(&["code"]);
        match Arguments::try_parse_from(arguments).unwrap().command {
            Command::Exec(options) => options.session,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(session(&[]).language(), ReplLanguage::Bash);
    for arguments in [&["--python"][..], &["--language", "python"]] {
        assert_eq!(
            (session(arguments).language(), session(arguments).python()),
            (ReplLanguage::Python, None)
        );
    }
    let named = session(&["--python=/venv"]);
    assert_eq!((named.language(), named.python()), (ReplLanguage::Python, Some(Path::new("/venv"))));
}
