//! Whole rollouts, turn by turn.

use rlm_core::pickle::Value as Pickled;
use rlm_core::root_tool::Call;
use rlm_env::rollout::{AnswerSchema, Callbacks, Compaction};
use rlm_rootd::Tool;

use super::*;

fn letter_counter() -> Tool {
    let parameters =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let count = |call: Call| match call.argument(0, "text") {
        Some(Pickled::Str(text)) => Ok(text.chars().count() as i64),
        _ => Err("no text".into()),
    };
    Tool::from_fn("letters", "Counts the letters of a text.", parameters, count).unwrap()
}

/// The work in both languages: look, fail, correct, ask sub-LLMs and a tool, answer.
const WORK: [(ReplLanguage, [&str; 4]); 2] = [
    (
        ReplLanguage::Bash,
        [
            "wc -l numbers.txt",
            "cat nubmers.txt",
            "llm_batch 'judge: a' 'judge: b' | sort; letters abcd",
            "RLM_CONTENT=$(wc -l < numbers.txt) RLM_READY=1",
        ],
    ),
    (
        ReplLanguage::Python,
        [
            "lines = open('numbers.txt').readlines(); len(lines)",
            "open('nubmers.txt')",
            "print(*llm_batch(['judge: a', 'judge: b']), letters(text='abcd'))",
            "answer['content'] = str(len(lines)); answer['ready'] = True",
        ],
    ),
];

#[tokio::test]
async fn a_rollout_looks_fails_corrects_itself_asks_and_answers() {
    for (language, codes) in WORK {
        let mut rules = vec![Rule::on("judge: a").reply("yes"), Rule::on("judge: b").reply("no")];
        rules.extend(codes.map(|code| call(language, code).usage(100, 7)));
        let stage = Stage::new(rules).await;
        let (mut config, seen) = stage.rollout("one");
        let kept = tempfile::tempdir().unwrap();
        config.language = language;
        config.context = a_file(kept.path());
        config.root_tools = vec![letter_counter()];
        config.keep = Some(kept.path().to_owned());
        let result = stage.run(config).await;

        assert_eq!(result.stop_reason, StopReason::Answered, "{result:?}");
        assert_eq!(
            (result.answer.as_deref(), result.answer_ready, result.error.as_deref()),
            (Some("3"), true, None)
        );
        let outputs = seen.outputs();
        assert!(outputs[0].contains('3'), "{outputs:?}");
        assert!(outputs[1].contains("nubmers.txt"), "{outputs:?}");
        assert!(
            outputs[2].contains("yes") && outputs[2].contains("no") && outputs[2].contains('4'),
            "{outputs:?}"
        );

        // The metrics agree with the server's log.
        let metrics = &result.metrics;
        assert_eq!(metrics.root_llm_turns as usize, stage.root_requests().len());
        assert_eq!(metrics.sub_llm_call_count as usize, stage.sub_requests().len());
        assert_eq!((metrics.root_llm_prompt_tokens, metrics.root_llm_completion_tokens), (400, 28));
        assert_eq!((metrics.sub_llm_prompt_tokens, metrics.sub_llm_completion_tokens), (20, 10));
        assert_eq!((metrics.sub_llm_batch_count, metrics.sub_llm_max_batch_size), (1, 2));
        assert_eq!((metrics.repl_call_count, metrics.root_tool_call_count), (4, 2));
        assert_eq!(metrics.root_tool_calls["letters"], 1);
        assert_eq!(metrics.repl_error_count, u64::from(language == ReplLanguage::Python));
        let cost = (400.0 * 10.0 + 28.0 * 20.0 + 20.0 * 1.0 + 10.0 * 2.0) / 1e6;
        assert!((metrics.cost_usd.unwrap() - cost).abs() < 1e-12, "{metrics:?}");
        assert!(!metrics.usage_estimated);

        check_trajectory(&seen, &stage, &codes, &result);
        // The transcript is the conversation.
        let transcript = std::fs::read_to_string(kept.path().join("one/rlm_messages.jsonl")).unwrap();
        let transcript: Vec<Value> =
            transcript.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said = stage.root_requests().pop().unwrap()["messages"].as_array().unwrap().clone();
        assert_eq!(transcript[..said.len()], said);
        assert_eq!(transcript.len(), said.len() + 2);
        stage.end().await;
    }
}

