//! The tools of the session: `llm_batch` and `budget`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, Reply, ToolResult};
use rlm_rootd::{BudgetTool, LlmBatch, RootTool as _, ToolError};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use serde_json::json;

use super::{setup, soon};

/// A call of a tool, which does not look at its own name.
fn call(args: Vec<Value>, kwargs: &[(&str, Value)]) -> Call {
    let pairs = kwargs.iter().map(|(name, value)| (Value::from(*name), value.clone()));
    Call { tool: String::new(), args, kwargs: Dict::from_pairs(pairs).unwrap() }
}

fn texts(reply: &Reply) -> Vec<String> {
    let ToolResult::Value(Value::List(items)) = &reply.result else { panic!("{reply:?}") };
    let text = |item: &Value| match item {
        Value::Str(text) => text.to_string(),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}

#[tokio::test]
async fn llm_batch_answers_each_prompt_in_its_place() {
    let model = ScriptedModel::start([Rule::on("p1.").status(400, "no"), Rule::any()]);
    let tool = LlmBatch::new(setup(&model).start());
    let items = [
        Value::from("p0."),
        Value::from("p1."),
        Value::from(3),
        Value::from(Dict::default()),
        Value::from("p4."),
    ];
    let expected = [
        "re: p0.",
        "Error in sub-LLM call: the model's server answered 400: no",
        "Error in sub-LLM call: prompt 2 is int, expected str",
        "Error in sub-LLM call: prompt 3 is dict, expected str",
        "re: p4.",
    ];
    for call in [
        call(vec![Value::list(items.clone())], &[]),
        call(vec![Value::tuple(items.clone())], &[]),
        call(vec![], &[("prompts", Value::list(items.clone()))]),
    ] {
        let reply = tool.call(call, soon()).await.unwrap();
        assert_eq!(texts(&reply), expected);
        let [line] = reply.print_lines.as_slice() else { panic!("{reply:?}") };
        assert!(line.starts_with("llm_batch: 5 calls in 0.") && line.ends_with("s, 3 failed"), "{line}");
    }
    let reply = tool.call(call(vec![Value::list([])], &[]), soon()).await.unwrap();
    assert_eq!(texts(&reply), Vec::<String>::new());
    assert_eq!(reply.print_lines, ["llm_batch: 0 calls in 0.00s"]);
    let reply = tool.call(call(vec![Value::list([Value::from("p")])], &[]), soon()).await.unwrap();
    assert!(reply.print_lines[0].starts_with("llm_batch: 1 call in 0."), "{:?}", reply.print_lines);
}

#[tokio::test]
async fn llm_batch_tells_which_answers_are_cut_off() {
    let ends = |prompt: &str, reason: &str| {
        let choice = json!({"message": {"content": "part"}, "finish_reason": reason});
        Rule::on(prompt).body(json!({"choices": [choice]}).to_string())
    };
    let model = ScriptedModel::start([
        ends("p0.", "content_filter"),
        ends("p2.", "length"),
        ends("p3.", "abort").once(),
        Rule::any(),
    ]);
    let tool = LlmBatch::new(setup(&model).start());
    let items = |count: usize| Value::list((0..count).map(|at| Value::from(format!("p{at}."))));
    let reply = tool.call(call(vec![items(4)], &[]), soon()).await.unwrap();
    assert_eq!(texts(&reply), ["part", "re: p1.", "part", "re: p3."]);
    assert!(reply.print_lines[0].ends_with("s, 2 cut off (answers[0, 2])"), "{reply:?}");
    let reply = tool.call(call(vec![items(1)], &[]), soon()).await.unwrap();
    assert!(reply.print_lines[0].ends_with("s, 1 cut off (answers[0])"), "{reply:?}");
}

#[tokio::test]
async fn llm_batch_says_what_is_wrong_with_its_arguments() {
    let model = ScriptedModel::start([]);
    let tool = LlmBatch::new(setup(&model).start());
    let empty = || Value::list([]);
    let two = "takes one argument, prompts, a list of str; 2 were given";
    for (call, error) in [
        (call(vec![Value::from(Dict::default())], &[]), "prompts must be a list of str, not dict"),
        (call(vec![Value::None], &[]), "prompts must be a list of str, not NoneType"),
        (call(vec![Value::from("p")], &[]), "prompts must be a list of str, not str: wrap it in a list"),
        (call(vec![], &[]), "prompts is missing, a list of str"),
        (call(vec![empty(), empty()], &[]), two),
        (call(vec![empty()], &[("prompts", empty())]), two),
        (
            call(vec![empty()], &[("model", "big".into())]),
            "unknown argument 'model': the only one is prompts",
        ),
    ] {
        let error = ToolError::Arguments(format!("llm_batch: {error}"));
        assert_eq!(tool.call(call, soon()).await, Err(error));
    }
}

#[tokio::test]
async fn llm_batch_answers_before_its_own_deadline() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&never)]);
    let tool = LlmBatch::new(setup(&model).start());
    let deadline = Instant::now() + Duration::from_secs(2);
    let reply = tool.call(call(vec![Value::list([Value::from("p")])], &[]), deadline).await.unwrap();
    assert!(Instant::now() < deadline);
    assert!(texts(&reply)[0].starts_with("Error in sub-LLM call: no answer within "), "{reply:?}");
}

#[tokio::test]
async fn llm_batch_tells_when_the_budget_is_exhausted() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.budget.calls = Some(1)).start();
    let budget = BudgetTool::new(Arc::clone(sub_llm.ledger()));
    let tool = LlmBatch::new(sub_llm);
    let items = Value::list([Value::from("p0."), Value::from("p1.")]);
    let reply = tool.call(call(vec![items], &[]), soon()).await.unwrap();
    assert_eq!(texts(&reply), ["re: p0.", "Error in sub-LLM call: budget exhausted: 0 of 1 calls are left"]);
    let reply = budget.call(call(vec![], &[]), soon()).await.unwrap();
    let ToolResult::Value(value) = reply.result else { panic!("{reply:?}") };
    assert_eq!(
        value.to_json(10_000).unwrap(),
        json!({
            "used": {"calls": 1, "prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 0, "tokens": 15, "cost_usd": null},
            "reserved": {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "tokens": 0, "cost_usd": 0.0},
            "left": {"calls": 0, "tokens": null, "completion_tokens": null, "cost_usd": null},
            "usage_estimated": false,
        })
    );
    let error = budget.call(call(vec![Value::None], &[]), soon()).await.unwrap_err();
    assert_eq!(error, ToolError::Arguments("budget: takes no arguments".to_owned()));
}
