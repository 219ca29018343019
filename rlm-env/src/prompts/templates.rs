//! The templates: built in or custom, and checked against their variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// All templates, by the name of their file in `prompts/`.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../prompts/", $name)))),*];
    };
}

built_in![
    "bash/output_cut.md",
    "bash/repl.md",
    "bash/repl_code.md",
    "bash/system.md",
    "bash/tool.md",
    "bash/tools.md",
    "bash/tools_intercepted.md",
    "interception/call_failed.md",
    "interception/calls_rejected.md",
    "interception/results_cut.md",
    "limits.md",
    "mcp/ask_directory.md",
    "mcp/bash.md",
    "mcp/instructions.md",
    "mcp/python.md",
    "mcp/reset.md",
    "mcp/session_script.md",
    "notices/context_low.md",
    "notices/last_turn.md",
    "notices/malformed_call_error.md",
    "notices/malformed_call_hint.md",
    "notices/answer_empty.md",
    "notices/answer_unfit.md",
    "notices/images.md",
    "notices/no_tool_call.md",
    "notices/reply_cut.md",
    "notices/session_reset.md",
    "output_note.md",
    "python/output_cut.md",
    "python/repl.md",
    "python/repl_code.md",
    "python/system.md",
    "python/tool.md",
    "python/tools.md",
    "python/tools_intercepted.md",
    "sub_llm.md",
    "summary.md",
    "summary_request.md",
    "tool/failure_error.md",
    "tool/failure_hint.md",
    "tool/output_cut.md",
    "tool/state_lost.md",
    "tool_output_cut.md",
    "working_dir.md",
];

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// A file or directory of templates cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file in a directory of templates does not have a template's name.
    #[error("{} is not the name of a prompt: expected one of {known}", path.display())]
    UnknownFile {
        /// Its path.
        path: PathBuf,
        /// The names, separated by commas.
        known: String,
    },
    /// A template is malformed, or rendering it failed.
    #[error("{file}:{line}: {reason}")]
    Template {
        /// The template.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The template engine's message.
        reason: String,
    },
    /// A template uses a variable that does not exist.
    #[error("{file}:{line}: unknown variable `{name}`: expected {known}")]
    MissingVariable {
        /// The template.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The variable.
        name: String,
        /// The names of its variables, separated by commas.
        known: String,
    },
    /// A template does not use one of its variables.
    #[error(
        "{file}: the variable `{name}` is not used: to leave it unused on purpose, write {{% set _ = {name} %}}"
    )]
    UnusedVariable {
        /// The template.
        file: String,
        /// The variable.
        name: String,
    },
}

/// The templates of all texts for models. Rendering reads no files.
#[derive(Debug)]
pub struct Prompts {
    environment: Environment<'static>,
    variables: BTreeMap<String, BTreeSet<String>>,
    /// The files that replaced templates, for error messages.
    origins: BTreeMap<String, PathBuf>,
}

impl Prompts {
    /// The built-in templates.
    #[must_use]
    pub fn new() -> Self {
        let mut prompts =
            Self { environment: environment(), variables: BTreeMap::new(), origins: BTreeMap::new() };
        for (name, source) in BUILT_IN {
            prompts.put(name, (*source).to_owned()).expect("a test renders every built-in template");
        }
        prompts
    }

    /// Replaces a built-in template by the one in a file.
    pub(super) fn replace(&mut self, name: &str, source: String, file: PathBuf) -> Result<(), PromptError> {
        self.origins.insert(name.to_owned(), file);
        self.put(name, source)
    }

    /// The names of all templates, as a directory of other ones has them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    fn put(&mut self, name: &str, source: String) -> Result<(), PromptError> {
        self.environment
            .add_template_owned(name.to_owned(), source)
            .map_err(|error| self.failed(name, &error))?;
        let template = self.environment.get_template(name).map_err(|error| self.failed(name, &error))?;
        let globals: BTreeSet<_> = self.environment.globals().map(|(name, _)| name.to_owned()).collect();
        let variables = template.undeclared_variables(false).into_iter();
        self.variables.insert(name.to_owned(), variables.filter(|name| !globals.contains(name)).collect());
        Ok(())
    }

    /// Renders a template, which must use exactly these variables.
    pub(super) fn render(&self, name: &str, variables: Value) -> Result<String, PromptError> {
        let template = self.environment.get_template(name).map_err(|error| self.failed(name, &error))?;
        let given: BTreeSet<_> =
            variables.try_iter().into_iter().flatten().map(|name| name.to_string()).collect();
        let named = &self.variables[name];
        if let Some(missing) = named.difference(&given).next() {
            return Err(PromptError::MissingVariable {
                file: self.origin(name),
                line: line_of(template.source(), missing),
                name: missing.clone(),
                known: listed(&given),
            });
        }
        if let Some(unused) = given.difference(named).next() {
            return Err(PromptError::UnusedVariable { file: self.origin(name), name: unused.clone() });
        }
        let text = template.render(variables).map_err(|error| self.failed(name, &error))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn failed(&self, name: &str, error: &minijinja::Error) -> PromptError {
        let reason = match (error.kind(), error.detail()) {
            (ErrorKind::UndefinedError, None) => "an undefined value is used".to_owned(),
            (kind, None) => kind.to_string(),
            (_, Some(detail)) => detail.to_owned(),
        };
        PromptError::Template { file: self.origin(name), line: error.line().unwrap_or(1), reason }
    }

    /// The file that a template comes from.
    fn origin(&self, name: &str) -> String {
        match self.origins.get(name) {
            Some(path) => path.display().to_string(),
            None => format!("prompts/{name}"),
        }
    }
}

impl Default for Prompts {
    fn default() -> Self {
        Self::new()
    }
}

/// The template syntax: a tag on a line of its own leaves no line, and undefined values are errors.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Models read plain text, so nothing is escaped as HTML, whatever the file's extension.
    environment.set_auto_escape_callback(|_name| minijinja::AutoEscape::None);
    environment
}

/// The first line with a tag that uses this name.
fn line_of(source: &str, name: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names_it = |tag: &str| tag.split(|c| !is_word(c)).any(|word| word == name);
    let mut rest = source;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let tag = &rest[start..];
        let end = tag.find("}}").into_iter().chain(tag.find("%}")).min().unwrap_or(tag.len());
        if names_it(&tag[..end]) {
            let before = tag[..end].find(name).unwrap_or_default() + source.len() - tag.len();
            return source[..before].matches('\n').count() + 1;
        }
        rest = &tag[end..];
    }
    1
}

pub(super) fn listed(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    names.join(", ")
}
