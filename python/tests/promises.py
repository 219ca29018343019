"""Adapters of this package as the cases of `rlm_env.testing` see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import pytest

from rlm_env.testing import Adapter, Call, cases


def parameters(*adapters: Adapter, nightly: bool = False) -> list[Any]:
    """Each case of each adapter, as a parameter of a test."""
    marks = [pytest.mark.nightly] if nightly else []
    return [
        pytest.param(case, id=f"{adapter.name}-{name}", marks=marks)
        for adapter in adapters
        for name, case in cases(adapter)
    ]


def in_threads(opened: Callable[..., AbstractContextManager[tuple[Callable[[str], str], Callable[[], None]]]]) -> Any:
    """An `Open` from synchronous code: a context of a function that runs code, and of one that interrupts it."""

    @asynccontextmanager
    async def open(*arguments: Any) -> AsyncIterator[Call]:
        context = opened(*arguments)
        run, interrupt = await asyncio.to_thread(context.__enter__)

        async def call(code: str) -> str:
            running = asyncio.ensure_future(asyncio.to_thread(run, code))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                interrupt()
                await asyncio.wait([running])
                raise

        try:
            yield call
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)

    return open
