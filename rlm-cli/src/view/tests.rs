//! The tree and the page, for the documentation's example and for hostile input.

use serde_json::{Value as Json, json};

use super::*;
use crate::arguments::SortKey;

mod logs;
mod reasoning;

const EXAMPLE: &str = include_str!("../../../docs/trajectory-example.jsonl");

/// Strings from a fixed set, and values that other fields refer to.
const FIXED: [&str; 9] =
    ["event", "kind", "role", "type", "outcome", "state", "stop_reason", "language", "callbacks"];

/// Text that must never appear unescaped.
const HOSTILE: &str =
    "\u{1b}]0;owned\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}</pre></script><script>alert(1)</script>\"'&amp;\0";

/// The rollouts of a file, or the one asked for, and remarks.
fn collected(input: &str, asked_for: Option<&str>) -> anyhow::Result<(Rollouts, Vec<String>)> {
    collect(input.as_bytes(), None, asked_for, IN_TERMINAL)
}

fn rollouts(input: &str, lengths: Lengths) -> Rollouts {
    collect(input.as_bytes(), None, None, lengths).unwrap().0
}

fn tree(rollouts: &Rollouts, has_colours: bool, is_full: bool) -> String {
    let mut output = Vec::new();
    tree::print(rollouts, TreeStyle { width: 80, has_colours, is_full }, &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

fn short_tree(input: &str) -> String {
    tree(&rollouts(input, IN_TERMINAL), false, false)
}

fn page(input: &str, lengths: Lengths) -> String {
    let mut output = Vec::new();
    html::write(&mut output, "run.jsonl", rollouts(input, lengths)).unwrap();
    String::from_utf8(output).unwrap()
}

/// The rows of a page's overview.
fn rows_of(page: &str) -> Json {
    let (_, rows) = page.split_once("id=\"rows\">\n").unwrap();
    serde_json::from_str(rows.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn intercepted_calls_are_shown() {
    let intercepted = EXAMPLE.replace(r#""callbacks":"network""#, r#""callbacks":"intercept""#);
    assert!(!short_tree(EXAMPLE).contains("calls intercepted"));
    assert!(
        short_tree(&intercepted).contains("bash · calls intercepted · large-1"),
        "{}",
        short_tree(&intercepted)
    );
}

/// The example with each of its entries changed.
fn changed(mut change: impl FnMut(&mut Json)) -> String {
    let mut changed = String::new();
    for line in EXAMPLE.lines() {
        let mut entry: Json = serde_json::from_str(line).unwrap();
        change(&mut entry);
        changed.push_str(&entry.to_string());
        changed.push('\n');
    }
    changed
}

/// The entry of the example with an event.
fn entry(event: &str, change: impl Fn(&mut Json)) -> String {
    let line = EXAMPLE.lines().find(|line| line.contains(&format!("\"event\":\"{event}\"")));
    let mut entry: Json = serde_json::from_str(line.unwrap()).unwrap();
    change(&mut entry);
    format!("{entry}\n")
}

#[test]
fn the_example_as_a_tree() {
    insta::assert_snapshot!(short_tree(EXAMPLE));
}

#[test]
fn the_example_as_a_page() {
    let page = page(EXAMPLE, ON_A_PAGE);
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, body) = rest.split_once("</style>").unwrap();
    let (body, script) = body.split_once("<script>").unwrap();
    assert!(script.starts_with(&format!("\n{}</script>", include_str!("page.js"))));
    let (before, after) = head.split_once("script-src 'sha256-").unwrap();
    let (_, after) = after.split_once('\'').unwrap();
    insta::assert_snapshot!(format!("{before}script-src '…'{after}<style>…</style>{body}<script>…"));
}

#[test]
fn colours_are_all_that_they_add() {
    let rollouts = rollouts(EXAMPLE, IN_TERMINAL);
    let coloured = tree(&rollouts, true, false);
    assert!(coloured.contains("\u{1b}[32m"));
    let mut plain = String::new();
    for (at, piece) in coloured.split('\u{1b}').enumerate() {
        plain.push_str(if at == 0 { piece } else { piece.split_once('m').unwrap().1 });
    }
    assert_eq!(plain, tree(&rollouts, false, false));
}

/// Inserts a text into the middle of every string.
fn put(inserted: &str, json: &mut Json, field: &str) {
    match json {
        Json::String(text) if !FIXED.contains(&field) => text.insert_str(text.len() / 2, inserted),
        Json::Array(items) => items.iter_mut().for_each(|item| put(inserted, item, field)),
        Json::Object(fields) => fields.iter_mut().for_each(|(name, value)| put(inserted, value, name)),
        _ => {}
    }
}

#[test]
fn no_text_of_a_model_steers_the_terminal() {
    let input = changed(|entry| put(HOSTILE, entry, ""));
    for (lengths, is_full) in [(IN_TERMINAL, false), (Lengths::default(), true)] {
        let shown = tree(&rollouts(&input, lengths), false, is_full);
        assert!(shown.contains("␛]0;owned␇"));
        let unsafe_one = shown.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
        assert_eq!(unsafe_one, None);
    }
    let error = collected(&input, Some(HOSTILE)).unwrap_err().to_string();
    assert!(!error.chars().any(char::is_control), "{error:?}");
}

#[test]
fn no_text_of_a_model_becomes_a_part_of_the_page() {
    let with = |inserted| page(&changed(|entry| put(inserted, entry, "")), ON_A_PAGE);
    let (harmless, poisoned) = (with("harmless"), with(HOSTILE));
    assert!(poisoned.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;amp;"));
    assert!(!poisoned.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
    // The same tags, with the same attributes, in the same order: all that is new is text.
    let tags = |page: &str| {
        let (page, _script) = page.split_once("<script>").unwrap();
        let tags = page.split('<').skip(1).map(|tag| tag.split_once('>').unwrap().0);
        let without_id = |tag: &str| match tag.split_once(" data-call=\"") {
            Some((before, id)) => format!("{before}{}", id.split_once('"').unwrap().1),
            None => tag.to_owned(),
        };
        tags.map(without_id).collect::<Vec<_>>()
    };
    assert_eq!(tags(&poisoned), tags(&harmless));
    for fetched in ["src=", "href=\"http", "url(", "@import", "<link"] {
        assert!(!harmless.contains(fetched), "{fetched}");
    }
    assert_eq!(harmless.matches("<script>").count(), 1, "its own");
    assert_eq!(harmless.matches("<script type=").count(), 2, "the rows, and the rollout");
}

#[test]
fn a_huge_output_is_shortened_unless_all_is_asked_for() {
    let huge = format!("first\n{}\nlast\n", "0123456789\n".repeat(40_000));
    let input = changed(|entry| {
        if entry["event"] == "call_ended" {
            entry["output"]["stdout"] = json!(huge);
        }
    });
    let shown = short_tree(&input);
    assert!(shown.len() < 20_000, "{}", shown.len());
    assert!(shown.contains("│    first\n") && shown.contains("│    last\n"));
    assert!(shown.contains("│    … 39,988 lines, 439.9 kB left out (--full shows it)\n"), "{shown}");
    assert!(page(&input, ON_A_PAGE).len() < 500_000);
    assert_eq!(
        tree(&rollouts(&input, Lengths::default()), false, true).matches("0123456789").count(),
        3 * 40_000
    );
    assert_eq!(page(&input, Lengths::default()).matches("0123456789").count(), 3 * 40_000);
}

#[test]
fn several_rollouts_are_listed_first_and_each_is_whole() {
    let second = changed(|entry| {
        entry["rollout"] = json!("letters-2");
        if entry["event"] == "rollout_ended" {
            entry["stop_reason"] = json!("max_turns");
            entry["answer_ready"] = json!(false);
        }
    });
    let interleaved: String =
        EXAMPLE.lines().zip(second.lines()).map(|(one, other)| format!("{one}\n{other}\n")).collect();
    let shown = short_tree(&interleaved);
    let (list, trees) = shown.split_once("\n\n").unwrap();
    assert_eq!(
        list,
        "letters-1 · answered · 3 turns · 5.4 s · 3,433 (1,792 cached) + 214 tokens ·…\n\
         letters-2 · max turns · 3 turns · 5.4 s · 3,433 (1,792 cached) + 214 tokens ·…"
    );
    assert!(trees.starts_with(short_tree(EXAMPLE).trim_end()));
    assert!(trees.ends_with(&short_tree(&second)));
    let (one, _) = collected(&interleaved, Some("letters-2")).unwrap();
    assert_eq!(tree(&one, false, false), short_tree(&second));
    let page = page(&interleaved, ON_A_PAGE);
    let listed = rows_of(&page);
    assert_eq!((&listed[1]["at"], &listed[1]["id"]), (&json!(1), &json!("letters-2")));
    assert!(page.contains("<script type=\"text/html\" id=\"body1\">\n<article"));
    let error = collected(&interleaved, Some("letters-3")).unwrap_err();
    assert_eq!(error.to_string(), "no rollout `letters-3`: the file has letters-1, letters-2");
}

#[test]
fn failed_rollouts_alone_and_those_with_most_of_something_first() {
    let input = tree_of_rollouts();
    let ids = |is_failed, key| {
        let mut rollouts = rollouts(&input, IN_TERMINAL);
        arrange(&mut rollouts, is_failed, key);
        rollouts.in_tree_order().iter().map(|node| node.rollout.id.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(false, None), "a a.2 a.1 a.1.1 b c.1");
    assert_eq!(ids(false, Some(SortKey::Cost)), "a a.2 a.1 a.1.1 b c.1");
    assert_eq!(ids(true, Some(SortKey::Time)), "a a.2 a.1 a.1.1 b c.1", "none has an answer");
    let mixed = format!("{EXAMPLE}{}", entry("rollout_started", |entry| entry["rollout"] = "failed".into()));
    let mut rollouts = rollouts(&mixed, IN_TERMINAL);
    arrange(&mut rollouts, false, Some(SortKey::Turns));
    assert_eq!(rollouts.list[0].id, "letters-1");
    arrange(&mut rollouts, true, None);
    assert_eq!(rollouts.list.iter().map(|rollout| &*rollout.id).collect::<Vec<_>>(), ["failed"]);
}

#[test]
fn what_a_request_cost_that_was_cut_off_is_counted() {
    // The tokens of a cancelled request are not known.
    for (more, words, tokens) in
        [(100, "3,533 (1,792 cached) + 214 tokens", 3422), (0, "3,433 (1,792 cached) + 214 tokens", 3322)]
    {
        let cut_off = changed(|entry| {
            if entry["event"] == "rollout_ended" {
                let metrics = &mut entry["metrics"];
                metrics["root_llm_prompt_tokens"] =
                    (metrics["root_llm_prompt_tokens"].as_u64().unwrap() + more).into();
                metrics["cost_usd"] = 0.0351.into();
                metrics["depths"] = json!({"1": {
                    "rollouts": 1, "answered": 1, "turns": 1, "sub_llm_calls": 0,
                    "prompt_tokens": 9, "completion_tokens": 9, "cost_usd": 0.01,
                }});
            }
        });
        let shown = short_tree(&cut_off).replace('\n', " ");
        assert!(shown.contains(&format!("{words} · 0.0251 USD")), "{shown}");
        let row = &rows_of(&page(&cut_off, ON_A_PAGE))[0];
        let spent = &row["spent"][0];
        assert_eq!(
            (&spent["model"], &spent["requests"], &spent["tokens"]),
            (&json!("large-1"), &json!(3), &json!(tokens))
        );
        let costs = row["spent"].as_array().unwrap().iter().map(|spent| spent["cost"].as_f64().unwrap());
        assert!((costs.sum::<f64>() - 0.0251).abs() < 1e-9, "{row}");
    }
}

#[test]
fn an_id_that_begins_again_is_another_rollout() {
    let twice = EXAMPLE.repeat(2);
    assert_eq!(rollouts(&twice, IN_TERMINAL).list.len(), 2);
    assert_eq!(exported(&twice, None).unwrap(), exported(EXAMPLE, None).unwrap(), "the last one alone");
    let child = changed(|entry| {
        (entry["rollout"], entry["depth"], entry["parent"]) = ("a.1".into(), 1.into(), "a".into());
    });
    let (attempts, _) = collected(&child.repeat(2), Some("a.1")).unwrap();
    let whole = tree(&attempts, false, false);
    assert_eq!(whole.matches("\nrollout a.1 · ").count(), 2, "{whole}");
    assert_eq!(whole.matches("the answer is final").count(), 2, "{whole}");
}

#[test]
fn a_file_that_is_being_written_is_shown_as_far_as_it_goes() {
    let whole = short_tree(EXAMPLE);
    for end in 1..EXAMPLE.lines().count() {
        let written: String = EXAMPLE.split_inclusive('\n').take(end).collect();
        let shown = short_tree(&written);
        assert!(shown.ends_with("└─ no end: it runs, or its host was killed\n"), "{shown}");
        let part = &EXAMPLE[..written.len() + 40];
        let (rollouts, remarks) = collected(part, None).unwrap();
        assert_eq!(tree(&rollouts, false, false), shown);
        let line = end + 1;
        let remark =
            format!("line {line} is cut off after 40 bytes: it is being written, or its writer was killed");
        assert_eq!(remarks, [remark]);
    }
    let until_the_call: String = EXAMPLE.split_inclusive('\n').take(7).collect();
    assert!(short_tree(&until_the_call).contains("│  call_bash_repl · no end\n"));
    let until_the_reply: String = EXAMPLE.split_inclusive('\n').take(6).collect();
    assert!(short_tree(&until_the_reply).contains("│  call_bash_repl · not run\n"));
    assert!(whole.contains("│  call_bash_repl · 33 ms\n"));
}

#[test]
fn a_call_that_could_not_be_read_is_shown_with_what_was_wrong() {
    let started = entry("rollout_started", |_| {});
    let ended = entry("call_ended", |entry| {
        entry["output"] = Json::Null;
        entry["error"] = json!("the arguments are no JSON");
    });
    let shown = short_tree(&(started + &ended));
    assert!(shown.contains("│  call · could not be read\n│    the arguments are no JSON\n"), "{shown}");
}

#[test]
fn a_large_batch_shows_its_first_prompts_and_failed_ones() {
    let mut input = entry("rollout_started", |_| {}) + &entry("call_started", |_| {});
    for index in 0..10 {
        input += &entry("sub_call", |entry| {
            entry["call_id"] = json!("call_1");
            entry["index"] = json!(index);
            if index == 7 {
                (entry["error"], entry["reply"]) = (json!("no answer"), Json::Null);
            }
        });
    }
    let shown = short_tree(&input);
    let seen: Vec<_> = shown.lines().filter_map(|line| line.split_once('#')?.1.split(' ').next()).collect();
    assert_eq!(seen, ["0", "1", "2", "7"]);
    assert!(shown.contains("llm_batch · 10 prompts · 1 failed") && shown.contains("└─ 6 more\n"), "{shown}");
    let all = tree(&rollouts(&input, Lengths::default()), false, true);
    assert_eq!(all.lines().filter(|line| line.contains("├─ #")).count(), 10);
}

#[test]
fn a_prompt_that_took_several_requests_is_one_with_its_last_reply() {
    let input = entry("rollout_started", |_| {})
        + &entry("sub_call", |entry| {
            entry["call_id"] = Json::Null;
            entry["reply"] = json!({"role": "assistant", "tool_calls": [{"function": {"name": "search"}}]});
        })
        + &entry("sub_call", |entry| {
            (entry["call_id"], entry["step"]) = (Json::Null, json!(1));
            entry["messages"] = json!([{"role": "tool", "content": "found"}]);
            entry["reply"]["content"] = json!([{"type": "text", "text": "in the end"}]);
        });
    let shown = short_tree(&input);
    assert!(shown.contains("llm_batch · 1 prompt ·") && shown.contains("· 2 requests\n"), "{shown}");
    assert!(shown.contains("in the end") && !shown.contains("search") && !shown.contains("found"), "{shown}");
    let first: String = input.split_inclusive('\n').take(2).collect();
    assert!(short_tree(&first).contains("[calls search]\n"));
}

#[test]
fn unknown_entries_are_remarked_on() {
    let input = format!("{EXAMPLE}{{\"rollout\":\"letters-1\",\"time\":1,\"event\":\"dream\"}}\n");
    let (_, remarks) = collected(&input, None).unwrap();
    assert_eq!(remarks, ["1 entry of an unknown kind: use a newer version of rlm to see more"]);
    assert_eq!(collected("\n", None).unwrap_err().to_string(), "no rollout in the file");
}

#[test]
fn the_environment_decides_on_colours_and_pager() {
    let terminal = Terminal { is_terminal: true, ..Terminal::default() };
    let command = |terminal: &Terminal| terminal.pager().map(|pager| (pager.command, pager.sets_less));
    assert!(terminal.tree_style(false).has_colours);
    assert_eq!(command(&terminal), Some(("less -R".into(), true)));
    let plain = Terminal { no_colour: true, has_less: true, ..terminal };
    assert!(!plain.tree_style(false).has_colours);
    assert_eq!(command(&plain), Some(("less -R".into(), false)));
    for none in ["", "cat"] {
        assert_eq!(
            command(&Terminal { is_terminal: true, pager: Some(none.into()), ..Terminal::default() }),
            None
        );
    }
    let dumb = Terminal { is_terminal: true, is_dumb: true, ..Terminal::default() };
    assert!(!dumb.tree_style(false).has_colours && dumb.pager().is_none());
    let piped = Terminal { pager: Some("more".into()), ..Terminal::default() };
    assert!(!piped.tree_style(false).has_colours && piped.pager().is_none());
    assert_eq!(piped.tree_style(false).width, DEFAULT_WIDTH);
}

fn exported(input: &str, asked_for: Option<&str>) -> anyhow::Result<String> {
    let mut output = Vec::new();
    export(input.as_bytes(), asked_for, &mut output)?;
    Ok(String::from_utf8(output).unwrap())
}

/// A rollout with children: when each ran, and what it cost.
fn tree_of_rollouts() -> String {
    let of = |event: &str, id: &str, parent: &str, time: f64| {
        entry(event, |entry| {
            (entry["rollout"], entry["time"]) = (id.into(), time.into());
            if !parent.is_empty() {
                // The tree does not depend on the depth in an entry.
                (entry["depth"], entry["parent"]) = (u32::MAX.into(), parent.into());
            }
        })
    };
    let call = |id: &str, parent: &str, time: f64, cost: f64| {
        let line = of("model_call", id, parent, time);
        let mut entry: Json = serde_json::from_str(&line).unwrap();
        entry["cost_usd"] = cost.into();
        format!("{entry}\n")
    };
    [
        of("rollout_started", "a", "", 100.0),
        of("rollout_started", "a.2", "a", 105.0),
        of("rollout_started", "a.1", "a", 102.0),
        call("a.2", "a", 106.0, 3.0),
        of("rollout_started", "b", "", 0.0),
        of("rollout_started", "a.1.1", "a.1", 103.0),
        call("a", "", 110.0, 1.0),
        of("rollout_started", "c.1", "gone", 1.0),
    ]
    .concat()
}

#[test]
fn children_name_their_parents_and_follow_them_in_a_tree() {
    let input = tree_of_rollouts();
    let listed = rows_of(&page(&input, ON_A_PAGE));
    let parts: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{} {} {} {}", row["at"], row["id"], row["parent"], row["spent"][0]["cost"]))
        .collect();
    let expected = [
        "0 \"a\" null 1.0",
        "1 \"a.2\" 0 3.0",
        "2 \"a.1\" 0 null",
        "3 \"b\" null null",
        "4 \"a.1.1\" 2 null",
        "5 \"c.1\" null null",
    ];
    assert_eq!(parts, expected);
    let shown = |input: &str| tree(&rollouts(input, IN_TERMINAL), false, false);
    let (tree, again) = (shown(&input), shown(&input.repeat(2)));
    assert!(tree.contains("\n  a.2 · ") && tree.contains("\n    a.1.1 · "), "{tree}");
    // Each of two attempts with the same id has its own children.
    let ids = again.lines().filter_map(|line| line.trim_start().split(' ').next()).collect::<Vec<_>>();
    assert_eq!(ids.join(" ").matches("a a.2 a.1 a.1.1").count(), 2, "{again}");
}
