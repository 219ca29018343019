//! Snapshots of the built-in texts, and errors of custom templates.

use std::collections::BTreeMap;
use std::fs;

use minijinja::context;
use serde_json::json;
use similar::{DiffTag, TextDiff};

use super::tools::RootToolsDoc;
use super::*;
use crate::terms::ReplLanguage;
use crate::terms::{CallForm, Callbacks};
use crate::terms::{Limits, Verbosity};

#[test]
fn every_text_matches_its_snapshot() {
    let texts = samples::render_all(&Prompts::new()).unwrap();
    let by_name = texts.iter().cloned().collect::<BTreeMap<_, _>>();
    assert_eq!(by_name.len(), texts.len(), "two texts share a name");
    let is_system = |(name, _): &(&String, &String)| name.contains("_system_");
    let (systems, others): (Vec<_>, Vec<_>) = by_name.iter().partition(is_system);
    for language in ["bash", "python"] {
        let systems = systems.iter().filter(|(name, _)| name.starts_with(language));
        let sections = systems.map(|(name, text)| {
            let form = if name.ends_with("_bare") { "light_bare" } else { "heavy" };
            let base = format!("{language}_system_{form}");
            section(name, text, (**name != base).then(|| (base.as_str(), by_name[&base].as_str())))
        });
        insta::assert_snapshot!(format!("{language}_system"), sections.collect::<String>());
    }
    let sections = others.iter().map(|(name, text)| {
        let in_bash = name.strip_prefix("python_").map(|name| format!("bash_{name}"));
        let base = in_bash.as_deref().and_then(|base| Some((base, by_name.get(base)?.as_str())));
        section(name, text, base)
    });
    insta::assert_snapshot!("other_texts", sections.collect::<String>());
}

/// A text below its name: whole, or what sets it apart from another one if that is shorter.
fn section(name: &str, text: &str, base: Option<(&str, &str)>) -> String {
    if let Some((base, old)) = base {
        let changes = changes(old, text);
        if changes.lines().count() < text.lines().count() {
            return format!("==== {name}: {base} with\n{changes}");
        }
    }
    format!("==== {name}\n{text}\n")
}

/// The changes from one text to another: how many lines stay (`=`), how many go (`-`, with the first), each new one (`+`).
fn changes(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let (mut text, old) = (String::new(), diff.old_slices());
    for op in diff.ops() {
        let (tag, before, after) = op.as_tag_tuple();
        if tag == DiffTag::Equal {
            text += &format!("= {}\n", before.len());
            continue;
        }
        if !before.is_empty() {
            text += &format!("- {}: {}\n", before.len(), old[before.start].trim_end_matches('\n'));
        }
        for line in &diff.new_slices()[after] {
            text += &format!("+ {}\n", line.trim_end_matches('\n'));
        }
    }
    text
}

/// A directory with one file.
fn overrides(name: &str, source: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, source).unwrap();
    dir
}

/// The error for a directory with one file, with its path replaced by `DIR`.
fn refusal(name: &str, source: &str) -> String {
    let dir = overrides(name, source);
    let error = Prompts::with_overrides(dir.path()).unwrap_err();
    error.to_string().replace(dir.path().to_str().unwrap(), "DIR")
}

#[test]
fn a_template_of_a_directory_replaces_the_built_in_one() {
    let dir = overrides("bash/tool.md", "{{ name }}! {{ usage }}{% set _ = [description, parameters] %}\n");
    fs::write(dir.path().join("README.md"), "{{ not a template").unwrap();
    fs::write(dir.path().join(".bash.swp"), "{{").unwrap();
    let prompts = Prompts::with_overrides(dir.path()).unwrap();
    let parameters = json!({"properties": {"a": {}}});
    let tool = ToolDoc { name: "go", description: "", parameters: &parameters };
    let mut doc = RootToolsDoc {
        language: ReplLanguage::Bash,
        callbacks: Callbacks::Network,
        tools: &[tool],
        sub_llm_parallelism: None,
        has_budget: false,
    };
    assert!(doc.render(&prompts).unwrap().contains("\n\ngo! go [A]"), "{}", doc.render(&prompts).unwrap());
    doc.language = ReplLanguage::Python;
    assert!(doc.render(&prompts).unwrap().contains("\n\n## go\n\n`go(a: Any = ...)`"));
}

