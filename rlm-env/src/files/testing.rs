//! Helpers for tests of this module.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, chown, geteuid};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const NOBODY: u32 = 65534;

/// Runs a test under permission checks even if the tests run as root: on a thread with the rights of an unprivileged
/// user, who owns the directory.
pub(crate) fn as_nobody(dir: &Path, test: impl FnOnce(&Path) + Send) {
    if !geteuid().is_root() {
        return test(dir);
    }
    chown(dir, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
    std::thread::scope(|scope| {
        let run = || {
            // SAFETY: plain integers. Unlike the C library's function, the bare system call changes only this thread,
            // which ends.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
            assert_eq!(changed, 0);
            test(dir);
        };
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs a test on a thread with its own mount namespace. Prints a note if that is not allowed.
#[expect(clippy::print_stdout, reason = "a skipped test has to say so")]
pub(crate) fn with_own_mounts(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = || {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
                println!("skipped: cannot mount anything: {error}");
                return;
            }
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            test();
        };
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// True if the test can run; prints why if not.
#[expect(clippy::print_stdout, reason = "a skipped test has to say so")]
pub(crate) fn is_root(what_for: &str) -> bool {
    if !geteuid().is_root() {
        println!("skipped: {what_for}");
    }
    geteuid().is_root()
}

/// Number of warnings that a closure logs.
pub(crate) fn warnings_of(test: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Warnings(Arc::clone(&count)), test);
    count.load(Ordering::Relaxed)
}

struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
