//! `rlm view --check-prefixes`: whether each prompt of a rollout begins with the prompt before it and the reply to that. Trainers
//! need this if they take a rollout for one sequence of tokens.
//!
//! Ids of tokens are compared where the server gave them (`prompt_ids`, `reply_ids`), and messages elsewhere: those of the
//! trajectory, with its notes on messages that were changed before they were sent. After a summary of older turns, the next
//! prompt begins anew: that is counted, but not as a fault. Requests that failed, and those for summaries, are not prompts of
//! turns.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, BufRead, Write};

use anyhow::Context as _;
use rlm_core::text::{counted, grouped};
use rlm_env::trajectory::{Entry, Event, Line, Message, MessageKind, ModelCall};
use serde_json::Value as Json;

use super::input::{Remarks, none_of};
use super::rlms;
use crate::text::word;
use crate::usage::Usage;

/// Places of the ids of a prompt's tokens in `extra`: of vLLM and Fireworks, and of SGLang.
const PROMPT_IDS: [&str; 2] = ["/prompt_token_ids", "/sglext/input_ids"];

/// Places of the ids of a reply's tokens in `extra`.
const REPLY_IDS: [&str; 3] = ["/token_ids", "/response_token_ids", "/sglext/output_ids"];

/// Checks the rollouts of a trajectory, or only the one asked for, and prints the results: of each turn, or only of those whose
/// prompts do not begin with the one before. Returns true if all do, and remarks on the file.
pub(super) fn check(
    mut input: impl BufRead,
    asked_for: Option<&str>,
    is_full: bool,
    output: &mut dyn Write,
) -> anyhow::Result<(bool, Vec<String>)> {
    if rlms::begins(input.fill_buf()?) {
        let error = "--check-prefixes takes a trajectory: a log of RLMLogger does not have what was sent";
        return Err(Usage::new(error).into());
    }
    let mut rollouts = Rollouts::default();
    let mut others = Vec::new();
    let mut remarks = Remarks::default();
    for line in rlm_env::trajectory::read(input) {
        match line? {
            Line::Entry(entry) if asked_for.is_none_or(|id| id == entry.rollout) => rollouts.add(&entry),
            Line::Entry(entry) if !others.contains(&entry.rollout) => others.push(entry.rollout),
            Line::Entry(_) => {}
            other => remarks.add(&other),
        }
    }
    if rollouts.list.is_empty() {
        return Err(none_of(asked_for, &others));
    }
    rollouts.print(is_full, output).context("cannot write to standard output")?;
    Ok((Sums::of(&rollouts.list).faults == 0, remarks.into_sentences()))
}

/// The rollouts in the order of their first entries.
#[derive(Debug, Default)]
struct Rollouts {
    list: Vec<Rollout>,
    places: HashMap<String, usize>,
}

impl Rollouts {
    fn add(&mut self, entry: &Entry) {
        let is_new =
            matches!(entry.event, Event::RolloutStarted(_)) || !self.places.contains_key(&entry.rollout);
        if is_new {
            self.places.insert(entry.rollout.clone(), self.list.len());
            self.list.push(Rollout { id: word(&entry.rollout), ..Rollout::default() });
        }
        let rollout = &mut self.list[self.places[&entry.rollout]];
        match &entry.event {
            Event::Message(message) => rollout.add_message(message),
            Event::ModelCall(call) if !call.is_summary && call.error.is_none() => rollout.add_prompt(call),
            _ => {}
        }
    }

    fn print(&self, is_full: bool, output: &mut dyn Write) -> io::Result<()> {
        for rollout in &self.list {
            let of = Sums::of(std::slice::from_ref(rollout));
            writeln!(output, "{}: {}, {}", rollout.id, counted(of.prompts, "turn"), of.words())?;
            for (turn, found) in &rollout.found {
                match found {
                    Found::First => {}
                    Found::ByTokens | Found::ByMessages if !is_full => {}
                    found => writeln!(output, "  turn {turn}: {}", found.words())?,
                }
            }
        }
        let sums = Sums::of(&self.list);
        let (rollouts, turns) = (counted(self.list.len() as u64, "rollout"), counted(sums.prompts, "turn"));
        writeln!(output, "{rollouts}, {turns}: {}", sums.words())?;
        output.flush()
    }
}

/// The conversation of a rollout so far.
#[derive(Debug, Default)]
struct Rollout {
    id: String,
    /// The messages of the next prompt; after a summary, those since the summary.
    messages: Vec<Said>,
    /// True if a summary has replaced messages since the last prompt.
    is_compacted: bool,
    last: Option<Prompt>,
    /// The finding for each turn.
    found: Vec<(u32, Found)>,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    /// The hash of its bytes.
    hash: u64,
    is_reply: bool,
}