/// Code that lists the working directory, searches it for a word of the question, and counts the conversation's messages.
const LOOKS: [(ReplLanguage, &str); 2] = [
    (ReplLanguage::Bash, "find . -type f; grep -rl 'many?' .; wc -l < \"$RLM_MESSAGES\""),
    (
        ReplLanguage::Python,
        "import os\n\
         print(*(f'./{name}' for name in sorted(os.listdir())), sep='\\n')\n\
         print(sum(1 for line in open(os.environ['RLM_MESSAGES'])))",
    ),
];

#[tokio::test]
async fn the_working_directory_has_the_context_alone_and_the_conversation_is_beside_it() {
    for (language, code) in LOOKS {
        let stage = Stage::new([call(language, code), call(language, code), stop(language)]).await;
        let (mut config, seen) = stage.rollout("one");
        let files = tempfile::tempdir().unwrap();
        config.language = language;
        config.context = a_file(files.path());
        config.env.push(("RLM_FS_JAIL".into(), "1".into()));
        stage.run(config).await;
        // The system prompt, the question, the reply; then an output and a reply more.
        assert_eq!(seen.outputs()[..2], ["./numbers.txt\n3\n", "./numbers.txt\n5\n"]);
        assert!(seen.texts(MessageKind::System)[0].contains("RLM_MESSAGES"));
        stage.end().await;
    }
}

#[tokio::test]
async fn the_conversation_is_in_the_working_directory_for_prompts_that_name_it_there() {
    let code = "ls -A; [ \"$RLM_MESSAGES\" -ef .messages ] && wc -l < .messages";
    let stage = Stage::new([bash(code), stop(ReplLanguage::Bash)]).await;
    let (mut config, seen) = stage.rollout("one");
    config.messages_in_context = true;
    stage.run(config).await;
    assert_eq!(seen.outputs()[0], ".messages\n3\n");
    stage.end().await;
}

/// Ends a rollout.
fn stop(language: ReplLanguage) -> Rule {
    match language {
        ReplLanguage::Python => call(language, "answer.update(content='x', ready=True)"),
        ReplLanguage::Bash => call(language, "RLM_CONTENT=x RLM_READY=1"),
    }
}

/// Checks that the trajectory agrees with the server's log, joined by ids.
fn check_trajectory(seen: &Seen, stage: &Stage, codes: &[&str], result: &RolloutResult) {
    let events = seen.events();
    assert!(matches!(&events[0], Event::RolloutStarted(started)
        if started.context_files == 1 && started.root_tools.contains(&"letters".to_owned())));
    let Some(Event::RolloutEnded(ended)) = events.last() else { panic!("{events:?}") };
    assert_eq!((&ended.metrics, &ended.answer), (&result.metrics, &result.answer));
    let started: Vec<_> = events
        .iter()
        .filter_map(|event| if let Event::CallStarted(call) = event { Some(call) } else { None })
        .collect();
    let run: Vec<_> = started.iter().map(|call| call.code.as_deref().unwrap()).collect();
    assert_eq!(run, codes);
    for event in &events {
        match event {
            Event::SubCall(call) => {
                assert_eq!(call.call_id.as_ref(), Some(&started[2].call_id));
                assert!(stage.sub_requests().iter().any(|body| body["messages"] == json!(call.messages)));
                assert!(call.reply.is_some());
            }
            Event::CallEnded(call) => {
                assert_eq!(call.call_id, started[call.turn as usize - 1].call_id);
                assert!(call.output.is_some());
            }
            _ => {}
        }
    }
    let said: Vec<_> = events
        .iter()
        .filter_map(|event| if let Event::Message(said) = event { Some(said.message.clone()) } else { None })
        .collect();
    let asked = stage.root_requests().pop().unwrap()["messages"].as_array().unwrap().clone();
    assert_eq!(said[..asked.len()], asked);
}

