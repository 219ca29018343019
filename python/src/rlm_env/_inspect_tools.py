"""The tools `bash_session` and `python` of Inspect, over sessions that a sample keeps until its end."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio  # pyright: ignore[reportMissingImports]
from inspect_ai.tool import (  # pyright: ignore[reportMissingImports]
    Tool,
    ToolCall,
    ToolCallContent,
    ToolCallView,
    ToolError,
    tool,
)
from inspect_ai.util import StoreModel, background, store_as, tool_state_instance  # pyright: ignore[reportMissingImports]
from inspect_ai.util._sandbox.events import SandboxTimeoutError  # pyright: ignore[reportMissingImports]

from ._config import SessionConfig
from ._documents import Language, Response
from ._errors import EndedError
from ._files import PrivateDirectory
from ._inspect_sandbox import confinement, sample_config
from ._models import ChatModel, Models
from ._shown import lost, shown
from ._tools import AnyTool
from .tools import AsyncReplTools

_LONGEST = 604_800.0
"""The limit of calls that only the sample's limits end, in seconds."""
_MAX_OUTPUT = 1 << 20
"""Inspect cuts the output of tools by itself, at `max_tool_output`."""


class ReplStore(StoreModel):  # type: ignore[misc]
    """The key of the sessions, in the store of the sample."""

    key: str = ""


@dataclass
class _Sessions:
    """The sessions of a sample, or of an agent within it. They end with the sample."""

    directory: SessionConfig
    private: PrivateDirectory | None
    repls: dict[Language, AsyncReplTools] = field(default_factory=dict)
    typed: str = ""
    """Text of bash_session that has not been submitted."""
    running: asyncio.Task[Response] | None = None
    """The command of bash_session."""

    def repl(self, language: Language, config: Any, options: dict[str, Any]) -> AsyncReplTools:
        if language not in self.repls:
            self.repls[language] = AsyncReplTools(
                self.directory if config is None else _confined(config), max_output_chars=_MAX_OUTPUT, **options
            )
        return self.repls[language]

    async def restart(self) -> None:
        """Ends the bash session. The next command begins another."""
        running, self.running, self.typed = self.running, None, ""
        if (repl := self.repls.pop("bash", None)) is not None:
            await repl.close()
        if running is not None:
            await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        await self.restart()
        await asyncio.gather(*(repl.close() for repl in self.repls.values()))
        if self.private is not None:
            self.private.remove()


_open: dict[str, _Sessions] = {}


@tool(viewer=lambda call: _view(call, "bash", "input"))  # type: ignore[untyped-decorator]
def bash_session(
    *,
    timeout: float | None = None,
    wait_for_output: float = 30,
    config: SessionConfig | str | os.PathLike[str] | None = None,
    tools: Iterable[AnyTool] = (),
    models: Models | ChatModel | None = None,
    instance: str | None = None,
) -> Tool:
    """Inspect's `bash_session` over a session of this package: the same actions, and a command's output with its end.

    Args:
        timeout: Seconds after which a command is stopped. None: only the sample's limits end it.
        wait_for_output: Seconds to wait for the end of a command. `read` waits again.
        config: The session's directory or configuration. None: the sandbox `rlm`, or an empty directory.
        tools: Functions of this program that code in the session can call.
        models: The models of `llm_batch` in the session: `chat_model()` is that of the evaluation.
        instance: Calls with another instance have another session.
    """
    options = {"timeout": timeout or _LONGEST, "tools": list(tools), "models": models}

    async def execute(
        action: Literal["type", "type_submit", "restart", "read", "interrupt"], input: str | None = None
    ) -> str:
        """Interact with a bash shell that keeps its state: variables, functions, working directory, background jobs.

        Submit a command with "type_submit", and its output comes back when it has ended. One that takes long is told to
        be still running: "read" waits for its output, and "interrupt" stops it; the shell stays. Standard input is at
        end of file. A line in brackets, such as `[exit status 1]`, says what the output does not show.

        Args:
          action: The action to execute:
                - "type": Adds to the command that is submitted next
                - "type_submit": Submits a command, which may have several lines
                - "read": Waits for the output of the running command
                - "interrupt": Stops the running command
                - "restart": Restarts the shell
          input: The text of "type" and "type_submit".
        """
        if input is not None and action in ("read", "interrupt", "restart"):
            raise ToolError(f"Do not provide 'input' with '{action}' action.")
        if input is None and action == "type":
            raise ToolError("'input' is required for 'type' action.")
        sessions = _sessions(instance)
        repl = sessions.repl("bash", config, options)
        if action == "restart":
            await sessions.restart()
            return "Bash session restarted."
        if action in ("type", "type_submit"):
            if sessions.running is not None:
                return "[a command is still running: read its output, or interrupt it]"
            sessions.typed += input or ""
        if action == "type_submit":
            code, sessions.typed = sessions.typed, ""
            sessions.running = asyncio.ensure_future(repl.execute("bash", code))
        if action == "interrupt":
            repl.interrupt("bash")
        if sessions.running is None:
            return ""
        try:
            await asyncio.wait([sessions.running], timeout=wait_for_output)
        except asyncio.CancelledError:
            sessions.running.cancel()
            sessions.running = None
            raise
        if not sessions.running.done():
            return "[the command is still running: read its output, or interrupt it]"
        ended, sessions.running = sessions.running, None
        return await _told(ended)

    return execute


