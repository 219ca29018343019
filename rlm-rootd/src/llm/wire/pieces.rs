//! A streamed reply, put together as the server would have sent it whole.

use serde_json::{Map, Value as Json, json};

/// Fields with a name: it comes whole, and some servers repeat it in each piece. Other texts are continued.
const LABELS: [&str; 6] = ["role", "id", "type", "format", "channel", "finish_reason"];

/// The name of a function: whole and perhaps repeated as a label, or in pieces (Gemini, continuedev/continue#5849).
const NAME: &str = "name";

/// The arguments of a function, a JSON object as a text: in pieces, and perhaps told anew.
const ARGUMENTS: &str = "arguments";

/// Fields with parts of a text. LiteLLM's blocks have no index if they come from Gemini, nor have those of Databricks
/// (databricks/databricks-ai-bridge#133).
const PARTS: [&str; 4] = ["content", "thinking", "thinking_blocks", "summary"];

/// Types of parts that further pieces continue.
const CONTINUED: [&str; 4] = ["text", "thinking", "reasoning", "summary_text"];

/// Texts of a delta that some servers tell anew.
const TEXTS: [&str; 3] = ["content", "reasoning_content", "reasoning"];

/// Least number of letters and digits of a text that a piece may tell anew: no model writes that many twice in a piece.
const LEAST_TOLD: usize = 32;

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
    /// [`TEXTS`] of each choice.
    texts: Vec<[Growing; TEXTS.len()]>,
    /// True once a delta has come. ModelScope has an empty `message` beside each (musistudio/claude-code-router#598).
    has_delta: bool,
    /// True once text has come behind the end. Some servers give each piece a reason (su-kaka/gcli2api#403, QuantumNous/new-api#378),
    /// or the reason first (anomalyco/opencode#43040).
    has_false_end: bool,
    /// True if no piece without text has had a reason or the usage since the last text.
    ends_with_text: bool,
}

/// The pieces of a text, while each begins with the one before.
#[derive(Debug, Default)]
struct Growing {
    last: String,
    /// Number of pieces that were longer than the one before.
    grown: u32,
    /// Number of pieces that were not empty.
    pieces: u32,
    has_ended: bool,
}

impl Growing {
    fn add(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        self.pieces += 1;
        self.has_ended |= !piece.starts_with(&self.last);
        if self.has_ended {
            self.last.clear();
        } else if piece.len() > self.last.len() {
            self.last.replace_range(.., piece);
            self.grown += 1;
        }
    }

    /// The text, if each piece was all of it so far (DashScope, QwenLM/qwen-code#3896).
    fn whole(self) -> Option<String> {
        (!self.has_ended && self.grown > 2).then_some(self.last)
    }
}

