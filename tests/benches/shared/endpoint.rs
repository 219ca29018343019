//! An endpoint with a root tool that does nothing.

use std::thread;

use rlm_core::pickle::Value;
use rlm_rootd::{Listener, RolloutConfig, Rootd, RootdConfig, Tool};
use serde_json::json;

/// Serves the tool `noop`, at a Unix socket or on `127.0.0.1`, in threads of its own. Returns the URL of a rollout and its secret.
pub(crate) fn serve(is_unix: bool) -> (String, String) {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = tempfile::tempdir().unwrap();
            let listener = match is_unix {
                true => Listener::unix(&place.path().join("socket")),
                false => Listener::tcp("127.0.0.1:0".parse().unwrap()),
            };
            let listener = listener.unwrap();
            let base_url = listener.base_url().to_owned();
            let rootd = Rootd::new(RootdConfig::default());
            let noop = Tool::from_fn("noop", "Does nothing.", json!({"type": "object"}), |_| Ok(Value::None));
            let tools = vec![noop.unwrap()];
            let rollout = rootd.register("r", RolloutConfig { tools, ..RolloutConfig::default() }).unwrap();
            tell.send((rollout.tools_url(&base_url), rollout.secret.reveal().to_owned())).unwrap();
            rootd.serve(listener, std::future::pending()).await.unwrap();
        });
    });
    told.recv().unwrap()
}
