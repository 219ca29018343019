"""Ends of asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any


async def to_its_end(work: Awaitable[object]) -> None:
    """Awaits something, also if that is cancelled several times meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def mark_seen(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Marks what ended tasks have raised as seen: otherwise Python prints it."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
