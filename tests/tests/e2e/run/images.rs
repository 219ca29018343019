//! Images: those of a question, and those that code shows.

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::Value;

use super::{ask, asking, bash, shown, start, text};

/// An image by its first bytes.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

const URL: &str = "data:image/png;base64,iVBORw0KGgpyZXN0";

/// The parts of the last message of a request.
fn last(body: &Value) -> &Value {
    body["messages"].as_array().unwrap().last().unwrap()
}

/// The page of a trajectory.
fn page_of(place: &Place, file: &str) -> String {
    let output = place.rlm(&["view", file, "--html", "page.html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    place.read("page.html")
}

#[test]
fn images_go_to_the_model_and_are_files_beside_the_trajectory() {
    let place = Place::new();
    std::fs::write(place.file("q.png"), PNG).unwrap();
    let draw = r"printf '\x89PNG\r\n\x1a\nrest' > 'a plot.png'; show 'a plot.png'; wc -c < $RLM_MESSAGES";
    let model = ScriptedModel::start([
        bash(draw).once(),
        bash("show context.txt; show /etc/passwd; show nowhere.png; show .; mkfifo f.png; show f.png").once(),
        bash("RLM_CONTENT=seen RLM_READY=1"),
    ]);
    let args = ["run", "--image", "q.png", "--show-images", "true", "--trajectory", "t.jsonl", "What is it?"];
    let output = ask(&place, &model, &args);
    assert_eq!((text(&output.stdout), output.status.code()), ("seen\n", Some(0)), "{output:?}");
    let requests = model.finish();
    let question = last(&requests[0].body);
    assert_eq!(question["content"][0]["text"], "What is it?");
    assert_eq!(question["content"][1]["image_url"]["url"], URL);
    let messages = requests[1].body["messages"].as_array().unwrap();
    let [.., told, image] = &messages[..] else { panic!("{messages:?}") };
    let told = told["content"].as_str().unwrap();
    assert!(told.starts_with("a plot.png: you see it with the output of this call\n"), "{told}");
    let bytes: usize = told.lines().nth(1).unwrap().trim().parse().unwrap();
    assert!(bytes > 1000 && !messages[0].to_string().contains(URL), "the transcript has {bytes} bytes");
    assert_eq!(image["content"][0]["text"], "Images that your code showed: a plot.png");
    assert_eq!(image["content"][1]["image_url"]["url"], URL);
    let faults = last(&requests[2].body)["content"].as_str().unwrap().to_owned();
    for fault in [
        "cannot show /etc/passwd: it is not in the session's directory",
        "cannot show nowhere.png: No such file or directory (os error 2); paths begin in the session's directory",
        "cannot show .: it is not a regular file",
        "cannot show f.png: it is not a regular file",
    ] {
        assert!(faults.contains(fault), "{faults}");
    }
    let trajectory = place.read("t.jsonl");
    assert!(!trajectory.contains("base64,") && trajectory.contains("t.jsonl.images/"));
    let mut files = std::fs::read_dir(place.file("t.jsonl.images")).unwrap();
    assert_eq!(std::fs::read(files.next().unwrap().unwrap().path()).unwrap(), PNG);
    assert!(files.next().is_none(), "the same image is one file");

    assert_eq!(page_of(&place, "t.jsonl").matches(URL).count(), 2);
    let tree = place.rlm(&["view", "t.jsonl"]).output().unwrap();
    assert_eq!(text(&tree.stdout).matches("/t.jsonl.images/").count(), 2, "{tree:?}");
    // The trajectory and its images are renamed, and a link leads to them.
    std::fs::rename(place.file("t.jsonl"), place.file("u.jsonl")).unwrap();
    std::fs::rename(place.file("t.jsonl.images"), place.file("u.jsonl.images")).unwrap();
    std::os::unix::fs::symlink("u.jsonl", place.file("latest.jsonl")).unwrap();
    assert_eq!(page_of(&place, "latest.jsonl").matches(URL).count(), 2);
    // A file in the place of an image is not shown.
    let file = std::fs::read_dir(place.file("u.jsonl.images")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    let page = page_of(&place, "u.jsonl");
    assert_eq!((page.matches("<img").count(), page.matches("cannot be shown").count()), (0, 2), "{page}");
}

#[test]
fn a_python_session_shows_images_and_their_number_and_size_are_bounded() {
    let code = "data = b'\\x89PNG\\r\\n\\x1a\\n'\n\
                open('big.png', 'wb').write(data + bytes(4 << 20))\n\
                open('large.png', 'wb').write(data + bytes(3 << 20))\n\
                open('small.png', 'wb').write(data)\n\
                for name in ['big.png', *['large.png'] * 7, *['small.png'] * 15]:\n    \
                    try: print(show(name))\n    \
                    except Exception as error: print(error)\n";
    let mut reply = super::calling("call_python_repl", code);
    reply["content"] = Value::Null;
    let (place, model) = start([
        Rule::any().message(reply).once(),
        Rule::any().calls("call_python_repl", "answer['content'] = 'ok'; answer['ready'] = True"),
    ]);
    let args = ["run", "--python", "--show-images", "true", "Draw."];
    let output = ask(&place, &model, &args);
    assert_eq!((text(&output.stdout), output.status.code()), ("ok\n", Some(0)), "{output:?}");
    let requests = model.finish();
    let messages = requests[1].body["messages"].as_array().unwrap();
    let told = messages[messages.len() - 2]["content"].as_str().unwrap();
    assert!(
        told.contains("cannot show big.png: it has 4.2 MB, and an image at most 3.9 MB: make it smaller"),
        "{told}"
    );
    assert!(
        told.contains("cannot show small.png: the conversation has had 20 images, which is the most"),
        "{told}"
    );
    let fault = "cannot show large.png: all images of a conversation may have 21.0 MB: make it smaller";
    assert!(told.contains(fault), "{told}");
    assert_eq!(messages[messages.len() - 1]["content"].as_array().unwrap().len(), 21);
}

#[test]
fn a_file_that_is_no_image_is_refused_before_anything_starts() {
    let (place, model) = start([]);
    place.write("notes.png", "text");
    for (file, fault) in [
        ("notes.png", "it is not an image: expected PNG, JPEG, GIF or WebP"),
        ("nowhere.png", "No such file or directory (os error 2)"),
        (".", "it is not a regular file"),
    ] {
        let output = ask(&place, &model, &["run", "--image", file, "Why?"]);
        assert_eq!(shown(&output), ("", &*format!("rlm: cannot show {file}: {fault}\n"), Some(2)));
    }
}

/// Code that shows an image, more than once if asked to.
fn showing(count: usize) -> String {
    format!(
        "printf '\\x89PNG\\r\\n\\x1a\\n' > p.png; for _ in $(seq {count}); do show p.png > /dev/null; done"
    )
}

fn images_of(body: &Value) -> usize {
    body["messages"].to_string().matches("data:image/png").count()
}

#[test]
fn images_that_a_server_refuses_in_any_words_or_that_have_no_room_are_left_out() {
    let place = Place::new();
    let refusals = [
        (400, "This model does not support images"),
        (415, "no"),
        (413, "Request Entity Too Large"),
        (422, "Unable to read"),
    ];
    for (status, words) in refusals {
        let model = ScriptedModel::start([
            bash(&showing(1)).once(),
            Rule::on("data:image/png").status(status, words),
            bash("RLM_CONTENT=blind RLM_READY=1"),
        ]);
        let output = ask(&place, &model, &["run", "--show-images", "true", "Draw."]);
        assert_eq!((text(&output.stdout), output.status.code()), ("blind\n", Some(0)), "{output:?}");
        let requests = model.finish();
        let told = last(&requests[2].body)["content"].as_str().unwrap();
        assert!(told.contains("You do not see these images.") && told.contains(words), "{told}");
    }
    // Six images fill the window; the last turn has none of them.
    let model = ScriptedModel::start([
        bash(&showing(6)).usage(30_000, 5).once(),
        bash("RLM_CONTENT=cut RLM_READY=1"),
    ]);
    let args = ["run", "--show-images", "true", "--context-tokens", "31000", "Draw."];
    let output = ask(&place, &model, &args);
    assert_eq!(text(&output.stdout), "cut\n", "{output:?}");
    let requests = model.finish();
    assert_eq!(images_of(&requests[1].body), 0, "{}", requests[1].body);
    assert!(requests[1].body.to_string().contains("The images were removed to make room."));
}

#[test]
fn an_image_that_is_shown_with_an_answer_comes_before_the_next_question() {
    let answering = format!("{}; RLM_CONTENT=one RLM_READY=1", showing(1));
    let (place, model) = start([bash(&answering).once(), bash("RLM_CONTENT=two RLM_READY=1")]);
    let mut command = asking(&place, &model, &["run", "--chat", "--show-images", "true", "First?"]);
    std::fs::write(place.file("more"), "Second?\n").unwrap();
    let output = command.stdin(std::fs::File::open(place.file("more")).unwrap()).output().unwrap();
    assert_eq!(text(&output.stdout), "one\ntwo\n", "{output:?}");
    let requests = model.finish();
    let messages = requests[1].body["messages"].as_array().unwrap();
    let [.., image, question] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((image["content"].as_array().unwrap().len(), &question["content"]), (2, &"Second?".into()));
}

#[test]
fn a_session_that_showed_images_is_replayed_and_results_of_others_are_not_resumed() {
    let place = Place::new();
    std::fs::write(place.file("q.png"), PNG).unwrap();
    std::fs::write(place.file("q2.png"), [PNG, b"2"].concat()).unwrap();
    let code = format!("{}; show p.png; RLM_CONTENT=done RLM_READY=1", showing(1));
    let model = ScriptedModel::start([bash(&code)]);
    let args = ["run", "--show-images", "true", "--trajectory", "t.jsonl", "Draw."];
    assert_eq!(ask(&place, &model, &args).status.code(), Some(0));
    let replayed = place.rlm(&["replay", "t.jsonl"]).output().unwrap();
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    let run = |image: &[&str]| {
        let args = [&["run", "--results", "r.jsonl", "--resume", "Draw."], image].concat();
        ask(&place, &model, &args)
    };
    assert_eq!(run(&["--image", "q.png"]).status.code(), Some(0));
    assert_eq!(run(&["--image", "q.png"]).status.code(), Some(0));
    for image in [&["--image", "q2.png"][..], &[]] {
        let refused = run(image);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    let many = ["--image", "q.png"].repeat(21);
    let many = ask(&place, &model, &[&["run", "Why?"], &many[..]].concat());
    let fault = "rlm: --image: cannot show q.png: the conversation has had 20 images, which is the most\n";
    assert_eq!(shown(&many), ("", fault, Some(2)));
}
