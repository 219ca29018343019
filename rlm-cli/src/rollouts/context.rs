//! The context of a run: what the command line gives, checked before anything starts.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rlm_core::error::with_causes;
use rlm_env::Context;

use crate::tell;
use crate::usage::{Usage, refuse};

/// The context that the command line gives.
#[derive(Debug)]
pub(crate) struct GivenContext<'a> {
    paths: &'a [PathBuf],
}

impl<'a> GivenContext<'a> {
    /// Checks that its paths can be opened.
    pub(crate) fn new(paths: &'a [PathBuf]) -> Result<Self, Usage> {
        if paths.len() > 1 && paths.iter().any(|path| path.as_os_str().is_empty()) {
            refuse!("--context '' is an empty directory: give it alone");
        }
        let given = Self { paths };
        let input = given.reads_input().then(String::new);
        let checked = given.with_input(input).check();
        checked.map_err(|error| Usage::new(format!("--context: {}", with_causes(&error))))?;
        Ok(given)
    }

    /// Refuses a question without a context, from this place of a file or from the command line.
    pub(crate) fn require(&self, place: Option<&str>) -> Result<(), Usage> {
        if !self.paths.is_empty() {
            return Ok(());
        }
        let missing = match place {
            Some(place) => format!("{place}: the question has no context, and no --context is given"),
            None => "no context is given".to_owned(),
        };
        let piped = if is_piped() { "; `--context -` reads standard input, which is a pipe" } else { "" };
        refuse!(
            "{missing}: --context PATH copies files for the model, `--context .` those of this directory; with \
             `--context ''` it has none{piped}"
        )
    }

    /// The context, with the text of standard input where `-` is given.
    pub(crate) fn read(&self, limit: u64) -> anyhow::Result<Context> {
        let input = self.reads_input().then(|| read_input(limit)).transpose()?;
        Ok(self.with_input(input))
    }

    fn reads_input(&self) -> bool {
        self.paths.iter().any(|path| path == Path::new("-"))
    }

    fn with_input(&self, input: Option<String>) -> Context {
        let named = |path: &&PathBuf| *path != Path::new("-");
        match (self.paths, input) {
            ([], _) => Context::Nothing,
            ([path], None) if path.as_os_str().is_empty() => Context::Nothing,
            (paths, None) => Context::Paths(paths.to_vec()),
            ([_], Some(text)) => Context::Text(text),
            (paths, Some(text)) => {
                let paths = paths.iter().filter(named).cloned().collect();
                Context::Together(vec![Context::Paths(paths), Context::Text(text)])
            }
        }
    }
}

/// Reads standard input, up to a limit in bytes.
fn read_input(limit: u64) -> anyhow::Result<String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        tell("rlm: reading the context from the terminal; Ctrl-D ends it");
    }
    let mut bytes = Vec::new();
    input
        .lock()
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .context("cannot read the context from standard input")?;
    anyhow::ensure!(
        u64::try_from(bytes.len()).is_ok_and(|read| read <= limit),
        "the context on standard input is larger than {limit} bytes: --max-context-bytes is the limit"
    );
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        anyhow::anyhow!("the context on standard input is not UTF-8: offset {offset}")
    })
}

/// Reports whether standard input is a pipe.
fn is_piped() -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let metadata =
        std::io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    metadata.is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(names: &[&str], input: Option<&str>) -> Context {
        let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        GivenContext { paths: &paths }.with_input(input.map(str::to_owned))
    }

    #[test]
    fn standard_input_alone_is_a_text_and_among_others_a_file() {
        let text = Context::Text("text".to_owned());
        let data = Context::Paths(vec!["data".into()]);
        assert_eq!(context(&[], None), Context::Nothing);
        assert_eq!(context(&[""], None), Context::Nothing);
        assert_eq!(context(&["data"], None), data);
        assert_eq!(context(&["-"], Some("text")), text);
        assert_eq!(context(&["data", "-"], Some("text")), Context::Together(vec![data, text]));
    }
}
