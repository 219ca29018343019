//! Recorded answers of root tools, given again without a server.

use std::fs;
use std::path::Path;
use std::process::Output;

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{command, replay, replays_alike, rlm, run, script_of, shown, text};
use rlm_tests::Place;

/// A tool that returns its arguments as JSON, and one that fails.
const TOOLS: &str = r#"
[[tool]]
name = "echo_back"
description = "Gives its arguments back."
command = ["cat"]
output = "json"

[[tool]]
name = "fails"
description = "Fails."
command = ["sh", "-c", "echo no such row >&2; exit 3"]
"#;

const BASH: [&str; 5] = [
    "x=$(llm_batch one \"two 'quoted'\"); echo \"$x\"; llm_batch --json '[\"one\",  \"two\"]' | cat",
    "printf 'one\\n\\ntwo\\n' | llm_batch --lines; echo three | llm_batch; llm_batch --json-output one; printf four > f; llm_batch --file f -- -x",
    "echo_back 1 \"a b\" '{\"k\": [1,  2]}'; echo_back --str 1; echo_back --json '{\"kwargs\": {\"n\": 2}, \"args\": []}'; echo '[7]' | echo_back; echo_back",
    "fails now; echo \"status $?\"; printf %s '\"from a file\"' > g; echo_back @g; bash -c 'echo_back 1'",
    "RLM_CONTENT=$(llm_batch final); RLM_READY=1",
];

const PYTHON: [&str; 5] = [
    "print(llm_batch(['one', \"two 'quoted'\"])); llm_batch(['one', 'two'])",
    "echo_back(1, 'a b', {'k': [1, 2]}, n=2.5, m=None)",
    "try:\n    fails('now')\nexcept RuntimeError as error:\n    print(error)",
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n    print(list(pool.map(echo_back, range(4))))",
    "answer['content'] = llm_batch(['final'])[0]\nanswer['ready'] = True",
];

/// A model that calls the REPL with these codes.
fn model(tool: &str, codes: &[&str]) -> ScriptedModel {
    ScriptedModel::start(codes.iter().map(|code| Rule::any().calls(tool, code).once()))
}

/// The work in a session that cannot call anything itself. One call is rejected, and one fails.
const INTERCEPTED_BASH: [&str; 5] = [
    "info=$(nav_info)\nback=$(echo_back 1 'a b')\necho \"$info $back\"",
    "echo_back 1 | wc -l",
    "x=$(fails)",
    "x=$(llm_batch one two)\necho \"$x\"",
    "RLM_CONTENT=$back RLM_READY=1",
];
const INTERCEPTED_PYTHON: [&str; 5] = [
    "info = nav_info()\nback = echo_back(1, 'a b', k=[1, 2.5])\nprint(info, back)",
    "print(echo_back(1))",
    "x = fails()",
    "x = llm_batch(['one', 'two']); 1 / 0",
    "FINAL(back['args'])",
];

/// Runs a rollout, and keeps its directory and trajectory.
fn rollout(place: &Place, python: bool) -> ScriptedModel {
    rollout_of(place, python, if python { &PYTHON } else { &BASH }, &[])
}

/// [`rollout`] with these codes.
fn rollout_of(place: &Place, python: bool, codes: &[&str], flags: &[&str]) -> ScriptedModel {
    place.write("tools.toml", TOOLS);
    let tool = if python { "call_python_repl" } else { "call_bash_repl" };
    // The root model and the sub-LLM have different servers.
    let root = model(tool, codes);
    let sub = ScriptedModel::start([Rule::any()]);
    let mut command = command(place, &rlm_tests::program("rlm"));
    command
        .args(["run", "--quiet", "--tools", "tools.toml", "--trajectory", "t.jsonl", "--keep", "kept"])
        .args(["--context", "", "Why?"])
        .args(["--base-url", &root.base_url(), "--model", "root", "--sub-base-url", &sub.base_url()])
        .args(["--sub-model", "small", "--language", if python { "python" } else { "bash" }])
        .args(flags);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    drop(root.finish());
    sub
}

/// A replay with the tools themselves, which keeps what they answer in `r.jsonl`.
fn live(place: &Place, trajectory: &Path, sub: &ScriptedModel) -> Output {
    let sub_url = sub.base_url();
    let tools = ["--tools", "tools.toml", "--sub-base-url", &sub_url, "--sub-model", "small"];
    replay(place, trajectory, &[&tools[..], &["--record", "r.jsonl"]].concat())
}

fn kept(place: &Place) -> std::path::PathBuf {
    let mut kept = fs::read_dir(place.file("kept")).unwrap();
    kept.next().unwrap().unwrap().path()
}

