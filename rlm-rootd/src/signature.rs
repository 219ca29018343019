//! The check of a call against its tool's schema, and the names of arguments.
//!
//! A schema with `properties` is a signature: arguments by position take the names of the properties in their order,
//! names that are not among them are refused unless `additionalProperties` is given and not false, and those that are
//! `required` must be there. A schema without `properties` takes any arguments.
//!
//! A value that JSON cannot hold (bytes, a set, NaN, …) passes where the schema says nothing about its parameter.

use std::fmt::{self, Write as _};

use jsonschema::{PatternOptions, Validator};
use rlm_core::pickle::{Value, WriteError};
use rlm_core::root_tool::{Call, MAX_BODY_BYTES};
use rlm_core::text::cut;
use serde_json::{Map, Value as Json};

/// Keywords that inform a reader and refuse nothing.
const ANNOTATIONS: [&str; 8] =
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"];

/// Keywords of a whole schema that say nothing about single parameters, besides [`ANNOTATIONS`].
const OF_THE_WHOLE: [&str; 8] =
    ["$schema", "$id", "$defs", "definitions", "type", "properties", "required", "additionalProperties"];

/// Longest value that an error quotes, in bytes.
const QUOTED_BYTES: usize = 200;

/// A compiled schema.
pub(crate) struct Signature {
    tool: String,
    /// The parameters. None: any arguments.
    parameters: Option<Parameters>,
}

struct Parameters {
    /// Names of the parameters, in the order of positions.
    names: Vec<String>,
    /// For each position, true if the schema says nothing about the parameter.
    free: Vec<bool>,
    required: Vec<String>,
    takes_others: bool,
    validator: Validator,
}

impl Signature {
    /// Compiles a tool's schema.
    ///
    /// # Errors
    /// The fault in the schema, as a sentence.
    pub(crate) fn new(tool: &str, schema: &Json) -> Result<Self, String> {
        let tool = tool.to_owned();
        let Some(schema) = schema.as_object() else {
            return Err("parameters must be a JSON schema of type object".to_owned());
        };
        if schema.get("type").is_some_and(|ty| ty != "object") {
            return Err("parameters must be a JSON schema of type object".to_owned());
        }
        let validator = jsonschema::options()
            // Matching takes time linear in the text, which comes from the session.
            .with_pattern_options(PatternOptions::regex())
            .build(&Json::Object(schema.clone()))
            .map_err(|error| format!("parameters are not a valid JSON schema: {error}"))?;
        let Some(properties) = schema.get("properties") else { return Ok(Self { tool, parameters: None }) };
        let properties = properties.as_object().ok_or("properties must be an object")?;
        let says_more = |keyword: &String| {
            !OF_THE_WHOLE.contains(&keyword.as_str()) && !ANNOTATIONS.contains(&keyword.as_str())
        };
        let is_plain = !schema.keys().any(says_more);
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        let takes_others =
            schema.get("additionalProperties").is_some_and(|others| others != &Json::Bool(false));
        let parameters = Parameters {
            names: properties.keys().cloned().collect(),
            free: properties.values().map(|schema| is_plain && refuses_nothing(schema)).collect(),
            required: required.filter_map(Json::as_str).map(str::to_owned).collect(),
            takes_others,
            validator,
        };
        Ok(Self { tool, parameters: Some(parameters) })
    }

