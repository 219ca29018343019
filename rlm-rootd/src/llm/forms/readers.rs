//! The forms of calls, each read behind its opening mark.

use serde_json::{Map, Value as Json};

use super::json::first_json;
use super::marks::DSML_INVOKE;
use super::scanner::Scanner;
use super::written::{WrittenCall, calls_of, checked, without_breaks};

/// The forms of calls.
impl Scanner<'_> {
    /// Hermes and Qwen: JSON. Qwen3-Coder: functions with parameters. GLM: a name with keys and values.
    pub(super) fn tagged(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        if self.rest().trim_start().starts_with(['{', '[']) {
            return self.listed(close);
        }
        let mut calls = Vec::new();
        while self.skip("<function=") {
            calls.push(self.function()?);
        }
        if calls.is_empty() {
            return Some(vec![self.keys_and_values(close)?]);
        }
        self.skip(close);
        Some(calls)
    }

    /// Qwen3-Coder without the opening tag, and Llama 3.1's custom calls.
    pub(super) fn bare_function(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let call = self.function()?;
        self.skip(close);
        Some(vec![call])
    }

    fn function(&mut self) -> Option<WrittenCall> {
        let name = checked(self.until(">")?)?;
        let arguments = self.object().or_else(|| self.parameters("<parameter=", "</parameter>"))?;
        self.skip("</function>").then_some(WrittenCall { name, arguments })
    }

    fn keys_and_values(&mut self, close: &'static str) -> Option<WrittenCall> {
        let name = checked(self.before(['\n', '<', '\\'])?)?;
        let mut values = Map::new();
        while self.skip_breaks("<arg_key>") {
            let key = checked(self.until("</arg_key>")?)?;
            let value = self.skip_breaks("<arg_value>").then(|| self.value("</arg_value>"))??;
            if values.insert(key, without_breaks(value).into()).is_some() {
                return None;
            }
        }
        self.skip_breaks(close).then(|| WrittenCall { name, arguments: Json::Object(values).to_string() })
    }

    /// Calls whose first mark was read already.
    pub(super) fn bare_invokes(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        self.at -= DSML_INVOKE.len();
        self.invokes(close)
    }

    /// MiniMax M2, DeepSeek V3.2 and V4.
    pub(super) fn invokes(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let [open, end, parameter, parameter_end] = if close.contains("DSML") {
            [DSML_INVOKE, "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "</｜DSML｜parameter>"]
        } else {
            ["<invoke name=\"", "</invoke>", "<parameter name=\"", "</parameter>"]
        };
        let mut calls = Vec::new();
        while self.skip(open) {
            let name = checked(self.until("\"")?)?;
            self.until(">")?;
            let arguments = self.object().or_else(|| self.parameters(parameter, parameter_end))?;
            calls.push(self.skip(end).then_some(WrittenCall { name, arguments })?);
        }
        self.skip(close);
        (!calls.is_empty()).then_some(calls)
    }

    /// JSON objects or lists: Llama, Cohere, older Mistral models.
    pub(super) fn listed(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let mut calls = Vec::new();
        while let Some((json, bytes)) = first_json(self.rest()) {
            let Some(more) = calls_of(&json) else { break };
            calls.extend(more);
            self.at += bytes;
            let _is_separated = self.skip(";") || self.skip(",");
        }
        self.skip(close);
        (!calls.is_empty()).then_some(calls)
    }

    /// `NAME[ARGS]{…}` or `NAME[CALL_ID]ID[ARGS]{…}`, or a list.
    pub(super) fn mistral(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let name = self.before(['[', '{'])?.trim();
        if name.is_empty() {
            return self.listed(close);
        }
        if self.skip("[CALL_ID]") {
            self.until("[ARGS]")?;
        } else {
            self.skip("[ARGS]");
        }
        Some(vec![WrittenCall { name: checked(name)?, arguments: self.object()? }])
    }

    pub(super) fn kimi(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let name = checked(self.until("<|tool_call_argument_begin|>")?)?;
        let arguments = self.payload(&[close])?;
        self.skip(close);
        Some(vec![WrittenCall { name, arguments }])
    }

    /// V3 and R1: `function`, the name, a fence. V3.1: the name.
    pub(super) fn deepseek(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let mut name = self.until("<｜tool▁sep｜>")?;
        if name.trim() == "function" && !self.rest().starts_with('{') {
            name = self.until("\n")?;
        }
        let name = checked(name)?;
        self.skip("```json");
        let arguments = self.payload(&[close])?.trim_end_matches('`').trim_end().to_owned();
        self.skip("```");
        self.skip(close);
        Some(vec![WrittenCall { name, arguments }])
    }
}
