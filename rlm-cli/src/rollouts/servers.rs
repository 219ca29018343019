//! The servers of models: addresses, keys, headers and rules, from settings.

use std::sync::Arc;

use rlm_rootd::{Key, Models, ModelsConfig, ModelsError, Proxy, Retries, ServerRules};
use serde_json::Value as Json;

use crate::config::table::{
    API, BASE_URL, HEADERS, MAX_RETRIES, MODEL, REQUEST_TIMEOUT, SERVER, SERVER_PARALLELISM, STREAM, SUB_API,
    SUB_BASE_URL, SUB_HEADERS, SUB_MODEL, SUB_SERVER, TOKEN_IDS,
};
use crate::config::{Fields, KeySource, Setting, Settings, header_variable, without_credentials};
use crate::environment::Environment;
use crate::usage::{Usage, refuse};

/// The servers of models.
pub(super) struct Servers {
    pub(super) root: Arc<Models>,
    pub(super) sub: Arc<Models>,
    pub(super) sub_model: String,
}

impl Servers {
    pub(super) fn new(settings: &Settings, environment: &Environment) -> anyhow::Result<Self> {
        let model = settings.require(&MODEL, "the model")?;
        let base_url = settings.require(&BASE_URL, "the address of the model")?;
        let sub_model = settings.get(&SUB_MODEL).unwrap_or_else(|| model.clone());
        let sub_base_url = settings.get(&SUB_BASE_URL).unwrap_or_else(|| base_url.clone());
        let has_one_key = settings.key(environment)?.key() == settings.sub_key(environment)?.key();
        let has_other_settings = settings.get(&SUB_HEADERS).is_some()
            || settings.get(&SUB_API).is_some()
            || settings.get(&SUB_SERVER).is_some();
        let has_one_server = base_url == sub_base_url && has_one_key && !has_other_settings;
        let root = models(settings, environment, &base_url, &model, Of::Root)?;
        // One server has one limit on parallel requests.
        let sub = match has_one_server {
            true => root.clone(),
            false => models(settings, environment, &sub_base_url, &sub_model, Of::Sub)?,
        };
        Ok(Self { root, sub, sub_model })
    }
}

/// The root model's name and its server.
pub(crate) fn root_models(
    settings: &Settings,
    environment: &Environment,
) -> Result<(String, Arc<Models>), Usage> {
    let model = settings.require(&MODEL, "the model")?;
    let base_url = settings.require(&BASE_URL, "the address of the model")?;
    let models = models(settings, environment, &base_url, &model, Of::Root)?;
    Ok((model, models))
}

/// Whose server it is: that says which settings hold its key and headers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Root,
    Sub,
}

/// A server of models.
pub(super) fn models(
    settings: &Settings,
    environment: &Environment,
    base_url: &str,
    model: &str,
    of: Of,
) -> Result<Arc<Models>, Usage> {
    let (key, flag, headers, (api, server)) = match of {
        Of::Root => (settings.key(environment)?, "api-key-env", &HEADERS, (&API, &SERVER)),
        Of::Sub => {
            let (headers, server) = (settings.sub_headers(), settings.sub_server());
            (settings.sub_key(environment)?, "sub-api-key-env", headers, server)
        }
    };
    let ServerRules { name, rules } = settings.get(server).unwrap_or_default();
    let config = ModelsConfig {
        key: check_key(&key, base_url, flag)?,
        headers: header_values(settings, headers, environment)?,
        api: settings.get(api),
        server: name,
        rules,
        token_ids: matches!(of, Of::Root) && settings.value(&TOKEN_IDS),
        stream: settings.value(&STREAM),
        proxy: Proxy::of_variables(base_url, |name| environment.text(name).ok().flatten().map(str::to_owned)),
        parallelism: settings.value(&SERVER_PARALLELISM),
        timeout: settings.value(&REQUEST_TIMEOUT),
        retries: Retries { max: settings.value(&MAX_RETRIES), ..Retries::default() },
        ..ModelsConfig::new(base_url, model)
    };
    Models::new(config).map(Arc::new).map_err(|error| {
        let place = match &error {
            ModelsError::BaseUrl(_) => match settings.get(&SUB_BASE_URL) {
                Some(sub) if sub == base_url && matches!(of, Of::Sub) => settings.place(&SUB_BASE_URL),
                _ => settings.place(&BASE_URL),
            },
            ModelsError::Header(_) => settings.place(headers),
            ModelsError::Server(_) => settings.place(server),
            ModelsError::Key => key.variable().unwrap_or_default().to_owned(),
            _ => return Usage::new(error.to_string()),
        };
        Usage::new(format!("{place}: {error}"))
    })
}

/// The headers of a setting, with the values of the variables that it names.
fn header_values(
    settings: &Settings,
    setting: &'static Setting<Fields>,
    environment: &Environment,
) -> Result<Vec<(String, Key)>, Usage> {
    let headers = settings.get(setting).unwrap_or_default();
    let value = |(name, value): (String, Json)| {
        let text = value.as_str().unwrap_or_default();
        let Some(variable) = header_variable(text) else {
            return Ok((name, Key::new(text.strip_prefix('$').unwrap_or(text))));
        };
        match environment.text(variable)?.filter(|value| !value.is_empty()) {
            Some(value) => Ok((name, Key::new(value))),
            None => Err(Usage::new(format!(
                "{}: the variable {variable}, which should hold the header {name}, is not set",
                settings.place(setting)
            ))),
        }
    };
    headers.into_iter().map(value).collect()
}

/// The key for a server. A variable that is named must be set, and a server over `https` needs a key.
fn check_key(place: &KeySource<'_>, base_url: &str, flag: &str) -> Result<Option<Key>, Usage> {
    if let Some(key) = place.key() {
        return Ok(Some(Key::new(key)));
    }
    let variables = place.variables.join(" or ");
    match place.variables.as_slice() {
        [] => Ok(None),
        _ if place.is_named => {
            refuse!("the variable {variables}, which should hold the key, is not set")
        }
        _ if base_url.starts_with("https:") => refuse!(
            "the key for {} is not set: set {variables}, name another variable with --{flag}, or send no key \
             with --{flag} ''",
            without_credentials(base_url)
        ),
        _ => Ok(None),
    }
}