/// A prompt.
#[derive(Debug)]
struct Prompt {
    turn: u32,
    messages: Vec<Said>,
    /// The ids of the tokens of the prompt and of its reply.
    ids: Option<Vec<u64>>,
    /// The number of the prompt's tokens, if the server counted them.
    tokens: Option<u64>,
}

/// The relation of a prompt to the one before.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    First,
    ByTokens,
    ByMessages,
    Compacted,
    /// The prompt does not begin with the one before: where and why.
    Differs(String),
}

impl Found {
    fn words(&self) -> &str {
        match self {
            Self::First => "the first prompt",
            Self::ByTokens => "begins with the one before, by tokens",
            Self::ByMessages => "begins with the one before, by messages",
            Self::Compacted => "begins anew, after a compaction",
            Self::Differs(why) => why,
        }
    }
}

impl Rollout {
    fn add_message(&mut self, Message { kind, message, .. }: &Message) {
        let mut hasher = DefaultHasher::new();
        hasher.write(message.to_string().as_bytes());
        let said = Said { hash: hasher.finish(), is_reply: *kind == MessageKind::Reply };
        match kind {
            // A second system prompt replaces the first.
            MessageKind::System if !self.messages.is_empty() => self.messages[0] = said,
            MessageKind::Summary => {
                self.is_compacted = true;
                self.messages = vec![said];
            }
            _ => self.messages.push(said),
        }
    }

    fn add_prompt(&mut self, call: &ModelCall) {
        let ids = call.extra.as_ref().and_then(|extra| ids_at(extra, &PROMPT_IDS));
        // After retries, the count includes the tokens of failed attempts.
        let is_exact = !call.usage_estimated && call.attempts == 1;
        let tokens = is_exact.then_some(call.prompt_tokens);
        let found = match &self.last {
            None => Found::First,
            Some(_) if self.is_compacted => Found::Compacted,
            Some(last) => match (&last.ids, &ids) {
                (Some(before), Some(ids)) => by_tokens(before, ids),
                _ => by_messages(last, &self.messages, tokens, &call.adapted),
            },
        };
        self.found.push((call.turn, found));
        self.is_compacted = false;
        let of_reply = call.extra.as_ref().and_then(|extra| ids_at(extra, &REPLY_IDS));
        let ids = ids.map(|ids| [ids, of_reply.unwrap_or_default()].concat());
        self.last = Some(Prompt { turn: call.turn, messages: self.messages.clone(), ids, tokens });
    }
}

fn by_tokens(before: &[u64], now: &[u64]) -> Found {
    match before.iter().zip(now).position(|(before, now)| before != now) {
        Some(at) => Found::Differs(format!("token {at} is {}, and was {}", now[at], before[at])),
        None if now.len() < before.len() => {
            let (now, before) = (counted(now.len() as u64, "token"), grouped(before.len() as u64));
            Found::Differs(format!("ends after {now}, and the one before with its reply had {before}"))
        }
        None => Found::ByTokens,
    }
}

fn by_messages(last: &Prompt, now: &[Said], tokens: Option<u64>, adapted: &[String]) -> Found {
    let reply = last.messages.len();
    let differs = last.messages.iter().zip(now).position(|(before, now)| before != now);
    let is_shorter = last.tokens.zip(tokens).filter(|(before, now)| now < before);
    if let Some(at) = differs {
        Found::Differs(format!("message {at} is another one than before"))
    } else if !now.get(reply).is_some_and(|said| said.is_reply) {
        Found::Differs(format!("message {reply} is not the reply of turn {}", last.turn))
    } else if let Some((before, now)) = is_shorter {
        let (now, before) = (counted(now, "token"), grouped(before));
        Found::Differs(format!("has {now}, and the one before {before}: something was left out"))
    } else if let Some(sentence) = adapted.first() {
        Found::Differs(format!("not sent as it came: {}", word(sentence)))
    } else {
        Found::ByMessages
    }
}

/// The ids of tokens at the first of these places that has some. Of several choices, those of the first.
fn ids_at(extra: &Json, places: &[&str]) -> Option<Vec<u64>> {
    let ids =
        places.iter().find_map(|place| extra.pointer(place)?.as_array().filter(|ids| !ids.is_empty()))?;
    let ids = ids[0].as_array().unwrap_or(ids);
    ids.iter().map(Json::as_u64).collect()
}

