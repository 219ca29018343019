//! The text of a result, and its facts.

use super::*;

/// A client that gets structured content shows its model that in place of the text.
#[tokio::test]
async fn a_result_is_one_text_and_facts_that_say_how_it_ended() {
    let served = Served::start().await;
    for tool in served.client.list_all_tools().await.unwrap() {
        assert_eq!(tool.output_schema, None);
    }
    let (text, facts) = served.outcome("bash", json!({"code": "echo out; false"})).await;
    assert_eq!(text, "out\n[exit status 1]");
    let expected = json!({
        "success": false, "completed": true, "exit_code": 1, "execution_time": facts["execution_time"],
        "timed_out": false, "interrupted": false, "truncated": null, "state": "kept", "exception": null,
        "answer": {"ready": false, "content": ""}, "hint": null,
    });
    assert_eq!(facts, expected);
    let (_, raised) = served.outcome("python", json!({"code": "1 / 0"})).await;
    assert_eq!((&raised["success"], &raised["completed"]), (&json!(false), &json!(false)));
    assert_eq!(raised["exception"], json!({"type": "ZeroDivisionError", "message": "division by zero"}));
    let (text, facts) = served.outcome("bash", json!({"code": "seq 1 200000"})).await;
    let result = served.tool("bash", json!({"code": "seq 1 200000"})).await;
    let bytes = serde_json::to_string(&result).unwrap().len();
    assert!((32 << 10..33 << 10).contains(&text.len()), "{}", text.len());
    assert!(bytes < 45 << 10, "{bytes} bytes, with the line ends escaped");
    assert_eq!(facts["truncated"]["stdout"]["omitted_bytes"], 1_256_127);
    served.close().await;
}

#[tokio::test]
async fn the_text_has_no_escape_codes_and_no_remark_on_white_space_beside_a_note() {
    let served = Served::start().await;
    let code = r"printf '\e[1;31mred\e[0m\tand \e]0;title\aplain\n'";
    assert_eq!(served.output("bash", code).await, "red\tand plain\n");
    let code = r"import sys; print('\x1b[32mgreen\x1b[0m', file=sys.stderr)";
    assert_eq!(served.output("python", code).await, "stderr:\ngreen\n");
    let (stopped, _) = served.outcome("bash", json!({"code": "sleep 1000", "timeout": 0.1})).await;
    assert!(stopped.contains("[timed out: ") && !stopped.contains("white space"), "{stopped}");
    served.close().await;
}

#[tokio::test]
async fn long_output_is_cut_and_kept_in_a_file() {
    let served = Served::start_with(&["--max-output-bytes", "1000"]).await;
    let (text, cut) = served.outcome("bash", json!({"code": "seq 1000"})).await;
    assert!(text.starts_with("1\n2\n") && text.ends_with("999\n1000\n"), "{text}");
    assert_eq!(cut["truncated"]["stdout"]["omitted_bytes"], 2893);
    let file = cut["truncated"]["stdout"]["file"].as_str().unwrap();
    assert!(text.contains(file), "{text}");
    assert_eq!(served.output("bash", &format!("sed -n 500p {file}")).await, "500\n");
    served.close().await;
}
