//! The files in a rollout's directory.

use super::*;

/// Runs a rollout over a context that `make` creates in a directory, and checks its error.
async fn refused(make: impl FnOnce(&Path), words: &[&str]) {
    let stage = Stage::new([]).await;
    let data = tempfile::tempdir().unwrap();
    make(data.path());
    let (result, seen) =
        stage.run_as(|config| config.context = Context::Paths(vec![data.path().to_owned()])).await;
    assert_eq!(result.stop_reason, StopReason::SetupFailed);
    let error = result.error.unwrap();
    for word in words {
        assert!(error.contains(word), "{error}");
    }
    assert!(matches!(seen.events()[..], [Event::RolloutStarted(_), Event::RolloutEnded(_)]));
    stage.end().await;
}

#[tokio::test]
async fn a_context_that_cannot_be_copied_is_refused_by_its_path() {
    refused(|dir| std::fs::write(dir.join(".messages"), "").unwrap(), &[".messages has the name"]).await;
    let huge = |dir: &Path| {
        let file = std::fs::File::create(dir.join("huge")).unwrap();
        file.set_len(2 << 30).unwrap();
    };
    refused(huge, &["1,000,000,000"]).await;
}

#[tokio::test]
async fn names_of_any_kind_are_copied() {
    let listing = "shopt -s dotglob; for name in *; do printf '%q\\n' \"$name\"; done";
    let stage = Stage::new([bash(listing), answer("done")]).await;
    let data = tempfile::tempdir().unwrap();
    for name in ["line\nbreak", " blank ", "-rf", "ünï"] {
        std::fs::write(data.path().join(name), "x").unwrap();
    }
    let (result, seen) =
        stage.run_as(|config| config.context = Context::Paths(vec![data.path().to_owned()])).await;
    assert_eq!(result.stop_reason, StopReason::Answered, "{result:?}");
    let output = &seen.outputs()[0];
    for name in ["$'line\\nbreak'", "\\ blank\\ ", "-rf", "n"] {
        assert!(output.contains(name), "{output}");
    }
    let prompt = &seen.texts(MessageKind::System)[0];
    assert!(!prompt.contains("line\nbreak"), "a name does not break the prompt's lines");
    stage.end().await;
}

#[tokio::test]
async fn texts_and_documents_are_files() {
    for (context, name, content) in [
        (Context::Text("a\nb".to_owned()), "context.txt", "a\nb"),
        (Context::Json(json!({"a": [1]})), "context.json", "{\"a\":[1]}"),
        (Context::Files(vec![("own".to_owned(), b"c".to_vec())]), "own", "c"),
    ] {
        let stage = Stage::new([bash(&format!("tr -d ' \\n' < {name}; echo")), answer("done")]).await;
        let (mut config, seen) = stage.rollout("one");
        config.context = context;
        stage.run(config).await;
        assert_eq!(seen.outputs()[0].trim_end(), content.replace('\n', ""));
        stage.end().await;
    }
}

#[tokio::test]
async fn contexts_of_several_kinds_are_combined_and_names_must_differ() {
    let stage = Stage::new([bash("cat numbers.txt context.txt own"), answer("done")]).await;
    let data = tempfile::tempdir().unwrap();
    let own = |name: &str| Context::Files(vec![(name.to_owned(), b"c\n".to_vec())]);
    let parts = |name: &str| {
        Context::Together(vec![a_file(data.path()), Context::Text("text\n".to_owned()), own(name)])
    };
    let (result, seen) = stage.run_as(|config| config.context = parts("own")).await;
    assert_eq!(result.stop_reason, StopReason::Answered, "{result:?}");
    assert_eq!(seen.outputs()[0], "one\ntwo\nthree\ntext\nc\n");
    for (name, words) in
        [("numbers.txt", "would both be"), ("context.txt", "would both be"), ("a/b", "a/b"), ("..", "..")]
    {
        let (mut config, _) = stage.rollout("two");
        config.context = parts(name);
        let result = stage.run(config).await;
        assert_eq!(result.stop_reason, StopReason::SetupFailed);
        assert!(result.error.as_ref().unwrap().contains(words), "{result:?}");
    }
    stage.end().await;
}
