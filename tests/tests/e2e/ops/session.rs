//! `reset`, `set` and `info` through `rlm_env::Session`.

use rlm_core::json::JsonText;
use rlm_core::protocol::{Outcome, State};
use rlm_env::{ReplLanguage, Session, SessionConfig, SessionError};
use rlm_tests::{default_python, program};
use serde_json::json;

fn config(language: ReplLanguage) -> SessionConfig {
    let python = default_python().into_os_string();
    SessionConfig {
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("RLM_PYTHON".into(), python)],
        ..SessionConfig::new(program(language.worker_name()), std::env::temp_dir())
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn variables_info_and_a_reset() {
    block_on(async {
        for (language, show) in
            [(ReplLanguage::Bash, "echo $n ${s-gone}"), (ReplLanguage::Python, "print(n, s)")]
        {
            let mut session = Session::start(config(language)).await.unwrap();
            let large: JsonText = "123456789012345678901234567890".parse().unwrap();
            let response = session.set([("n", large), ("s", json!("it's $x").into())]).await.unwrap();
            assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
            let response = session.execute(show).await.unwrap();
            assert_eq!(response.stdout, "123456789012345678901234567890 it's $x\n");
            let response = session.set([("not a name", json!(1))]).await.unwrap();
            assert_eq!((response.outcome, response.hint.is_some()), (Outcome::Error, true));
            let info = session.info().await.unwrap();
            assert_eq!((info.language, info.calls), (language.to_string(), 1));
            let response = session.reset().await.unwrap();
            assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset));
            let none: [(String, JsonText); 0] = [];
            assert_eq!(session.set(none).await.unwrap().outcome, Outcome::Ok);
            session.close().await.unwrap();
        }
    });
}

#[test]
fn each_request_reports_a_dead_worker() {
    block_on(async {
        let mut session = Session::start(config(ReplLanguage::Bash)).await.unwrap();
        let error = session.execute("kill -9 $PPID; sleep 1000").await.unwrap_err();
        assert!(matches!(error, SessionError::Died { .. }), "{error}");
        assert!(matches!(session.reset().await, Err(SessionError::Died { .. })));
        assert!(matches!(session.set([("x", json!(1))]).await, Err(SessionError::Died { .. })));
        assert!(matches!(session.info().await, Err(SessionError::Died { .. })));
        session.restart().await.unwrap();
        assert_eq!(session.info().await.unwrap().calls, 0);
        session.close().await.unwrap();
    });
}
