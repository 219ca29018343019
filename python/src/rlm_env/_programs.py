"""The programs that the package brings: they lie in one directory, where they find each other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DIRECTORY = "RLM_BIN_DIR"
"""Names a directory of programs to use in place of the package's, such as a checkout's `target/release`."""


def find_program(name: str) -> Path:
    """The path of a program of the package, such as `rlm` or `rlm-worker-bash`.

    Raises FileNotFoundError if the package was installed without its programs.
    """
    given = os.environ.get(DIRECTORY)
    directory = Path(given) if given else Path(__file__).with_name("_bin")
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


def main() -> None:
    """The command `rlm`."""
    try:
        program = find_program("rlm")
    except FileNotFoundError as error:
        sys.exit(f"rlm: {error}")
    os.execv(program, sys.argv)