/// Counts over turns.
#[derive(Clone, Debug, Default)]
struct Sums {
    prompts: u64,
    by_tokens: u64,
    by_messages: u64,
    compactions: u64,
    faults: u64,
}

impl Sums {
    fn of(rollouts: &[Rollout]) -> Self {
        let mut sums = Self::default();
        for (_, found) in rollouts.iter().flat_map(|rollout| &rollout.found) {
            sums.prompts += 1;
            match found {
                Found::First => {}
                Found::ByTokens => sums.by_tokens += 1,
                Found::ByMessages => sums.by_messages += 1,
                Found::Compacted => sums.compactions += 1,
                Found::Differs(_) => sums.faults += 1,
            }
        }
        sums
    }

    /// `3 of 4 prompts begin with the one before (2 by tokens, 1 by messages)`.
    fn words(&self) -> String {
        let good = self.by_tokens + self.by_messages;
        let compared = good + self.faults;
        let by = [(self.by_tokens, "by tokens"), (self.by_messages, "by messages")];
        let by: Vec<_> = by
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, how)| match *count == good {
                true => (*how).to_owned(),
                false => format!("{} {how}", grouped(*count)),
            })
            .collect();
        let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
        let anew = match self.compactions {
            0 => String::new(),
            1 => ", 1 begins anew after a compaction".to_owned(),
            count => format!(", {} begin anew after compactions", grouped(count)),
        };
        if compared == 0 {
            return format!("no prompt to compare{anew}");
        }
        let verb = if compared == 1 { "begins" } else { "begin" };
        format!("{} of {} {verb} with the one before{by}{anew}", grouped(good), counted(compared, "prompt"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A trajectory of these entries, of one rollout unless they name another one.
    fn trajectory(entries: &[Json]) -> String {
        let line = |entry: &Json| {
            let mut line = json!({"rollout": "a", "time": 1.0});
            for (name, value) in entry.as_object().unwrap() {
                line[name] = value.clone();
            }
            format!("{line}\n")
        };
        entries.iter().map(line).collect()
    }

    fn message(turn: u32, kind: &str, text: &str) -> Json {
        json!({"event": "message", "turn": turn, "kind": kind, "message": {"role": "x", "content": text}})
    }

    fn call(turn: u32, prompt_tokens: u64, extra: Json) -> Json {
        json!({
            "event": "model_call", "turn": turn, "is_summary": false, "model": "m", "prompt_tokens": prompt_tokens,
            "completion_tokens": 1, "usage_estimated": false, "cost_usd": null, "attempts": 1, "seconds": 0.1,
            "error": null, "extra": extra,
        })
    }

    /// A turn: its request, its reply and the output of its call.
    fn turn(number: u32, extra: Json) -> [Json; 3] {
        [
            call(number, 100 * u64::from(number), extra),
            message(number, "reply", &format!("reply {number}")),
            message(number, "output", &format!("output {number}")),
        ]
    }

    fn begun() -> Vec<Json> {
        vec![message(0, "system", "s"), message(0, "question", "q")]
    }

    /// The beginning of a rollout, and a turn with each of these.
    fn turns<const N: usize>(extras: [Json; N]) -> Vec<Json> {
        let turns = (1..).zip(extras).flat_map(|(number, extra)| turn(number, extra));
        begun().into_iter().chain(turns).collect()
    }

    fn checked(entries: &[Json]) -> (bool, String) {
        let mut output = Vec::new();
        let (is_good, _) = check(trajectory(entries).as_bytes(), None, false, &mut output).unwrap();
        (is_good, String::from_utf8(output).unwrap())
    }

    /// The lines about the turns of a rollout.
    fn lines(entries: &[Json]) -> Vec<String> {
        let (is_good, output) = checked(entries);
        let lines: Vec<_> =
            output.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect();
        assert_eq!(is_good, lines.iter().all(|line| line.ends_with("after a compaction")), "{output}");
        lines
    }

    fn vllm(prompt: &[u64], reply: &[u64]) -> Json {
        json!({"prompt_token_ids": prompt, "token_ids": reply, "logprobs": null})
    }

    fn sglang(prompt: &[u64], reply: &[u64]) -> Json {
        json!({"sglext": {"input_ids": prompt, "output_ids": [reply]}})
    }

    #[test]
    fn tokens_are_compared_in_the_forms_of_servers() {
        for form in [vllm, sglang] {
            let of =
                |third: &[u64]| turns([form(&[1, 2], &[3]), form(&[1, 2, 3, 4], &[5, 6]), form(third, &[9])]);
            let (is_good, output) = checked(&of(&[1, 2, 3, 4, 5, 6, 7]));
            let line = "3 turns, 2 of 2 prompts begin with the one before (by tokens)\n";
            assert_eq!(output, format!("a: {line}{}", line.replace("3 turns, ", "1 rollout, 3 turns: ")));
            assert!(is_good);
            assert_eq!(lines(&of(&[1, 2, 3, 4, 5, 8, 7])), ["turn 3: token 5 is 8, and was 6"]);
            let words = "turn 3: ends after 5 tokens, and the one before with its reply had 6";
            assert_eq!(lines(&of(&[1, 2, 3, 4, 5])), [words]);
        }
    }

    #[test]
    fn messages_are_compared_where_there_are_no_tokens() {
        let whole = turns([Json::Null, vllm(&[1], &[2]), Json::Null]);
        let words = "a: 3 turns, 2 of 2 prompts begin with the one before (by messages)\n";
        assert!(checked(&whole).1.starts_with(words));
        let mut replaced = whole.clone();
        replaced.insert(5, message(1, "system", "another"));
        assert_eq!(lines(&replaced), ["turn 2: message 0 is another one than before"]);
        let mut lost = whole.clone();
        lost.remove(6);
        assert_eq!(lines(&lost), ["turn 3: message 4 is not the reply of turn 2"]);
        let mut shorter = whole.clone();
        shorter[8]["prompt_tokens"] = 50.into();
        assert_eq!(
            lines(&shorter),
            ["turn 3: has 50 tokens, and the one before 200: something was left out"]
        );
        shorter[8]["usage_estimated"] = true.into();
        assert!(lines(&shorter).is_empty(), "an estimate is no proof");
        shorter[8]["usage_estimated"] = false.into();
        shorter[5]["attempts"] = 2.into();
        assert!(lines(&shorter).is_empty(), "an attempt that failed is counted as well");
        let mut adapted = whole;
        adapted[8]["adapted"] = json!(["`x` is left\u{1b} out"]);
        assert_eq!(lines(&adapted), ["turn 3: not sent as it came: `x` is left␛ out"]);
    }

    #[test]
    fn a_compaction_is_no_fault() {
        let mut summary = call(3, 900, Json::Null);
        summary["is_summary"] = true.into();
        let compacted = [
            turns([vllm(&[1], &[2]), vllm(&[1, 2, 3], &[4])]),
            vec![summary, message(2, "summary", "in short")],
            turn(3, vllm(&[1, 7], &[8])).to_vec(),
            turn(4, vllm(&[1, 7, 8, 9], &[1])).to_vec(),
        ]
        .concat();
        assert_eq!(lines(&compacted), ["turn 3: begins anew, after a compaction"]);
        let words = "4 turns, 2 of 2 prompts begin with the one before (by tokens), 1 begins anew after a compaction\n";
        assert!(checked(&compacted).1.starts_with(&format!("a: {words}")));
        // The server refused tools: the first request failed, and the second one had another system prompt.
        let mut failed = call(1, 10, Json::Null);
        failed["error"] = "no tools".into();
        let fenced = [
            begun(),
            vec![failed, message(0, "system", "fenced")],
            turn(1, Json::Null).to_vec(),
            turn(2, Json::Null).to_vec(),
        ]
        .concat();
        assert!(lines(&fenced).is_empty());
    }

    #[test]
    fn rollouts_have_a_line_each_and_one_that_begins_again_is_another() {
        let mut entries = Vec::new();
        for id in ["a", "b"] {
            for mut entry in turns([vllm(&[1], &[2]), vllm(&[1, 3], &[4])]) {
                entry["rollout"] = id.into();
                entries.push(entry);
            }
        }
        entries.truncate(entries.len() - 3);
        let (is_good, output) = checked(&entries);
        assert!(!is_good);
        let words = "a: 2 turns, 0 of 1 prompt begins with the one before\n  turn 2: token 1 is 3, and was 2\nb: 1 turn, no prompt \
                     to compare\n2 rollouts, 3 turns: 0 of 1 prompt begins with the one before\n";
        assert_eq!(output, words);
        let mut full = Vec::new();
        let one = check(trajectory(&entries).as_bytes(), Some("b"), true, &mut full).unwrap();
        assert_eq!(one, (true, Vec::new()));
        let error =
            check(trajectory(&entries).as_bytes(), Some("c"), true, &mut full).unwrap_err().to_string();
        assert_eq!(error, "no rollout `c`: the file has a, b");
    }
}
