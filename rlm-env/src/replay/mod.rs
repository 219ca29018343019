//! Past sessions, run once more: as a standalone script, or call by call in a fresh session.
//!
//! A [`PastSession`] is read from a control directory, a kept rollout, a history or a trajectory. [`script()`] writes
//! it as a standalone script. [`replay`] runs it again and reports for each call whether the result is the same. A
//! [`Recording`] holds the replies of root tools, so that both can work without the tools.
//!
//! The input was written by untrusted code: files are opened without blocking, and links are not followed in
//! directories that a session could write to. `docs/replay.md` lists the differences between a script and a session.

mod children;
mod compare;
mod history;
mod past;
mod recording;
mod run;
mod script;
mod source;
mod source_error;
mod trajectory;

pub use compare::{ComparedCall, Difference};
pub use past::{End, KnownOutput, PastCall, PastChild, PastSession, Task};
pub use recording::{Recorder, Recording, RecordingError};
pub use run::{ReplayConfig, ReplayError, ReplayResult, Tools, Workdir, replay};
pub use script::{ScriptOptions, script};
pub use source_error::{SourceError, SourceOptions};
