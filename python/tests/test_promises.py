"""The cases of `rlm_env.testing`, with sessions themselves, the tools of frameworks, dspy and rlms."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import children
from promises import in_threads, parameters
from rlm_env import AsyncSession, Response, Session, SessionConfig, UsageError
from rlm_env.testing import Adapter, Call, cases
from rlm_env.tools import AsyncReplTools, ReplTools, shown


@asynccontextmanager
async def async_session(language: Any, tools: Any, timeout: float) -> AsyncIterator[Call]:
    async with AsyncSession(SessionConfig(language=language, exec_timeout=timeout), tools=tools) as session:

        async def call(code: str) -> str:
            return all_of(await session.execute(code))

        yield call


@in_threads
@contextmanager
def session(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    with Session(SessionConfig(language=language, exec_timeout=timeout), tools=tools) as started:
        yield lambda code: all_of(started.execute(code)), started.interrupt


def all_of(response: Response) -> str:
    return "\n".join(str(part) for part in (response.stdout, response.stderr, response.result, response.hint) if part)


@asynccontextmanager
async def async_tools(language: Any, tools: Any, timeout: float) -> AsyncIterator[Call]:
    async with AsyncReplTools(tools=tools, timeout=timeout) as repl:
        yield repl.functions[language]


@in_threads
@contextmanager
def plain_tools(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    with ReplTools(tools=tools, timeout=timeout) as repl:
        yield repl.functions[language], repl.interrupt


@in_threads
@contextmanager
def dspy(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    from dspy.primitives.code_interpreter import CodeInterpreterError

    from rlm_env.dspy import Interpreter

    with Interpreter({function.__name__: function for function in tools}, execution_timeout=timeout) as interpreter:
        is_over: list[bool] = []

        def run(code: str) -> str:
            try:
                return str(interpreter.execute(code))
            except CodeInterpreterError as error:
                if is_over:
                    raise
                is_over.extend([True] * interpreter._is_ended)
                return str(error)

        yield run, interpreter._session.interrupt


@in_threads
@contextmanager
def rlms(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    from rlm_env.rlms import SessionREPL

    repl = SessionREPL(
        custom_tools={function.__name__: function for function in tools}, execution_timeout=timeout, context_payload=""
    )

    def run(code: str) -> str:
        result = repl.execute_code(code)
        return f"{result.stdout}\n{result.stderr}"

    try:
        yield run, repl._cells.session.interrupt
    finally:
        repl.cleanup()


ALWAYS = [Adapter("session", session), Adapter("async-tools", async_tools)]
IN_TURNS = [Adapter("async-session", async_session), Adapter("tools", plain_tools)]
if importlib.util.find_spec("dspy"):
    IN_TURNS.append(Adapter("dspy", dspy, ("python",), ends_with_interpreter=True))
if importlib.util.find_spec("rlm"):
    IN_TURNS.append(Adapter("rlms", rlms, ("python",)))


@pytest.mark.filterwarnings("ignore")  # those of dspy, rlms and their libraries
@pytest.mark.parametrize("case", parameters(*ALWAYS) + parameters(*IN_TURNS, nightly=True))
async def test_a_promise(case: Callable[[], Any], work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    await case()


async def test_an_adapter_that_loses_promises_fails() -> None:
    """Each call has a session of its own, whose output goes to nobody's limit."""

    @asynccontextmanager
    async def forgetful(language: Any, tools: Any, timeout: float) -> AsyncIterator[Call]:
        async def call(code: str) -> str:
            async with AsyncSession(SessionConfig(language=language)) as session:
                return shown(await session.execute(code))

        yield call

    adapter = Adapter("forgetful", forgetful, ("bash",), leaves_out={"time_limit_keeps_state", "nothing_is_left"})
    failed = set()
    for name, case in cases(adapter):
        try:
            await case()
        except AssertionError:
            failed.add(name)
    assert failed == {
        *("state_persists-bash", "output_is_bounded-bash", "sessions_are_separate-bash"),
        *("cancellation_ends_a_call-bash", "errors_of_tools_reach_the_code-bash"),
    }


async def test_tools_whose_session_is_killed_begin_again(work: Path) -> None:
    async with AsyncReplTools(work) as repl:
        said = await repl.bash("x=1; kill -9 $PPID; sleep 1000")
        assert said == (
            "[the session died (exit status 137) and has begun again: "
            "files are as they were left, all other state is lost]"
        )
        assert await repl.bash("echo ${x-gone}; exit 3") == (
            "gone\nexit\n[exited: the shell ended with status 3; a new shell has its variables, functions, aliases, "
            "options, working directory and answer, but no traps, jobs or open descriptors]"
        )
        assert await repl.bash("true", timeout=-1) == (
            "[nothing was run: timeout must be a number of seconds above 0, not -1]"
        )
        assert [one["function"]["name"] for one in repl.definitions] == ["bash", "python"]
        assert repl.definitions[0]["function"]["parameters"]["required"] == ["code"]
    with pytest.raises(UsageError, match="the tools are closed"):
        await repl.bash("true")
    with pytest.raises(ValueError, match="no control_dir"):
        AsyncReplTools(SessionConfig(control_dir=work))


async def test_tools_that_are_cancelled_as_they_start_have_one_session(work: Path) -> None:
    async with AsyncReplTools(work) as repl:
        for _ in range(3):
            starting = asyncio.ensure_future(repl.bash("echo here"))
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
        assert await repl.bash("echo here") == "here"
        assert len(children()) == 1
    cancelled = AsyncReplTools(work)
    starting = asyncio.ensure_future(cancelled.python("1"))
    await asyncio.sleep(0)
    starting.cancel()
    await cancelled.close()
    assert children() == []
