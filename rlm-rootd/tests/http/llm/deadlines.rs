//! Deadlines and cancellation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_rootd::{Budget, Recorder};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};

use super::{Memory, ask, ask_one, ask_until, echoes, prompts, setup};

#[tokio::test]
async fn an_item_that_takes_too_long_leaves_the_others_alone() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p3.").after(&never), Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.options.item_deadline = Some(Duration::from_secs(1))).start();
    let mut answers = ask(&sub_llm, prompts(10)).await;
    assert!(answers[3].starts_with("! no answer within "), "{}", answers[3]);
    answers[3] = "re: p3.".to_owned();
    assert_eq!(answers, echoes(10));
    // The request may have been paid for.
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 10);
}

#[tokio::test]
async fn earlier_errors_are_named_at_a_time_out() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::any().status(500, "oh").once(), Rule::any().after(&never)]);
    let sub_llm = setup(&model).with(|it| it.options.item_deadline = Some(Duration::from_secs(1))).start();
    let answer = ask_one(&sub_llm, "p").await;
    let before = ", and before that: the model's server answered 500: oh";
    assert!(answer.starts_with("! no answer within ") && answer.ends_with(before), "{answer}");
}

#[tokio::test]
async fn a_batch_ends_at_its_deadline_with_what_it_has() {
    let never = Gate::shut();
    let model =
        ScriptedModel::start([Rule::on("p0.").after(&never), Rule::on("p1.").after(&never), Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.options.parallelism = 2).start();
    let deadline = Instant::now() + Duration::from_secs(1);
    let answers = ask_until(&sub_llm, prompts(1000), deadline).await;
    assert!(
        answers[..2].iter().all(|answer| answer.starts_with("! no answer within ")),
        "{:?}",
        &answers[..2]
    );
    assert!(answers[2..].iter().all(|answer| answer == "! the time was up before the request was sent"));
    assert_eq!(model.finish().len(), 2);
}

#[tokio::test]
async fn nothing_is_sent_once_the_deadline_is_over() {
    let model = ScriptedModel::start([]);
    let sub_llm = setup(&model).start();
    let answers = ask_until(&sub_llm, prompts(3), Instant::now()).await;
    assert_eq!(answers, vec!["! the time was up before the request was sent"; 3]);
    assert!(model.finish().is_empty());
}

#[tokio::test]
async fn a_batch_that_is_cancelled_sends_nothing_more() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p").after(&gate), Rule::any()]);
    let budget = Budget { tokens: Some(100_000), ..Budget::default() };
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| {
            it.budget = budget;
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let of_batch = Arc::clone(&sub_llm);
    let batch = tokio::spawn(async move { ask(&of_batch, prompts(100)).await });
    model.wait_for_requests(5).await;
    gate.let_through(10);
    model.wait_for_requests(15).await;
    batch.abort();
    assert!(batch.await.unwrap_err().is_cancelled());
    gate.open();
    model.wait_until_idle().await;
    assert_eq!(ask_one(&sub_llm, "last").await, "re: last");
    assert_eq!(model.finish().len(), 16);
    // Five were under way and may have cost all that was reserved: 4096 tokens each, and their prompts.
    let snapshot = sub_llm.ledger().snapshot();
    assert_eq!((snapshot.used.calls, snapshot.reserved.calls), (16, 0));
    assert_eq!(snapshot.used.completion_tokens, 11 * 5 + 5 * 4096);
    let records = recorder.0.lock().unwrap();
    assert_eq!(records.iter().filter(|record| record.error.as_deref() == Some("cancelled")).count(), 5);
    let charged: u64 = records.iter().map(|record| record.usage.completion_tokens).sum();
    assert_eq!(charged, snapshot.used.completion_tokens);
}