#[tokio::test]
async fn malformed_calls_go_back_to_the_model_as_data() {
    let wrong = json!({"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "call_bash_repl", "arguments": "{\"code\": \"ls"}},
        {"id": "b", "type": "function", "function": {"name": "python", "arguments": "{}"}},
    ]});
    let stage = Stage::new([Rule::any().message(wrong).once(), answer("fine")]).await;
    let (result, seen) = stage.run_as(|_| {}).await;
    assert_eq!(result.answer.as_deref(), Some("fine"));
    assert_eq!(result.metrics.malformed_call_count, 2);
    for output in seen.outputs().iter().take(2) {
        let data: Value = serde_json::from_str(output).unwrap();
        assert_eq!(data["ok"], false);
        assert!(data["error"].is_string() && data["hint"].is_string(), "{data}");
    }
    // The reply goes back as it came.
    let messages = stage.root_requests()[1]["messages"].clone();
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], "{\"code\": \"ls");
    assert_eq!(messages[3]["tool_call_id"], "a");
    assert_eq!(messages[4]["tool_call_id"], "b");
    stage.end().await;
}

#[tokio::test]
async fn code_in_text_runs_for_models_without_tool_calls() {
    let stage = Stage::new([
        Rule::any().reply("I look.\n```bash\necho seen\n```\n").once(),
        Rule::any().reply("```bash\nRLM_CONTENT=done RLM_READY=1\n```").once(),
    ])
    .await;
    let (result, seen) = stage.run_as(|config| config.tool_calls = false).await;
    assert_eq!(result.answer.as_deref(), Some("done"));
    assert_eq!(seen.outputs()[0].trim_end(), "seen");
    let requests = stage.root_requests();
    assert!(requests[0].get("tools").is_none());
    assert_eq!(requests[1]["messages"][3]["role"], "user");
    assert!(requests[0]["messages"][0]["content"].as_str().unwrap().contains("```bash"));
    stage.end().await;
}

#[tokio::test]
async fn code_in_text_also_runs_where_tool_calls_are_on() {
    let in_text = Rule::any().reply("```bash\nRLM_CONTENT=done RLM_READY=1\n```").once();
    let stage = Stage::new([in_text]).await;
    let (config, _) = stage.rollout("one");
    assert!(config.tool_calls);
    let result = stage.run(config).await;
    assert_eq!(result.answer.as_deref(), Some("done"));
    assert!(stage.root_requests()[0].get("tools").is_some());
    stage.end().await;
}

#[tokio::test]
async fn standard_tools_are_called_beside_the_repl() {
    let letters = json!({"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "letters", "arguments": "{\"text\": \"abc\"}"}},
        {"id": "b", "type": "function", "function": {"name": "letters", "arguments": "{}"}},
    ]});
    let stage = Stage::new([Rule::any().message(letters).once(), answer("3")]).await;
    let (result, seen) = stage.run_as(|config| config.standard_tools = vec![letter_counter()]).await;
    assert_eq!(result.answer.as_deref(), Some("3"));
    let outputs = seen.outputs();
    assert_eq!(outputs[0], "3");
    assert!(outputs[1].contains("text") && outputs[1].contains("\"ok\":false"), "{outputs:?}");
    assert_eq!(result.metrics.standard_tool_call_count, 2);
    let tools = stage.root_requests()[0]["tools"].clone();
    assert_eq!(tools[1]["function"]["name"], "letters");
    stage.end().await;
}

#[tokio::test]
async fn a_model_without_a_call_is_reminded_and_then_its_text_is_the_answer() {
    let stage = Stage::new([Rule::any().reply("It is 7.").times(3)]).await;
    let (result, seen) = stage.run_as(|_| {}).await;
    assert_eq!(result.stop_reason, StopReason::NoToolCall);
    assert_eq!((result.answer.as_deref(), result.answer_ready), (Some("It is 7."), false));
    assert_eq!(seen.notices().len(), 2);
    stage.end().await;
}

#[tokio::test]
async fn older_turns_are_summarised_if_configured() {
    let mut rules = vec![Rule::on("about to be removed").reply("what was found").once()];
    rules.extend((1..=4).map(|turn| bash(&format!("echo turn {turn}"))));
    rules.push(answer("done"));
    let stage = Stage::new(rules).await;
    let (result, seen) = stage.run_as(|config| config.summarize_turns = Some(2)).await;
    assert_eq!(result.answer.as_deref(), Some("done"), "{result:?}");
    assert_eq!(result.metrics.root_llm_summary_count, 1);
    assert_eq!(result.metrics.root_llm_turns, 5);
    let requests = stage.root_requests();
    // The request for the summary has the older turns, and the tools.
    let summary = &requests[4];
    assert!(summary["tools"].is_array() && summary["messages"].to_string().contains("turn 2"), "{summary}");
    assert!(!summary["messages"].to_string().contains("turn 3"), "{summary}");
    let last = requests[5]["messages"].as_array().unwrap();
    assert!(last[2]["content"].as_str().unwrap().contains("what was found"), "{last:?}");
    assert_eq!(last.len(), 3 + 4);
    assert_eq!(last[4]["content"].as_str().unwrap().trim_end(), "turn 3");
    assert_eq!(seen.texts(MessageKind::Summary).len(), 1);
    stage.end().await;
}

