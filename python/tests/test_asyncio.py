"""The expectations of asyncio code: cancellation, many sessions in one loop, and clear refusals."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import NIGHTLY, ended, until
from rlm_env import AsyncSession, EndedError, SessionConfig, UsageError


async def test_a_cancelled_call_is_interrupted_and_the_next_one_is_clean(
    work: Path, language: Any, say: Any, hang: str
) -> None:
    async with AsyncSession(SessionConfig(work, language=language)) as session:
        await session.set({"x": 7})
        for _ in range(20):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.execute(hang), 0.05)
            response = await session.execute(say("next"))
            assert response.stdout.split() == ["next"], "nothing of the cancelled call"
            assert ended(response) == ("ok", "kept")
        show = "echo $x" if language == "bash" else "print(x)"
        assert (await session.execute(show)).stdout == "7\n"


async def test_a_call_that_is_cancelled_before_the_worker_reads_it_is_interrupted(work: Path) -> None:
    async with AsyncSession(work) as session:
        for _ in range(50):
            call = asyncio.ensure_future(session.execute("sleep 1000"))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await session.execute("echo next")).stdout == "next\n"


async def test_a_second_call_is_refused_while_one_runs(work: Path) -> None:
    async with AsyncSession(work) as session:
        first = asyncio.ensure_future(session.execute("sleep 0.2; echo first"))
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError, match="another call of this session is running.*a session for each task"):
            await session.execute("echo second")
        assert (await first).stdout == "first\n"


async def test_closing_ends_a_running_call(work: Path) -> None:
    session = await AsyncSession(work).start()
    call = asyncio.ensure_future(session.execute(": > begun; sleep 1000"))
    await until((work / "begun").exists)
    await session.close()
    with pytest.raises(EndedError, match="the session was closed while the call was running"):
        await call
    with pytest.raises(UsageError, match="is closed"):
        await session.execute(":")


def test_a_session_belongs_to_its_loop(work: Path) -> None:
    loop = asyncio.new_event_loop()
    session = loop.run_until_complete(AsyncSession(work).start())
    with pytest.raises(UsageError, match="belongs to another event loop"):
        asyncio.run(session.execute(":"))  # type: ignore[arg-type]
    loop.run_until_complete(session.close())
    loop.close()


async def test_a_cancelled_start_leaves_nothing(work: Path, tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 1000\n")
    mute.chmod(0o755)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(AsyncSession(SessionConfig(work, worker=mute)).start(), 0.2)


@pytest.mark.filterwarnings("always::ResourceWarning")
def test_a_forgotten_session_is_ended_and_says_so(work: Path) -> None:
    async def main() -> int:
        session = await AsyncSession(work).start()
        pid = session.pid
        assert pid is not None
        del session
        gc.collect()
        return pid

    with pytest.warns(ResourceWarning, match="an AsyncSession was not closed"):
        pid = asyncio.run(main())
    assert not os.path.exists(f"/proc/{pid}")


async def test_50_sessions_in_one_loop(work: Path) -> None:
    async def one(number: int) -> None:
        async with AsyncSession(work) as session:
            await session.execute(f"x={number}")
            for count in range(20):
                response = await session.execute(f"echo $x {count}")
                assert response.stdout == f"{number} {count}\n"

    await asyncio.gather(*(one(number) for number in range(50)))


async def test_200_sessions_at_once(work: Path) -> None:
    sessions = [AsyncSession(work) for _ in range(200)]
    try:
        await asyncio.gather(*(session.start() for session in sessions))
        responses = await asyncio.gather(*(session.execute("echo $$") for session in sessions))
        assert len({response.stdout for response in responses}) == 200
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


async def test_100_000_calls_in_one_session(work: Path) -> None:
    calls = 100_000 if NIGHTLY else 5_000
    async with AsyncSession(SessionConfig(work, language="python")) as session:
        await session.execute("n = 0")
        memory = (await session.info()).memory_bytes
        for number in range(1, calls + 1):
            response = await session.execute("n += 1; n")
            assert response.result == str(number) and response.seq == number + 2
        assert (await session.info()).memory_bytes < memory * 1.2 + (8 << 20)


async def test_the_loop_is_free_while_a_call_runs(work: Path) -> None:
    started = time.monotonic()
    async with AsyncSession(work) as session:
        call = asyncio.ensure_future(session.execute("sleep 0.3"))
        ticks = 0
        while not call.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 10
    assert time.monotonic() - started < 30


async def test_a_close_that_is_cancelled_ends_the_running_call(work: Path) -> None:
    session = await AsyncSession(work).start()
    await session.execute("trap '' HUP TERM; (trap '' HUP TERM; sleep 100) & :")
    call = asyncio.ensure_future(session.execute(": > begun; sleep 50"))
    await until((work / "begun").exists)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(session.close(), 0.05)
    with pytest.raises(EndedError, match="the session was closed"):
        await asyncio.wait_for(call, 10)


async def test_a_tool_can_close_its_session(work: Path) -> None:
    async def end() -> None:
        await session.close()

    session = await AsyncSession(work, tools=[end]).start()
    with pytest.raises(EndedError, match="the session was closed"):
        await asyncio.wait_for(session.execute("end; sleep 1000"), 20)
    await session.close()


async def test_starts_restarts_and_closes_at_once(work: Path) -> None:
    async def lazy(session: AsyncSession) -> str:
        await session.start()
        await asyncio.sleep(0)
        return (await session.execute("echo $$")).stdout

    for tools in ([], [len]):
        session = AsyncSession(work, tools=tools)
        first, second = await asyncio.gather(lazy(session), lazy(session), return_exceptions=True)
        assert isinstance(first, str) and isinstance(second, UsageError), (first, second)
        await asyncio.gather(session.restart(), session.restart())
        assert (await session.execute("echo on")).stdout == "on\n"
        call = asyncio.ensure_future(session.execute("sleep 1000"))
        await asyncio.sleep(0.05)
        await session.restart()
        with pytest.raises(EndedError):
            await call
        assert (await session.execute("echo on")).stdout == "on\n"
        await asyncio.gather(session.close(), session.close())

    session = AsyncSession(work)
    starting = asyncio.ensure_future(session.start())
    await asyncio.sleep(0)
    await session.close()
    with pytest.raises(UsageError, match="closed"):
        await starting


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_forgotten_sessions_leave_no_threads_and_sockets(work: Path) -> None:
    async def main() -> None:
        session = await AsyncSession(work, tools=[len]).start()
        assert (await session.execute("len three")).stdout == "5\n"

    for _ in range(3):
        asyncio.run(main())
        gc.collect()


def test_a_session_with_tools_can_be_closed_after_its_loop(work: Path) -> None:
    async def main() -> AsyncSession:
        session = await AsyncSession(work, tools=[len]).start()
        assert (await session.execute("len three")).stdout == "5\n"
        return session

    asyncio.run(asyncio.run(main()).close())
