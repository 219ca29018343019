//! Sessions of a server: their names, their environment, and one that was lost.

use super::*;

#[tokio::test]
async fn sessions_of_two_names_or_languages_do_not_see_each_other() {
    let served = Served::start_with(&["--max-sessions", "3"]).await;
    let bash = |code: &'static str, session: &'static str| {
        let served = &served;
        async move { served.text("bash", json!({"code": code, "session": session})).await }
    };
    assert_eq!(bash("x=1; cd /; echo $x", "one").await, "1\n");
    assert_eq!(bash("echo ${x-unset}; basename $PWD", "two").await, "unset\nwork\n");
    assert_eq!(bash("echo $x $PWD", "one").await, "1 /\n");
    let python = served.text("python", json!({"code": "'x' in dir()", "session": "one"})).await;
    assert_eq!(python, "Out[1]: False");
    let full = served.failure("bash", json!({"code": "echo", "session": "three"})).await;
    let known = "The sessions are one (bash), two (bash), one (python).";
    assert!(
        full.starts_with(&format!("there are already 3 sessions, which is the limit. {known} ")),
        "{full}"
    );
    let reset = served.text("reset", json!({"language": "bash", "session": "one"})).await;
    assert_eq!(reset, "[the bash session was reset]");
    assert_eq!(bash("echo ${x-unset}", "one").await, "unset\n");
    served.close().await;
}

#[tokio::test]
async fn a_killed_worker_is_replaced_and_the_client_is_informed() {
    let served = Served::start().await;
    served.output("bash", "x=1").await;
    let rlm = Pid::from_raw(i32::try_from(served.rlm.id()).unwrap());
    let [guard] = children(rlm)[..] else { panic!("{:?}", children(rlm)) };
    for pid in children(guard).into_iter().chain([guard]) {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    let (text, next) = served.outcome("bash", json!({"code": "echo ${x-unset}"})).await;
    assert!(text.starts_with("unset\n[The session was lost before this call"), "{text}");
    assert_eq!(next["state"], "reset");
    let (text, later) = served.outcome("bash", json!({"code": ":"})).await;
    assert_eq!(
        (text.as_str(), &later["state"], &later["hint"]),
        ("(no output)", &json!("kept"), &Value::Null)
    );
    served.close().await;
}

#[tokio::test]
async fn sessions_find_the_programs_of_the_user_and_no_keys() {
    let mut server = Server::new(&[]);
    let bin = server.place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/echo", bin.join("of-the-user")).unwrap();
    server.rlm.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let served = Served::over_pipes(server).await;
    assert_eq!(served.output("bash", "of-the-user hello").await, "hello\n");
    let code = "import subprocess; subprocess.run(['of-the-user', 'hello']).returncode";
    assert_eq!(served.output("python", code).await, "hello\nOut[1]: 0");
    assert_eq!(served.output("bash", "env | grep -c -e SECRET -e RLM_PASS_ENV; true").await, "0\n");
    served.close().await;
}

#[tokio::test]
async fn a_session_does_not_get_to_see_a_key() {
    let mut server = Server::new(&[]);
    server.rlm.env("RLM_API_KEY", "k1-secret");
    let served = Served::over_pipes(server).await;
    assert_eq!(served.output("bash", "env | grep -c k1-secret; true").await, "0\n");
    let code = "cat /proc/[0-9]*/environ 2>/dev/null | grep -c k1-secret; true";
    let seen = served.output("bash", code).await;
    // Root may read any process.
    assert!(nix::unistd::geteuid().is_root() || seen == "0\n", "{seen}");
    served.close().await;
}
