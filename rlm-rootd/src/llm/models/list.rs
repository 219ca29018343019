//! The list of models of a server.

use std::sync::PoisonError;
use std::time::Duration;

use reqwest::Url;
use serde_json::Value as Json;
use tokio::time::timeout;

use super::Models;
use crate::llm::api::Api;
use crate::llm::failure::{Failure, explain, unusable};
use crate::llm::limits::{ModelLimits, is_same_model};
use crate::llm::server_error::ServerError;

/// Most entries that Anthropic lists at once; 20 if it is not asked for more.
const LIST_ENTRIES: &str = "1000";

/// Time limit of a request for the list of models.
const LIST_TIME: Duration = Duration::from_secs(10);

/// Time for a server to list the limits of its model.
const LIMITS_TIME: Duration = Duration::from_secs(3);

impl Models {
    /// The names of the models that the server lists.
    ///
    /// # Errors
    /// A sentence with the address and what may help. A server may answer requests and list nothing.
    pub async fn list(&self) -> Result<Vec<String>, String> {
        let entries = self.entries().await;
        let entries = entries.map_err(|failure| explain(&failure.error, self.list_url(), 1))?;
        Ok(entries.iter().filter_map(|entry| name(entry).map(str::to_owned)).collect())
    }

    /// The limits of the model, as far as the server lists them. A server that does not answer within 3 s lists none, and
    /// one on a Unix socket is not asked.
    pub async fn limits(&self) -> ModelLimits {
        self.limits_of(self.model()).await
    }

    /// The limits of another model of the server, as far as the server lists them.
    pub async fn limits_of(&self, model: &str) -> ModelLimits {
        if self.is_own {
            return ModelLimits::default();
        }
        let entries = timeout(LIMITS_TIME, self.entries()).await;
        let entries = entries.ok().and_then(Result::ok).unwrap_or_default();
        let entry = entries.iter().find(|entry| name(entry).is_some_and(|name| is_same_model(name, model)));
        let owner = entry.and_then(|entry| entry.get("owned_by")?.as_str());
        if let Some(owner) = owner.filter(|_| self.owner.get().is_none()) {
            self.owner.get_or_init(|| owner.to_owned());
            self.rules.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let limits = entry.map(ModelLimits::of_entry).unwrap_or_default();
        let completion =
            |entry: &Json| Some((name(entry)?.to_owned(), ModelLimits::of_entry(entry).completion_tokens?));
        let listed = entries.iter().filter_map(completion).collect();
        *self.listed.write().unwrap_or_else(PoisonError::into_inner) = listed;
        limits
    }

    /// The longest completion of a model, where its rules have one, or the server has listed it.
    pub(in crate::llm) fn longest_completion(&self, model: &str) -> Option<u64> {
        let listed = || {
            let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
            listed.iter().find(|(name, _)| is_same_model(name, model)).map(|(_, tokens)| *tokens)
        };
        self.rules(model).longest_completion.or_else(listed)
    }

    pub(super) fn list_url(&self) -> Url {
        let mut url = self.url.clone();
        let mut path = url.path_segments_mut().expect("http has a path");
        for _ in self.api.path() {
            path.pop();
        }
        path.push("models");
        drop(path);
        if self.api == Api::Anthropic {
            url.query_pairs_mut().append_pair("limit", LIST_ENTRIES);
        }
        url
    }

    /// The entries of the list of models.
    async fn entries(&self) -> Result<Vec<Json>, Failure> {
        let headers = self.headers(&self.rules(self.model()));
        let request = self.client.get(self.list_url()).headers(headers).timeout(LIST_TIME);
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let body = self.read(response).await;
        if !status.is_success() {
            return Err(self.refused(status, None, &ServerError::of_body(&body.unwrap_or_default())));
        }
        let mut list: Json = serde_json::from_slice(&body?).map_err(|error| unusable(error.to_string()))?;
        // Together lists them without an object around them (https://docs.together.ai/reference/models).
        let entries =
            if list.is_array() { list } else { list.get_mut("data").map(Json::take).unwrap_or_default() };
        match entries {
            Json::Array(entries) => Ok(entries),
            _ => Err(unusable("it has no list `data`".to_owned())),
        }
    }
}

/// The name of a model in a list.
fn name(entry: &Json) -> Option<&str> {
    entry.get("id")?.as_str()
}