#[test]
fn a_recording_answers_in_replay_and_script_without_any_server() {
    for python in [false, true] {
        let place = Place::new();
        let sub = rollout(&place, python);
        let trajectory = place.file("t.jsonl");
        let live = live(&place, &trajectory, &sub);
        assert_eq!(shown(&live), ("equal: 5 calls\n", "", Some(0)));
        let asked = sub.finish().len();
        assert!(asked > 8, "{asked}");
        // No server is left, and no tool.
        fs::remove_file(place.file("tools.toml")).unwrap();
        replays_alike(&place, &trajectory, &["--recorded", "r.jsonl"], 5);
        if !python {
            // In Python the history has a digest of a line that says how long `llm_batch` took.
            replays_alike(&place, &kept(&place), &["--recorded", "r.jsonl"], 5);
        }
        let script = script_of(&place, &trajectory, &["--recorded", "r.jsonl"]);
        let output = run(&place, &script);
        let expected = printed(&trajectory);
        let (stdout, stderr, status) = shown(&output);
        assert_eq!((without_times(stdout), status), (without_times(&expected), Some(0)), "{stderr}");
        assert!(stdout.ends_with("\nre: final\n"), "{stdout}");
        assert!(
            script
                .contains("\n# Root tools in the code, with recorded replies: llm_batch, echo_back, fails\n"),
            "{script}"
        );
    }
}

#[test]
fn a_session_that_lists_its_directory_is_replayed_as_it_was() {
    for (python, codes) in [
        (false, ["find . | sort; du -sb .; [ -f \"$RLM_MESSAGES\" ]", "RLM_CONTENT=x RLM_READY=1"]),
        (
            true,
            [
                "import os; os.listdir(), os.path.isfile(os.environ['RLM_MESSAGES'])",
                "answer['content'] = 'x'; answer['ready'] = True",
            ],
        ),
    ] {
        let place = Place::new();
        drop(rollout_of(&place, python, &codes, &[]).finish());
        place.write("none.jsonl", "");
        for source in [place.file("t.jsonl"), kept(&place)] {
            replays_alike(&place, &source, &["--recorded", "none.jsonl"], 2);
        }
    }
}

#[test]
fn a_session_without_a_way_to_the_host_is_replayed_as_it_was() {
    for python in [false, true] {
        let place = Place::new();
        let codes = if python { INTERCEPTED_PYTHON } else { INTERCEPTED_BASH };
        let flags = ["--callbacks", "intercept", "--final-functions", if python { "true" } else { "false" }];
        let sub = rollout_of(&place, python, &codes, &flags);
        let trajectory = place.file("t.jsonl");
        let live = live(&place, &trajectory, &sub);
        assert_eq!(shown(&live), ("equal: 5 calls\n", "", Some(0)));
        drop(sub.finish());
        fs::remove_file(place.file("tools.toml")).unwrap();
        replays_alike(&place, &trajectory, &["--recorded", "r.jsonl"], 5);
        // The history has what ran, and with it what the calls returned.
        let of_history = replay(&place, &kept(&place), &[]);
        let (stdout, stderr, status) = shown(&of_history);
        assert_eq!((stderr, status), ("", Some(0)), "{stdout}");
        let script = script_of(&place, &trajectory, &["--recorded", "r.jsonl"]);
        let output = run(&place, &script);
        assert_eq!(without_times(shown(&output).0), without_times(&printed(&trajectory)), "{output:?}");
    }
}

/// The output of a trajectory's calls, and its answer.
fn printed(trajectory: &Path) -> String {
    let text = fs::read_to_string(trajectory).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut printed = String::new();
    let mut answer = String::new();
    for output in entries.filter(|entry| entry["event"] == "call_ended").map(|entry| entry["output"].clone())
    {
        // A script leaves out what failed.
        if output["outcome"] == "ok" {
            printed += output["stdout"].as_str().unwrap();
            if let Some(result) = output["result"].as_str() {
                printed += &format!("{result}\n");
            }
        }
        answer = output["answer"].as_str().unwrap().to_owned();
    }
    format!("{printed}{answer}\n")
}

const ASKING_BASH: &str = r#"mkdir sub; cd sub; for name in a b c; do echo $name >$name.txt; done
rlm_query count a.txt ..//sub/./b.txt "$PWD/c.txt"; rlm_query --file b.txt count ../sub/; rlm_query 'count all' ..; rlm_query 'count all' "${PWD%/sub}"; rlm_query 'count here' .
rlm_query --model nosuch count; echo "status $?"
rlm_query --timeout 20.50 count --max-turns=3 --text 'two words'; rlm_query count --share .5; echo piped | rlm_query count -
rlm_query --json count a.txt | grep -o '"answer": "[^"]*"'; rlm_query count --data '{"a":  [1, 2.5]}'
printf 'count one

