//! `rlm saved`: the description of a saved session.

use std::io::Write;
use std::process::ExitCode;

use rlm_core::saved::{Header, Saved};

use crate::arguments::SavedOptions;
use crate::text::visible;

pub(crate) fn run(options: &SavedOptions) -> anyhow::Result<ExitCode> {
    crate::standard_output::require()?;
    let saved = Saved::open(&options.file)?;
    saved.check()?;
    let text = match options.json {
        true => serde_json::to_string(saved.header())?,
        false => described(saved.header()),
    };
    writeln!(std::io::stdout(), "{}", visible(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn described(header: &Header) -> String {
    let Header { language, version, worker_version, fs_root, cwd, execution_count, answer, contents, .. } =
        header;
    let counts: Vec<String> = contents.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let bytes: u64 = header.parts.iter().map(|part| part.bytes).sum();
    let ready = if answer.ready { "ready" } else { "not ready" };
    let mut lines = vec![
        format!("{language} {version}, saved by rlm {worker_version}"),
        format!("directory  {}", fs_root.display()),
        format!("went on in {}", cwd.display()),
        format!("calls      {execution_count}"),
        format!("answer     {ready}, {} bytes", answer.content.len()),
        format!("holds      {}; {bytes} bytes", counts.join(", ")),
    ];
    if let Some(directory) = header.directory {
        lines.push(format!(
            "files      {} files, directories and links; {} bytes",
            directory.entries, directory.bytes
        ));
    }
    if !header.root_tools.is_empty() {
        lines.push(format!("root tools {}", header.root_tools.join(", ")));
    }
    lines.extend(contents.left_out.iter().map(|(name, reason)| format!("left out   {name}: {reason}")));
    lines.join("\n")
}
