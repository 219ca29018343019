//! Turns at parsing.
//!
//! Trees are many times as large as their source, so the whole process has one large one at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use super::stop::{Stop, Stopped};
use crate::memory;

/// What is larger is a large source, in bytes.
const LARGE_SOURCE_BYTES: usize = 32 << 10;

/// How often a call that waits looks whether it is its turn, or whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

static PARSING: Mutex<()> = Mutex::new(());

/// A turn at parsing a large source. What the tree took goes back to the system with it.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

/// A turn at parsing so many bytes, where they need one.
pub(super) fn parse_turn(bytes: usize, stop: &Stop) -> Result<Option<Turn>, Stopped> {
    if bytes <= LARGE_SOURCE_BYTES {
        return Ok(None);
    }
    loop {
        match PARSING.try_lock() {
            Ok(turn) => return Ok(Some(Turn(turn))),
            Err(TryLockError::Poisoned(turn)) => return Ok(Some(Turn(turn.into_inner()))),
            Err(TryLockError::WouldBlock) => {}
        }
        stop.check()?;
        thread::sleep(LOOK_EVERY);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        memory::give_back();
    }
}
