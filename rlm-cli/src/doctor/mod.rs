//! `rlm doctor`: what is found, and whether it works.

mod ask;
mod found;
mod learned;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlm_core::error::with_causes;
use rlm_core::protocol::{Confine, ConfinementLevel, Info};
use rlm_core::text::{counted, grouped};
use rlm_env::unstable::PrivateDir;
use rlm_env::{ReplLanguage, Session, SessionConfig};
use rlm_rootd::is_same_model;

use self::found::{Found, Lines};
use self::learned::save_rules;
use crate::arguments::DoctorOptions;
use crate::config::Settings;
use crate::config::table::{BASE_URL, MODEL, PYTHON, SAMPLING};
use crate::environment::Environment;
use crate::rollouts::{python_variable, root_models};
use crate::standard_output::print;
use crate::text::visible;
use crate::{tell, worker};

pub(crate) fn run(options: &DoctorOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(&options.settings, environment)?;
    let environment = &settings.for_sessions(environment);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let mut found = vec![
            ("rlm", program(environment)),
            ("bash", session(ReplLanguage::Bash, &settings, environment).await),
            ("python", session(ReplLanguage::Python, &settings, environment).await),
            (
                "confine",
                confinement(environment).await.map(|level| format!("{}; docs/confinement.md", words(level))),
            ),
            ("settings", Ok(file(&settings))),
            ("model", model(&settings, environment).await),
        ];
        // A server may answer requests, and list nothing or other names.
        if (options.ask || options.save) && root_models(&settings, environment).is_ok() {
            found.extend(asked(options, &settings, environment).await);
        }
        found
    });
    for (name, found) in &found {
        let (sign, words) = match found {
            Ok(words) => ("ok", words),
            Err(words) => ("--", words),
        };
        let width = if name.contains('.') { 15 } else { 9 };
        print(format!("{sign}  {name:<width$} {}\n", visible(words)))?;
    }
    let works = found.iter().all(|(_, found)| found.is_ok());
    Ok(ExitCode::from(if works { 0 } else { crate::ENVIRONMENT_ERROR }))
}

fn program(environment: &Environment) -> Found {
    let version = env!("CARGO_PKG_VERSION");
    let path = std::env::current_exe().map_err(|error| error.to_string())?;
    // If no directory takes the programs, each is an anonymous file.
    if path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
        let links = worker::programs(environment).map_err(|error| format!("{error:#}"))?;
        return Ok(format!("{version} in memory, with links in {}", links.display()));
    }
    Ok(format!("{version} at {}", path.display()))
}

/// Starts a session, and ends it.
async fn session(language: ReplLanguage, settings: &Settings, environment: &Environment) -> Found {
    let python = settings.get(&PYTHON);
    let worker =
        worker::find(language, python.is_some(), environment).map_err(|error| format!("{error:#}"))?;
    let mut variables = environment.to_list();
    for (name, value) in python_variable(python) {
        rlm_core::env::set(&mut variables, name, value);
    }
    // The directory for temporary files would have the control directory in it.
    let fs_root = PrivateDir::create().map_err(|error| error.to_string())?;
    let config = SessionConfig { env: variables, ..SessionConfig::new(&worker, fs_root.path()) };
    let (info, took) = described(config).await?;
    let (milliseconds, worker) = (took.as_secs_f64() * 1e3, worker.display());
    let kind = if info.builtin { ", built in" } else { "" };
    Ok(format!("{}{kind}, ready in {milliseconds:.0} ms, by {worker}", info.version))
}

/// Starts a session, and ends it. Returns its description, and how long the start took.
async fn described(config: SessionConfig) -> Result<(Info, Duration), String> {
    let begun = Instant::now();
    let mut session = Session::start(config).await.map_err(|error| with_causes(&error))?;
    let took = begun.elapsed();
    let info = session.info().await.map_err(|error| with_causes(&error))?;
    session.close().await.map_err(|error| with_causes(&error))?;
    Ok((info, took))
}

/// The confinement that this host allows.
async fn confinement(environment: &Environment) -> Result<ConfinementLevel, String> {
    let worker =
        worker::find(ReplLanguage::Bash, false, environment).map_err(|error| format!("{error:#}"))?;
    let (env, confine) = (environment.to_list(), Some(Confine::Try));
    let fs_root = PrivateDir::create().map_err(|error| error.to_string())?;
    let config = SessionConfig { env, confine, ..SessionConfig::new(&worker, fs_root.path()) };
    Ok(described(config).await?.0.confinement.level)
}

fn words(level: ConfinementLevel) -> &'static str {
    match level {
        ConfinementLevel::Full => "full",
        ConfinementLevel::Landlock => "landlock, for this host allows no namespaces",
        ConfinementLevel::Off => "none, for this host allows neither namespaces nor Landlock",
    }
}

/// Says what `try` gets, if that is what sessions are to have.
pub(crate) async fn tell_of_confinement(environment: &Environment) {
    if environment.get(rlm_core::env::CONFINE).is_some_and(|wanted| wanted == "try")
        && let Ok(level) = confinement(environment).await
    {
        tell(format!("rlm: confinement of sessions: {}", words(level)));
    }
}

fn file(settings: &Settings) -> String {
    let file = settings.file().map_or("no file".to_owned(), |file| file.display().to_string());
    format!("{file}; `rlm config` shows all")
}

/// Asks the root model's server for its models.
async fn model(settings: &Settings, environment: &Environment) -> Found {
    let (model, models) = root_models(settings, environment).map_err(|error| error.to_string())?;
    let place = format!("{model}, from {}; {}", settings.place(&MODEL), settings.place(&BASE_URL));
    let listed = models.list().await.map_err(|error| format!("{place}: {error}"))?;
    let number = counted(listed.len() as u64, "model");
    if listed.iter().any(|name| is_same_model(name, &model)) {
        return Ok(format!("{place}: the server answers, and lists it among {number}"));
    }
    let nearest = crate::usage::nearest(&model, listed.iter().map(String::as_str));
    let meant = nearest.map_or(String::new(), |nearest| format!(": is {nearest} meant?"));
    Err(format!("{place}: the server lists {number}, but not this one{meant}"))
}

/// The answers of the model's server to requests, and the part of them that was saved.
async fn asked(options: &DoctorOptions, settings: &Settings, environment: &Environment) -> Lines {
    let (model, models) = match root_models(settings, environment) {
        Ok(found) => found,
        Err(error) => return vec![("model.tools", Err(error.to_string()))],
    };
    let window = match models.limits_of(&model).await.context_tokens {
        Some(tokens) => format!("{} tokens, as the server lists it", grouped(tokens)),
        None => "not listed; `context_tokens` sets it".to_owned(),
    };
    let before = models.rules(&model);
    let mut lines = ask::ask(&model, &models, &settings.get(&SAMPLING).unwrap_or_default()).await;
    lines.insert(lines.len() - 1, ("model.context", Ok(window)));
    if options.save {
        let has_failed = lines.iter().any(|(_, found)| found.is_err());
        lines.push(("saved", save_rules(settings, &before, &models.rules(&model), has_failed)));
    }
    lines
}
