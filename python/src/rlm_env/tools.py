"""The tools `bash` and `python` for agents' frameworks: functions with types and docstrings, over persistent sessions.

    from rlm_env.tools import AsyncReplTools

    async with AsyncReplTools("data") as repl:
        agent = Agent(name="analyst", tools=[function_tool(repl.bash), function_tool(repl.python)])

Use one object for each conversation: it has a bash and a Python session, which begin with their first call and end with
the object. docs/agents.md has the same for each framework.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from ._asyncio import AsyncSession
from ._config import SessionConfig, check_seconds
from ._documents import Language, Response
from ._errors import EndedError, UsageError
from ._models import ChatModel, Models
from ._shown import lost, refusal_of, shown
from ._sync import Session
from ._tools import AnyTool, tool

__all__ = ["AsyncReplTools", "ReplTools", "shown"]

_BASH = """Runs bash code in a persistent interactive session, and returns the output.

Variables, functions, the working directory and background jobs stay from call to call. Standard input is at end of
file. Code that runs too long is stopped: its output so far is returned, and the session is kept. The middle of a long
output is left out. A line in brackets, such as `[exit status 1]`, says what the output does not show.

Args:
    code: The code to run.
    timeout: Seconds after which the code is stopped.
"""

_PYTHON = """Runs Python code in a persistent namespace, and returns the output and the value of the last expression.

Variables, imports and functions stay from call to call. Standard input is at end of file, and `await` works at top
level. Code that runs too long is stopped: its output so far is returned, and the session is kept. The middle of a long
output is left out. A line in brackets says what the output does not show.

Args:
    code: The code to run.
    timeout: Seconds after which the code is stopped.
"""


class _Repl:
    """The part that does not wait."""

    bash: Callable[..., Any]
    python: Callable[..., Any]

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        tools: Iterable[AnyTool] = (),
        models: Models | ChatModel | None = None,
        timeout: float = 120.0,
        max_output_chars: int = 8192,
    ) -> None:
        check_seconds("timeout", timeout)
        config = config if isinstance(config, SessionConfig) else SessionConfig(config)
        if config.control_dir is not None:
            raise ValueError("config must have no control_dir: each of the two sessions has its own")
        self._config, self._tools, self._models = config, list(tools), models
        self._timeout, self._max_output_chars = timeout, max_output_chars
        self._is_closed = False
        self._set_up()

    def _set_up(self) -> None:
        """Makes the rest, in which the kinds differ."""
        raise NotImplementedError

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """Both tools by name."""
        return {"bash": self.bash, "python": self.python}

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """Both tools as `tools` of a request to a model, in OpenAI's form."""
        return [
            {
                "type": "function",
                "function": {"name": name, "description": function.__doc__, "parameters": tool(function).schema},
            }
            for name, function in self.functions.items()
        ]

    def _check(self) -> None:
        if self._is_closed:
            raise UsageError("the tools are closed: create others for another conversation")

    def _arguments(self, language: Language) -> tuple[SessionConfig, dict[str, Any]]:
        return replace(self._config, language=language), {"tools": self._tools, "models": self._models}

    def _shown(self, response: Response) -> str:
        return shown(response, self._max_output_chars)


class AsyncReplTools(_Repl):
    """The tools of one conversation for asyncio code. A call that is cancelled is interrupted, and its session stays.

    `config` is the directory of the sessions, or the whole configuration of both; `tools` and `models` are those of
    sessions. `timeout` is the time limit of calls that set none, in seconds, and `max_output_chars` bounds the text of
    a call. Calls in one language run one after another.
    """

    def _set_up(self) -> None:
        self._sessions: dict[Language, AsyncSession] = {}
        self._turns: dict[Language, asyncio.Lock] = {"bash": asyncio.Lock(), "python": asyncio.Lock()}
        self._starting: dict[Language, asyncio.Task[AsyncSession]] = {}
        self._dead: list[AsyncSession] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def bash(self, code: str, timeout: float | None = None) -> str:
        return await self._run("bash", code, timeout)

    async def python(self, code: str, timeout: float | None = None) -> str:
        return await self._run("python", code, timeout)

    bash.__doc__, python.__doc__ = _BASH, _PYTHON

    async def execute(self, language: Language, code: str, timeout: float | None = None) -> Response:
        """The response to a call of a tool. Raises EndedError if the session died: the next call begins another."""
        async with self._turns[language]:
            self._check()
            session = self._sessions.get(language) or await self._started(language)
            try:
                return await session.execute(code, timeout=timeout or self._timeout)
            except EndedError:
                self._dead.append(self._sessions.pop(language, session))
                await self._shielded(session.close())
                raise

    def interrupt(self, language: Language) -> None:
        """Interrupts the running call in this language."""
        if language in self._sessions:
            self._sessions[language].interrupt()

    async def close(self) -> None:
        """Ends both sessions, and everything they started. Safe to repeat."""
        self._is_closed = True
        await self._shielded(self._end())

    async def __aenter__(self) -> AsyncReplTools:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _end(self) -> None:
        if self._starting:
            await asyncio.wait(self._starting.values())
        await asyncio.gather(*(session.close() for session in [*self._sessions.values(), *self._dead]))

    async def _started(self, language: Language) -> AsyncSession:
        if language not in self._starting:
            config, options = self._arguments(language)
            self._starting[language] = asyncio.ensure_future(AsyncSession(config, **options).start())
            self._starting[language].add_done_callback(functools.partial(self._has_started, language))
        return await asyncio.shield(self._starting[language])

    def _has_started(self, language: Language, start: asyncio.Task[AsyncSession]) -> None:
        del self._starting[language]
        if not start.cancelled() and start.exception() is None:
            self._sessions[language] = start.result()

    async def _shielded(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for work that goes on when the caller is cancelled, perhaps more than once."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _run(self, language: Language, code: str, timeout: float | None) -> str:
        if refusal := refusal_of(timeout):
            return refusal
        try:
            return self._shown(await self.execute(language, code, timeout))
        except EndedError as error:
            if self._is_closed:
                raise
            return lost(error)


class ReplTools(_Repl):
    """The same for synchronous code. Its calls may come from any thread."""

    def _set_up(self) -> None:
        self._sessions: dict[Language, Session] = {}
        self._turns: dict[Language, threading.Lock] = {"bash": threading.Lock(), "python": threading.Lock()}

    def bash(self, code: str, timeout: float | None = None) -> str:
        return self._run("bash", code, timeout)

    def python(self, code: str, timeout: float | None = None) -> str:
        return self._run("python", code, timeout)

    bash.__doc__, python.__doc__ = _BASH, _PYTHON

    def interrupt(self) -> None:
        """Interrupts the running calls, from another thread."""
        for session in self._sessions.values():
            session.interrupt()

    def close(self) -> None:
        """Ends both sessions, and everything they started. Safe to repeat."""
        self._is_closed = True
        for session in self._sessions.values():
            session.close()

    def __enter__(self) -> ReplTools:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _run(self, language: Language, code: str, timeout: float | None) -> str:
        if refusal := refusal_of(timeout):
            return refusal
        with self._turns[language]:
            self._check()
            config, options = self._arguments(language)
            if language not in self._sessions:
                self._sessions[language] = Session(config, **options).start()
            session = self._sessions[language]
            try:
                return self._shown(session.execute(code, timeout=timeout or self._timeout))
            except EndedError as error:
                if self._is_closed:
                    raise
                session.restart()
                return lost(error)