#[test]
fn a_missing_variable_is_an_error_with_file_and_line() {
    assert_eq!(
        refusal("sub_llm.md", "task\n{% if boxed %}box{% endif %}\n{{ has_tool }}{{ has_tools }}"),
        "DIR/sub_llm.md:3: unknown variable `has_tool`: expected boxed, has_tools"
    );
}

#[test]
fn a_variable_that_is_not_used_is_an_error() {
    assert_eq!(
        refusal("sub_llm.md", "{{ boxed }}"),
        "DIR/sub_llm.md: the variable `has_tools` is not used: to leave it unused on purpose, write {% set _ = has_tools %}"
    );
}

#[test]
fn variables_are_checked_at_every_rendering() {
    let prompts = Prompts::new();
    let missing = prompts.render("summary.md", context! { turns => 1 }).unwrap_err();
    assert!(missing.to_string().starts_with("prompts/summary.md:3: unknown variable `summary`"), "{missing}");
    let unused = prompts.render("summary.md", context! { turns => 1, summary => "", more => 1 }).unwrap_err();
    assert!(matches!(unused, PromptError::UnusedVariable { name, .. } if name == "more"));
}

#[test]
fn an_invalid_template_is_named_with_file_and_line_on_loading() {
    assert_eq!(
        refusal("summary.md", "{{ turns }}\n{% if summary %}"),
        "DIR/summary.md:2: unexpected end of input, expected end of block"
    );
    assert_eq!(
        refusal("summary.md", "{{ turns }}\n\n{{ summary.text }}"),
        "DIR/summary.md:3: `summary.text` is undefined"
    );
    assert_eq!(
        refusal(
            "notices/last_turn.md",
            "{{ language }}{{ is_fenced }}\n{% if reason == 'time' %}{{ reason|shout }}{% endif %}"
        ),
        "DIR/notices/last_turn.md:2: filter shout is unknown"
    );
    // Templates cannot include each other.
    assert!(refusal("summary.md", "{{ turns }}{% include summary %}").contains("unknown statement include"));
}

