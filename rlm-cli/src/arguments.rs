//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rlm_env::ReplLanguage;

/// A persistent REPL for language models.
#[derive(Debug, Parser)]
#[command(name = "rlm", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  rlm exec 'wc -l *.md'                        one call in the current directory
  rlm exec --context src 'x=1' 'echo $x'       two calls in one session
  rlm exec --file calls.sh --json              a file of calls, raw responses
  rlm exec --python 'x = 2' 'x ** 10'          the same in Python
  rlm repl --context data                      a session to type into

Exit status: 0 every call ran to its end; 1 a call was stopped, raised, or ended its interpreter; 2 usage; 3 the session
cannot be started or served; 128 + N ended by signal N.

This is not a security sandbox: code runs with your rights.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run calls in one session and print what they print.
    #[command(after_help = EXEC_HELP)]
    Exec(ExecOptions),
    /// Type into a session.
    #[command(after_help = REPL_HELP)]
    Repl(ReplOptions),
    /// Serve a session over two FIFOs, for an RLM environment.
    Worker(WorkerOptions),
    /// Print shell completions.
    Completions {
        /// The shell to print them for.
        shell: clap_complete::Shell,
    },
}

const EXEC_HELP: &str = "\
A file of calls holds one call per block; a line `# %%` stands between blocks. Output goes to standard output as the calls
print it, with the value of a Python cell's last expression, and the answer last, where RLM_CONTENT or `answer` was
set. What else there is to say, tracebacks too, goes to standard error.";

const REPL_HELP: &str = "\
Ctrl-C interrupts the running call, or clears the line. Ctrl-D ends the session. Code that is not complete goes on in the
next line; an empty line sends it as it is.";

/// What every command with a session takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionOptions {
    /// The session's working directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) context: PathBuf,
    /// Language of the session: bash or python.
    #[arg(long, value_name = "LANGUAGE", default_value = "bash")]
    repl_language: ReplLanguage,
    /// The same as `--repl-language python`. PATH is the Python to use, CPython 3.10 or newer: a program, its name on PATH,
    /// or the directory of a virtual environment. Default: RLM_PYTHON, else VIRTUAL_ENV, else python3 on PATH.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, conflicts_with = "repl_language")]
    python: Option<Option<PathBuf>>,
    /// Stop a call after this many seconds; its state is kept.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Return at most this many bytes of a call's output, head and tail.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_output_bytes: Option<usize>,
}

impl SessionOptions {
    /// The session's language.
    pub(crate) fn language(&self) -> ReplLanguage {
        if self.python.is_some() { ReplLanguage::Python } else { self.repl_language }
    }

    /// The Python that was named.
    pub(crate) fn python(&self) -> Option<&Path> {
        self.python.as_ref()?.as_deref()
    }
}

#[derive(Args, Debug)]
pub(crate) struct ExecOptions {
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    /// A file of calls, one per block; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    pub(crate) file: Option<PathBuf>,
    /// Print raw responses, one JSON document per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The calls, each an argument.
    #[arg(value_name = "CODE", required_unless_present = "file")]
    pub(crate) code: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ReplOptions {
    #[command(flatten)]
    pub(crate) session: SessionOptions,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerOptions {
    /// Language of the session: bash or python.
    #[arg(long, value_name = "LANGUAGE", default_value = "bash")]
    pub(crate) repl_language: ReplLanguage,
    /// The directory with rlm_context.json; the FIFOs are made there.
    #[arg(long, value_name = "DIR")]
    pub(crate) control_dir: PathBuf,
    /// Options that the worker of this language takes beyond these, behind `--`.
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) rest: Vec<std::ffi::OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_language_is_named_with_both_that_exist() {
        let error = Arguments::try_parse_from(["rlm", "exec", "--repl-language", "perl", ":"]).unwrap_err();
        assert!(
            error.to_string().contains("unknown REPL language `perl`: expected `bash` or `python`"),
            "{error}"
        );
    }

    #[test]
    fn python_is_a_language_and_may_name_an_interpreter() {
        let session = |arguments: &[&str]| {
            let arguments = ["rlm", "exec"].iter().chain(arguments).chain(&["code"]);
            match Arguments::try_parse_from(arguments).unwrap().command {
                Command::Exec(options) => options.session,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(session(&[]).language(), ReplLanguage::Bash);
        for arguments in [&["--python"][..], &["--repl-language", "python"]] {
            assert_eq!(
                (session(arguments).language(), session(arguments).python()),
                (ReplLanguage::Python, None)
            );
        }
        let named = session(&["--python=/venv"]);
        assert_eq!((named.language(), named.python()), (ReplLanguage::Python, Some(Path::new("/venv"))));
    }

    #[test]
    fn a_time_limit_is_seconds_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["0", "-1", "NaN", "soon", "1e999"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
