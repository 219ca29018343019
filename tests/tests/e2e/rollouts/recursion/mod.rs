//! Rollouts that code in a session starts: `rlm_query`, `rlm_query_batch`.

mod budget;
mod endings;

use rlm_env::rollout::{Level, Recursion};
use rlm_env::trajectory::RolloutStarted;

use super::*;

/// Code that makes this the answer: a command, or an expression.
fn answering(language: ReplLanguage, value: &str) -> String {
    match language {
        ReplLanguage::Bash => format!("RLM_CONTENT=\"$({value})\"; RLM_READY=1"),
        ReplLanguage::Python => format!("answer[\"content\"] = str({value}); answer[\"ready\"] = True"),
    }
}

/// Code that makes this word the answer.
fn saying(language: ReplLanguage, word: &str) -> String {
    match language {
        ReplLanguage::Bash => answering(language, &format!("echo {word}")),
        ReplLanguage::Python => answering(language, &format!("'{word}'")),
    }
}

/// Whoever is asked this runs this code.
fn asked(prompt: &str, language: ReplLanguage, code: &str) -> Rule {
    Rule::on(prompt).calls(language.tool_name(), code)
}

/// Whoever is asked anything else runs this code.
fn otherwise(language: ReplLanguage, code: &str) -> Rule {
    Rule::any().calls(language.tool_name(), code)
}

/// Python code that is interrupted when this file appears.
fn interrupted_when(path: &Path) -> String {
    format!(
        "import os, signal, threading, time
def interrupt():
    while not os.path.exists({path:?}): time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt).start()
"
    )
}

/// The stop reasons of the rollouts that have ended, in their order.
fn ends(seen: &Seen) -> Vec<StopReason> {
    let reason = |event: Event| match event {
        Event::RolloutEnded(ended) => Some(ended.stop_reason),
        _ => None,
    };
    seen.events().into_iter().filter_map(reason).collect()
}

