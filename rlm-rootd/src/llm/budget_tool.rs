//! The root tool `budget`.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, Reply};
use serde_json::{Value as Json, json};

use crate::ledger::Ledger;
use crate::tool::{RootTool, ToolError, ToolFuture};

const BUDGET: &str = "budget";

static PARAMETERS: LazyLock<Json> =
    LazyLock::new(|| json!({"type": "object", "properties": {}, "additionalProperties": false}));

/// `budget() -> dict`: the amounts that the rollout's calls of models have used, have reserved and have left, as a
/// [`LedgerSnapshot`](crate::LedgerSnapshot).
#[derive(Debug)]
pub struct BudgetTool {
    ledger: Arc<Ledger>,
}

impl BudgetTool {
    /// The tool of a rollout.
    #[must_use]
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger }
    }
}

impl RootTool for BudgetTool {
    fn name(&self) -> &str {
        BUDGET
    }

    fn description(&self) -> &str {
        "Returns the amounts that calls of models have used, that running calls have reserved, and that are left (null if unlimited)."
    }

    fn parameters(&self) -> &Json {
        &PARAMETERS
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move {
            if !call.args.is_empty() || !call.kwargs.is_empty() {
                return Err(ToolError::Arguments(format!("{BUDGET}: takes no arguments")));
            }
            let snapshot =
                serde_json::to_value(self.ledger.snapshot()).expect("it has only names and numbers");
            Ok(Reply::of(Value::from_json(&snapshot).expect("it is two levels deep")))
        })
    }
}
