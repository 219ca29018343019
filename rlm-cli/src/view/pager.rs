//! Output through a pager.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

/// What a shell's exit status is where it did not find the program.
const NOT_FOUND: i32 = 127;

/// A command for a shell, such as `less -R`.
#[derive(Debug)]
pub(super) struct Pager {
    pub(super) command: OsString,
    /// Whether `LESS` is left to us: quit where all fits on the screen, show colours, and leave the text there.
    pub(super) sets_less: bool,
}

/// Prints to standard output, through a pager where there is one and it can be started. A reader that goes away is no error.
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
    /// Whether it could be started.
    fn show(&self, print: &mut impl FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<bool> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&self.command).stdin(Stdio::piped());
        if self.sets_less {
            shell.env("LESS", "FRX");
        }
        // Ctrl-C is the pager's: it stops a search there, and must not leave the terminal to it half-way.
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        let _printing_goes_on_unguarded = interrupt.thread_block();
        let Ok(mut child) = shell.spawn() else { return Ok(false) };
        let pipe = child.stdin.take().expect("it was asked for");
        let mut pipe = BufWriter::new(pipe);
        let printed = print(&mut pipe).and_then(|()| pipe.flush());
        // The end of the text, for the pager; what is left in the buffer has no reader.
        drop(pipe.into_parts());
        let status = child.wait()?;
        let _interrupts_stay_blocked = interrupt.thread_unblock();
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
