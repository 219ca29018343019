//! The peer of the Python package's bench: what `rlm_env::Session` needs for the same calls, in seconds, as a line of JSON.
//! Arguments: a worker program, code, a number of calls, a number of sessions in one single-threaded runtime.

use std::time::Instant;

use rlm_env::session::for_workers;
use rlm_env::{Session, SessionConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [worker, code, calls, sessions] = &arguments[..] else {
        return Err(format!("expected WORKER CODE CALLS SESSIONS, not {arguments:?}").into());
    };
    let (calls, sessions): (usize, usize) = (calls.parse()?, sessions.parse()?);
    #[expect(clippy::disallowed_methods, reason = "this is a main")]
    let environment: Vec<_> = std::env::vars_os().collect();
    let began = Instant::now();
    let mut all = Vec::new();
    for _ in 0..sessions {
        let env = for_workers(&environment);
        all.push(Session::start(SessionConfig { env, ..SessionConfig::new(worker, "/tmp") }).await?);
    }
    let start = began.elapsed().as_secs_f64() / f64::from(u32::try_from(sessions)?);
    for session in &mut all {
        session.execute(code.as_str()).await?;
    }
    let began = Instant::now();
    let running = all.into_iter().map(|mut session| {
        let code = code.clone();
        async move {
            for _ in 0..calls {
                session.execute(code.as_str()).await?;
            }
            Ok::<_, rlm_env::SessionError>(session)
        }
    });
    let all = futures_util::future::try_join_all(running).await?;
    let call = began.elapsed().as_secs_f64() / f64::from(u32::try_from(calls * sessions)?);
    for session in all {
        session.close().await?;
    }
    #[expect(clippy::print_stdout, reason = "the result is for the bench that started this")]
    {
        println!("{}", serde_json::json!({"start": start, "call": call}));
    }
    Ok(())
}
