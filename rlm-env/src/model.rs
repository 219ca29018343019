//! Models: the root model of a rollout, and the servers, prices and budgets of models.

#[doc(inline)]
pub use rlm_rootd::{
    Api, Budget, ChatMessage, ChatReply, ChatRequest, Estimate, HttpModel, Key, Ledger, ModelError,
    ModelErrorKind, ModelFuture, ModelLimits, Models, ModelsConfig, ModelsError, Price, Prices, PricesError,
    Proxy, Retries, RootModel, Rules, SubLlmOptions, Usage,
};
