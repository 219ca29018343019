//! Calls: one that is stopped or cancelled, many in flight, progress, errors.

use futures_util::future::join_all;

use super::*;

/// Code that runs until there is a file.
const UNTIL_GO: &str = "echo step 7 of 9; until [ -e go ]; do sleep 0.01; done";

#[tokio::test]
async fn state_persists_over_calls_and_over_one_that_timed_out() {
    let served = Served::start().await;
    for (tool, code, check) in [
        ("bash", "x=1; echo begun; sleep 1000", "echo $x"),
        ("python", "x = 1; print('begun')\nimport time; time.sleep(1000)", "print(x)"),
    ] {
        let (text, stopped) = served.outcome(tool, json!({"code": code, "timeout": 0.3})).await;
        assert_eq!(
            (&stopped["timed_out"], &stopped["completed"], &stopped["state"]),
            (&json!(true), &json!(false), &json!("kept")),
            "{stopped}"
        );
        assert!(text.starts_with("begun\n") && text.contains("\n[timed out: "), "{text}");
        assert_eq!(served.output(tool, check).await, "1\n");
    }
    let result = served.tool("python", json!({"code": "1 / 0"})).await;
    assert_eq!(result.is_error, Some(false), "code that raises is not a failure of the tool");
    assert!(result.content[0].as_text().unwrap().text.ends_with("ZeroDivisionError: division by zero"));
    assert_eq!(served.output("bash", "env | grep -c SECRET; true").await, "0\n");
    served.close().await;
}

#[tokio::test]
async fn a_cancelled_call_is_interrupted_and_the_session_goes_on() {
    let served = Served::start().await;
    for (tool, code, check) in [
        ("bash", "x=1; touch begun; sleep 1000; touch bad", "echo $x; rm begun; ls"),
        (
            "python",
            "import os, time\nx = 1\nopen('begun', 'w').close()\ntime.sleep(1000)\nopen('bad', 'w')",
            "print(x); os.remove('begun'); os.listdir()",
        ),
    ] {
        let call = served.begin(tool, json!({"code": code, "timeout": 1000})).await;
        served.wait_for("begun").await;
        call.cancel(Some("no longer wanted".to_owned())).await.unwrap();
        let (text, next) = served.outcome(tool, json!({"code": check, "timeout": 1000})).await;
        assert!(text.starts_with("1\n") && next["state"] == "kept", "{text}{next}");
    }
    assert!(!served.root().join("bad").exists());
    // A call that is still in the queue never starts.
    let first = served.begin("bash", json!({"code": UNTIL_GO})).await;
    let second = served.begin("bash", json!({"code": "touch bad"})).await;
    second.cancel(None).await.unwrap();
    // The server has read that once it answers this.
    served.client.list_all_tools().await.unwrap();
    std::fs::write(served.root().join("go"), "").unwrap();
    first.await_response().await.unwrap();
    assert_eq!(served.output("bash", "ls").await, "go\n");
    served.close().await;
}

#[tokio::test]
async fn a_hundred_calls_in_flight_are_in_order_in_a_session_and_side_by_side_in_several() {
    let served = Served::start().await;
    // Each session's first call waits for one of the next session's: they run side by side, or never end.
    let calls = (0..100).map(|number| {
        let (session, turn) = (number % 4, number / 4);
        let wait = match turn {
            0 => {
                format!("touch here{session}; until [ -e here{} ]; do sleep 0.01; done; ", (session + 1) % 4)
            }
            _ => String::new(),
        };
        let code = format!("{wait}echo {turn} >>order{session}; echo $((++n))");
        let arguments = json!({"code": code, "session": format!("s{session}")});
        let served = &served;
        async move { served.text("bash", arguments).await }
    });
    let outputs = join_all(calls).await;
    let expected: Vec<_> = (0..100).map(|number| format!("{}\n", number / 4 + 1)).collect();
    assert_eq!(outputs, expected);
    let in_order: String = (0..25).map(|turn| format!("{turn}\n")).collect();
    for session in 0..4 {
        let order = std::fs::read_to_string(served.root().join(format!("order{session}"))).unwrap();
        assert_eq!(order, in_order);
    }
    served.close().await;
}

#[tokio::test]
async fn progress_is_reported_while_a_call_runs() {
    let mut served = Served::start().await;
    let call = served.begin("bash", json!({"code": UNTIL_GO})).await;
    let first = served.progress.recv().await.unwrap();
    let second = served.progress.recv().await.unwrap();
    assert_eq!(first.progress_token, call.progress_token);
    assert!(0.9 < first.progress && first.progress < second.progress, "{first:?} {second:?}");
    assert!(first.message.unwrap().ends_with(" s, of at most 120 s once it runs · step 7 of 9"));
    std::fs::write(served.root().join("go"), "").unwrap();
    let ServerResult::CallToolResult(result) = call.await_response().await.unwrap() else { panic!() };
    assert_eq!(result.is_error, Some(false));
    served.close().await;
}

#[tokio::test]
async fn errors_go_to_the_protocol_or_to_the_model() {
    let served = Served::start().await;
    // Protocol errors: unknown names and invalid arguments.
    let (code, message) = protocol_error(served.try_tool("perl", json!({})).await);
    assert_eq!(code, ErrorCode::INVALID_PARAMS);
    assert_eq!(message, "unknown tool `perl`: the tools are bash, python, reset, session_script");
    // Errors for the model: those it can correct.
    for (tool, arguments, error) in [
        ("bash", json!({}), "missing field `code`"),
        ("bash", json!({"code": 1}), "invalid type: integer `1`, expected a string"),
        ("python", json!({"code": "1", "timeout": 0}), "`timeout` is 0, expected seconds above 0"),
        (
            "bash",
            json!({"code": "1", "session": "../x"}),
            "the session's name cannot be used: expected 1 to 64 letters, digits, dots, underscores or hyphens",
        ),
        ("reset", json!({}), "missing field `language`"),
        ("reset", json!({"language": "bash", "session": "none"}), "unknown bash session `none`"),
        ("session_script", json!({"language": "python", "session": "none"}), "unknown python session `none`"),
        (
            "bash",
            json!({"code": "x".repeat((1 << 20) + 1)}),
            "the code has 1,048,577 bytes, the limit is 1,048,576 bytes",
        ),
    ] {
        let text = served.failure(tool, arguments).await;
        let hint = text.strip_prefix(error).and_then(|rest| rest.strip_prefix(". "));
        assert!(hint.is_some_and(|hint| !hint.is_empty()), "{text}");
    }
    let large = served.failure("bash", json!({"code": "\u{1}".repeat(3 << 20)})).await;
    assert!(large.starts_with("the code has 3,145,728 bytes, the limit is 1,048,576 bytes. "), "{large}");
    assert_eq!(served.output("bash", "echo on").await, "on\n");
    served.close().await;
}
