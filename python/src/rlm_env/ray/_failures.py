"""Why an actor of Ray has not started."""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Ray need not be here.
from __future__ import annotations

import re

from ray.exceptions import RayError


def constructor_error(error: RayError) -> str | None:
    """The last line of what the constructor of an actor has raised. None: that is not why it died."""
    if not getattr(error, "actor_init_failed", False):
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Ray's colours
    return plain.strip().splitlines()[-1]
