"""Tools that several files have, and calls of them."""

from __future__ import annotations

import asyncio
from typing import Any

from rlm_env import tool


async def late(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def echo(*args: Any, **kwargs: Any) -> Any:
    return [*args, kwargs] if kwargs or len(args) != 1 else args[0]


@tool
def search(query: str, limit: int = 10) -> list[str]:
    """Finds documents
    by their words.

    Longer text.

    Args:
        query: words to look for,
            in any order
        limit (int): most results
    """
    return [f"{query} {number}" for number in range(limit)]


def call(session: Any, code: str) -> str:
    """The output of a Python expression, or of a bash command line."""
    python = session.config.language == "python"
    response = session.execute(f"print({code})" if python else code)
    if response.exception:
        return f"{response.exception.message}\n"
    return str(response.stdout).removeprefix("Error: ")


def call_tool(session: Any, name: str, *texts: str) -> str:
    """The output of a tool that is called with these texts."""
    is_python = session.config.language == "python"
    return call(session, f"{name}({', '.join(map(repr, texts))})" if is_python else " ".join([name, *texts]))
