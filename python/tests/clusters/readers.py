"""Readers of batches in other threads and loops, and what they wait for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import ray

from conftest import wait_until


async def give_up(work: Any) -> None:
    """Begins something, and cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def all_cpus_are_free() -> bool:
    return bool(ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def read_in_thread(batch: Any, read: Any = list) -> tuple[threading.Thread, list[Any]]:
    """Begins to read a batch in another thread. The thread, and the results that it has at its end."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(read(batch)), daemon=True)
    thread.start()
    return thread, found


def has_ended(thread: threading.Thread) -> bool:
    thread.join(60)
    return not thread.is_alive()


def close_while_read(batch: Any, condition: Any, what: str) -> None:
    """Reads a batch in another thread, closes it when the condition holds, and waits for the end of that thread."""
    thread, _ = read_in_thread(batch)
    wait_until(condition, what)
    batch.close()
    assert has_ended(thread)
