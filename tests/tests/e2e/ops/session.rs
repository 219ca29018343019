//! `reset`, `set` and `info` through `rlm_env::Session`.

use rlm_core::json::JsonText;
use rlm_core::protocol::{Outcome, State};
use rlm_env::{Session, SessionError};
use serde_json::json;

use crate::languages::Language;

#[tokio::test]
async fn variables_info_and_a_reset() {
    for (language, show) in [(Language::Bash, "echo $n ${s-gone}"), (Language::Python, "print(n, s)")] {
        let mut session = Session::start(language.session_config(std::env::temp_dir())).await.unwrap();
        let large: JsonText = "123456789012345678901234567890".parse().unwrap();
        let response = session.set([("n", large), ("s", json!("it's $x").into())]).await.unwrap();
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
        let response = session.execute(show).await.unwrap();
        assert_eq!(response.stdout, "123456789012345678901234567890 it's $x\n");
        let response = session.set([("not a name", json!(1))]).await.unwrap();
        assert_eq!((response.outcome, response.hint.is_some()), (Outcome::Error, true));
        let info = session.info().await.unwrap();
        assert_eq!((info.language.as_str(), info.calls), (language.pick("bash", "python"), 1));
        let response = session.reset().await.unwrap();
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset));
        let none: [(String, JsonText); 0] = [];
        assert_eq!(session.set(none).await.unwrap().outcome, Outcome::Ok);
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn each_request_reports_a_dead_worker() {
    let mut session = Session::start(Language::Bash.session_config(std::env::temp_dir())).await.unwrap();
    let error = session.execute("kill -9 $PPID; sleep 1000").await.unwrap_err();
    assert!(matches!(error, SessionError::Died { .. }), "{error}");
    assert!(matches!(session.reset().await, Err(SessionError::Died { .. })));
    assert!(matches!(session.set([("x", json!(1))]).await, Err(SessionError::Died { .. })));
    assert!(matches!(session.info().await, Err(SessionError::Died { .. })));
    session.restart().await.unwrap();
    assert_eq!(session.info().await.unwrap().calls, 0);
    session.close().await.unwrap();
}
