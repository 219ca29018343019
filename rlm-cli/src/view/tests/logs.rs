//! Logs of RLMLogger, read and written.

use super::*;

/// A log of rlms 0.1.3 with long texts cut: a completion with a child and an error, and a second one.
const RLMS_LOG: &str = include_str!("../../../testdata/rlms-log.jsonl");

#[test]
fn a_log_of_rlms_as_a_tree() {
    insta::assert_snapshot!(short_tree(RLMS_LOG));
}

#[test]
fn the_example_as_a_log_of_rlms() {
    let log = exported(EXAMPLE, None).unwrap();
    let lines: Vec<Json> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&lines).unwrap());
}

#[test]
fn a_log_of_rlms_comes_back_as_it_went() {
    let log = exported(EXAMPLE, None).unwrap();
    let calls = |rollouts: &Rollouts| {
        let steps = rollouts.list.iter().flat_map(|rollout| &rollout.turns).flat_map(|turn| &turn.steps);
        let calls = steps.filter_map(|step| match step {
            rollouts::Step::Call(call) if call.output.is_some() => {
                let output = call.output.as_ref().unwrap();
                Some(format!("{:?} {:?} {}", call.input, output.stdout, call.batches.len()))
            }
            _ => None,
        });
        calls.collect::<Vec<_>>()
    };
    let (before, after) = (rollouts(EXAMPLE, IN_TERMINAL), rollouts(&log, IN_TERMINAL));
    assert!(!calls(&before).is_empty());
    assert_eq!(calls(&before), calls(&after));
    assert_eq!(before.list[0].turns.last().unwrap().number, after.list[0].turns.last().unwrap().number);
    // A second export changes nothing but what rlms does not have.
    let again = exported(&log, None).unwrap();
    assert_eq!(again.lines().count(), log.lines().count());
}

#[test]
fn a_log_of_rlms_that_is_wrong_is_named() {
    let (whole, rest) = RLMS_LOG.split_at(RLMS_LOG.rfind("{\"type\"").unwrap());
    let (rollouts, remarks) = collected(&format!("{whole}{}", &rest[..40]), None).unwrap();
    assert_eq!((rollouts.list.len(), remarks[0].starts_with("line 6 is cut off after 40 bytes")), (2, true));
    let error = collected("{\"type\": \"iteration\"}\n", None).unwrap_err().to_string();
    assert!(error.starts_with("line 1 is not one of RLMLogger: missing field `iteration`"), "{error}");
    let error = collected("{\"type\": \"metadata\"}\n", None).unwrap_err().to_string();
    assert_eq!(error, "no rollout in the file");
    let error = exported(RLMS_LOG, None).unwrap_err().to_string();
    assert!(
        error.starts_with("RLMLogger has a file for each rollout: choose one with --rollout ("),
        "{error}"
    );
    assert_eq!(exported(RLMS_LOG, Some("2")).unwrap().lines().count(), 2);
    assert!(
        exported(RLMS_LOG, Some("7")).unwrap_err().to_string().starts_with("no rollout `7`: the file has ")
    );
}

#[test]
fn hostile_text_in_a_log_of_rlms_is_visible() {
    let mut hostile = String::new();
    for line in RLMS_LOG.lines() {
        let mut line: Json = serde_json::from_str(line).unwrap();
        spoil(&mut line);
        hostile.push_str(&format!("{line}\n"));
    }
    let (tree, page) = (short_tree(&hostile), page(&hostile, ON_A_PAGE));
    assert!(tree.contains("owned") && page.contains("owned"));
    for bad in ["\u{1b}", "\r", "\u{9b}", "\0"] {
        assert!(!tree.contains(bad), "{bad:?}");
    }
    assert!(!page.contains("<script>alert"));
}

/// Replaces texts that models and programs wrote.
fn spoil(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| *name != "timestamp" && *name != "type")
            {
                match value {
                    Json::String(text) if name != "role" => *text = HOSTILE.to_owned(),
                    other => spoil(other),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(spoil),
        _ => {}
    }
}
