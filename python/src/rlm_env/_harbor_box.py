"""The start of a box of Harbor's environment: a program that `unshare` runs as process 1 of new namespaces.

It gives them a root directory of their own, with the host's system directories in it, says so, and becomes `cat`: the
box lives until standard input ends, so it never outlives its host, and the kernel ends every process in it with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import signal
import sys

_BIND, _RECURSIVE, _DETACH = 4096, 16384, 2
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_MOUNT_SETATTR, _AT_RECURSIVE, _ATTR_RDONLY = 442, 0x8000, 1
_PIVOT_ROOT = 155 if platform.machine() == "x86_64" else 41

_SYSTEM = "bin lib lib32 lib64 libx32 nix/store gnu/store sbin sys/devices/system/cpu usr".split()
_ETC = """
    alternatives bash.bashrc ca-certificates ca-certificates.conf crypto-policies debian_version fonts gai.conf
    group host.conf hosts ld.so.cache ld.so.conf ld.so.conf.d locale.alias localtime login.defs magic mime.types
    nsswitch.conf os-release passwd perl pki/ca-trust pki/tls/certs profile profile.d protocols python3
    resolv.conf services shells ssl/certs ssl/openssl.cnf terminfo
""".split()
_OWN = "app dev/pts dev/shm home logs mnt opt proc root run solution srv tests tmp var/tmp".split()
_DEVICES = "full null random tty urandom zero".split()
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

_libc = ctypes.CDLL(None, use_errno=True)


def main(root: str, shared: list[tuple[str, str, bool]]) -> None:
    """`shared` has paths of the host, their paths in the box, and whether the box may write there."""
    for name in _OWN:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("dev/shm", "tmp", "var/tmp"):
        os.chmod(f"{root}/{name}", 0o1777)
    _mount(root, root, None, _BIND)
    for name in _SYSTEM:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.exists(f"/{name}"):
            _share(f"/{name}", f"{root}/{name}", False)
    for name in _ETC:
        # Files are copies, which the box may change.
        if os.path.isdir(f"/etc/{name}"):
            _share(f"/etc/{name}", f"{root}/etc/{name}", False)
        elif os.path.exists(f"/etc/{name}"):
            os.makedirs(os.path.dirname(f"{root}/etc/{name}"), exist_ok=True)
            shutil.copyfile(f"/etc/{name}", f"{root}/etc/{name}")
    for source, target, may_write in shared:
        _share(source, root + target, may_write)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("devpts", f"{root}/dev/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    for name in _DEVICES:
        _share(f"/dev/{name}", f"{root}/dev/{name}", True)
    for name, to in _LINKS.items():
        os.symlink(to, f"{root}/dev/{name}")
    os.chdir(root)
    _checked(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root", root)
    _checked(_libc.umount2(b".", _DETACH), "umount", "/")
    os.chdir("/")
    # Processes that lost their parent are reaped by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    os.execvpe("cat", ["cat"], {"PATH": "/usr/bin:/bin"})


def _share(source: str, target: str, may_write: bool) -> None:
    """Shows a path of the host at `target`, and what is mounted below it."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "a").close()
    _mount(source, target, None, _BIND | _RECURSIVE)
    if not may_write:
        attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY, 0, 0, 0)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        path = os.fsencode(target)
        done = _libc.syscall(_MOUNT_SETATTR, -100, path, _AT_RECURSIVE, ctypes.byref(attributes), size)
        _checked(done, "mount_setattr", target)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else word.encode() for word in (kind, options)]
    done = _libc.mount(os.fsencode(source), os.fsencode(target), words[0], ctypes.c_ulong(flags), words[1])
    _checked(done, f"mount of {source}", target)


def _checked(result: int, what: str, path: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise SystemExit(f"{what} at {path}: {os.strerror(error)}")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
