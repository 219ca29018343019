//! A session from Rust.
//!
//! `cargo run -p rlm-env --example session -- target/release/rlm-worker-bash DIRECTORY`, where the worker is built.
#![expect(clippy::print_stdout, reason = "a main, for people")]

use std::time::Duration;

use rlm_env::{Call, Session, SessionConfig, SessionError};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), SessionError> {
    let mut arguments = std::env::args_os().skip(1);
    let worker = arguments.next().unwrap_or_else(|| "rlm-worker-bash".into());
    let directory = arguments.next().unwrap_or_else(|| ".".into());

    // Ready when this returns. The worker sees only the variables in `env`, which is empty here.
    let mut session = Session::start(SessionConfig::new(worker, directory)).await?;

    // Code that fails is not an error: the response says how it ended.
    let response = session.execute("x=1; cd /; false").await?;
    println!("{:?}, exit status {:?}", response.outcome, response.exit_code);

    // Variables from JSON: no quoting, nothing is evaluated.
    let set = session.set([("question", json!("it's $5")), ("ids", json!([1, 2]))]).await?;
    assert_eq!(set.hint, None, "a hint says which variable could not be set, and why");
    print!("{}", session.execute(r#"echo "$question, ${#ids[@]} ids""#).await?.stdout);

    // A call that is stopped at its limit keeps the state and its output so far.
    let slow = Call { timeout: Some(Duration::from_millis(200)), ..Call::from("echo begun; sleep 1000") };
    let stopped = session.execute(slow).await?;
    println!("{:?}, state {:?}: {}", stopped.outcome, stopped.state, stopped.stdout.trim());
    print!("{}", session.execute("echo $x in $PWD").await?.stdout);

    // The answer comes with each response.
    let answer = session.execute("RLM_CONTENT=42; RLM_READY=1").await?.answer;
    println!("the answer: {} ({})", answer.content, answer.ready);

    // A fresh shell, in the directory it began in.
    session.reset().await?;
    print!("{}", session.execute("echo ${x-no x}").await?.stdout);

    // A worker that died is an error, and the session can be started again.
    match session.execute("kill -9 $PPID; sleep 1000").await {
        Err(SessionError::Died { .. }) => session.restart().await?,
        other => println!("{other:?}"),
    }
    print!("{}", session.execute("echo on").await?.stdout);

    // Ends everything that the session started, and waits until it is gone. Dropping the session does the same.
    session.close().await
}
