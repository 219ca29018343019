"""The tools `bash` and `python` for agents' frameworks: functions with types and docstrings, over persistent sessions.

    from rlm_env.tools import AsyncReplTools

    async with AsyncReplTools("data") as repl:
        agent = Agent(name="analyst", tools=[function_tool(repl.bash), function_tool(repl.python)])

Use one object for each conversation: it has a bash and a Python session, which begin with their first call and end with
the object. docs/agents.md has the same for each framework.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ._asyncio import AsyncSession
from ._config import SessionConfig, check_seconds
from ._documents import Language, Response
from ._errors import EndedError, UsageError
from ._models import ChatModel, Models
from ._sync import Session
from ._tools import AnyTool, tool

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
        self._starting: set[asyncio.Task[AsyncSession]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def bash(self, code: str, timeout: float | None = None) -> str:
        return await self._run("bash", code, timeout)

    async def python(self, code: str, timeout: float | None = None) -> str:
        return await self._run("python", code, timeout)

    bash.__doc__, python.__doc__ = _BASH, _PYTHON

    async def execute(self, language: Language, code: str, timeout: float | None = None) -> Response:
        """The response to a call of a tool. Raises EndedError if the session died, after it has begun again."""
        async with self._turns[language]:
            self._check()
            session = self._sessions.get(language) or await self._started(language)
            try:
                return await session.execute(code, timeout=timeout or self._timeout)
            except EndedError:
                if not self._is_closed:
                    await session.restart()
                raise

    def interrupt(self, language: Language) -> None:
        """Interrupts the running call in this language."""
        if language in self._sessions:
            self._sessions[language].interrupt()

    async def close(self) -> None:
        """Ends both sessions, and everything they started. Safe to repeat."""
        self._is_closed = True
        # Tasks of their own: a caller who is cancelled, perhaps more than once, does not end them.
        await asyncio.shield(self._ending())

    async def __aenter__(self) -> AsyncReplTools:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def _ending(self) -> asyncio.Task[Any]:
        async def end() -> None:
            if self._starting:
                await asyncio.wait(self._starting)
            await asyncio.gather(*(session.close() for session in self._sessions.values()))

        task = asyncio.ensure_future(end())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _started(self, language: Language) -> AsyncSession:
        config, options = self._arguments(language)

        async def start() -> AsyncSession:
            self._sessions[language] = session = await AsyncSession(config, **options).start()
            return session

        task = asyncio.ensure_future(start())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return await asyncio.shield(task)

    async def _run(self, language: Language, code: str, timeout: float | None) -> str:
        if refusal := _refusal(timeout):
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
        if refusal := _refusal(timeout):
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


def shown(response: Response, max_output_chars: int = 8192) -> str:
    """A response as a model reads it: the output, and in square brackets what else there is to know."""
    output = response.stdout.rstrip("\n")
    if response.hint is not None:
        output = output.removesuffix(response.hint)  # bash's output ends with it
    parts = [output, response.stderr]
    if response.result is not None:
        parts.append(response.result if response.exception else f"Out[{response.execution_count}]: {response.result}")
    text = _cut("\n".join(part.rstrip("\n") for part in parts if part), max_output_chars, response)
    notes = []
    if response.outcome not in ("ok", "error"):
        notes.append(f"{response.outcome.replace('_', ' ')}: {response.hint or f'the state is {response.state}'}")
    elif response.hint is not None:
        notes.append(response.hint)
    if response.outcome in ("ok", "error") and response.exit_code:
        notes.append(f"exit status {response.exit_code}")
    return "\n".join([*([text] if text else []), *(f"[{note}]" for note in notes)]) or "(no output)"


def _cut(text: str, most: int, response: Response) -> str:
    dropped = response.truncated
    lost = dropped.stdout + dropped.stderr + dropped.result if dropped is not None else 0
    if len(text) <= most and not lost:
        return text
    left_out = f"{max(len(text) - most, 0)} characters" + (f" and {lost} bytes" if lost else "")
    note = f"[output cut: {left_out} are left out; write the output to a file and print parts of it]"
    if len(text) <= most:
        return f"{text}\n{note}"
    return f"{text[: most // 2]}\n{note}\n{text[len(text) - (most - most // 2) :]}"


def _refusal(timeout: float | None) -> str | None:
    """A text for a model whose time limit cannot be kept."""
    try:
        if timeout is not None:
            check_seconds("timeout", timeout)
    except (TypeError, ValueError) as error:
        return f"[nothing was run: {error}]"
    return None


def lost(error: EndedError) -> str:
    """A text for a model whose session died."""
    how = error.status or "its worker failed"
    return f"[the session died ({how}) and has begun again: files are as they were left, all other state is lost]"
