//! The environment of sessions, and the fork server that some of them come from.

use std::path::PathBuf;

use rlm_core::error::with_causes;
use rlm_core::protocol::Confine;
use rlm_env::{ForkServer, ReplLanguage};

use crate::config::Settings;
use crate::config::table::{CONFINE, FORK_SERVER, PYTHON_PRELOAD};
use crate::environment::Environment;
use crate::rollouts::python_variable;
use crate::{tell, worker};

/// The environment of sessions, and the fork server that it names, which runs for as long as this exists.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) environment: Environment,
    _fork_server: Option<ForkServer>,
}

impl Sessions {
    /// Starts the fork server for sessions in this language, if one is wanted. Where it cannot be had, somebody is told, and sessions
    /// start without it.
    pub(crate) fn start(
        settings: &Settings,
        environment: &Environment,
        language: ReplLanguage,
        python: Option<PathBuf>,
    ) -> Self {
        let preload = settings.get(&PYTHON_PRELOAD).unwrap_or_default();
        let is_wanted = settings.value(&FORK_SERVER) || !preload.is_empty();
        let started = is_wanted && language == ReplLanguage::Python;
        let started = started.then(|| start(settings, environment, python, &preload)).transpose();
        let fork_server = started.unwrap_or_else(|why| {
            tell(format_args!("rlm: sessions start without a fork server: {why}"));
            None
        });
        let environment = match fork_server.as_ref().map(ForkServer::variable) {
            Some((name, value)) => environment.with(&name.to_string_lossy(), &value.to_string_lossy()),
            None => environment.clone(),
        };
        Self { environment, _fork_server: fork_server }
    }
}

fn start(
    settings: &Settings,
    environment: &Environment,
    python: Option<PathBuf>,
    preload: &[String],
) -> Result<ForkServer, String> {
    if settings.get(&CONFINE).unwrap_or_default() != Confine::Off {
        return Err("they are confined, and have namespaces or rules of their own".to_owned());
    }
    let mut variables = rlm_core::env::for_workers(&settings.for_sessions(environment).to_list());
    let worker = worker::find(ReplLanguage::Python, python.is_some(), environment);
    let worker = worker.map_err(|error| format!("{error:#}"))?;
    for (name, value) in python_variable(python) {
        rlm_core::env::set(&mut variables, name, value);
    }
    ForkServer::start(&worker, &variables, preload).map_err(|error| with_causes(&error))
}
