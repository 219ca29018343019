//! Output of calls, printed as it comes.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rlm_core::protocol::Response;
use rlm_env::session::{OutputObserver, OutputStream};

use crate::lock::lock;
use crate::standard_output::print;

/// Prints the output of a call while it runs, and knows what is left to print when it has ended.
#[derive(Debug, Default)]
pub(crate) struct LivePrinter {
    /// Bytes of the running call that are printed: standard output, standard error.
    printed: Mutex<[usize; 2]>,
    is_stopped: AtomicBool,
}

impl OutputObserver for LivePrinter {
    fn output(&self, stream: OutputStream, text: &str) {
        if self.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut printed = lock(&self.printed);
        let (is_printed, at) = match stream {
            OutputStream::Stdout => (print(text).is_ok(), 0),
            OutputStream::Stderr => (io::stderr().write_all(text.as_bytes()).is_ok(), 1),
        };
        // Output that cannot be printed is tried again at the end of the call, which reports the failure.
        if is_printed {
            printed[at] += text.len();
        }
    }
}

impl LivePrinter {
    /// Prints no more of the running call as it comes.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The rest of the output of a call that has ended: standard output, standard error.
    pub(crate) fn rest<'a>(&self, response: &'a Response) -> [Cow<'a, str>; 2] {
        self.is_stopped.store(false, Ordering::Relaxed);
        let printed = std::mem::take(&mut *lock(&self.printed));
        let dropped = response.truncated.unwrap_or_default();
        [
            rest(&response.stdout, printed[0], dropped.stdout),
            rest(&response.stderr, printed[1], dropped.stderr),
        ]
    }
}

/// The rest of a text from whose middle bytes may have been dropped, once its first bytes are printed: fewer are
/// missing then.
fn rest(text: &str, printed: usize, dropped: u64) -> Cow<'_, str> {
    let note = |missing: usize| format!("\n[{missing} bytes of output dropped here]\n");
    let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
    let is_cut = dropped > 0;
    let Some((head, tail)) = text.split_once(&note(dropped)).filter(|_| is_cut) else {
        return text.get(printed..).unwrap_or(text).into();
    };
    let tail_begins = head.len().saturating_add(dropped);
    match printed {
        printed if printed <= head.len() => text.get(printed..).unwrap_or(text).into(),
        printed if printed < tail_begins => (note(tail_begins - printed) + tail).into(),
        printed => tail.get(printed - tail_begins..).unwrap_or(tail).into(),
    }
}

/// The last line of a piece of output that is not empty, as a terminal shows it.
pub(crate) fn latest_line(text: &str) -> Option<&str> {
    text.split(['\n', '\r']).rfind(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_printed() {
        assert_eq!(rest("one\ntwo\n", 4, 0), "two\n");
        assert_eq!(rest("one", 3, 0), "");
        assert_eq!(rest("é", 1, 0), "é");
        let cut = "ab\n[6 bytes of output dropped here]\nij";
        assert_eq!(rest(cut, 0, 6), cut);
        assert_eq!(rest(cut, 1, 6), "b\n[6 bytes of output dropped here]\nij");
        assert_eq!(rest(cut, 5, 6), "\n[3 bytes of output dropped here]\nij");
        assert_eq!(rest(cut, 8, 6), "ij");
        assert_eq!(rest(cut, 9, 6), "j");
        assert_eq!(rest(cut, 10, 6), "");
    }
}
