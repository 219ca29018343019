//! The command lines of `rlm_query` and `rlm_query_batch`.

use std::ffi::OsString;
use std::path::Path;

use rlm_core::root_tool::print::Output;
use rlm_core::root_tool::query_words::{self, Surroundings};
use rlm_core::root_tool::{Call, RLM_QUERY};

use crate::arguments::{UsageError, read_arguments, read_standard_input, text_of};

pub(crate) fn usage(tool: &str) -> String {
    let (call, words, own) = match tool == RLM_QUERY {
        true => (
            "Has another agent, with a session of its own, answer a question, and prints its answer.",
            "QUESTION [FILE]...",
            "A FILE of - is standard input, the child's file context.txt.",
        ),
        false => (
            "Has other agents answer questions, several at once, and prints the answers in order.",
            "QUESTION...",
            "With --lines, standard input has one question a line.",
        ),
    };
    let options = match tool == RLM_QUERY {
        true => "",
        false => {
            "  --file PATH       a file or directory for each of them; may be repeated\n  --lines           read one question a line from standard input\n  -0, --null        end each answer with NUL instead of a line end\n"
        }
    };
    format!(
        "{call}\n\nUsage: {tool} [OPTION]... {words}\n\nThe agent gets copies of the files and directories, which must be in the session's directory. {own}\n\nOptions:\n{options}  --text TEXT       its file context.txt\n  --data JSON       its file context.json\n  --model NAME      the model that leads it\n  --language NAME   the language of its session: bash or python\n  --max-turns N     its most turns\n  --timeout SECONDS its most time\n  --share PART      the part of what is left of the budget that it has for itself: 0.2\n  --json            print answer, ready, stop_reason, error, turns and cost_usd as JSON\n  --                the arguments after it are never options\n  --help            print this text\n\nExit status: 0 answered, 1 there is no answer, 2 the command line is invalid.\n"
    )
}

/// Parses a command line, without the tool's name. None: help is wanted.
pub(crate) fn parse(tool: &str, mut arguments: Vec<OsString>) -> Result<Option<(Call, Output)>, UsageError> {
    let from = arguments.first().and_then(|first| first.to_str()?.strip_prefix("--arguments-from="));
    if let Some(path) = from {
        arguments = read_arguments(path)?;
    }
    let words = arguments.into_iter().map(|word| text_of(word.into_encoded_bytes())).collect();
    query_words::parse(tool, words, &mut OfThisProcess).map_err(UsageError)
}

struct OfThisProcess;

impl Surroundings for OfThisProcess {
    fn standard_input(&mut self) -> Result<String, String> {
        read_standard_input()
    }

    /// The host does not know where the shell is.
    fn file(&self, path: String) -> String {
        std::path::absolute(Path::new(&path)).map_or(path.clone(), |path| path.to_string_lossy().into_owned())
    }
}
