//! What a session did, once more: as a script that runs on its own, or call by call in a fresh session.
//!
//! A [`PastSession`] is read from a control directory, a kept rollout, a history or a trajectory. [`script()`] writes it as a
//! standalone script. [`replay`] runs it again and says of each call whether it came to the same. A [`Recording`] holds what
//! root tools answered, so that both can do without them.
//!
//! What is read was written by code that nobody has looked at: files are opened without waiting, and no link is followed in
//! a directory that a session could write to. Where a script differs from a session stands in `docs/replay.md`.

mod compare;
mod history;
mod past;
mod recording;
mod run;
mod script;
mod source;
mod source_error;
mod trajectory;

pub use compare::{Compared, Difference};
pub use past::{End, Known, PastCall, PastSession, Task};
pub use recording::{Recorder, Recording, RecordingError};
pub use run::{Place, ReplayConfig, ReplayError, Replayed, Tools, replay};
pub use script::{ScriptOptions, script};
pub use source_error::{SourceError, SourceOptions};
