"""Why an actor of Ray has not started, or has ended."""

from __future__ import annotations

import re

from ray.exceptions import RayError


def constructor_error(error: RayError) -> str | None:
    """The last line of the error that the constructor of an actor has raised. None: the actor did not die of it."""
    if not getattr(error, "actor_init_failed", False):
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Ray's colours
    return plain.strip().splitlines()[-1]


def first_line(error: BaseException) -> str:
    """The words of an error, without the tables that Ray's have below."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
