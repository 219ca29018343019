use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

/// Checks a golden document: a changed one is a change of the wire, to be judged as an addition or a new version.
#[track_caller]
fn check_golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), golden);
    assert_eq!(&serde_json::from_str::<T>(golden).unwrap(), value);
}

#[test]
fn golden_responses() {
    let response = Response {
        status: Status::Ok,
        stdout: "a\u{e9}\n".to_owned(),
        stderr: String::new(),
        result: None,
        execution_count: 3,
        seq: 7,
        answer: Answer { ready: true, content: "42".to_owned() },
        outcome: Outcome::Ok,
        state: State::Kept,
        execution_time: 0.25,
        exit_code: Some(0),
        exception: None,
        truncated: None,
        hint: None,
        protocol: PROTOCOL_VERSION,
    };
    check_golden(&response, include_str!("../../testdata/protocol/response.json").trim_end());
    check_golden(
        &Response {
            exception: Some(Exception { kind: "ValueError".to_owned(), message: "no".to_owned() }),
            truncated: Some(Truncated { stdout: 5, stderr: 0, result: 0 }),
            ..Response::refused(-1, "why".to_owned())
        },
        include_str!("../../testdata/protocol/response-refused.json").trim_end(),
    );
}

#[test]
fn golden_names() {
    let outcomes = [
        Outcome::Ok,
        Outcome::Error,
        Outcome::TimedOut,
        Outcome::Interrupted,
        Outcome::Exited,
        Outcome::Crashed,
    ];
    check_golden(&outcomes.to_vec(), r#"["ok","error","timed_out","interrupted","exited","crashed"]"#);
    check_golden(&vec![State::Kept, State::Restored, State::Reset], r#"["kept","restored","reset"]"#);
}

#[test]
fn golden_files() {
    check_golden(
        &Context {
            fs_root: "/data".into(),
            fs_metadata: json!({"files": 2, "about": 1}),
            allowed_paths: vec!["/x".into()],
        },
        r#"{"fs_root":"/data","fs_metadata":{"files":2,"about":1},"allowed_paths":["/x"]}"#,
    );
    let short: Context = serde_json::from_str(r#"{"fs_root": "/data", "unknown": 1}"#).unwrap();
    assert_eq!(short.allowed_paths, [""; 0].map(std::path::PathBuf::from));
    let entry = HistoryEntry {
        seq: 1,
        code: "exit 3".to_owned(),
        outcome: Outcome::Exited,
        state: State::Restored,
        exit_code: Some(3),
        started_at: 1.5,
        execution_time: 0.25,
        op: Operation::Execute,
        output_digest: Some("00ff00ff00ff00ff".to_owned()),
        output_bytes: 5,
        variables: None,
        variables_omitted: Vec::new(),
        file: None,
        has_result: false,
        source: None,
        session: None,
    };
    check_golden(
        &entry,
        concat!(
            r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
            r#""started_at":1.5,"execution_time":0.25,"op":"execute","#,
            r#""output_digest":"00ff00ff00ff00ff","output_bytes":5}"#
        ),
    );
    check_golden(
        &HistoryEntry {
            code: String::new(),
            op: Operation::Set,
            variables: Some(BTreeMap::from([("a".to_owned(), r#"[1.0,"x"]"#.parse().unwrap())])),
            variables_omitted: vec!["b".to_owned()],
            has_result: true,
            session: Some(HistorySession {
                language: "bash".to_owned(),
                version: "5.2".to_owned(),
                fs_root: "/data".to_owned(),
                root_tools: vec!["search".to_owned()],
                final_functions: true,
            }),
            ..entry.clone()
        },
        concat!(
            r#"{"seq":1,"code":"","outcome":"exited","state":"restored","exit_code":3,"#,
            r#""started_at":1.5,"execution_time":0.25,"op":"set","#,
            r#""output_digest":"00ff00ff00ff00ff","output_bytes":5,"#,
            r#""variables":{"a":[1.0,"x"]},"variables_omitted":["b"],"has_result":true,"#,
            r#""session":{"language":"bash","version":"5.2","fs_root":"/data","root_tools":["search"],"final_functions":true}}"#
        ),
    );
    check_golden(
        &HistoryEntry { source: Some("exit f()".to_owned()), ..entry.clone() },
        concat!(
            r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
            r#""started_at":1.5,"execution_time":0.25,"op":"execute","#,
            r#""output_digest":"00ff00ff00ff00ff","output_bytes":5,"source":"exit f()"}"#
        ),
    );
    let old = concat!(
        r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
        r#""started_at":1.5,"execution_time":0.25}"#
    );
    let old: HistoryEntry = serde_json::from_str(old).unwrap();
    assert_eq!(old, HistoryEntry { output_digest: None, output_bytes: 0, ..entry });
    check_golden(
        &[Operation::Execute, Operation::Reset, Operation::Set, Operation::Save, Operation::Load].to_vec(),
        r#"["execute","reset","set","save","load"]"#,
    );
}

#[test]
fn golden_info() {
    check_golden(
        &Info {
            language: "bash".to_owned(),
            version: "5.2.15(1)-release".to_owned(),
            builtin: false,
            worker_version: "0.1.0".to_owned(),
            protocol: PROTOCOL_VERSION,
            uptime: 1.5,
            calls: 2,
            memory_bytes: 4096,
            cwd: Some("/data".to_owned()),
            pid: None,
            answer_ready: false,
            confinement: Confinement::default(),
            limits: Limits {
                processes: Some(Limit { value: 64, mechanism: Some(Mechanism::PidNamespace) }),
                memory_bytes: Some(Limit { value: 4096, mechanism: Some(Mechanism::Cgroup) }),
                file_size_bytes: Some(Limit { value: 1, mechanism: Some(Mechanism::Rlimit) }),
                cpu_seconds: Some(Limit { value: 2, mechanism: None }),
            },
            usage: Usage { peak_processes: Some(3), peak_memory_bytes: None, cpu_seconds: Some(0.5) },
        },
        include_str!("../../testdata/protocol/info.json").trim_end(),
    );
}

#[test]
fn a_hint_stands_before_the_result_and_can_be_taken_away_again() {
    let hint = "the interpreter ended";
    for (result, shown) in
        [(None, hint), (Some("5"), "the interpreter ended\n5"), (Some(""), "the interpreter ended\n")]
    {
        let response =
            Response { result: result.map(str::to_owned), ..Response::refused(1, hint.to_owned()) };
        let mut told = response.clone();
        told.show_hint();
        assert_eq!(told.result.as_deref(), Some(shown));
        told.hide_hint();
        assert_eq!(told, response);
        told.hide_hint();
        assert_eq!(told, response);
    }
    let mut without = Response::new(Outcome::Ok, State::Reset);
    without.show_hint();
    assert_eq!(without.result, None);
}

/// Output of `printf 'out\xfferr' | sha256sum`, and of the same command with `\xffresult` appended.
#[test]
fn the_digest_can_be_computed_by_other_programs() {
    let response = Response {
        stdout: "out".to_owned(),
        stderr: "err".to_owned(),
        ..Response::refused(1, String::new())
    };
    assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("e0818b0068cbc90a", 6));
    let response = Response { result: Some("result".to_owned()), ..response };
    assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("ccaf4e8d070b5ded", 12));
    let response = Response { result: Some(String::new()), ..response };
    assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("5bfa7d27d5339480", 6));
}
