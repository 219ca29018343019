//! The socket on which an endpoint listens.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rlm_core::percent;

/// A bound listener, TCP or Unix.
#[derive(Debug)]
pub struct Listener {
    pub(crate) kind: Kind,
    base_url: String,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Tcp(TcpListener),
    /// The file is removed at the end.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Binds a TCP address. Port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        Self::from_tcp(TcpListener::bind(address)?)
    }

    /// Takes a bound TCP listener.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn from_tcp(listener: TcpListener) -> io::Result<Self> {
        let base_url = format!("http://{}", listener.local_addr()?);
        Ok(Self { kind: Kind::Tcp(listener), base_url })
    }

    /// Binds a Unix socket that only its owner may connect to. An abandoned socket at that path is replaced; the path is
    /// removed when the listener is dropped.
    ///
    /// # Errors
    /// The path cannot be bound.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let listener = UnixListener::bind(&path).or_else(|error| {
            if error.kind() != io::ErrorKind::AddrInUse || !is_abandoned(&path) {
                return Err(error);
            }
            std::fs::remove_file(&path)?;
            UnixListener::bind(&path)
        })?;
        let metadata = std::fs::metadata(&path)?;
        let mut permissions = metadata.permissions();
        permissions.set_mode(0o600);
        std::fs::set_permissions(&path, permissions)?;
        let base_url = format!("http+unix://{}", percent::encoded(path.as_os_str().as_bytes(), b""));
        let file = SocketFile { path, device: metadata.dev(), inode: metadata.ino() };
        Ok(Self { kind: Kind::Unix(listener, file), base_url })
    }

    /// The URL of the listener: `http://ADDRESS:PORT`, or `http+unix://PATH` with the path percent-encoded.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }
}

/// The path of a socket. It is removed on drop, if it still is that socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // Somebody else may remove it first.
            let _gone_already = std::fs::remove_file(&self.path);
        }
    }
}

fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_socket_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b.sock");
        let first = Listener::unix(&path).unwrap();
        assert!(first.base_url().starts_with("http+unix://%2F"), "{}", first.base_url());
        assert!(first.base_url().ends_with("%2Fa%20b.sock"), "{}", first.base_url());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        let second = Listener::unix(&path).unwrap();
        drop(second);
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    }
}
