//! Code that the commands share which run rollouts: `run` with one and with many, `acp`, `mcp`, `demo`, `replay`.

mod context;
mod ending;
mod events;
mod left_out;
mod progress;
mod servers;
mod setup;
mod stop;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

pub(crate) use self::context::GivenContext;
pub(crate) use self::ending::{is_failure, reason, status, words as ending_words};
pub(crate) use self::events::Events;
pub(crate) use self::left_out::{LeftOutNotices, words as left_out_words};
pub(crate) use self::progress::{
    BatchProgress, Progress, Tally, WaitNotices, can_draw, level as progress_level, money,
};
pub(crate) use self::servers::root_models;
pub(crate) use self::setup::{
    BUILT_IN_TOOLS, Setup, close, context_filter, host, live_tools, make_directory, python_variable, sinks,
};
pub(crate) use self::stop::{Request, Requests};

/// Keeps other processes of the same user, sessions included, from reading keys in our environment or memory.
pub(crate) fn hide_from_others() -> anyhow::Result<()> {
    nix::sys::prctl::set_dumpable(false).context("the process cannot be hidden from others of its user")
}

/// A new rollout id, so that several commands can append to one trajectory.
pub(crate) fn new_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    format!("run-{now}-{:06x}", fastrand::u32(..1 << 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_a_host_takes() {
        let id = new_id();
        assert!(id.len() <= 128 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id}");
        assert_ne!(id, new_id());
    }
}
