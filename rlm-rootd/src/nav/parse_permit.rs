//! Permits to parse large sources.
//!
//! Syntax trees are many times as large as their source, so the whole process holds only one large one at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use super::stop::{Stop, Stopped};
use crate::memory;

/// Size in bytes above which a source is large.
const LARGE_SOURCE_BYTES: usize = 32 << 10;

/// Time between attempts of a waiting call, which also checks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

static PARSING: Mutex<()> = Mutex::new(());

/// A permit to parse a large source. Dropping it returns the tree's memory to the system.
#[derive(Debug)]
pub(super) struct ParsePermit(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

/// Waits for a permit to parse this many bytes; None if they do not need one.
pub(super) fn parse_permit(bytes: usize, stop: &Stop) -> Result<Option<ParsePermit>, Stopped> {
    if bytes <= LARGE_SOURCE_BYTES {
        return Ok(None);
    }
    loop {
        match PARSING.try_lock() {
            Ok(turn) => return Ok(Some(ParsePermit(turn))),
            Err(TryLockError::Poisoned(turn)) => return Ok(Some(ParsePermit(turn.into_inner()))),
            Err(TryLockError::WouldBlock) => {}
        }
        stop.check()?;
        thread::sleep(LOOK_EVERY);
    }
}

impl Drop for ParsePermit {
    fn drop(&mut self) {
        memory::give_back();
    }
}
