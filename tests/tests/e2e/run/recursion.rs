//! Rollouts of rollouts, by the command.

use nix::libc;
use nix::unistd::Pid;
use rlm_tests::scripted_model::Gate;
use rlm_tests::{set_soft_limit, wait_until};

use super::*;

#[test]
fn a_host_that_is_killed_leaves_no_process_of_any_depth_and_resume_runs_the_whole_attempt_again() {
    for python in [false, true] {
        let place = Place::new();
        place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
        let (tool, query, leaf) = if python {
            let query = "answer['content'] = rlm_query('level'); answer['ready'] = True";
            ("call_python_repl", query, "answer['content'] = 'leaf'; answer['ready'] = True")
        } else {
            let query = "RLM_CONTENT=$(rlm_query level) RLM_READY=1";
            ("call_bash_repl", query, "RLM_CONTENT=leaf RLM_READY=1")
        };
        let asks = |prompt: &str, code: &str| Rule::on(prompt).calls(tool, code);
        let deeper = query.replace("level", "deeper");
        let language = format!("--language={}", if python { "python" } else { "bash" });
        let batch = ["run", "--questions", "q.jsonl", "--results", "r.jsonl", "--jobs=1"];
        let args = [&batch[..], &["--max-depth=2", "--keep=kept", &language]].concat();
        let rules = [asks("one?", query), asks("two?", query), asks("level", &deeper)];
        let gate = Gate::shut();
        let leaves = [asks("deeper", leaf).once(), asks("deeper", leaf).after(&gate)];
        let model = ScriptedModel::start(rules.clone().into_iter().chain(leaves));
        let mut killed = asking(&place, &model, &args).spawn().unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(model.wait_for_requests(6));
        assert!(place.processes().len() > 3, "the sessions of three levels: {:?}", place.processes());
        killed.kill().unwrap();
        killed.wait().unwrap();
        gate.open();
        wait_until("the processes end", || place.processes().is_empty());
        assert_eq!(results(&place.read("r.jsonl")).len(), 1);

        let model = ScriptedModel::start(rules.into_iter().chain([asks("deeper", leaf)]));
        let output = ask(&place, &model, &[&args[..], &["--resume"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(model.finish().len(), 3, "one attempt, all of it");
        let found = results(&place.read("r.jsonl"));
        assert_eq!(found.len(), 2);
        assert!(found.values().all(|(_, answer)| answer.as_deref() == Some("leaf")), "{found:?}");
    }
}

/// The files are known by what they are when they are given: nothing holds them open until the children have copied them.
#[test]
fn files_that_are_given_take_no_descriptors() {
    let files = "for n in {1..300}; do echo $n >f$n; done; ";
    let bash = format!("{files}RLM_CONTENT=$(rlm_query one f* & rlm_query two f*; wait) RLM_READY=1");
    let python = "import pathlib
for n in range(300): pathlib.Path(f'f{n}').write_text(str(n))
files = [f'f{n}' for n in range(300)]
answer['content'] = ' '.join(rlm_query_batch([{'question': q, 'files': files} for q in ('one', 'two')]))
answer['ready'] = True";
    let child = [
        ("call_bash_repl", "RLM_CONTENT=$(ls | wc -l) RLM_READY=1"),
        ("call_python_repl", "import os; answer['content'] = str(len(os.listdir())); answer['ready'] = True"),
    ];
    for (language, code, (tool, count)) in [("bash", bash.as_str(), child[0]), ("python", python, child[1])] {
        let gate = Gate::shut();
        let children = ["one", "two"].map(|prompt| Rule::on(prompt).calls(tool, count));
        let parent = Rule::on("count them").calls(tool, code).after(&gate);
        let (place, model) = start(children.into_iter().chain([parent]));
        let args = ["run", "--max-depth=1", "--language", language, "count them"];
        let running = asking(&place, &model, &args).spawn().unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(model.wait_for_requests(1));
        set_soft_limit(Pid::from_raw(running.id().cast_signed()), libc::RLIMIT_NOFILE, 150);
        gate.open();
        let output = running.wait_with_output().unwrap();
        let (stdout, stderr, status) = shown(&output);
        let counts: Vec<&str> = stdout.split_ascii_whitespace().collect();
        assert_eq!((counts, status), (vec!["300", "300"], Some(0)), "{stderr}");
        assert_eq!(model.finish().len(), 3);
    }
}
