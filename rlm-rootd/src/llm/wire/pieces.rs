//! A streamed reply, put together as the server would have sent it whole.

use serde_json::{Map, Value as Json, json};

/// Fields with a name: it comes whole, and some servers repeat it in each piece. Other texts are continued.
const LABELS: [&str; 6] = ["role", "id", "type", "format", "channel", "finish_reason"];

/// The name of a function: whole and perhaps repeated as a label, or in pieces (Gemini, continuedev/continue#5849).
const NAME: &str = "name";

/// Fields with parts of a text. LiteLLM's blocks have no index if they come from Gemini.
const PARTS: [&str; 3] = ["content", "thinking", "thinking_blocks"];

/// Fields of a choice whose pieces follow each other: log probabilities and ids of tokens. Other fields are told whole, and some
/// servers repeat them in each piece.
const OF_TOKENS: [&str; 2] = ["logprobs", "token_ids"];

/// A field that only pads pieces to a common length.
const PADDING: &str = "obfuscation";

/// The pieces so far.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    body: Map<String, Json>,
    /// The choices, each with its message under `message`.
    choices: Vec<Json>,
    /// True once a delta has come. ModelScope has an empty `message` beside each (musistudio/claude-code-router#598).
    has_delta: bool,
}

impl Pieces {
    /// Adds a piece: an object of the kind `chat.completion.chunk`.
    pub(super) fn add(&mut self, piece: Json) {
        let Json::Object(piece) = piece else { return };
        for (name, value) in piece {
            match (name.as_str(), value) {
                ("choices", Json::Array(choices)) => {
                    choices.into_iter().for_each(|choice| self.choice(choice))
                }
                ("choices" | "object" | PADDING, _) => {}
                (_, value) => replace(&mut self.body, name, value),
            }
        }
    }

    fn choice(&mut self, mut piece: Json) {
        let Some(fields) = piece.as_object_mut() else { return };
        let index = fields.get("index").cloned().unwrap_or_else(|| 0.into());
        let delta = fields.remove("delta").unwrap_or_default();
        let at = self.choices.iter().position(|choice| choice["index"] == index).unwrap_or_else(|| {
            let message = json!({"role": "assistant", "content": null});
            self.choices.push(json!({"index": index, "message": message, "finish_reason": null}));
            self.choices.len() - 1
        });
        let choice = self.choices[at].as_object_mut().expect("each choice is an object");
        if let (Some(message), Json::Object(delta)) = (choice.get_mut("message"), delta) {
            self.has_delta |= !delta.is_empty();
            delta.into_iter().for_each(|(name, value)| join_field(message, name, value));
        }
        if self.has_delta {
            fields.remove("message");
        }
        for (name, value) in std::mem::take(fields) {
            match choice.get_mut(&name).filter(|old| OF_TOKENS.contains(&name.as_str()) && !old.is_null()) {
                Some(old) => join(old, value, &name),
                None => replace(choice, name, value),
            }
        }
    }

    /// True if each choice has ended.
    pub(super) fn is_whole(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| is_told(&choice["finish_reason"]))
    }

    /// True if a piece of some choice has come.
    pub(super) fn has_begun(&self) -> bool {
        !self.choices.is_empty()
    }

    /// True if the usage has come: in streams of Moonshot, it is in the choice.
    pub(super) fn has_usage(&self) -> bool {
        let of_choices = self.choices.iter().map(|choice| choice.get("usage"));
        of_choices.chain([self.body.get("usage")]).flatten().any(Json::is_object)
    }

    /// The body of the whole reply.
    pub(super) fn into_body(self) -> Json {
        let Self { mut body, mut choices, .. } = self;
        choices.sort_by_key(|choice| choice["index"].as_u64());
        for message in choices.iter_mut().filter_map(|choice| choice["message"].as_object_mut()) {
            let Some(Json::Array(calls)) = message.get_mut("tool_calls") else { continue };
            for call in calls.iter_mut().filter_map(Json::as_object_mut) {
                call.shift_remove("index");
            }
            without_repeated(calls);
            // A first piece begins each text, even one that stays empty: a whole reply has null there (OpenAI, LiteLLM).
            if message.get("content").and_then(Json::as_str) == Some("") {
                message.insert("content".to_owned(), Json::Null);
            }
        }
        body.insert("object".to_owned(), "chat.completion".into());
        body.insert("choices".to_owned(), choices.into());
        body.into()
    }
}