#[test]
fn a_file_without_a_prompts_name_is_refused() {
    let refused = refusal("bash/systen.md", "");
    assert!(
        refused.starts_with(
            "DIR/bash/systen.md is not the name of a prompt: expected one of bash/output_cut.md, "
        ),
        "{refused}"
    );
    let error = Prompts::with_overrides("/nowhere/prompts".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/prompts");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("summary.md"), b"\xff").unwrap();
    let error = Prompts::with_overrides(dir.path()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read {}", dir.path().join("summary.md").display()));
}

/// The usage line of a tool with these parameters.
fn usage(language: ReplLanguage, parameters: serde_json::Value) -> String {
    let tool = ToolDoc { name: "t", description: "d", parameters: &parameters };
    let doc = RootToolsDoc {
        language,
        callbacks: Callbacks::Network,
        tools: &[tool],
        sub_llm_parallelism: None,
        has_budget: false,
    };
    let text = doc.render(&Prompts::new()).unwrap();
    text.lines().find(|line| line.starts_with("`t")).unwrap().trim_matches('`').to_owned()
}

#[test]
fn signatures_come_from_schemas() {
    let mixed = json!({
        "required": ["b"],
        "properties": {"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": {},
    });
    let both = |parameters: &serde_json::Value| {
        [ReplLanguage::Bash, ReplLanguage::Python].map(|language| usage(language, parameters.clone()))
    };
    assert_eq!(both(&json!({})), ["t [ARGUMENT]...", "t(*args, **kwargs)"]);
    assert_eq!(both(&json!({"properties": {}})), ["t", "t()"]);
    assert_eq!(both(&mixed), [r#"t --json '{"b": …}'"#, "t(a: float = ..., *, b: list[str], **kwargs)"]);
    let defaults = json!({"properties": {
        "on": {"type": "boolean", "default": true},
        "key": {"type": ["string", "null"], "default": null},
        "mode": {"enum": ["a,b", null]},
        "long": {"type": "string", "default": "x".repeat(1000)},
    }});
    assert_eq!(
        both(&defaults)[1],
        "t(on: bool = True, key: str | None = None, mode: Literal['a,b', None] = ..., long: str = ...)"
    );
}

#[test]
fn tools_with_a_passage_of_their_own_are_not_described_twice() {
    let schema = json!({});
    let tools = ["llm_batch", "budget"].map(|name| ToolDoc { name, description: "", parameters: &schema });
    let mut doc = RootToolsDoc {
        language: ReplLanguage::Bash,
        callbacks: Callbacks::Network,
        tools: &tools,
        sub_llm_parallelism: Some(3),
        has_budget: true,
    };
    let text = doc.render(&Prompts::new()).unwrap();
    assert_eq!((text.matches("## llm_batch").count(), text.matches("## budget").count()), (1, 1));
    (doc.sub_llm_parallelism, doc.has_budget) = (None, false);
    assert_eq!(doc.render(&Prompts::new()).unwrap(), "");
}

#[test]
fn the_light_prompt_is_short() {
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        let prompt = SystemPrompt {
            language,
            callbacks: Callbacks::Network,
            verbosity: Verbosity::Light,
            call_form: CallForm::Tool,
            root_tools: &[],
            sub_llm_parallelism: None,
            has_budget: false,
            has_final_functions: false,
            answer_schema: None,
            is_child: false,
            plain_answers: false,
            limits: &Limits::default(),
            files: "",
        };
        let text = prompt.render(&Prompts::new()).unwrap();
        let rules = text.split("# Limits").next().unwrap();
        let words = rules.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
        assert!(words < 270, "{language}: {words} words");
    }
}

#[test]
fn prompts_name_the_tool_of_their_language() {
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        let other = if language == ReplLanguage::Bash { ReplLanguage::Python } else { ReplLanguage::Bash };
        for (name, text) in samples::render_all(&Prompts::new()).unwrap() {
            if name.starts_with(&format!("{language}_")) {
                assert!(!text.contains(other.tool_name()), "{name} names the other language's tool");
            }
            if name.starts_with(&format!("{language}_system")) && !name.ends_with("bare") {
                assert!(text.contains(language.tool_name()), "{name}");
            }
        }
    }
}

#[test]
fn prompts_for_interception_describe_only_calls_that_can_be_intercepted() {
    let texts = samples::render_all(&Prompts::new()).unwrap();
    let text = |name: &str| &texts.iter().find(|(held, _)| held == name).unwrap().1;
    for (language, with_models) in
        [("bash", "replies=$(llm_batch 'first prompt'"), ("python", "replies = llm_batch([\"first prompt\"")]
    {
        assert!(text(&format!("{language}_system_intercepted")).contains(with_models));
        let without = text(&format!("{language}_system_intercepted_without_models"));
        assert!(without.contains("nav_info"), "{without}");
        for other in ["llm_batch", "budget", "HTTP"] {
            assert!(!without.contains(other), "{other} is in {without}");
        }
    }
}

#[test]
fn rollouts_on_all_threads_share_the_templates() {
    let prompts = Prompts::new();
    let here = SubLlmPrompt::default().render(&prompts).unwrap();
    let there = std::thread::scope(|scope| {
        scope.spawn(|| SubLlmPrompt::default().render(&prompts).unwrap()).join().unwrap()
    });
    assert_eq!(here, there);
}