/// A rollout with children.
fn recursive(stage: &Stage, id: &str, language: ReplLanguage, depth: u32) -> (RolloutConfig, Arc<Seen>) {
    let (config, seen) = stage.rollout(id);
    let config = RolloutConfig { language, recursion: Some(Recursion::new(depth)), ..config };
    (config, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_children_within_any_bound_and_nothing_is_left() {
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        for max_running in [8, 1] {
            let batch = |level: u32| {
                let questions: Vec<_> =
                    (1..=4).map(|number| format!("'level {level} number {number}'")).collect();
                answering(
                    language,
                    &match language {
                        ReplLanguage::Bash => format!("rlm_query_batch {} | paste -sd,", questions.join(" ")),
                        ReplLanguage::Python => {
                            format!("','.join(rlm_query_batch([{}]))", questions.join(","))
                        }
                    },
                )
            };
            let mut rules = vec![
                asked("How many?", language, &batch(1)),
                asked("level 1", language, &batch(2)),
                asked("level 2", language, &batch(3)),
            ];
            rules.extend((1..=4).map(|number| {
                let leaf = saying(language, &format!("leaf {number}"));
                asked(&format!("level 3 number {number}"), language, &leaf)
            }));
            let stage = Stage::new(rules).await;
            let (mut config, seen) = recursive(&stage, "root", language, 3);
            config.recursion.as_mut().unwrap().max_running = max_running;
            let result = stage.run(config).await;
            let leaves = "leaf 1,leaf 2,leaf 3,leaf 4";
            assert_eq!(result.answer, Some([leaves; 16].join(",")), "{result:?}");
            let depths: Vec<_> = result
                .metrics
                .depths
                .iter()
                .map(|(depth, of)| (*depth, of.rollouts, of.answered, of.turns))
                .collect();
            assert_eq!(depths, [(1, 4, 4, 4), (2, 16, 16, 16), (3, 64, 64, 64)]);
            assert!(result.metrics.cost_usd.unwrap() > 84.0 * 10.0 * 10.0 / 1e6);
            assert!(stage.model.most_at_once() <= max_running);
            let entries = seen.0.lock().unwrap().clone();
            let started: Vec<_> = entries
                .iter()
                .filter_map(|entry| match &entry.event {
                    Event::RolloutStarted(RolloutStarted { parent, parent_call_id, .. }) => {
                        Some((entry.depth, parent.as_deref(), parent_call_id.is_some()))
                    }
                    _ => None,
                })
                .collect();
            assert_eq!((started.len(), started[0]), (85, (0, None, false)));
            assert_eq!(started.iter().filter(|start| **start == (1, Some("root"), true)).count(), 4);
            stage.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_as_many_levels_have_the_tools_as_are_allowed_and_prompts_say_so() {
    for (language, code) in in_each("rlm_query 'level 1' | cat", "rlm_query('level 1')") {
        let leaf = match language {
            ReplLanguage::Bash => answering(language, "type -t rlm_query || echo none"),
            ReplLanguage::Python => answering(language, "'rlm_query' in globals()"),
        };
        let stage = Stage::new([
            asked("How many?", language, &answering(language, code)),
            asked("level 1", language, &leaf),
            otherwise(language, &leaf),
        ])
        .await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer;
        assert_eq!(answer.as_deref(), Some(if language == ReplLanguage::Bash { "none" } else { "False" }));
        let systems: Vec<_> = stage
            .root_requests()
            .iter()
            .map(|body| body["messages"][0]["content"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            systems[0].contains("## rlm_query")
                && !systems[0].contains("The code of another agent has asked you")
        );
        assert!(
            !systems[1].contains("rlm_query")
                && systems[1].contains("The code of another agent has asked you")
        );
        // Without recursion no text mentions it.
        let (config, _) = stage.rollout("b");
        let result = stage.run(RolloutConfig { language, ..config }).await;
        assert_eq!(result.answer, answer);
        assert!(!stage.root_requests().last().unwrap()["messages"][0].to_string().contains("rlm_query"));
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_gets_copies_of_files_texts_and_values_and_nothing_from_outside() {
    let bash = "mkdir sub; echo inner > sub/file; echo top > $'new\\nline'; ln -s /etc/passwd out; cd sub
        a=$(rlm_query 'show' file); b=$(rlm_query 'show' .); c=$(echo piped | rlm_query 'show' -); d=$(rlm_query show --data '[1]' --text t ../$'new\\nline')
        e=$(rlm_query show ../missing 2>&1); f=$(rlm_query show /etc/passwd 2>&1); g=$(rlm_query show ../out 2>&1); h=$?
        RLM_CONTENT=\"$a;$b;$c;$d;$e;$f;$g;$h\" RLM_READY=1";
    let python = "import os; os.mkdir('sub'); open('sub/file', 'w').write('inner'); open('new\\nline', 'w').write('top'); os.symlink('/etc/passwd', 'out')
def ask(*args, **kwargs):
    try: return rlm_query('show', *args, **kwargs)
    except RuntimeError as error: return f'Error: {error}'
parts = [ask(['sub/file']), ask('sub'), ask(text='piped'), ask(['new\\nline'], data=[1], text='t'), ask('missing'), ask('/etc/passwd'), ask('out'), 1]
answer['content'] = ';'.join(map(str, parts)); answer['ready'] = True";
    for (language, code) in in_each(bash, python) {
        let show = match language {
            ReplLanguage::Bash => answering(language, "find . -type f | sort | tr '\\n' ' '"),
            ReplLanguage::Python => answering(language, "' '.join(sorted(os.path.join(d, f) for d, _, fs in __import__('os').walk('.') for f in fs)) + ' '").replace("answer[", "import os; answer["),
        };
        let stage = Stage::new([asked("How many?", language, code), asked("show", language, &show)]).await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer.unwrap();
        let parts: Vec<_> = answer.split(';').collect();
        assert_eq!(parts[0], "./file ", "{answer}");
        assert_eq!(parts[1], "./file ");
        assert_eq!(parts[2], "./context.txt ");
        assert!(parts[3].contains("./context.json ./context.txt ./new"), "{answer}");
        assert!(
            parts[4].contains("cannot give the file") && parts[4].contains("No such file or directory"),
            "{answer}"
        );
        for outside in [5, 6] {
            assert!(parts[outside].ends_with("it is not in the session's directory"), "{answer}");
        }
        assert_eq!(parts[7], "1", "the exit status");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_have_models_and_tools_of_their_own() {
    let language = ReplLanguage::Bash;
    let stage = Stage::new([
        asked("How many?", language, &answering(language, "rlm_query one; rlm_query --model other one 2>&1")),
        asked("one", language, &answering(language, "type -t first second")),
    ])
    .await;
    let (mut config, _) = recursive(&stage, "a", language, 2);
    let tool = |name: &str| {
        rlm_rootd::Tool::from_fn(name, "Nothing.", json!({"type": "object", "properties": {}}), |_| Ok(""))
            .unwrap()
    };
    config.root_tools = vec![tool("first"), tool("second")];
    let sub = stage.model.models("sub");
    config.recursion.as_mut().unwrap().levels = vec![Level {
        model: Some(Arc::new(HttpModel::new(sub))),
        root_tools: Some(vec!["second".to_owned()]),
    }];
    let result = stage.run(config).await;
    let answer = result.answer.unwrap();
    assert!(
        answer.starts_with("function\nError: there is no model other: the models are root, sub"),
        "{answer}"
    );
    assert_eq!((stage.root_requests().len(), stage.sub_requests().len()), (1, 1));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn intercepted_calls_start_children_too() {
    for (language, code) in in_each(
        "a=$(rlm_query --max-turns 5 'slow' numbers.txt)\nRLM_CONTENT=$a RLM_READY=1",
        "a = rlm_query('slow', files=['numbers.txt'])\nanswer['content'] = a; answer['ready'] = True",
    ) {
        let show = answering(
            language,
            if language == ReplLanguage::Bash { "ls" } else { "__import__('os').listdir()" },
        );
        let stage = Stage::new([
            asked("How many?", language, code),
            asked("slow", language, &show).delay(Duration::from_secs(2)),
        ])
        .await;
        let (mut config, _) = recursive(&stage, "a", language, 1);
        config.callbacks = rlm_env::rollout::Callbacks::Intercept;
        config.limits.call_timeout = Duration::from_secs(1);
        let files = tempfile::tempdir().unwrap();
        config.context = a_file(files.path());
        let result = stage.run(config).await;
        assert!(result.answer.as_deref().is_some_and(|answer| answer.contains("numbers.txt")), "{result:?}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_child_has_no_size_limit() {
    for (language, code) in in_each(
        "RLM_CONTENT=\"$(rlm_query big | wc -c)\" RLM_READY=1",
        "answer['content'] = str(len(rlm_query('big')) + 1); answer['ready'] = True",
    ) {
        let big = match language {
            ReplLanguage::Bash => "head -c 10000000 /dev/zero | tr '\\0' x",
            ReplLanguage::Python => "'x' * 10_000_000",
        };
        let stage = Stage::new([
            asked("How many?", language, code),
            asked("big", language, &answering(language, big)),
        ])
        .await;
        let (config, _) = recursive(&stage, "a", language, 1);
        assert_eq!(stage.run(config).await.answer.as_deref(), Some("10000001"));
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_is_said_and_costs_nothing() {
    let bash = "rlm_query ''; echo $?; rlm_query --share 2 x; rlm_query --json idle >/dev/null; echo $?; rlm_query_batch fine ' ' 2>&1";
    let python = "try: rlm_query('')
except RuntimeError as error: print(error)
for line in rlm_query_batch([{'question': 'x', 'share': 3}, {'question': 'x', 'timeout': -1}, {'question': 'x', 'max_turns': 0}, '', 5, {'question': None}, 'fine']): print(line)";
    for (language, code) in in_each(format!("{{ {bash}; }} 2>&1; RLM_READY=1").as_str(), python) {
        let fine = saying(language, "fine");
        let stage = Stage::new([
            asked("How many?", language, code).once(),
            asked("fine", language, &fine),
            Rule::on("idle").status(400, "no"),
            otherwise(language, &answering(language, "1")),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        stage.run(config).await;
        // The outputs of the rollout's children are there, too.
        let output = seen.outputs().into_iter().find(|output| output.contains("not empty")).unwrap();
        let expected: &[&str] = match language {
            ReplLanguage::Bash => &[
                "question is \"\", expected a text that is not empty\n1\n",
                "share",
                "\n1\nfine\nError in rlm_query: question 1: question is \" \", expected a text that is not empty",
            ],
            ReplLanguage::Python => &[
                "question is \"\", expected a text that is not empty\n",
                "question 0: share is 3, expected a number above 0, at most 1\n",
                "question 1: timeout is -1, expected a number of seconds above 0\n",
                "question 2: max_turns is 0, expected a whole number from 1\n",
                "question 3: question is \"\", expected a text that is not empty\n",
                "question 4: question is 5, expected a text that is not empty\n",
                "question 5: question is null, expected a text that is not empty\nfine\n",
            ],
        };
        for words in expected {
            assert!(output.contains(words), "{words} in {output}");
        }
        stage.end().await;
    }
}
