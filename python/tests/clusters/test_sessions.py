"""Sessions on nodes, and pools of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError

from clusters.models import here, holding, scripted
from clusters.readers import give_up
from conftest import NIGHTLY, PATIENCE, until
from promises import parameters
from rlm_env import EndedError, SessionConfig, StartError, UsageError
from rlm_env.ray import SessionActor, SessionPool, _pool, _session
from rlm_env.testing import Adapter, Call


@asynccontextmanager
async def actor(language: Any, tools: Any, timeout: float) -> AsyncIterator[Call]:
    config = SessionConfig(language=language, exec_timeout=timeout)
    async with SessionActor(config, driver_tools=tools, num_cpus=0.01) as session:

        async def call(code: str) -> str:
            response = await session.execute(code)
            return "\n".join(map(str, (response.stdout, response.stderr, response.result, response.hint)))

        yield call


@pytest.mark.skipif(not NIGHTLY, reason="for tests/nightly")
@pytest.mark.parametrize("case", parameters(Adapter("ray", actor)))
async def test_a_promise(case: Callable[[], Any]) -> None:
    await case()


@pytest.mark.parametrize("language", ["bash", "python"])
async def test_a_session_branches_with_its_tools_and_its_directory(language: Any) -> None:
    def here(word: str) -> str:
        return f"{word} {os.getpid() == driver}"

    driver = os.getpid()
    set_up, more, show = (
        ("x=1; echo 1 > file", "x=2; echo 2 > file", "echo $x $(cat file) $(here a)")
        if language == "bash"
        else (
            "x = 1; print(1, file=open('file', 'w'))",
            "x = 2; print(2, file=open('file', 'w'))",
            "print(x, open('file').read(), here('a'))",
        )
    )
    async with SessionActor(SessionConfig(language=language), driver_tools=[here], num_cpus=0.01) as session:
        await session.execute(set_up)
        async with await session.branch() as branch:
            await session.execute(more)
            assert (await branch.execute(show)).stdout.split() == ["1", "1", "a", "True"]
            assert (await session.execute(show)).stdout.split() == ["2", "2", "a", "True"]
        assert (await session.execute(show)).stdout.split() == ["2", "2", "a", "True"]
        with pytest.raises(UsageError, match="where it was started"):
            await pickle.loads(pickle.dumps(session)).branch()


@pytest.mark.parametrize("language", ["bash", "python"])
async def test_a_session_on_a_node_is_that_of_the_client(language: Any) -> None:
    def beside(word: str) -> str:
        """Runs beside the session."""
        return f"{word} {os.getpid() != driver}"

    def here(word: str) -> str:
        """Runs with the driver."""
        return f"{word} {os.getpid() == driver}"

    driver = os.getpid()
    code = {
        "bash": "pwd; echo $(beside a), $(here b)",
        "python": "import os; print(os.getcwd()); beside('a'), here('b')",
    }
    begins = {"bash": ": > began; ", "python": "open('began', 'w').close(); import os, time\n"}
    slow = {"bash": begins["bash"] + "sleep 100", "python": begins["python"] + "time.sleep(100)"}
    waits = {
        "bash": begins["bash"] + "until [ -e go ]; do sleep 0.05; done",
        "python": begins["python"] + "while not os.path.exists('go'): time.sleep(0.05)",
    }

    async def begun(directory: str) -> None:
        await until(Path(directory, "began").exists)
        Path(directory, "began").unlink()

    config = SessionConfig(language=language)
    async with SessionActor(config, tools=[beside], driver_tools=[here]) as session:
        response = await session.execute(code[language])
        directory = response.stdout.splitlines()[0]
        assert "a True" in response.stdout + (response.result or ""), response
        assert "b True" in response.stdout + (response.result or ""), response
        assert os.path.isdir(directory)
        assert (await session.set({"x": 42})).outcome == "ok"
        with pytest.raises(TypeError, match="the variable 'x' cannot be sent as JSON: Object of type lock is not"):
            await session.set({"x": threading.Lock()})
        for option in ("key", "had", "method"):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
                await session.execute("ls", **{option: 1})
        again = pickle.loads(pickle.dumps(session))
        shown = await again.execute({"bash": "echo $x", "python": "print(x)"}[language])
        assert shown.stdout.strip() == "42"
        assert (await session.info()).language == language
        running = asyncio.ensure_future(session.execute(slow[language]))
        await begun(directory)
        session.interrupt()
        assert (await running).outcome == "interrupted"
        await session.restart()
        running = asyncio.ensure_future(session.execute(waits[language]))
        await begun(directory)
        await give_up(again.execute("1"))
        assert await again.actor.idle.remote() == 0.0
        Path(directory, "go").touch()
        assert (await running).outcome == "ok", "another call was cancelled"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.execute(slow[language]), 1)
        # A call whose code travels for a while is cancelled when it comes.
        await give_up(session.execute(slow[language] + " #" + "x" * 900_000))
        assert (await session.execute({"bash": "echo next", "python": "'next'"}[language])).outcome == "ok"
        assert await session.start() is session
        lost = await session.execute({"bash": "echo ${x-lost}", "python": "print('x' in globals())"}[language])
        assert lost.stdout.strip() in ("lost", "False")
    assert not os.path.exists(directory)
    with pytest.raises(UsageError, match="has not been started"):
        await SessionActor().execute("ls")
    with pytest.raises(TypeError, match="the tool holds cannot be pickled"):
        SessionActor(tools=[holding(threading.Lock())])
    with pytest.raises(UsageError, match="the session is closed: start another"):
        await session.execute("ls")
    with pytest.raises(UsageError, match="the session has ended: start another"):
        await session.start()
    nowhere = SessionActor("/not/there")
    for _ in range(2):
        with pytest.raises(StartError, match=r"/not/there"):
            await nowhere.start()


async def test_an_interrupt_may_come_before_its_call() -> None:
    async with SessionActor() as session:
        for size in (0, 200_000, 900_000):
            for steps in range(3):
                call = asyncio.ensure_future(session.execute("sleep 1000 #" + "x" * size, timeout=20))
                for _ in range(steps + 1):
                    await asyncio.sleep(0)
                session.interrupt()
                assert (await call).outcome == "interrupted"
        # An interrupt also reaches a call that waits for the end of one that was given up.
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.execute("trap '' INT; sleep 2; trap - INT"), 0.5)
        call = asyncio.ensure_future(session.execute("sleep 1000", timeout=20))
        await asyncio.sleep(0)
        session.interrupt()
        assert (await call).outcome == "interrupted"


@pytest.mark.nightly
async def test_a_session_whose_hub_has_died_says_so() -> None:
    async with SessionActor(driver_tools=[here]) as session:
        assert (await session.execute("here")).stdout == "here\n"
        ray.kill(session._hub)
        with pytest.raises(ActorDiedError):
            await session._functions.wait()  # type: ignore[union-attr]
        with pytest.raises(EndedError, match="driver_tools cannot be called any more: start another session"):
            await session.execute("ls")


def run_and_close(work: Any) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    loop.close()


@pytest.mark.nightly
@pytest.mark.parametrize("run", [asyncio.run, run_and_close])
def test_a_session_whose_tools_had_another_event_loop_says_so(run: Any) -> None:
    session = SessionActor(driver_tools=[here], num_cpus=0.01)

    async def start() -> None:
        await session.start()
        assert (await session.execute("here")).stdout == "here\n"

    async def use() -> None:
        with pytest.raises(EndedError, match=r"driver_tools cannot be called any more: .*their event loop has ended"):
            await session.execute("here")
        await session.close()

    run(start())
    asyncio.run(asyncio.wait_for(use(), PATIENCE))


@pytest.mark.nightly
def test_a_pool_has_a_session_for_each_key() -> None:
    other_loop: list[SessionPool] = []

    async def use() -> None:
        async with SessionPool(max_sessions=2, num_cpus=0.01) as pool:
            one, same, other = await asyncio.gather(pool.get("a"), pool.get("a"), pool.get("b"))
            assert one is same and one is not other
            await one.execute("x=1")
            waiting = asyncio.ensure_future(pool.get("c"))
            await asyncio.sleep(0.2)
            assert not waiting.done(), "there is no place"
            await pool.release("b")
            third = await waiting
            assert (await third.execute("echo $x")).stdout == "\n"
            # The worker and the actor of a session die: one call says so, and the key gets a new session.
            ray.kill(one.actor)
            lost = pytest.raises(EndedError, match=r"the session on the node .* has ended, and its state is lost")
            with lost:
                await (await pool.get("a")).execute("echo $x")
            assert (await (await pool.get("a")).execute("echo $x")).stdout == "\n"
            with lost:
                await one.execute("echo also to others that have it")
            ray.kill((await pool.get("c")).actor)
            await pool.get("d")  # the dead one has no place any more
            with pytest.raises(EndedError):
                await (await pool.get("c")).execute("echo")
        assert len(pool) == 0
        with pytest.raises(UsageError, match="the pool is closed: create another"):
            await pool.get("a")
        async with SessionPool(max_sessions=1, num_cpus=0.01) as pool:
            one, other = (asyncio.ensure_future(pool.get("a")) for _ in range(2))
            one.add_done_callback(lambda _: other.cancel())
            first = await one
            assert await pool.get("a") is first, "whoever gave up has not taken it along"
            # A release that is given up goes on: otherwise the next one would wait for ever.
            await give_up(pool.release("a"))
            with pytest.raises((EndedError, UsageError)):
                await first.execute("echo")
            first = await asyncio.wait_for(pool.get("a"), PATIENCE)
            # A caller that waits for a place is told; one that gives up leaves none taken.
            waiting = asyncio.ensure_future(pool.get("b"))
            await give_up(pool.get("c"))
            await pool.release("b")
            with pytest.raises(UsageError, match="the session of 'b' was released before it had started"):
                await waiting
            await pool.release("a")
            await pool.get("d")
            waiting = asyncio.ensure_future(pool.get("e"))
            await asyncio.sleep(0)
            await pool.close()
            with pytest.raises(UsageError, match="was released"):
                await waiting
        async with SessionPool(num_cpus=0.01) as pool:
            # A key was released and got again: a cancelled `get` from before does not close the new session.
            given_up, released, wanted = (asyncio.ensure_future(do("a")) for do in (pool.get, pool.release, pool.get))
            await asyncio.sleep(0.01)
            given_up.cancel()
            assert (await (await wanted).execute("echo $((6 * 7))")).stdout == "42\n"
            await asyncio.wait([given_up, released])
        async with SessionPool(max_sessions=1, num_cpus=0.01) as pool:
            # A session that is being closed takes no call that would be cut off.
            first = await pool.get("a")
            released = asyncio.ensure_future(pool.release("a"))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="the session is closed: start another"):
                await first.execute("echo")
            await released
            await pool.get("b")
            # A `get` that is cancelled returns at once; its session is closed in the background.
            await give_up(pool.get("a"))
            [ending] = pool._unwanted
            assert not ending.done() and len(pool) == 1
            # A close that is given up goes on.
            await give_up(pool.close())
            assert ending.done() and pool._places._value == 1
        other_loop.append(pool)
        async with SessionPool(idle_timeout=2.0, num_cpus=0.01) as pool:
            busy = await pool.get("busy")
            running = asyncio.ensure_future(pickle.loads(pickle.dumps(busy)).execute("sleep 1000"))
            await pool.get("idle")
            await until(lambda: len(pool) == 1)
            assert not running.done(), "one that runs is in use"
            busy.interrupt()
            assert (await running).outcome == "interrupted"
        with pytest.raises(ValueError, match="max_sessions"):
            SessionPool(max_sessions=0)
        for seconds in ("x", None):
            with pytest.raises(TypeError, match=f"idle_timeout must be a number of seconds, not {seconds!r}"):
                SessionPool(idle_timeout=seconds)  # type: ignore[arg-type]
        for argument in ("tools", "driver_tools"):
            with pytest.raises(TypeError, match=f"^{argument} must be a list of functions, not 5"):
                SessionPool(**{argument: 5})
        SessionPool(tools=iter([scripted]), idle_timeout=float("inf"))

    asyncio.run(use())
    for act in (lambda pool: pool.get("a"), lambda pool: pool.release("a"), lambda pool: pool.close()):
        with pytest.raises(UsageError, match="this pool belongs to another event loop: create one"):
            asyncio.run(act(other_loop[0]))


@pytest.mark.nightly
async def test_a_pool_closes_idle_sessions_where_another_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_pool, _session):
        monkeypatch.setattr(module, "CLOSE_LIMIT", 1.0)
    async with SessionPool(max_sessions=2, idle_timeout=1.0, num_cpus=0.01) as pool:
        stuck = await pool.get("stuck")
        pid = await stuck.actor.__ray_call__.remote(lambda _: os.getpid())
        os.kill(pid, signal.SIGSTOP)
        await pool.get("idle")
        await pool.get("next")
        assert await pool.get("stuck") is stuck
        os.kill(pid, signal.SIGCONT)
        assert (await stuck.execute("echo there")).stdout == "there\n"