    /// Checks a call.
    ///
    /// # Errors
    /// A sentence that names the argument.
    pub(crate) fn check(&self, call: &Call) -> Result<(), String> {
        let Some(parameters) = &self.parameters else { return Ok(()) };
        let tool = &self.tool;
        let named = parameters.bind(tool, call)?;
        if let Some(name) =
            parameters.required.iter().find(|name| !named.iter().any(|(held, _)| held == name))
        {
            return Err(format!("argument '{name}' of {tool} is missing"));
        }
        let mut instance = Map::with_capacity(named.len());
        for (name, value) in named {
            let json = if parameters.is_free(name) {
                // Any value is valid here, and this one may be large.
                Json::Null
            } else {
                value.to_json(MAX_BODY_BYTES).map_err(|error| not_json(tool, name, error))?
            };
            instance.insert(name.to_owned(), json);
        }
        parameters.validator.validate(&Json::Object(instance)).map_err(|error| {
            let path = error.instance_path().to_string();
            let mut steps = path.splitn(3, '/').skip(1);
            let place = match (steps.next().filter(|name| !name.is_empty()), steps.next()) {
                (None, _) => format!("arguments of {tool}"),
                (Some(name), None) => format!("argument '{name}' of {tool}"),
                (Some(name), Some(rest)) => format!("argument '{name}' of {tool} at /{rest}"),
            };
            match quoted(error.instance()) {
                Some(_) => format!("{place}: {error}"),
                None => format!("{place}: {}", error.masked()),
            }
        })
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.parameters.as_ref().map(|parameters| &parameters.names);
        formatter.debug_struct("Signature").field("tool", &self.tool).field("names", &names).finish()
    }
}

impl Parameters {
    /// The arguments with their names.
    fn bind<'a>(&'a self, tool: &str, call: &'a Call) -> Result<Vec<(&'a str, &'a Value)>, String> {
        if call.args.len() > self.names.len() {
            let (most, given) = (self.names.len(), call.args.len());
            return Err(format!("{tool} takes at most {most} by position ({}), not {given}", self.listed()));
        }
        let mut named: Vec<_> = self.names.iter().map(String::as_str).zip(&call.args).collect();
        let by_position = named.len();
        for (key, value) in call.kwargs.iter() {
            let Value::Str(name) = key else {
                return Err(format!("{tool}: the name of an argument is not a str"));
            };
            let place = self.names.iter().position(|held| **held == **name);
            match place {
                Some(place) if place < by_position => {
                    return Err(format!("argument '{name}' of {tool} is given twice"));
                }
                None if !self.takes_others => {
                    let name = shortened(name);
                    return Err(format!("{tool} has no argument '{name}'; it takes {}", self.listed()));
                }
                _ => named.push((name, value)),
            }
        }
        Ok(named)
    }

    fn listed(&self) -> String {
        if self.names.is_empty() { "none".to_owned() } else { self.names.join(", ") }
    }

    fn is_free(&self, name: &str) -> bool {
        let place = self.names.iter().position(|held| held == name);
        place.is_some_and(|place| self.free[place])
    }
}

/// The error of an argument that cannot be written as JSON.
pub(crate) fn not_json(tool: &str, name: &str, error: WriteError) -> String {
    match error {
        WriteError::NotJson { path, what } => {
            let place = path.strip_prefix("value").unwrap_or(&path);
            format!("argument '{name}'{place} of {tool}: JSON cannot hold {what}")
        }
        error => format!("argument '{name}' of {tool}: {error}"),
    }
}

/// The names that a schema gives to arguments by position; None without `properties`.
pub(crate) fn names(schema: &Json) -> Option<Vec<String>> {
    Some(schema.get("properties")?.as_object()?.keys().cloned().collect())
}

/// Arguments with their names. Those by position take these names in their order.
pub(crate) fn named<'a>(names: &'a [String], call: &'a Call) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let by_name = call.kwargs.iter().filter_map(|(key, value)| match key {
        Value::Str(name) => Some((&**name, value)),
        _ => None,
    });
    names.iter().map(String::as_str).zip(&call.args).chain(by_name)
}

fn refuses_nothing(schema: &Json) -> bool {
    match schema {
        Json::Object(keywords) => keywords.keys().all(|keyword| ANNOTATIONS.contains(&keyword.as_str())),
        other => other == &Json::Bool(true),
    }
}

/// The JSON text if it is short.
fn quoted(json: &Json) -> Option<String> {
    struct Short(String);
    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if self.0.len() + text.len() > QUOTED_BYTES {
                return Err(fmt::Error);
            }
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut short = Short(String::new());
    write!(short, "{json}").is_ok().then_some(short.0)
}

/// A caller's text in an error, at most 100 characters of it.
pub(crate) fn shortened(text: &str) -> String {
    cut(text, 100)
}
