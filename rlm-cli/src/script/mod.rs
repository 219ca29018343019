//! `rlm script`: the calls of a session as a stand-alone script.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use rlm_env::replay::{PastSession, Recording, ScriptOptions, SourceOptions};

use crate::arguments::{ScriptOptions as Options, SourceArguments};
use crate::standard_output::{is_broken_pipe, print};
use crate::tell;
use crate::usage::Usage;

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.output.is_none() {
        crate::standard_output::require()?;
    }
    let past = open(&options.source)?;
    let recording = options.recorded.as_deref().map(Recording::read).transpose()?;
    let script =
        rlm_env::replay::script(&past, ScriptOptions { all: options.all, recording: recording.as_ref() });
    match &options.output {
        Some(file) => {
            write(file, &script).with_context(|| format!("cannot write {}", file.display()))?;
        }
        None => match print(&script) {
            // The reader has seen enough.
            Err(error) if is_broken_pipe(&error) => {}
            printed => printed?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the session that was named, and prints remarks on it.
pub(crate) fn open(source: &SourceArguments) -> anyhow::Result<PastSession> {
    let options = SourceOptions { rollout: source.rollout.clone(), language: source.language };
    let past = PastSession::open(&source.source, &options).map_err(|error| {
        if error.is_usage() { Usage::new(error.to_string()).into() } else { anyhow::Error::new(error) }
    })?;
    for remark in &past.remarks {
        tell(format_args!("rlm: {remark}"));
    }
    Ok(past)
}

/// Writes an executable file. An existing one is replaced atomically.
fn write(path: &Path, script: &str) -> io::Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(path, script);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".rlm-script")
        // Permissions as of any new program; the umask applies.
        .permissions(Permissions::from_mode(0o777))
        .tempfile_in(dir)?;
    file.write_all(script.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
