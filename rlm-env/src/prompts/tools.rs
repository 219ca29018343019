//! Descriptions of root tools for models.

use minijinja::context;
use minijinja::value::Value;
use rlm_core::root_tool::{LLM_BATCH, RLM_QUERY, asks};
use rlm_rootd::Tool;
use serde_json::Value as Json;

use super::templates::{PromptError, Prompts};
use crate::terms::Callbacks;
use crate::terms::ReplLanguage;

/// Longest default value that a signature shows, in bytes.
const SHOWN_DEFAULT_BYTES: usize = 60;

/// The tool that reports the remaining budget. Like `llm_batch`, it has a passage of its own in the prompt.
const BUDGET: &str = "budget";

/// The description of a root tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ToolDoc<'a> {
    /// Its name.
    pub name: &'a str,
    /// A sentence on what it does.
    pub description: &'a str,
    /// The JSON schema of its parameters.
    pub parameters: &'a Json,
}

impl<'a> From<&'a Tool> for ToolDoc<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self { name: tool.name(), description: tool.description(), parameters: tool.parameters() }
    }
}

/// The functions that code in a session can call: the part of the system prompt on root tools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootToolsDoc<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// How code calls them.
    pub callbacks: Callbacks,
    /// The tools. `llm_batch` and `budget` may be among them; the fields below describe those two.
    pub tools: &'a [ToolDoc<'a>],
    /// Number of sub-LLMs that answer at once; None if there is no `llm_batch`.
    pub sub_llm_parallelism: Option<usize>,
    /// True if there is a `budget` tool.
    pub has_budget: bool,
}

impl RootToolsDoc<'_> {
    /// Renders the text; empty if there is nothing to call.
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let has_rlm_query = self.tools.iter().any(|tool| tool.name == RLM_QUERY);
        let others = self.tools.iter().filter(|tool| !has_own_passage(tool.name));
        let tools = others.map(|tool| tool.render(prompts, self.language)).collect::<Result<Vec<_>, _>>()?;
        if tools.is_empty() && self.sub_llm_parallelism.is_none() && !has_rlm_query && !self.has_budget {
            return Ok(String::new());
        }
        let variables = context! {
            has_llm_batch => self.sub_llm_parallelism.is_some(),
            parallelism => self.sub_llm_parallelism.unwrap_or_default(),
            has_rlm_query,
            has_budget => self.has_budget,
            tools => tools.join("\n\n"),
        };
        match self.callbacks {
            Callbacks::Network => prompts.render(&format!("{}/tools.md", self.language), variables),
            Callbacks::Intercept => {
                let names: Vec<_> = self.names().into_iter().map(str::to_owned).collect();
                let variables = context! { names, ..variables };
                prompts.render(&format!("{}/tools_intercepted.md", self.language), variables)
            }
        }
    }
}

impl<'a> RootToolsDoc<'a> {
    /// The names of all tools; those with a passage of their own come last.
    fn names(&self) -> Vec<&'a str> {
        let rlm_query = self.tools.iter().any(|tool| tool.name == RLM_QUERY).then_some(RLM_QUERY);
        let own = [self.sub_llm_parallelism.map(|_| LLM_BATCH), rlm_query, self.has_budget.then_some(BUDGET)];
        let others = self.tools.iter().map(|tool| tool.name).filter(|name| !has_own_passage(name));
        others.chain(own.into_iter().flatten()).collect()
    }
}

/// True of a tool that the templates describe themselves.
fn has_own_passage(name: &str) -> bool {
    asks(name) || name == BUDGET
}

impl ToolDoc<'_> {
    fn render(&self, prompts: &Prompts, language: ReplLanguage) -> Result<String, PromptError> {
        let signature = Signature::new(self.parameters, language);
        let variables = context! {
            name => self.name,
            usage => format!("{}{}", self.name, signature.usage(language)),
            description => self.description.trim(),
            parameters => signature.parameters.iter().map(Parameter::variables).collect::<Vec<_>>(),
        };
        prompts.render(&format!("{language}/tool.md"), variables)
    }
}

/// The arguments of a tool, read from its schema.
struct Signature {
    parameters: Vec<Parameter>,
    /// True if arguments that the schema does not name are allowed.
    takes_others: bool,
}

struct Parameter {
    name: String,
    kind: String,
    /// Bounds of a number: `, >= 1`.
    bounds: String,
    description: String,
    is_required: bool,
    default: Option<String>,
}

impl Signature {
    fn new(schema: &Json, language: ReplLanguage) -> Self {
        let required: Vec<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let Some(properties) = schema["properties"].as_object() else {
            return Self { parameters: Vec::new(), takes_others: true };
        };
        let parameter = |(name, schema): (&String, &Json)| Parameter {
            name: name.clone(),
            kind: kind(schema, language),
            bounds: bounds(schema),
            description: one_line(schema["description"].as_str().unwrap_or_default()),
            is_required: required.contains(&name.as_str()),
            default: schema.get("default").map(|value| shown(value, language)),
        };
        let others = schema.get("additionalProperties").unwrap_or(&Json::Bool(false));
        Self {
            parameters: properties.iter().map(parameter).collect(),
            takes_others: others != &Json::Bool(false),
        }
    }

