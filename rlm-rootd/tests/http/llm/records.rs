//! Records of requests.

use std::collections::HashSet;
use std::sync::Arc;

use rlm_rootd::{Recorder, Usage};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{Memory, ask, prompts, setup};

#[tokio::test]
async fn each_request_is_recorded() {
    let model = ScriptedModel::start([
        Rule::on("p0.").status(400, "no"),
        Rule::on("p1.").hang_up().once(),
        Rule::any().usage(7, 3),
    ]);
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>))
        .start();
    ask(&sub_llm, prompts(3)).await;
    let ids: HashSet<_> =
        model.finish().iter().map(|request| request.header("x-request-id").to_owned()).collect();
    let mut records = recorder.0.lock().unwrap();
    records.sort_by_key(|record| record.index);
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.batch_id == records[0].batch_id && record.messages == 1));
    assert_eq!(records.iter().map(|record| record.request_id.clone()).collect::<HashSet<_>>(), ids);
    assert_eq!(records[0].error.as_deref(), Some("the model's server answered 400: no"));
    assert_eq!((&records[0].reply, records[0].usage, records[0].attempts), (&None, Usage::default(), 1));
    // The attempt that was lost is charged at its estimate: its prompt, since the completion has no bound.
    assert_eq!((records[1].attempts, records[1].usage.is_estimated), (2, true));
    assert!(records[1].usage.prompt_tokens > 7 && records[1].usage.completion_tokens == 3);
    assert_eq!(records[2].reply, Some(json!({"role": "assistant", "content": "re: p2."})));
    assert_eq!((records[2].finish_reason.as_deref(), records[2].usage), (Some("stop"), Usage::new(7, 3)));
    let charged: u64 = records.iter().map(|record| record.usage.prompt_tokens).sum();
    assert_eq!(charged, sub_llm.ledger().snapshot().used.prompt_tokens);
}