count two' | rlm_query_batch -0 --lines --file a.txt | tr '\0' '|'; rlm_query_batched -- 'count -- x'
rlm_query_batch 'count x' 'fail y'; echo "status $?"; rlm_query fail; echo "status $?"; rlm_query 'count nobody' missing; echo "status $?"
for n in 1 2 3 4 5 6; do echo $n >p$n; done
(for n in 1 2 3 4 5 6; do rlm_query 'count one' p$n >$n.out & done; wait); cat ?.out
RLM_CONTENT=done RLM_READY=1"#;

const ASKING_PYTHON: &str = "import os; os.mkdir('sub'); os.chdir('sub')
for name in 'abc': open(name + '.txt', 'w').write(name)
whole = os.path.abspath
print(rlm_query('count', ['sub/a.txt', whole('b.txt')]), rlm_query('count', files='sub/a.txt', timeout=20, share=0.5))
print(rlm_query('count', files=whole('.'), text='two words', data={'a': [1, 2.5]}, max_turns=3))
print(rlm_query_batch(['count one', {'question': 'count two', 'files': [whole('a.txt')]}], files=[whole('c.txt')]))
print(rlm_query('count', json=True)['answer'], rlm_query_batched(questions=['count', 'fail']))
print(rlm_query('count all', whole('..')))
try: rlm_query('count', model='nosuch')
except RuntimeError as error: print(error)
try: rlm_query('count nobody', 'missing')
except RuntimeError as error: print('refused')
for n in '123456': open('p' + n, 'w').write(n)
from concurrent.futures import ThreadPoolExecutor
print(list(ThreadPoolExecutor(6).map(lambda n: rlm_query('count one', 'sub/p' + n), '123456')))
answer['content'] = 'done'; answer['ready'] = True";

#[test]
fn a_recording_answers_the_questions_of_a_script_however_they_are_written() {
    for python in [false, true] {
        let place = Place::new();
        let (tool, asking, counting) = match python {
            true => (
                "call_python_repl",
                ASKING_PYTHON,
                "import os; answer['content'] = ' '.join(['has', *sorted(os.listdir())]); answer['ready'] = True",
            ),
            false => ("call_bash_repl", ASKING_BASH, "RLM_CONTENT=$(echo *) RLM_READY=1"),
        };
        let model = ScriptedModel::start([
            Rule::on("Why?").calls(tool, asking),
            Rule::on("fail").status(400, "no"),
            Rule::on("count").calls(tool, counting),
        ]);
        let language = if python { "--language=python" } else { "--language=bash" };
        let ran = command(&place, &rlm_tests::program("rlm"))
            .args(["run", "--quiet", "--trajectory", "t.jsonl", "--max-depth=1"])
            .args(["--context", "", "Why?", language])
            .args(["--base-url", &model.base_url(), "--model", "root"])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let trajectory = place.file("t.jsonl");
        replays_alike(&place, &trajectory, &["--record", "r.jsonl"], 1);
        let script = script_of(&place, &trajectory, &["--recorded", "r.jsonl"]);
        let output = run(&place, &script);
        let (stdout, stderr, status) = shown(&output);
        assert_eq!(
            (without_times(stdout), status),
            (without_times(&printed(&trajectory)), Some(0)),
            "{stderr}"
        );
    }
}

/// Beginnings of lines in which a tool says how long it took, and of errors, which a script prints elsewhere.
const IN_BETWEEN: [&str; 4] = ["llm_batch: ", "rlm_query: ", "rlm_query_batch", "Error: "];

fn without_times(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !IN_BETWEEN.iter().any(|words| line.starts_with(words))).collect()
}

