//! Many rollouts at once.

use futures_util::{StreamExt as _, stream};
use rlm_env::RootModel;
use rlm_env::model::{ChatReply, ChatRequest, ModelError, ModelErrorKind, ModelFuture, Usage};
use rlm_tests::scripted_model::calling;

use super::*;

/// A root model that follows its rollout's question, turn by turn.
#[derive(Debug)]
struct Script;

impl RootModel for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        let question = request.messages[1]["content"].as_str().unwrap();
        let turn = request.messages.iter().filter(|message| message["role"] == "assistant").count();
        let (id, fault) = question.split_once(' ').unwrap();
        let code = match (turn, fault) {
            (0, _) => format!("RLM_CONTENT={id}; echo {id} > own; (sleep 600 &)"),
            (1, "dies") => "kill -9 $PPID; sleep 600".to_owned(),
            (1, "hangs") => "trap '' INT TERM; while :; do sleep 600; done".to_owned(),
            (1, "exits") => "exit 3".to_owned(),
            (1, "floods") => "yes | head -c 30000000".to_owned(),
            (1, "closes") => "exec 1>&- 2>&- 0<&-; echo lost".to_owned(),
            (1, "wipes") => "rm -rf -- * \"$RLM_MESSAGES\"; cd /; rm -rf -- \"$OLDPWD\"".to_owned(),
            (1, _) => "cat own".to_owned(),
            _ => "RLM_READY=1".to_owned(),
        };
        Box::pin(async move {
            if turn == 1 && fault == "fails" {
                return Err(ModelError::new(ModelErrorKind::Failed, "no model"));
            }
            if turn == 1 && fault == "babbles" {
                return Ok(reply(json!({"role": "assistant", "tool_calls": [1, null, "x"]})));
            }
            Ok(reply(calling(ReplLanguage::Bash.tool_name(), &code)))
        })
    }
}

fn reply(message: Value) -> ChatReply {
    ChatReply::new(message, Usage::new(10, 5))
}

const FAULTS: [&str; 8] = ["dies", "hangs", "exits", "floods", "closes", "wipes", "fails", "babbles"];

/// Runs in a process of its own: it counts descriptors and memory, which other tests use too.
#[test]
fn a_hundred_rollouts_with_faults_in_a_third_all_end_and_leave_nothing() {
    if rlm_tests::is_alone(concat!(
        module_path!(),
        "::a_hundred_rollouts_with_faults_in_a_third_all_end_and_leave_nothing"
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(a_hundred_rollouts());
    }
}

async fn a_hundred_rollouts() {
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("many-{}", std::process::id());
    let host = Host::start(HostConfig {
        env: rlm_tests::variables(),
        dir: dir.path().to_owned(),
        ..HostConfig::new(rlm_tests::programs(), Arc::new(Script))
    })
    .await
    .unwrap();
    let before = descriptors();
    let with_faults = |at: usize| if at.is_multiple_of(3) { FAULTS[at / 3 % FAULTS.len()] } else { "none" };
    let count = rlm_tests::scaled(100, 48);
    let results = run(&host, &mark, count, with_faults).await;
    assert_eq!(results.len(), count);
    for (fault, result) in results {
        let (reason, answer) = (result.stop_reason, result.answer.as_deref());
        match fault {
            "fails" => assert_eq!((reason, answer), (StopReason::ModelFailed, Some(result.id.as_str()))),
            _ => assert_eq!(reason, StopReason::Answered, "{fault}: {result:?}"),
        }
        if fault == "none" {
            assert_eq!(answer, Some(result.id.as_str()));
        }
    }
    assert_eq!(descriptors(), before);
    let memory = resident_bytes();
    let more = rlm_tests::scaled(200, 50);
    drop(run(&host, &mark, more, |_| "none").await);
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 4 << 20, "{more} rollouts more take {grown} bytes more, after {memory}");
    host.close().await.unwrap();
    assert_no_marked_process(&mark);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Runs this many rollouts, 32 at a time.
async fn run(
    host: &Host,
    mark: &str,
    count: usize,
    fault: fn(usize) -> &'static str,
) -> Vec<(&'static str, RolloutResult)> {
    let python = default_python();
    let rollout = |at: usize| {
        let fault = fault(at);
        let mut config = RolloutConfig::new(format!("r{at}"), format!("r{at} {fault}"));
        config.limits.call_timeout = Duration::from_secs(2);
        config.env = marked_env(mark, &python);
        async move { (fault, host.run(config, &Control::new()).await) }
    };
    stream::iter(0..count).map(rollout).buffer_unordered(32).collect().await
}

fn descriptors() -> usize {
    rlm_tests::open_descriptors(nix::unistd::Pid::this())
}

fn resident_bytes() -> usize {
    let fields = std::fs::read_to_string("/proc/self/statm").unwrap();
    fields.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