impl Pieces {
    /// Adds a piece: an object of the kind `chat.completion.chunk`. `has_text`: it continues a text.
    pub(super) fn add(&mut self, piece: Json, has_text: bool) {
        self.has_false_end |= has_text && self.has_ended();
        let is_end =
            || piece["usage"].is_object() || choices(&piece).any(|choice| is_told(&choice["finish_reason"]));
        self.ends_with_text = has_text || self.ends_with_text && !is_end();
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
            self.choices
                .push(json!({"index": index, "message": {"role": "assistant"}, "finish_reason": null}));
            self.texts.push(Default::default());
            self.choices.len() - 1
        });
        let is_last = fields.get("finish_reason").is_some_and(is_told);
        let choice = self.choices[at].as_object_mut().expect("each choice is an object");
        if let (Some(message), Json::Object(delta)) = (choice.get_mut("message"), delta) {
            self.has_delta |= !delta.is_empty();
            for (name, value) in delta {
                if let (Some(text), Some(new)) = (TEXTS.iter().position(|text| *text == name), value.as_str())
                {
                    let before = &mut self.texts[at][text];
                    let may_repeat = before.pieces > 1;
                    before.add(new);
                    if may_repeat && is_text_anew(message[&name].as_str().unwrap_or_default(), new, is_last) {
                        message[&name] = value;
                        continue;
                    }
                }
                join_field(message, name, value);
            }
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

    /// True if each choice has ended, whatever becomes of the stream.
    pub(super) fn is_whole(&self) -> bool {
        self.has_ended() && !self.has_false_end
    }

    /// True if the reply is whole where the stream ends in order. Some servers give no reason (anomalyco/opencode#43379,
    /// openai/openai-node#1292), and some end the stream like that when they fail (can1357/oh-my-pi#8563).
    pub(super) fn is_whole_at_end(&self) -> bool {
        let calls = |choice: &Json| {
            choice["message"]["tool_calls"]
                .as_array()
                .is_some_and(|calls| calls.iter().all(is_complete) && !calls.is_empty())
        };
        self.has_ended()
            || self.has_begun()
                && (self.has_usage() && !self.ends_with_text || self.choices.iter().all(calls))
    }

    fn has_ended(&self) -> bool {
        self.has_begun() && self.choices.iter().all(|choice| is_told(&choice["finish_reason"]))
    }

    /// True if a piece of some choice has come.
    pub(super) fn has_begun(&self) -> bool {
        !self.choices.is_empty()
    }

    /// True if the last piece with text may be followed by others, although it had a reason.
    pub(super) fn ends_with_text(&self) -> bool {
        self.ends_with_text
    }

    /// True if the usage has come: in streams of Moonshot, it is in the choice.
    pub(super) fn has_usage(&self) -> bool {
        let of_choices = self.choices.iter().map(|choice| choice.get("usage"));
        of_choices.chain([self.body.get("usage")]).flatten().any(Json::is_object)
    }

    /// The body of the whole reply.
    pub(super) fn into_body(self) -> Json {
        let Self { mut body, mut choices, texts, .. } = self;
        for (choice, texts) in choices.iter_mut().zip(texts) {
            for (name, text) in TEXTS.iter().zip(texts) {
                if let Some(whole) = text.whole() {
                    choice["message"][*name] = whole.into();
                }
            }
        }
        choices.sort_by_key(|choice| choice["index"].as_u64());
        for message in choices.iter_mut().filter_map(|choice| choice["message"].as_object_mut()) {
            let Some(Json::Array(calls)) = message.get_mut("tool_calls") else { continue };
            without_echoes(calls);
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

fn choices(piece: &Json) -> impl Iterator<Item = &Json> {
    piece["choices"].as_array().into_iter().flatten()
}

/// True for a reason that is given: some servers send an empty one before.
pub(super) fn is_told(reason: &Json) -> bool {
    !reason.is_null() && reason != ""
}

/// Sets a field, unless the value is null and the field is there already.
pub(super) fn replace(fields: &mut Map<String, Json>, name: String, value: Json) {
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
        (Json::String(old), Json::String(new)) if name == ARGUMENTS && are_told_anew(old, &new) => *old = new,
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

/// True for a piece that is the whole text so far, and perhaps more: in place of the next piece (openclaw/openclaw#136262), or with the
/// reason of the end.
fn is_text_anew(old: &str, new: &str, is_last: bool) -> bool {
    // No more of the text is looked at than the piece is long.
    if !new.starts_with(old) {
        return false;
    }
    let written = old.chars().filter(|char| char.is_alphanumeric()).take(LEAST_TOLD).count();
    written == LEAST_TOLD || is_last && new == old && written > 3
}

fn text_part(text: String) -> Json {
    json!({"type": "text", "text": text})
}

/// True for a call whose arguments are complete.
fn is_complete(call: &Json) -> bool {
    match &call["function"][ARGUMENTS] {
        Json::String(text) => is_object(text),
        arguments => arguments.is_object(),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_end().ends_with('}') && serde_json::from_str::<Map<_, Json>>(text).is_ok()
}

/// True for arguments that replace those before, instead of continuing them: all of them again (lidge-jun/opencodex#361,
/// anomalyco/opencode#17339), or those behind an empty object (Gemini, microsoft/autogen#6843).
fn are_told_anew(old: &str, new: &str) -> bool {
    old.trim() == "{}" && !new.trim().is_empty() || new.starts_with(old) && is_object(new)
}

/// Leaves out pieces behind a call that only repeat its name (NVIDIA, NousResearch/hermes-agent#11984; QuantumNous/new-api#3326).
fn without_echoes(calls: &mut Vec<Json>) {
    for call in std::mem::take(calls) {
        let id = call["id"].as_str().unwrap_or_default();
        let arguments = &call["function"][ARGUMENTS];
        let blank =
            arguments.as_str().or(arguments.is_null().then_some("")).filter(|text| text.trim().is_empty());
        let is_echo_of = |before: &&mut Json| {
            let is_same = |name: &str| before[name] == call[name];
            is_complete(before)
                && is_same("index")
                && (id.is_empty() || is_same("id"))
                && before["function"][NAME] == call["function"][NAME]
        };
        match (calls.last_mut().filter(is_echo_of), blank) {
            (Some(before), Some(blank)) => {
                if let Json::String(arguments) = &mut before["function"][ARGUMENTS] {
                    arguments.push_str(blank);
                }
            }
            _ => calls.push(call),
        }
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
/// piece. Some servers make a new id for each piece of a call, and name the call in the first one alone. Others leave out the number
/// (agno-agi/agno#8880) or the name (dyedd/lens#49) of a further call in some of its pieces: nothing follows complete arguments but
/// another call.
fn join_item(items: &mut Vec<Json>, mut item: Json, name: &str) {
    let id = |item: &Json| item["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
    // OpenRouter gives a text and what Gemini has encrypted the same index.
    let has_its_type =
        |old: &Json| [old, &item].iter().any(|item| item["type"].is_null()) || old["type"] == item["type"];
    let is_call = name == "tool_calls";
    let has_name = item["function"][NAME].as_str().is_some_and(|name| !name.is_empty());
    let is_tail = is_call && !has_name && id(&item).is_none();
    let begins_another = |old: &Json| {
        let [old, new] = [old, &item].map(|call| call["function"][ARGUMENTS].as_str().unwrap_or_default());
        has_name || is_complete(&item) && !are_told_anew(old, new)
    };
    let is_nameless_whole = is_call && !has_name && is_complete(&item);
    let has_number = is_call && !item["index"].is_null();
    let continues = |old: &Json| match (id(old), id(&item)) {
        (Some(old), Some(new)) if has_name || !has_number => old == new,
        _ => has_its_type(old) && !(begins_another(old) && is_complete(old)),
    };
    let before = match &item["index"] {
        Json::Null if is_call && id(&item).is_none() => items.last_mut().filter(|old| continues(old)),
        Json::Null if PARTS.contains(&name) => {
            let is_continued = |old: &&mut Json| {
                // A signature ends a block.
                let is_signed = |part: &Json| part["signature"].as_str().is_some_and(|text| !text.is_empty());
                let has_ended = is_signed(old)
                    || old["summary"].as_array().is_some_and(|parts| parts.iter().any(is_signed));
                let is_continued = CONTINUED.iter().any(|kind| item["type"] == *kind);
                old["type"] == item["type"] && is_continued && !has_ended
            };
            items.last_mut().filter(is_continued)
        }
        Json::Null => None,
        index => {
            let numbered = items.iter().rposition(|old| old["index"] == *index);
            let may_continue = |at: &usize| is_tail && (is_nameless_whole || !is_complete(&items[*at]));
            let at = numbered.or_else(|| items.len().checked_sub(1).filter(may_continue));
            at.map(|at| &mut items[at]).filter(|old| continues(old))
        }
    };
    match before {
        Some(before) => join(before, item, name),
        None => {
            if let Some(before) = items.last().filter(|_| is_nameless_whole) {
                item["type"] = before["type"].clone();
                item["function"][NAME] = before["function"][NAME].clone();
            }
            items.push(item);
        }
    }
}

#[cfg(test)]
mod tests;