#[test]
fn a_call_that_is_not_in_the_recording_is_refused_by_name() {
    for python in [false, true] {
        let place = Place::new();
        let sub = rollout(&place, python);
        drop(sub.finish());
        let trajectory = place.file("t.jsonl");
        place.write("r.jsonl", "");
        let replayed = replay(&place, &trajectory, &["--recorded", "r.jsonl"]);
        assert_eq!(replayed.status.code(), Some(1));
        let words = text(&replayed.stdout);
        assert!(words.contains("llm_batch(['final']) is not in the recording\n"), "{words}");
        // Nothing was set up that could answer.
        let replayed = replay(&place, &trajectory, &[]);
        assert_eq!(replayed.status.code(), Some(1));
        let words = text(&replayed.stdout);
        assert!(
            words.contains("this replay does not have the root tool llm_batch: provide the tools,"),
            "{words}"
        );
        // The replies come from the recording in a script, too.
        let output = run(&place, &script_of(&place, &trajectory, &["--recorded", "r.jsonl"]));
        let refusal = if python {
            "llm_batch(['one', \"two 'quoted'\"]) is not in the recording"
        } else {
            "this call of llm_batch is not in the recording: final"
        };
        assert!(text(&output.stderr).contains(refusal), "{output:?}");
        let script = script_of(&place, &trajectory, &[]);
        assert!(
            script.contains(
                "\n# Root tools in the code, which fail in this script: llm_batch, echo_back, fails\n"
            ),
            "{script}"
        );
        let output = run(&place, &script);
        let refusal = "llm_batch is a root tool of the original session: `rlm script --recorded FILE` adds its recorded replies to the script";
        assert!(text(&output.stderr).contains(refusal), "{output:?}");
    }
}

/// The answer of a tool, and the names in a recording, are only data.
#[test]
fn nothing_in_a_recording_is_run() {
    let place = Place::new();
    let line = |tool: &str, reply: &str| {
        json!({"call": {"tool_name": tool, "serialization": "json", "args": ["x"], "kwargs": {}}, "reply": {"result": reply}})
            .to_string()
            + "\n"
    };
    place.write("r.jsonl", &line("pick", "hi\nEND_OF\0_FILE\ntouch pwned\n"));
    let history = json!({"seq": 1, "code": "pick x", "outcome": "ok", "state": "kept", "exit_code": 0, "started_at": 1, "execution_time": 1e19});
    let history = place.write("history.jsonl", &format!("{history}\n"));
    let output = run(&place, &script_of(&place, &history, &["--recorded", "r.jsonl"]));
    assert_eq!(shown(&output), ("hi\nEND_OF_FILE\ntouch pwned\n", "", Some(0)));
    assert!(!place.file("pwned").exists());
    // An invalid time does not end it.
    let replayed = replay(&place, &history, &["--recorded", "r.jsonl"]);
    assert_eq!(shown(&replayed).2, Some(0), "{replayed:?}");
    place.write("r.jsonl", &line("x;touch pwned;", ""));
    let refused = rlm(&place, &["script", "history.jsonl", "--recorded", "r.jsonl"]);
    let words =
        "rlm: r.jsonl: line 1 is not a recorded call: tool_name \"x;touch pwned;\" is not an identifier\n";
    assert_eq!(shown(&refused), ("", words, Some(3)));
    // A sparse file costs nothing, but reading it into memory would.
    fs::File::create(place.file("r.jsonl")).unwrap().set_len(1 << 40).unwrap();
    let refused = rlm(&place, &["script", "history.jsonl", "--recorded", "r.jsonl"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("more than the limit of 268435456"), "{refused:?}");
}

#[test]
fn equal_calls_are_answered_in_order_and_as_often_as_recorded() {
    let place = Place::new();
    let line = |reply: &str| {
        json!({"call": {"tool_name": "pick", "serialization": "json", "args": ["x"], "kwargs": {}}, "reply": {"result": reply}})
            .to_string()
            + "\n"
    };
    place.write("r.jsonl", &(line("first") + &line("second")));
    let history = |code: &str, exit_code: Value| {
        json!({"seq": 1, "code": code, "outcome": "ok", "state": "kept", "exit_code": exit_code, "started_at": 1, "execution_time": 1})
            .to_string()
            + "\n"
    };
    let codes = [
        (
            history("echo $(pick x); echo $(pick x); pick x", json!(0)),
            "Error: this call of pick has no recorded reply left",
        ),
        (
            history(
                "print(pick('x'), pick('x'), sep='\\n')\ntry:\n    pick('x')\nexcept RuntimeError as error:\n    import sys; print(error, file=sys.stderr)",
                Value::Null,
            ),
            "pick('x') has no recorded reply left",
        ),
    ];
    for (text, error) in codes {
        let history = place.write("history.jsonl", &text);
        let output = run(&place, &script_of(&place, &history, &["--recorded", "r.jsonl"]));
        assert_eq!(shown(&output), ("first\nsecond\n", format!("{error}\n").as_str(), Some(0)));
    }
    place.write("r.jsonl", &(line("first") + "nonsense\n"));
    let refused = rlm(&place, &["script", "history.jsonl", "--recorded", "r.jsonl"]);
    let words = "rlm: r.jsonl: line 2 is not a recorded call: expected ident at column 2\n";
    assert_eq!(shown(&refused), ("", words, Some(3)));
}
