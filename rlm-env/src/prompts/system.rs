//! The system prompts of root models and sub-LLMs.

use std::path::Path;
use std::time::Duration;

use minijinja::context;
use rlm_core::text::grouped;
use serde_json::{Value as Json, json};

use super::format::{budget, duration};
use super::templates::{PromptError, Prompts};
use super::tools::{RootToolsDoc, ToolDoc};
use crate::terms::{CallForm, Callbacks, Limits, ReplLanguage, Verbosity};

/// The system prompt of a root model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemPrompt<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// How much the prompt explains.
    pub verbosity: Verbosity,
    /// How the model has its code run.
    pub call_form: CallForm,
    /// How code calls root tools.
    pub callbacks: Callbacks,
    /// The root tools. `llm_batch` and `budget` may be among them; the fields below describe those two.
    pub root_tools: &'a [ToolDoc<'a>],
    /// Number of sub-LLMs that answer at once; None if there is no `llm_batch`.
    pub sub_llm_parallelism: Option<usize>,
    /// True if there is a `budget` tool.
    pub has_budget: bool,
    /// True if a Python session has `FINAL` and `FINAL_VAR`.
    pub has_final_functions: bool,
    /// The JSON schema of the answer, as text, if it has one.
    pub answer_schema: Option<&'a str>,
    /// True if the code of another rollout has asked the question.
    pub is_child: bool,
    /// True if a reply without code is an answer.
    pub plain_answers: bool,
    /// The limits that the prompt mentions.
    pub limits: &'a Limits,
    /// The summary of the working directory.
    pub files: &'a str,
}

impl SystemPrompt<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let root_tools = RootToolsDoc {
            language: self.language,
            callbacks: self.callbacks,
            tools: self.root_tools,
            sub_llm_parallelism: self.sub_llm_parallelism,
            has_budget: self.has_budget,
        };
        let variables = context! {
            verbosity => self.verbosity.to_string(),
            is_fenced => self.call_form == CallForm::Fenced,
            // False for intercepted calls: their prompts are literals, so code cannot build them.
            has_llm_batch => self.sub_llm_parallelism.is_some() && self.callbacks == Callbacks::Network,
            tools => root_tools.render(prompts)?,
            limits => limits(self.limits, prompts)?,
            files => self.files.trim_end(),
            answer_schema => self.answer_schema,
            is_child => self.is_child,
            plain_answers => self.plain_answers,
        };
        let variables = match self.language {
            ReplLanguage::Bash => variables,
            ReplLanguage::Python => context! { has_final_functions => self.has_final_functions, ..variables },
        };
        prompts.render(&format!("{}/system.md", self.language), variables)
    }
}

/// The system prompt's words on the files of a rollout in a directory of the user's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkingDir<'a> {
    /// The directory.
    pub working_dir: &'a Path,
    /// The directory with the context.
    pub context_dir: &'a Path,
    /// The summary of the context, if there is one.
    pub files: Option<&'a str>,
}

impl WorkingDir<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            working_dir => self.working_dir.display().to_string(),
            context_dir => self.context_dir.display().to_string(),
            files => self.files.map(str::trim_end),
        };
        prompts.render("working_dir.md", variables)
    }
}

fn limits(limits: &Limits, prompts: &Prompts) -> Result<String, PromptError> {
    let variables = context! {
        max_turns => grouped(limits.max_turns.into()),
        call_timeout => duration(limits.call_timeout),
        timeout => limits.timeout.map(duration),
        max_output_length => grouped(limits.max_output_length as u64),
        budget => budget(&limits.budget),
    };
    prompts.render("limits.md", variables)
}

/// The tool that runs code, for a root model with tool calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplTool {
    /// The session's language.
    pub language: ReplLanguage,
    /// The time limit of a call.
    pub call_timeout: Duration,
    /// Characters of output that the model sees.
    pub max_output_length: usize,
}

impl ReplTool {
    /// Renders the tool's description.
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            call_timeout => duration(self.call_timeout),
            max_output_length => grouped(self.max_output_length as u64),
        };
        prompts.render(&format!("{}/repl.md", self.language), variables)
    }

    /// The tool in OpenAI's form, with its one parameter, `code`.
    pub(crate) fn definition(&self, prompts: &Prompts) -> Result<Json, PromptError> {
        let code = prompts.render(&format!("{}/repl_code.md", self.language), context! {})?;
        Ok(json!({
            "type": "function",
            "function": {
                "name": self.language.tool_name(),
                "description": self.render(prompts)?,
                "parameters": {
                    "type": "object",
                    "properties": {"code": {"type": "string", "description": code}},
                    "required": ["code"],
                    "additionalProperties": false,
                },
            },
        }))
    }
}

/// The system prompt of a sub-LLM.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubLlmPrompt {
    /// True if the answer is taken from the last `\boxed{…}`.
    pub boxed: bool,
    /// True if the sub-LLM may call tools.
    pub has_tools: bool,
}

impl SubLlmPrompt {
    /// Renders the text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("sub_llm.md", context! { boxed => self.boxed, has_tools => self.has_tools })
    }
}
