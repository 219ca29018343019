//! Order and parallelism of batches.

use std::sync::Arc;

use rlm_rootd::{Budget, Ledger, Models, Prices, SubLlm, SubLlmOptions};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};

use super::{ask, echoes, prompts, setup};

#[tokio::test]
async fn answers_come_in_the_order_of_their_prompts() {
    for (count, parallelism) in [(0, 5), (1, 5), (10, 5), (1000, 64)] {
        let model = ScriptedModel::start([Rule::any()]);
        let sub_llm = setup(&model).with(|it| it.options.parallelism = parallelism).start();
        assert_eq!(ask(&sub_llm, prompts(count)).await, echoes(count));
        assert!(model.most_at_once() <= parallelism, "{} at once", model.most_at_once());
        assert_eq!(model.finish().len(), count);
    }
}

#[tokio::test]
async fn a_late_answer_keeps_its_place() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p0.").after(&gate), Rule::any()]);
    let sub_llm = setup(&model).start();
    let batch = tokio::spawn(async move { ask(&sub_llm, prompts(20)).await });
    // All others are asked while the first waits.
    model.wait_for_requests(20).await;
    gate.open();
    assert_eq!(batch.await.unwrap(), echoes(20));
}

#[tokio::test]
async fn concurrent_requests_of_a_rollout_are_limited_over_all_batches() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate)]);
    let sub_llm = setup(&model).start();
    let batches: Vec<_> = (0..3)
        .map(|_| {
            let sub_llm = Arc::clone(&sub_llm);
            tokio::spawn(async move { ask(&sub_llm, prompts(10)).await })
        })
        .collect();
    model.wait_for_requests(5).await;
    gate.open();
    for batch in batches {
        assert_eq!(batch.await.unwrap(), echoes(10));
    }
    assert_eq!(model.most_at_once(), 5);
}

#[tokio::test]
async fn concurrent_requests_of_a_process_are_limited_over_all_rollouts() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate)]);
    let config = setup(&model).with(|it| it.config.parallelism = 3).config;
    let models = Arc::new(Models::new(config).unwrap());
    let rollouts: Vec<_> = (0..4)
        .map(|_| {
            let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
            let sub_llm = SubLlm::new(Arc::clone(&models), ledger, SubLlmOptions::default()).unwrap();
            tokio::spawn(async move { ask(&sub_llm, prompts(10)).await })
        })
        .collect();
    model.wait_for_requests(3).await;
    gate.open();
    for rollout in rollouts {
        assert_eq!(rollout.await.unwrap(), echoes(10));
    }
    assert_eq!(model.most_at_once(), 3);
}
