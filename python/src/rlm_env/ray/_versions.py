"""Checks that a node runs the same version of the package and of its programs as the driver."""

from __future__ import annotations

from collections.abc import Callable

from .._errors import StartError

Versions = tuple[str, str]
"""The versions of the package and of its command `rlm`, or the reason why it has none."""


def _probe() -> Callable[[], Versions]:
    """A function that tells the versions where it runs. It travels as code, since modules there may be older."""

    def versions() -> tuple[str, str]:
        import subprocess

        try:
            from rlm_env import __version__ as package
        except ImportError as error:
            return f"none ({error})", "unknown"
        from rlm_env import find_program

        try:
            told = subprocess.run([find_program("rlm"), "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return package, f"none ({error})"
        return package, told.stdout.split()[-1] if told.stdout.split() else f"none ({told.stderr.strip()})"

    return versions


versions = _probe()


def check(node: str, there: Versions, here: Versions) -> None:
    """Raises StartError if the versions differ."""
    for name, of_node, of_driver in zip(("the package rlm_env", "its command rlm"), there, here, strict=True):
        if of_node != of_driver:
            raise StartError(
                f"the node {node} has version {of_node} of {name}, and the driver {of_driver}: "
                "install the same wheel on all nodes"
            )
