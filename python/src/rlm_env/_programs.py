"""The programs that the package brings: they lie in one directory, where they find each other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from ._errors import StartError

DIRECTORY = "RLM_BIN_DIR"
"""Names a directory of programs to use in place of the package's, such as a checkout's `target/release`."""


def find_program(name: str) -> Path:
    """The path of a program of the package, such as `rlm` or `rlm-worker-bash`.

    Raises FileNotFoundError if the package was installed without its programs.
    """
    given = os.environ.get(DIRECTORY)
    directory = Path(given).absolute() if given else Path(__file__).with_name("_bin")
    program = directory / name
    if not program.is_file():
        raise FileNotFoundError(
            f"there is no program {name} in {directory}: "
            + (
                f"{DIRECTORY} must name a directory that has it"
                if given
                else "install rlm-env from its wheel, "
                f"or set {DIRECTORY} to a directory that has it, such as target/release of a checkout"
            )
        )
    return program


def is_bundle(program: Path) -> bool:
    """True for an `rlm` of one file, which needs no program beside it."""
    with program.open("rb") as file:
        file.seek(max(program.stat().st_size - len(_BUNDLE_END), 0))
        return file.read() == _BUNDLE_END


_BUNDLE_END = b"rlm-bundle v1\n\n\n"


def check_descriptors() -> None:
    """Raises OSError if there are too few descriptors to start a program with.

    Before CPython 3.12, `Popen` leaves open what it has opened when the next pipe cannot be made (its issue 87474).
    """
    with ExitStack() as stack:
        for _ in range(_STARTING_DESCRIPTORS):
            stack.enter_context(open(os.devnull, "rb", buffering=0))


_STARTING_DESCRIPTORS = 7
"""Descriptors that a start needs: /dev/null, two pipes, and the one by which `Popen` learns of a failed start."""

SECRET_VARIABLE = "RLM_CALLBACK_SECRET"
"""The variable that tells `rlm` the secret of the functions of this program."""

_LOG_TAIL_BYTES = 4096


def start_rlm(
    arguments: list[str], environment: Mapping[str, str], log_path: str, *, is_fed: bool = False
) -> subprocess.Popen[bytes]:
    """Starts the command `rlm`, which ends with this program. Raises StartError."""
    try:
        with open(log_path, "wb") as log:
            check_descriptors()
            return subprocess.Popen(
                [find_program("rlm"), *arguments],
                env={**os.environ, **environment, "RLM_HOST_PID": str(os.getpid())},
                stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
                bufsize=0,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C at our terminal is for us
            )
    except OSError as error:
        raise StartError(f"cannot start rlm {arguments[0]}: {error}") from error


def log_tail(log_path: str) -> str:
    """The last words in a log of `rlm`. Empty if there are none."""
    with suppress(OSError), open(log_path, "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
        return log.read().decode(errors="replace").strip()
    return ""


def main() -> None:
    """The command `rlm`."""
    try:
        program = find_program("rlm")
    except FileNotFoundError as error:
        sys.exit(f"rlm: {error}")
    os.execv(program, sys.argv)