/// True for a reason that is given: some servers send an empty one before.
fn is_told(reason: &Json) -> bool {
    !reason.is_null() && reason != ""
}

/// Sets a field, unless the value is null and the field is there already.
fn replace(fields: &mut Map<String, Json>, name: String, value: Json) {
    if !value.is_null() || !fields.contains_key(&name) {
        fields.insert(name, value);
    }
}

/// Joins a value to the field of this object.
fn join_field(object: &mut Json, name: String, value: Json) {
    match (object.get_mut(&name), value) {
        (Some(old), value) => join(old, value, &name),
        // The first list may have two pieces of one item, too (openai/openai-python#3201).
        (None, Json::Array(items)) if items.iter().all(|item| !item["index"].is_null()) => {
            let mut joined = Vec::with_capacity(items.len());
            items.into_iter().for_each(|item| join_item(&mut joined, item, &name));
            object[name] = joined.into();
        }
        (None, value) => object[name] = value,
    }
}

/// Joins a value to the one before it: texts and lists are continued, objects joined field by field.
fn join(old: &mut Json, new: Json, name: &str) {
    match (old, new) {
        (_, Json::Null) => {}
        (Json::String(old), Json::String(new)) if name == NAME && new.starts_with(old.as_str()) => *old = new,
        (Json::String(old), Json::String(new)) if !LABELS.contains(&name) => old.push_str(&new),
        (Json::String(old), Json::String(_)) if !old.is_empty() => {}
        // Mistral mixes texts and parts; in a whole reply, all are parts.
        (Json::Array(old), Json::String(new)) if name == "content" => join_item(old, text_part(new), name),
        (old @ Json::String(_), Json::Array(new)) if name == "content" => {
            let before = old.as_str().filter(|text| !text.is_empty()).map(|text| text_part(text.to_owned()));
            *old = Json::Array(before.into_iter().collect());
            join(old, new.into(), name);
        }
        (Json::Array(old), Json::Array(new)) => new.into_iter().for_each(|item| join_item(old, item, name)),
        (old @ Json::Object(_), Json::Object(new)) => {
            new.into_iter().for_each(|(name, value)| join_field(old, name, value));
        }
        (old, new) => *old = new,
    }
}

fn text_part(text: String) -> Json {
    json!({"type": "text", "text": text})
}

/// True for a call whose arguments are complete.
fn is_complete(call: &Json) -> bool {
    match &call["function"]["arguments"] {
        Json::String(text) => {
            text.trim_end().ends_with('}') && serde_json::from_str::<Map<_, Json>>(text).is_ok()
        }
        arguments => arguments.is_object(),
    }
}

/// Leaves out calls that are told again: LocalAI tells one at several indices (mudler/LocalAI#9722).
fn without_repeated(calls: &mut Vec<Json>) {
    for call in std::mem::take(calls) {
        let has_id = call["id"].as_str().is_some_and(|id| !id.is_empty());
        if !has_id || !calls.contains(&call) {
            calls.push(call);
        }
    }
}

