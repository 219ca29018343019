//! Tools of the sub-LLM.

use std::sync::Arc;

use rlm_rootd::{
    Budget, Ledger, LlmBatch, Models, Prices, Recorder, RootTool, SubLlm, SubLlmOptions, Tool, Usage,
};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{Memory, Setup, ask, ask_one, prompts, setup, soon};

/// Adds two numbers, and refuses 13.
fn add() -> Arc<dyn RootTool> {
    let parameters = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    });
    let add = Tool::from_fn("add", "Adds.", parameters, |call| {
        let number = |name| call.kwargs.get(name).unwrap().to_json(100).unwrap().as_i64().unwrap();
        if number("a") == 13 {
            return Err("13 is not added".into());
        }
        Ok(number("a") + number("b"))
    });
    add.unwrap().inner()
}

fn calls(calls: &[(&str, &str)]) -> Rule {
    let calls: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({"id": format!("c{at}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    Rule::any().message(json!({"role": "assistant", "content": null, "tool_calls": calls}))
}

#[tokio::test]
async fn a_sub_llm_calls_tools_until_it_answers() {
    let model = ScriptedModel::start([
        calls(&[
            ("add", r#"{"a": 2, "b": 3}"#),
            ("add", r#"{"a": 13, "b": 0}"#),
            ("add", r#"{"a": "2", "b": 1}"#),
            ("add", "{"),
            ("sub", "{}"),
        ])
        .once(),
        Rule::any().reply("five"),
    ]);
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.tools = vec![add()];
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let completion = sub_llm.batch(vec!["2 + 3?".to_owned()], soon()).await.remove(0).unwrap();
    assert_eq!((completion.text.as_str(), completion.requests), ("five", 2));
    assert_eq!(completion.usage, Usage::new(20, 10));
    let requests = model.finish();
    assert_eq!(
        requests[0].body["tools"],
        json!([{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": add().parameters()}}])
    );
    assert_eq!(requests[0].body["tool_choice"], "auto");
    let messages = requests[1].body["messages"].as_array().unwrap();
    assert_eq!(messages[0], json!({"role": "user", "content": "2 + 3?"}));
    assert_eq!(messages[1]["tool_calls"].as_array().unwrap().len(), 5);
    let answers: Vec<_> = messages[2..]
        .iter()
        .map(|message| {
            assert_eq!(message["role"], "tool");
            (message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        answers,
        [
            ("c0", "5"),
            ("c1", "Error: 13 is not added"),
            ("c2", "Error: \"2\" is not of type \"integer\""),
            ("c3", "Error: the arguments are not JSON: EOF while parsing an object at line 1 column 1"),
            ("c4", "Error: unknown tool \"sub\"; the tools are add"),
        ]
    );
    let records = recorder.0.lock().unwrap();
    assert_eq!(
        records.iter().map(|record| (record.index, record.turn)).collect::<Vec<_>>(),
        [(0, 0), (0, 1)]
    );
}

#[tokio::test]
async fn a_sub_llm_that_only_calls_tools_must_answer_in_the_end() {
    let model = ScriptedModel::start([
        calls(&[("add", r#"{"a": 1, "b": 1}"#)]).times(3),
        Rule::any().reply("enough"),
    ]);
    let with_tools = |it: &mut Setup| {
        it.options.tools = vec![add()];
        it.options.max_tool_turns = 3;
    };
    let sub_llm = setup(&model).with(with_tools).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "enough");
    let choices: Vec<_> = model.finish().iter().map(|request| request.body["tool_choice"].clone()).collect();
    assert_eq!(choices, ["auto", "auto", "auto", "none"]);
    // Text counts beside a call that it may not make.
    let both = json!({"content": "so be it", "tool_calls": [{"id": "c0"}]});
    let model = ScriptedModel::start([Rule::any().message(both)]);
    let sub_llm = setup(&model).with(with_tools).with(|it| it.options.max_tool_turns = 0).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "so be it");
    // A model that never answers is an error; each turn is within the budget.
    let model = ScriptedModel::start([calls(&[("add", r#"{"a": 1, "b": 1}"#)])]);
    let sub_llm = setup(&model).with(with_tools).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! the model returned no text");
    let sub_llm = setup(&model).with(with_tools).with(|it| it.budget.calls = Some(2)).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! budget exhausted: 0 of 2 calls are left");
}

#[tokio::test]
async fn a_sub_llm_may_ask_sub_llms() {
    let model = ScriptedModel::start([
        Rule::on("re: inner").reply("done"),
        Rule::on("inner"),
        calls(&[("llm_batch", r#"{"prompts": ["inner"]}"#)]).times(2),
    ]);
    // With one request at a time, the inner requests still get through: a place is held by a request, not by an item.
    let config = setup(&model).with(|it| it.config.parallelism = 1).config;
    let models = Arc::new(Models::new(config).unwrap());
    let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
    let options = SubLlmOptions { parallelism: 1, ..SubLlmOptions::default() };
    let inner = SubLlm::new(Arc::clone(&models), Arc::clone(&ledger), options.clone()).unwrap();
    let tools: Vec<Arc<dyn RootTool>> = vec![Arc::new(LlmBatch::new(Arc::new(inner)))];
    let sub_llm = SubLlm::new(models, ledger, SubLlmOptions { tools, ..options }).unwrap();
    assert_eq!(ask(&sub_llm, prompts(2)).await, ["done", "done"]);
}
