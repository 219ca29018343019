//! Output through a pager.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

/// A shell's exit status for a program that it did not find.
const NOT_FOUND: i32 = 127;

/// A command for a shell, such as `less -R`.
#[derive(Debug)]
pub(super) struct Pager {
    pub(super) command: OsString,
    /// True if we set `LESS`: quit if the text fits on the screen, show colours, and leave the text there.
    pub(super) sets_less: bool,
}

/// Prints to standard output, through a pager if one is given and can be started. A reader that goes away is not an error.
pub(super) fn page(
    pager: Option<&Pager>,
    mut print: impl FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(pager) = pager
        && pager.show(&mut print)?
    {
        return Ok(());
    }
    let mut output = BufWriter::new(io::stdout().lock());
    unless_gone(print(&mut output).and_then(|()| output.flush()))
}

impl Pager {
    /// Shows the text. False if the pager could not be started.
    fn show(&self, print: &mut impl FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<bool> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&self.command).stdin(Stdio::piped());
        if self.sets_less {
            shell.env("LESS", "FRX");
        }
        // Ctrl-C is for the pager: there it stops a search, and must not end us while the pager has the terminal.
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        let _unblocked_is_tolerable = interrupt.thread_block();
        let Ok(mut child) = shell.spawn() else { return Ok(false) };
        let pipe = child.stdin.take().expect("stdin is piped");
        let mut pipe = BufWriter::new(pipe);
        let printed = print(&mut pipe).and_then(|()| pipe.flush());
        // Closes the pipe, which ends the pager's input. Bytes left in the buffer have no reader.
        drop(pipe.into_parts());
        let status = child.wait()?;
        let _blocked_is_tolerable = interrupt.thread_unblock();
        unless_gone(printed)?;
        Ok(status.code() != Some(NOT_FOUND))
    }
}

fn unless_gone(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