fn contents(request: &Value) -> Vec<&str> {
    request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn a_long_conversation_is_replaced_by_a_summary() {
    let rules = [
        bash("seq 3; n=3").usage(700, 90),
        bash("echo once more").usage(990, 10),
        Rule::any().reply("n is 3").once().usage(1100, 10),
        bash("echo $n").usage(500, 10),
        bash("RLM_CONTENT=$n").usage(990, 10),
        Rule::any().reply("n is still 3").once(),
        bash("RLM_READY=1"),
    ];
    let stage = Stage::new(rules).await;
    let (result, seen) = stage
        .run_as(|config| {
            config.compaction = Some(Compaction { at_tokens: Some(1000), ..Compaction::default() })
        })
        .await;
    ended(&result, StopReason::Answered, "3");
    assert_eq!((result.metrics.root_llm_turns, result.metrics.root_llm_summary_count), (5, 2));
    let requests = stage.root_requests();
    // The request for a summary goes on from the conversation, and the next one has the summary in place of all turns.
    let (before, summary, after) = (contents(&requests[1]), contents(&requests[2]), contents(&requests[3]));
    assert_eq!(summary[..before.len()], before);
    assert_eq!((summary.len(), summary[before.len() + 1].trim_end()), (before.len() + 3, "once more"));
    assert!(summary.last().unwrap().starts_with("All turns of this conversation are about to be removed"));
    assert_eq!((after.len(), &after[..2]), (3, &before[..2]));
    assert!(after[2].starts_with("2 earlier turns") && after[2].ends_with("n is 3"), "{after:?}");
    // The next ones go on from there, until the next summary, which has the first one before it.
    assert_eq!(contents(&requests[4])[..3], after);
    assert!(contents(&requests[5]).last().unwrap().contains("carry over"));
    let last = contents(&requests[6]);
    assert!(last.len() == 3 && last[2].starts_with("4 earlier turns"), "{last:?}");
    assert_eq!(seen.texts(MessageKind::Summary).len(), 2);
    stage.end().await;
}

#[tokio::test]
async fn the_running_question_stays_when_turns_are_summarised() {
    let rules = [
        answer("one").usage(10, 10),
        bash("echo second").usage(990, 10),
        Rule::any().reply("done: the first").once(),
        answer("two").usage(10, 10),
        bash("RLM_CONTENT=three"),
        answer("three"),
    ];
    let stage = Stage::new(rules).await;
    let (mut config, _) = stage.rollout("one");
    config.compaction = Some(Compaction { at_tokens: Some(1000), ..Compaction::default() });
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    let first = rollout.answer(&control).await;
    let second = rollout.ask("And the second?", &control).await;
    let third = rollout.ask("And the third?", &control).await;
    let answers = [first, second, third].map(|result| result.answer.unwrap());
    assert_eq!(answers, ["one", "two", "three"]);
    rollout.end().await;
    let requests = stage.root_requests();
    let after = contents(&requests[3]);
    assert_eq!((after.len(), after[3]), (4, "And the second?"));
    assert!(after[2].ends_with("done: the first"), "{after:?}");
    let last = contents(&requests[5]);
    assert_eq!((&last[..4], last[6]), (&after[..], "And the third?"));
    stage.end().await;
}

#[tokio::test]
async fn a_conversation_that_is_too_long_for_a_summary_loses_its_newest_outputs() {
    let too_long = || Rule::any().status(400, "This model's maximum context length is 4096 tokens").once();
    let rules = [
        bash("echo first"),
        bash("seq 2000"),
        too_long(),
        too_long(),
        Rule::any().reply("it counts").once(),
        answer("done"),
    ];
    let stage = Stage::new(rules).await;
    let (result, _) = stage.run_as(|config| config.compaction = Some(Compaction::default())).await;
    ended(&result, StopReason::Answered, "done");
    let requests = stage.root_requests();
    let (summary, last) = (contents(&requests[4]), contents(&requests[5]));
    assert!(summary.len() == 5 && summary[4].starts_with("The oldest turns"), "{summary:?}");
    assert!(last.len() == 5 && last[2].ends_with("it counts") && last[4].len() < 700, "{last:?}");
    stage.end().await;
}

#[tokio::test]
async fn no_summary_ends_a_long_conversation_with_a_last_turn() {
    for (max_times, replies) in [(None, 2), (Some(0), 0)] {
        let mut rules = vec![bash("RLM_CONTENT=some").usage(9990, 10)];
        // The words before a call are no summary, and neither is a call in them.
        let mut preamble = calling("call_bash_repl", ":");
        preamble["content"] = "Let me look once more.".into();
        let written = r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": ":"}}</tool_call>"#;
        let no_summaries = [Rule::any().message(preamble).once(), Rule::any().reply(written).once()];
        rules.extend(no_summaries.into_iter().take(replies));
        rules.push(bash("RLM_CONTENT=more"));
        let stage = Stage::new(rules).await;
        let (result, seen) = stage
            .run_as(|config| {
                config.limits.context_tokens = Some(10_000);
                config.compaction = Some(Compaction { max_attempts: 2, max_times, ..Compaction::default() });
            })
            .await;
        ended(&result, StopReason::ContextFull, "more");
        assert_eq!(result.error.is_some(), replies > 0);
        assert_eq!((result.metrics.root_llm_turns, seen.notices().len()), (2, 1));
        stage.end().await;
    }
}

/// In each language: an answer that does not fit, a look at readiness after the interpreter has died, a draft that fits and is
/// not declared final, and the answer.
const UNFIT: [(ReplLanguage, [&str; 5]); 2] = [
    (
        ReplLanguage::Bash,
        [
            "echo first; RLM_CONTENT=no RLM_READY=1",
            "kill -9 $$",
            "echo \"<$RLM_READY> $RLM_CONTENT\"",
            "RLM_CONTENT=3",
            "RLM_READY=1",
        ],
    ),
    (
        ReplLanguage::Python,
        [
            "print('first'); answer['content'] = 'no'; answer['ready'] = True",
            "import os; os.kill(os.getpid(), 9)",
            "print(answer)",
            "answer['content'] = 3",
            "answer['ready'] = True",
        ],
    ),
];

#[tokio::test]
async fn readiness_is_taken_back_in_the_session_and_does_not_come_back() {
    for callbacks in [Callbacks::Network, Callbacks::Intercept] {
        for (language, codes) in UNFIT {
            let stage = Stage::new(codes.map(|code| call(language, code))).await;
            let (result, seen) = stage
                .run_as(|config| {
                    config.language = language;
                    config.callbacks = callbacks;
                    config.answer_schema = Some(AnswerSchema::new(json!({"type": "integer"})).unwrap());
                })
                .await;
            assert_eq!(
                (result.stop_reason, result.answer.as_deref(), result.answer_ready),
                (StopReason::Answered, Some("3"), true)
            );
            let outputs = seen.outputs();
            assert_eq!(outputs.len(), 5);
            assert_eq!(outputs[0], "first\n");
            let kept =
                if language == ReplLanguage::Bash { "<> no" } else { "{'ready': False, 'content': 'no'}" };
            assert!(outputs[2].contains(kept), "{outputs:?}");
            let notices = seen.notices();
            assert_eq!(notices.len(), 1, "{notices:?}");
            assert!(notices[0].contains("- it is not JSON: "), "{notices:?}");
            assert_eq!(result.metrics.repl_call_count, 5, "the host's own call is not counted");
            stage.end().await;
        }
    }
}

#[tokio::test]
async fn an_answer_in_a_block_of_code_is_given_back_too() {
    let block = |code: &str| Rule::any().reply(&format!("```bash\n{code}\n```")).once();
    let stage = Stage::new([block("RLM_CONTENT=no RLM_READY=1"), block("RLM_CONTENT=3 RLM_READY=1")]).await;
    let (result, seen) = stage
        .run_as(|config| {
            config.tool_calls = false;
            config.answer_schema = Some(AnswerSchema::new(json!({"type": "integer"})).unwrap());
        })
        .await;
    ended(&result, StopReason::Answered, "3");
    assert_eq!(seen.notices().len(), 1);
    stage.end().await;
}
