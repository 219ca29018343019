"""Our programs and directories on this machine, and programs in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from conftest import PATIENCE


def rlm_processes(directory: str) -> list[str]:
    """Our programs that have this directory for temporary files."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = Path("/proc", pid, "comm").read_text().strip()
            variables = Path("/proc", pid, "environ").read_bytes()
        except OSError:
            continue
        if name.startswith("rlm") and directory.encode() in variables:
            found.append(f"{pid} {name}")
    return found


def host_directories(directory: str) -> list[Path]:
    """Directories of ours for rollouts and sessions that are there."""
    return [path for path in Path(directory).iterdir() if path.name.startswith("rlm-host-")]


def hub() -> int:
    """The process of the hub."""

    def command_of(pid: str) -> str:
        with suppress(OSError):
            return Path("/proc", pid, "cmdline").read_text()
        return ""

    [pid] = [pid for pid in os.listdir("/proc") if command_of(pid).startswith("ray::_Hub")]
    return int(pid)


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs another program in Python, to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