/// Joins an item to the one that it continues, or adds it. Items have an index for that; calls of tools may have only an id, in
/// their first piece, and parts of a text or a thought only their type. Gemini numbers none of its calls, and names each in its only
/// piece. Some servers make a new id for each piece of a call, and name the call in the first one alone.
fn join_item(items: &mut Vec<Json>, item: Json, name: &str) {
    let id = |item: &Json| item["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
    // OpenRouter gives a text and what Gemini has encrypted the same index.
    let has_its_type =
        |old: &Json| [old, &item].iter().any(|item| item["type"].is_null()) || old["type"] == item["type"];
    let has_name = item["function"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let has_number = name == "tool_calls" && !item["index"].is_null();
    let continues = |old: &Json| match (id(old), id(&item)) {
        (Some(old), Some(new)) if has_name || !has_number => old == new,
        _ => has_its_type(old) && !(has_name && is_complete(old)),
    };
    let before = match &item["index"] {
        Json::Null if name == "tool_calls" && id(&item).is_none() => {
            items.last_mut().filter(|old| continues(old))
        }
        Json::Null if PARTS.contains(&name) => {
            let is_continued = |old: &&mut Json| {
                // A signature ends a block.
                let has_ended = old["signature"].as_str().is_some_and(|signature| !signature.is_empty());
                let is_continued = ["text", "thinking"].iter().any(|kind| item["type"] == *kind);
                old["type"] == item["type"] && is_continued && !has_ended
            };
            items.last_mut().filter(is_continued)
        }
        Json::Null => None,
        index => items.iter_mut().rev().find(|old| old["index"] == *index).filter(|old| continues(old)),
    };
    match before {
        Some(before) => join(before, item, name),
        None => items.push(item),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pieces: impl IntoIterator<Item = Json>) -> Json {
        let mut all = Pieces::default();
        pieces.into_iter().for_each(|piece| all.add(piece));
        assert!(all.is_whole());
        all.into_body()
    }

    /// A piece of the first choice.
    fn delta(delta: Json) -> Json {
        json!({"id": "r", "object": "chat.completion.chunk", "model": "m", "choices": [
            {"index": 0, "delta": delta, "finish_reason": null},
        ], "obfuscation": "xyz"})
    }

    fn end(reason: &str) -> Json {
        json!({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    }

    fn message(pieces: impl IntoIterator<Item = Json>) -> Json {
        whole(pieces.into_iter().map(delta).chain([end("stop")]))["choices"][0]["message"].clone()
    }

    #[test]
    fn a_text_comes_together_with_its_usage() {
        let usage = json!({"id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        let body = whole([
            delta(json!({"role": "assistant", "content": "", "refusal": null})),
            delta(json!({"content": "He"})),
            delta(json!({"content": "llo"})),
            end("stop"),
            usage,
        ]);
        let message = json!({"role": "assistant", "content": "Hello", "refusal": null});
        let expected = json!({
            "id": "r", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn parts_of_reasoning_come_together_by_their_types() {
        let detail = |kind: &str, field: &str, text: &str| json!({"type": kind, field: text, "index": 0});
        let (text, hidden) = ("reasoning.text", "reasoning.encrypted");
        let pieces = [detail(text, "text", "h"), detail(text, "text", "m"), detail(hidden, "data", "E")];
        let pieces = pieces.map(|detail| json!({"reasoning_details": [detail]}));
        let expected = json!([detail(text, "text", "hm"), detail(hidden, "data", "E")]);
        assert_eq!(message(pieces)["reasoning_details"], expected);

        let block = |text: &str| json!({"type": "thinking", "thinking": text});
        let signed = |text: &str| json!({"type": "thinking", "thinking": text, "signature": "S"});
        let pieces = [block("Let "), block("me"), signed(""), block("see"), signed("")];
        let pieces = pieces.map(|block| json!({"thinking_blocks": [block]}));
        assert_eq!(message(pieces)["thinking_blocks"], json!([signed("Let me"), signed("see")]));
    }

    #[test]
    fn calls_come_together_however_a_server_numbers_them() {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
        let numbered = |index: u64, mut call: Json| {
            call["index"] = index.into();
            json!({"tool_calls": [call]})
        };
        let more = |index: u64, text: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
        let expected = json!({
            "role": "assistant", "content": null, "tool_calls": [call("a", "{\"x\": 1}"), call("b", "{}")],
        });
        let usual = [
            json!({"role": "assistant", "content": ""}),
            numbered(0, call("a", "")),
            more(0, "{\"x\":"),
            more(0, " 1}"),
            numbered(1, call("b", "{")),
            more(1, "}"),
        ];
        assert_eq!(message(usual), expected);
        // The name and the id again in each piece.
        let again =
            [numbered(0, call("a", "{\"x\":")), numbered(0, call("a", " 1}")), numbered(1, call("b", "{}"))];
        assert_eq!(message(again), expected);
        let one_number = [numbered(0, call("a", "{\"x\": 1}")), numbered(0, call("b", "{}"))];
        assert_eq!(message(one_number), expected);
        let no_number = [
            json!({"tool_calls": [call("a", "{\"x\": 1")]}),
            json!({"tool_calls": [{"function": {"arguments": "}"}}]}),
            json!({"tool_calls": [call("b", "{}")]}),
        ];
        assert_eq!(message(no_number), expected);
        // Gemini: whole calls, all with the same number or none, and without ids.
        let whole = [call("", "{\"x\": 1}"), call("", "{}")];
        let [mut one, mut two] = whole.clone();
        assert_eq!(
            message(whole.clone().map(|call| json!({"tool_calls": [call]})))["tool_calls"],
            json!(whole)
        );
        assert_eq!(message([json!({"tool_calls": whole})])["tool_calls"], json!(whole));
        assert_eq!(message(whole.clone().map(|call| numbered(0, call)))["tool_calls"], json!(whole));
        (one["index"], two["index"]) = (0.into(), 0.into());
        assert_eq!(message([json!({"tool_calls": [one, two]})])["tool_calls"], json!(whole));
        // The name again in each piece, of calls without ids.
        let named = ["{\"x\":", " 1", "}"].map(|text| numbered(0, call("", text)));
        assert_eq!(message(named)["tool_calls"], json!([call("", "{\"x\": 1}")]));
    }

    #[test]
    fn a_call_in_odd_pieces_is_one_call() {
        let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": function("f", arguments)});
        let begun = |arguments: &str| json!({"index": 0, "id": "a", "type": "function", "function": function("f", arguments)});
        let more =
            |id: Json, arguments: &str| json!({"index": 0, "id": id, "function": {"arguments": arguments}});
        let calls = |calls: &[Json]| json!({"tool_calls": calls});
        let expected = json!([call("a", "{\"x\": 1}")]);
        let one_list = calls(&[begun(""), more(Json::Null, "{\"x\":"), more(Json::Null, " 1}")]);
        assert_eq!(message([one_list])["tool_calls"], expected);
        let new_ids = [begun(""), more("b".into(), "{\"x\":"), more("c".into(), " 1}")];
        assert_eq!(message(new_ids.map(|call| calls(&[call])))["tool_calls"], expected);
        let mut again = begun("{\"x\": 1}");
        again["index"] = 1.into();
        assert_eq!(message([begun("{\"x\": 1}"), again].map(|call| calls(&[call])))["tool_calls"], expected);
        let named =
            |name: &str| json!({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": ""}}]});
        for names in [["call_", "bash_repl", ""], ["call_", "call_bash_repl", "call_bash_repl"]] {
            assert_eq!(message(names.map(named))["tool_calls"][0]["function"]["name"], "call_bash_repl");
        }
        let details = ["a", "b"].map(|text| json!({"type": "reasoning.text", "index": 0, "text": text}));
        let joined = message([json!({"reasoning_details": details})]);
        assert_eq!(
            joined["reasoning_details"],
            json!([{"type": "reasoning.text", "index": 0, "text": "ab"}])
        );
    }

    #[test]
    fn a_message_beside_deltas_is_not_the_reply() {
        let piece = |delta: Json, message: Json, reason: Json| json!({"choices": [{"index": 0, "delta": delta, "message": message, "finish_reason": reason}]});
        let nothing = json!({"role": null, "content": "", "tool_calls": null});
        let pieces = [("Hel", Json::Null), ("lo", Json::Null), ("", "stop".into())];
        let pieces = pieces.map(|(text, reason)| piece(json!({"content": text}), nothing.clone(), reason));
        let expected = json!({"role": "assistant", "content": "Hello"});
        assert_eq!(whole(pieces)["choices"][0]["message"], expected);
        // Some servers give the whole message in the only piece.
        let only = [piece(Json::Null, expected.clone(), "stop".into())];
        assert_eq!(whole(only)["choices"][0]["message"], expected);
    }

    #[test]
    fn what_is_told_again_in_each_piece_is_told_once() {
        let channel = ["a", "b"].map(|text| json!({"channel": "analysis", "reasoning": text}));
        let expected =
            json!({"role": "assistant", "content": null, "channel": "analysis", "reasoning": "ab"});
        assert_eq!(message(channel), expected);
        let filtered =
            |severity: &str| json!({"hate": {"filtered": false, "severity": severity}, "seen": [severity]});
        let piece = |severity: &str, reason: Json| {
            json!({"choices": [{
                "index": 0, "delta": {"content": "a"}, "finish_reason": reason, "content_filter_results": filtered(severity),
            }]})
        };
        let body = whole([piece("safe", Json::Null), piece("safe", Json::Null), piece("low", "stop".into())]);
        assert_eq!(body["choices"][0]["content_filter_results"], filtered("low"));
    }

    #[test]
    fn parts_of_a_text_come_together() {
        let thinking = |text: &str| json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]});
        let pieces = [
            json!({"role": "assistant", "content": ""}),
            thinking("Let "),
            thinking("me"),
            json!({"content": "He"}),
            json!({"content": [{"type": "text", "text": "llo"}]}),
            json!({"content": [{"type": "reference", "reference_ids": [1]}]}),
        ];
        let expected = json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "Let me"}]},
            {"type": "text", "text": "Hello"},
            {"type": "reference", "reference_ids": [1]},
        ]);
        assert_eq!(message(pieces)["content"], expected);
    }

    #[test]
    fn reasoning_and_what_servers_add_come_together() {
        let piece = |text: &str, id: u64| {
            json!({"prompt_token_ids": (id == 1).then_some([7]), "choices": [{
                "index": 0,
                "delta": {
                    "content": text,
                    "reasoning_content": text,
                    "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": text}],
                },
                "logprobs": {"content": [{"token": text}]},
                "token_ids": [id],
                "finish_reason": (id == 2).then_some("length"),
            }]})
        };
        let body = whole([piece("a", 1), piece("b", 2)]);
        assert_eq!(body["prompt_token_ids"], json!([7]));
        let message = json!({
            "role": "assistant", "content": "ab", "reasoning_content": "ab",
            "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "ab"}],
        });
        let logprobs = json!({"content": [{"token": "a"}, {"token": "b"}]});
        let choice = json!({
            "index": 0, "message": message, "finish_reason": "length", "logprobs": logprobs, "token_ids": [1, 2],
        });
        assert_eq!(body["choices"][0], choice);
    }

    #[test]
    fn a_reply_is_whole_once_each_choice_has_ended() {
        let mut pieces = Pieces::default();
        assert!(!pieces.is_whole());
        pieces.add(json!({"choices": [
            {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
            {"index": 0, "delta": {"content": "a"}, "finish_reason": null},
        ]}));
        assert!(!pieces.is_whole());
        pieces.add(end("stop"));
        assert!(pieces.is_whole());
        assert_eq!(pieces.into_body()["choices"][0]["message"]["content"], "a");
        for nonsense in
            [json!(1), json!({"choices": 3}), json!({"choices": [1]}), json!({"choices": [{"delta": 1}]})]
        {
            Pieces::default().add(nonsense);
        }
    }
}
