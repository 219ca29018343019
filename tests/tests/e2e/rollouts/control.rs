//! Ending a rollout from outside.

use rlm_tests::scripted_model::Gate;

use super::*;

/// Stops or cancels a rollout at a given event.
#[derive(Debug)]
struct At {
    happened: fn(&Event) -> bool,
    control: Control,
    cancels: bool,
}

impl Sink for At {
    fn entry(&self, entry: &Entry) {
        if (self.happened)(&entry.event) {
            if self.cancels { self.control.cancel() } else { self.control.stop() }
        }
    }
}

fn is_call(event: &Event) -> bool {
    matches!(event, Event::CallStarted(_))
}

#[tokio::test]
async fn a_stop_lets_the_call_end_and_keeps_its_answer() {
    let stage = Stage::new([bash("sleep 0.3; RLM_CONTENT=some")]).await;
    let (mut config, seen) = stage.rollout("one");
    let control = Control::new();
    config.sinks.push(Arc::new(At { happened: is_call, control: control.clone(), cancels: false }));
    let result = stage.run_with(config, &control).await;
    ended(&result, StopReason::Stopped, "some");
    assert_eq!(seen.outputs(), ["(no output)"]);
    stage.end().await;
}

#[tokio::test]
async fn a_cancel_interrupts_the_call_and_keeps_its_answer() {
    let codes = in_each(
        "RLM_CONTENT=some; echo begun; sleep 600",
        "import time; answer['content'] = 'some'; print('begun', flush=True); time.sleep(600)",
    );
    for (language, code) in codes {
        let stage = Stage::new([call(language, code)]).await;
        let (mut config, seen) = stage.rollout("one");
        config.language = language;
        let control = Control::new();
        // Once the code has started: a file in its directory says so.
        let at = At { happened: is_call, control: control.clone(), cancels: true };
        config.sinks.push(Arc::new(at));
        let result = stage.run_with(config, &control).await;
        assert_eq!(result.stop_reason, StopReason::Cancelled);
        assert_eq!(result.metrics.repl_call_count, 1);
        assert_eq!(seen.outputs().len(), 1);
        stage.end().await;
    }
}

#[tokio::test]
async fn a_cancel_and_a_stop_end_a_request_to_the_model_and_nothing_is_run_after_it() {
    let ends =
        [(Control::cancel as fn(&Control), StopReason::Cancelled), (Control::stop, StopReason::Stopped)];
    for (end, reason) in ends {
        let gate = Gate::shut();
        let stage = Stage::new([bash("RLM_CONTENT=some"), Rule::any().after(&gate)]).await;
        let (config, _) = stage.rollout("one");
        let control = Control::new();
        let ending = async {
            stage.model.wait_for_requests(2).await;
            end(&control);
        };
        let (result, ()) = tokio::join!(stage.run_with(config, &control), ending);
        ended(&result, reason, "some");
        assert_eq!(result.metrics.repl_call_count, 1);
        stage.model.wait_until_idle().await;
        stage.end().await;
    }
}

#[tokio::test]
async fn a_cancel_ends_the_requests_of_sub_llms() {
    let gate = Gate::shut();
    let batch = "for i in $(seq 50); do echo judge $i; done | llm_batch --lines";
    let stage = Stage::new([Rule::on("judge").after(&gate), bash(batch)]).await;
    let (config, seen) = stage.rollout("one");
    let control = Control::new();
    let cancel = async {
        stage.model.wait_for_requests(6).await;
        control.cancel();
    };
    let (result, ()) = tokio::join!(stage.run_with(config, &control), cancel);
    assert_eq!(result.stop_reason, StopReason::Cancelled);
    stage.model.wait_until_idle().await;
    assert_eq!(stage.sub_requests().len(), 5);
    // Each request is reported, and its possible cost counted, before the rollout's last entry.
    assert_eq!(result.metrics.sub_llm_error_count, 5);
    assert!(matches!(seen.events().last(), Some(Event::RolloutEnded(_))));
    stage.end().await;
}

#[tokio::test]
async fn a_rollout_whose_future_is_dropped_leaves_nothing() {
    let stage = Stage::new([bash("sleep 600 & sleep 600")]).await;
    let (mut config, _) = stage.rollout("one");
    let begun = Control::new();
    config.sinks.push(Arc::new(At { happened: is_call, control: begun.clone(), cancels: false }));
    let control = Control::new();
    tokio::select! {
        result = stage.host.run(config, &control) => panic!("{result:?}"),
        () = begun.stopped() => {}
    }
    stage.end().await;
}

#[tokio::test]
async fn a_stop_in_the_midst_of_the_context_leaves_nothing_of_it() {
    let stage = Stage::new([]).await;
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("large"), vec![1; 200 << 20]).unwrap();
    for keeps in [false, true] {
        let (mut config, _) = stage.rollout("one");
        let kept = tempfile::tempdir().unwrap();
        config.context = Context::Paths(vec![data.path().to_owned()]);
        config.keep = keeps.then(|| kept.path().to_owned());
        let control = Control::new();
        let place = if keeps { kept.path().to_owned() } else { stage.dir.path().to_owned() };
        let stop = async {
            while bytes_below(&place) == 0 {
                tokio::task::yield_now().await;
            }
            control.cancel();
        };
        let (result, ()) = tokio::join!(stage.run_with(config, &control), stop);
        assert_eq!(result.stop_reason, StopReason::Cancelled);
        assert_eq!(bytes_below(&place), 0);
    }
    stage.end().await;
}

/// Size of the copy of the large file in a directory of rollouts, in bytes.
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |path: std::path::PathBuf| match std::fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => bytes_below(&path),
        Ok(found) if path.ends_with("large") => found.len(),
        _ => 0,
    };
    entries.map(|entry| size(entry.path())).sum()
}
