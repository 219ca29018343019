//! Root tools: functions in the session that run on the host.

mod bash;
mod python;
mod rootd;