    /// The arguments as written after the tool's name.
    fn usage(&self, language: ReplLanguage) -> String {
        match language {
            ReplLanguage::Bash => self.words(),
            ReplLanguage::Python => self.list(),
        }
    }

    /// `QUERY [LIMIT]`; with names if a required argument follows an optional one.
    fn words(&self) -> String {
        if self.parameters.is_sorted_by_key(|parameter| !parameter.is_required) {
            let mut words: String =
                self.parameters.iter().map(|parameter| format!(" {}", parameter.word())).collect();
            if self.takes_others && self.parameters.is_empty() {
                words.push_str(" [ARGUMENT]...");
            }
            return words;
        }
        let required = self.parameters.iter().filter(|parameter| parameter.is_required);
        let fields: Vec<_> = required.map(|parameter| format!("\"{}\": …", parameter.name)).collect();
        format!(" --json '{{{}}}'", fields.join(", "))
    }

    /// `(query: str, limit: int = 10)`, as in Python's own help. Arguments after the star are keyword-only.
    fn list(&self) -> String {
        if self.parameters.is_empty() && self.takes_others {
            return "(*args, **kwargs)".to_owned();
        }
        let mut items = Vec::new();
        let (mut had_optional, mut had_star) = (false, false);
        for parameter in &self.parameters {
            if parameter.is_required && had_optional && !had_star {
                items.push("*".to_owned());
                had_star = true;
            }
            had_optional |= !parameter.is_required;
            items.push(parameter.declaration());
        }
        if self.takes_others {
            items.push("**kwargs".to_owned());
        }
        format!("({})", items.join(", "))
    }
}

impl Parameter {
    fn word(&self) -> String {
        let word = self.name.to_uppercase();
        if self.is_required { word } else { format!("[{word}]") }
    }

    fn declaration(&self) -> String {
        let Self { name, kind, .. } = self;
        match (&self.default, self.is_required) {
            (_, true) => format!("{name}: {kind}"),
            (Some(default), false) => format!("{name}: {kind} = {default}"),
            (None, false) => format!("{name}: {kind} = ..."),
        }
    }

    fn variables(&self) -> Value {
        context! {
            name => self.name.as_str(),
            word => self.name.to_uppercase(),
            kind => format!("{}{}", self.kind, self.bounds),
            description => self.description.as_str(),
            is_required => self.is_required,
        }
    }
}

/// The name of a value's type.
fn kind(schema: &Json, language: ReplLanguage) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| shown(value, language)).collect();
        return match language {
            ReplLanguage::Bash => values.join(" | "),
            ReplLanguage::Python => format!("Literal[{}]", values.join(", ")),
        };
    }
    let names: Vec<_> = match &schema["type"] {
        Json::String(name) => vec![name.as_str()],
        Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    if names.is_empty() {
        return type_name("", schema, language);
    }
    names.iter().map(|name| type_name(name, schema, language)).collect::<Vec<_>>().join(" | ")
}

/// The bounds of a number: `, >= 1`.
fn bounds(schema: &Json) -> String {
    let keywords =
        [("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<")];
    let bounds = keywords.into_iter().filter_map(|(keyword, sign)| Some((sign, schema.get(keyword)?)));
    bounds.map(|(sign, bound)| format!(", {sign} {bound}")).collect()
}

fn type_name(name: &str, schema: &Json, language: ReplLanguage) -> String {
    let items = || schema.get("items").map(|items| kind(items, language));
    let plain = match (name, language) {
        ("array", ReplLanguage::Bash) => {
            return items().map_or_else(|| "JSON list".to_owned(), |items| format!("JSON list of {items}"));
        }
        ("array", ReplLanguage::Python) => {
            return items().map_or_else(|| "list".to_owned(), |items| format!("list[{items}]"));
        }
        ("object", ReplLanguage::Bash) => "JSON object",
        ("string", ReplLanguage::Python) => "str",
        ("integer", ReplLanguage::Python) => "int",
        ("number", ReplLanguage::Python) => "float",
        ("boolean", ReplLanguage::Bash) => "true | false",
        ("boolean", ReplLanguage::Python) => "bool",
        ("object", ReplLanguage::Python) => "dict",
        ("null", ReplLanguage::Python) => "None",
        ("", ReplLanguage::Bash) => "any value",
        ("", ReplLanguage::Python) => "Any",
        (other, _) => other,
    };
    plain.to_owned()
}

/// A JSON value as a literal of the language, if it is short.
fn shown(value: &Json, language: ReplLanguage) -> String {
    let text = match language {
        ReplLanguage::Bash => Some(value.to_string()),
        ReplLanguage::Python => rlm_core::pickle::Value::from_json(value)
            .ok()
            .and_then(|value| value.repr(SHOWN_DEFAULT_BYTES).ok()),
    };
    text.filter(|text| text.len() <= SHOWN_DEFAULT_BYTES).unwrap_or_else(|| "...".to_owned())
}

/// A description in one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
