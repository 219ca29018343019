"""Private control directories. The next host removes the directory of a host that was killed.

The scheme is that of the crate `rlm-env` (`files/host_dir.rs`), so either removes what the other left: a process has a
directory `rlm-host-…` in the system's directory for temporary files, and a lock (`flock`) on the file `rlm@lock` in it.
The kernel releases the lock when the process dies. A directory whose lock can be taken is an orphan.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

_PREFIX = "rlm-host-"
_LOCK = "rlm@lock"
_ATTEMPTS = 1000


def write_own_file(path: str, text: str | bytes) -> None:
    """Writes a file in a directory that code in a session can write. No link that code has put there is followed."""
    new = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    os.replace(new, path)


def _open_own_file(path: str) -> BinaryIO:
    """A regular file that code in a session may have written. No link is followed."""
    file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file


def copy_own_file(source: str, target: str) -> None:
    """Copies a file to or from such a directory. What is there is replaced once the copy is whole."""
    with _open_own_file(source) as file:
        new = f"{target}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(new, flags, 0o600), "wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
            os.replace(new, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise


def read_own_file(path: str, most: int) -> bytes:
    """Reads at most this many bytes of a file that code in a session has written."""
    with _open_own_file(path) as file:
        return file.read(most)


class PrivateDirectory:
    """A directory for one session, in the directory of the process."""

    def __init__(self) -> None:
        self._host = _HostDirectory.of_process()
        try:
            self.path = tempfile.mkdtemp(prefix="session-", dir=self._host.path)
        except BaseException:
            self._host.release()
            raise

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes this directory with its contents, and with the last one the directory of the process."""
        _remove_tree(self.path)
        self._host.release()


class _HostDirectory:
    _current: _HostDirectory | None = None
    _guard = threading.Lock()

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._users = 1

    @classmethod
    def of_process(cls) -> _HostDirectory:
        """The directory of this process. It is made if it does not exist, or was removed."""
        with cls._guard:
            current = cls._current
            if current is not None and os.path.exists(os.path.join(current.path, _LOCK)):
                current._users += 1
                return current
            cls._current = cls._make(os.path.realpath(tempfile.gettempdir()))
            return cls._current

    @classmethod
    def _make(cls, parent: str) -> _HostDirectory:
        for name in os.listdir(parent):
            if name.startswith(_PREFIX):
                with suppress(OSError):  # somebody else's, or gone
                    _remove_if_orphan(os.path.join(parent, name))
        for _ in range(_ATTEMPTS):
            path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            try:
                lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue  # another host has just taken it for an orphan
            except OSError:
                os.rmdir(path)
                raise
            if _take(lock):
                os.write(lock, f"{os.getpid()}\n".encode())
                return cls(path, lock)
            os.close(lock)
        raise OSError(f"cannot make a directory in {parent}: another process keeps removing it")

    def release(self) -> None:
        cls = type(self)
        with cls._guard:
            self._users -= 1
            if self._users > 0:
                return
            if cls._current is self:
                cls._current = None
            with suppress(OSError):
                _remove_locked(self.path)
            os.close(self._lock)

    @classmethod
    def _forget(cls) -> None:
        """Runs in a forked child, which has no part in its parent's directory and must not keep the lock of that."""
        cls._guard = threading.Lock()
        if cls._current is not None:
            with suppress(OSError):
                os.close(cls._current._lock)
            cls._current = None


os.register_at_fork(after_in_child=_HostDirectory._forget)


def _take(lock: int) -> bool:
    """Takes the lock. False if another process has it, or has removed the file."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(lock).st_nlink > 0


def _remove_if_orphan(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    os.chmod(path, 0o700)
    try:
        lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        os.rmdir(path)  # it was killed before it had a lock; or has none yet, and makes another directory
        return
    try:
        if stat.S_ISREG(os.fstat(lock).st_mode) and _take(lock):
            _remove_locked(path)
    finally:
        os.close(lock)


def _remove_locked(path: str) -> None:
    """Removes the directory of a host whose lock the caller has. The lock file goes last, as it marks an orphan."""
    for name in os.listdir(path):
        if name != _LOCK:
            _remove_tree(os.path.join(path, name))
            if os.path.lexists(os.path.join(path, name)):
                return
    os.unlink(os.path.join(path, _LOCK))
    os.rmdir(path)


def _remove_tree(path: str) -> None:
    """Removes a directory that code of a session may have filled, and made inaccessible."""

    def open_and_repeat(function: Callable[..., Any], failed: str, _error: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(failed), 0o700)
            if function in (os.open, os.scandir, os.listdir):
                os.chmod(failed, 0o700)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                function(failed)

    # `onerror` became `onexc` in 3.12; both get the function that failed first.
    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=open_and_repeat)
    else:
        shutil.rmtree(path, onerror=open_and_repeat)
