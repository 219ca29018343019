//! A ledger in another program, from which rollouts of several hosts spend.
//!
//! The ledger is a server at a URL like that of `RLM_ROOT_TOOL_URL`. Before a request is sent, the ledger is asked for the
//! most that the request may cost; it waits where running requests may give that back, and answers with status 402 where it
//! has no room. Afterwards it is told the cost of the request.
//!
//! ```json
//! {"reserve": {"id": "f3…", "rollout": "q-1", "model": "m", "prompt_tokens": 900, "completion_tokens": 4096,
//!              "least_completion_tokens": 256, "cost_usd": 0.0021, "completion_token_usd": 5e-07}}
//! {"completion_tokens": 4096}
//! {"settle": {"id": "f3…", "calls": 1, "prompt_tokens": 911, "completion_tokens": 80, "cost_usd": 0.0002}}
//! {}
//! ```

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::amounts::{Estimate, Sum, Usage};
use super::exhausted::Exhausted;
use super::prices::Price;
use super::stage::Stage;
use crate::callback::CallbackServer;

/// Attempts to tell the ledger a request's cost.
const ATTEMPTS: usize = 3;

/// A ledger in another program.
#[derive(Debug)]
pub struct RemoteLedger {
    server: CallbackServer,
    /// The reports to the ledger that are under way.
    telling: TaskTracker,
}

impl RemoteLedger {
    /// The ledger at this address. `secret` goes with each request as a bearer token.
    ///
    /// # Errors
    /// The fault of the address or the secret, as a sentence.
    pub fn new(url: &str, secret: Option<&str>) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { server: CallbackServer::new(url, secret)?, telling: TaskTracker::new() }))
    }

    /// Waits until the ledger was told of all requests that have ended.
    pub(super) async fn settled(&self) {
        self.telling.close();
        self.telling.wait().await;
    }

    /// Asks for the most that a request may cost, or for as much of it as there is room for.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        rollout: &str,
        estimate: &Estimate,
        least_completion: u64,
        price: Option<Price>,
    ) -> Result<RemoteReservation, Exhausted> {
        let id = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let most = Sum::most(estimate, price);
        // From here on the reservation is given back, even if the answer never comes.
        let mut reservation =
            RemoteReservation { ledger: self.clone(), id, most, completion_tokens: 0, stage: Stage::Held };
        let question = json!({"reserve": {
            "id": reservation.id,
            "rollout": rollout,
            "model": estimate.model,
            "prompt_tokens": estimate.prompt_tokens,
            "completion_tokens": estimate.completion_tokens,
            "least_completion_tokens": least_completion,
            "cost_usd": most.amounts().cost_usd,
            "completion_token_usd": price.map(|price| Sum::of(&Usage::new(0, 1), Some(price)).amounts().cost_usd),
        }});
        let refused = |reason: String| Exhausted::Refused { reason };
        let lost = |error: String| refused(format!("the ledger of all rollouts cannot be asked: {error}"));
        let answer = self.server.post(question.to_string().into_bytes()).await.map_err(lost)?;
        let said: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
        match (answer.status, said["completion_tokens"].as_u64(), said["error"].as_str()) {
            (200, Some(tokens), _) => reservation.completion_tokens = tokens.min(estimate.completion_tokens),
            (402, _, Some(reason)) => {
                reservation.stage = Stage::Ended;
                return Err(refused(reason.to_owned()));
            }
            (status, _, error) => {
                return Err(lost(format!(
                    "status {status}: {}",
                    error.unwrap_or("expected completion_tokens")
                )));
            }
        }
        Ok(reservation)
    }

    /// Tells the ledger what a request has cost, in the background.
    fn settle(self: &Arc<Self>, id: &str, spent: &Sum) {
        let settled = json!({"settle": {
            "id": id,
            "calls": spent.calls,
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "cost_usd": spent.amounts().cost_usd,
        }});
        let ledger = self.clone();
        let tell = async move {
            for _ in 0..ATTEMPTS {
                match ledger.server.post(settled.to_string().into_bytes()).await {
                    Ok(answer) if answer.status == 200 => return,
                    Ok(answer) => {
                        tracing::warn!(status = answer.status, "the ledger does not take a settlement")
                    }
                    Err(error) => tracing::warn!(error, "the ledger cannot be told of a settlement"),
                }
            }
        };
        // Without a runtime the host is ending, and the other program sees that.
        if let Ok(runtime) = Handle::try_current() {
            self.telling.spawn_on(tell, &runtime);
        }
    }
}

/// The amount that the other program has reserved for one request.
#[derive(Debug)]
pub(super) struct RemoteReservation {
    ledger: Arc<RemoteLedger>,
    id: String,
    most: Sum,
    /// The bound on the completion.
    pub(super) completion_tokens: u64,
    stage: Stage,
}

impl RemoteReservation {
    /// Marks the request as about to be sent: it costs the most, unless it is settled.
    pub(super) fn sent(&mut self) {
        self.stage = Stage::Sent;
    }

    /// Settles the request at this cost.
    pub(super) fn settle(mut self, spent: &Sum) {
        self.stage = Stage::Ended;
        self.ledger.settle(&self.id, spent);
    }
}

impl Drop for RemoteReservation {
    fn drop(&mut self) {
        match self.stage {
            Stage::Held => self.ledger.settle(&self.id, &Sum::default()),
            Stage::Sent => self.ledger.settle(&self.id, &self.most),
            Stage::Ended => {}
        }
    }
}
