//! Sessions that go on twice.

use std::fs;

use rlm_core::protocol::State;
use rlm_env::session::BranchDirectory;
use rlm_env::{Session, SessionError};

use super::place;
use crate::languages::{Language, in_both_languages};

in_both_languages!(
    branches_and_branches_of_branches_go_on_apart,
    a_branch_that_cannot_be_made_leaves_nothing
);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn branches_and_branches_of_branches_go_on_apart(language: Language) {
    let (dir, _) = place();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    runtime().block_on(async {
        let mut session = Session::start(language.session_config(&work)).await.unwrap();
        let set_up = "x=1; f() { echo $x; }; RLM_CONTENT=a; echo 1 > file";
        session
            .execute(language.pick(
                set_up,
                "x = 1\ndef f(): print(x)\nanswer['content'] = 'a'; print(1, file=open('file', 'w'))",
            ))
            .await
            .unwrap();
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        let mut first = session.branch(&BranchDirectory::Copied(copy.clone())).await.unwrap();
        assert_eq!(first.is_forked, language == Language::Python, "{:?}", first.response);
        assert_eq!((first.response.execution_count, first.response.answer.content.as_str()), (1, "a"));
        let mut second = first.session.branch(&BranchDirectory::Shared).await.unwrap();
        for (session, value) in [(&mut session, "2"), (&mut first.session, "3"), (&mut second.session, "4")] {
            session.execute(&*format!("x={value}")).await.unwrap();
        }
        fs::write(copy.join("file"), "2\n").unwrap();
        let show = language.pick("f; cat file", "f(); print(open('file').read(), end='')");
        // The origin ends first.
        assert_eq!(session.execute(show).await.unwrap().stdout, "2\n1\n");
        session.close().await.unwrap();
        assert_eq!(second.session.execute(show).await.unwrap().stdout, "4\n2\n");
        assert_eq!(first.session.execute(show).await.unwrap().stdout, "3\n2\n");
        first.session.close().await.unwrap();
        let response = second.session.execute(show).await.unwrap();
        assert_eq!((response.stdout.as_str(), response.execution_count), ("4\n2\n", 4));
        second.session.close().await.unwrap();
    });
}

fn a_branch_that_cannot_be_made_leaves_nothing(language: Language) {
    let (dir, _) = place();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    runtime().block_on(async {
        let mut session = Session::start(language.session_config(&work)).await.unwrap();
        session.execute("x=1").await.unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        let error = session.branch(&BranchDirectory::Copied(dir.path().to_owned())).await.unwrap_err();
        assert!(matches!(&error, SessionError::Branch(why) if why.contains("not empty")), "{error}");
        let missing = dir.path().join("missing");
        session.branch(&BranchDirectory::Copied(missing)).await.unwrap_err();
        let response = session.execute(language.pick("echo $x", "print(x)")).await.unwrap();
        assert_eq!((response.stdout.as_str(), response.state), ("1\n", State::Kept));
        session.close().await.unwrap();
    });
}
