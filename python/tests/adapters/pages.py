"""Examples of the documentation, to run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"


def example(page: str, containing: str) -> dict[str, Any]:
    """The names that the block of Python with this text in it defines."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    [block] = (block for block in blocks if containing in block)
    names: dict[str, Any] = {}
    exec(compile(block, f"{page} ({containing})", "exec"), names)
    return names
