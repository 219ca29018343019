//! Files of hosts: private directories, the removal of trees, names for display.

mod host_dir;
mod names;
mod remove;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use host_dir::HostDir;
pub use host_dir::PrivateDir;
pub(crate) use names::{shown, shown_short};
pub(crate) use remove::{clear, remove_all};