@tool(viewer=lambda call: _view(call, "python", "code"))  # type: ignore[untyped-decorator]
def python(
    timeout: float | None = 120,
    *,
    config: SessionConfig | str | os.PathLike[str] | None = None,
    tools: Iterable[AnyTool] = (),
    models: Models | ChatModel | None = None,
    instance: str | None = None,
) -> Tool:
    """Inspect's `python` over a session of this package: variables and imports stay from call to call.

    Args:
        timeout: Seconds after which a call is stopped; its state is kept. None: only the sample's limits end it.
        config: As for `bash_session`, and so are the others.
        tools: Functions of this program that code in the session can call.
        models: The models of `llm_batch` in the session.
        instance: Calls with another instance have another session.
    """
    options = {"timeout": timeout or _LONGEST, "tools": list(tools), "models": models}

    async def execute(code: str) -> str:
        """Use the python function to execute Python code in a namespace that persists.

        Variables, imports and functions stay from call to call. The output is what the code prints, and the value of
        its last expression. Code that runs too long is stopped, and what it has set stays.

        Args:
          code (str): The python code to execute.
        """
        repl = _sessions(instance).repl("python", config, options)
        return await _told(repl.execute("python", code))

    return execute


def _sessions(instance: str | None) -> _Sessions:
    store = store_as(ReplStore, instance=tool_state_instance(instance))
    if store.key not in _open:
        directory, private = sample_config(), None
        if directory is None:
            private = PrivateDirectory()
            directory = _confined(private.path)
        store.key = uuid.uuid4().hex
        _open[store.key] = _Sessions(directory, private)
        background(_hold, store.key)
    return _open[store.key]


async def _hold(key: str) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await _open.pop(key).close()


async def _told(running: Awaitable[Response]) -> str:
    """The text of a call. One that was stopped at its limit is told as Inspect tells them."""
    try:
        response = await running
    except EndedError as error:
        return lost(error)
    text = shown(response, _MAX_OUTPUT)
    if response.outcome == "timed_out":
        raise SandboxTimeoutError("the call was stopped after its time limit", text)
    return text


def _confined(config: SessionConfig | str | os.PathLike[str]) -> SessionConfig:
    config = config if isinstance(config, SessionConfig) else SessionConfig(config)
    return replace(config, confine=confinement(config.confine))


def _view(call: ToolCall, language: str, argument: str) -> ToolCallView:
    code = str(call.arguments.get(argument) or call.function).strip()
    content = f"```{language}\n{code}\n```\n"
    return ToolCallView(call=ToolCallContent(title=language, format="markdown", content=content))
