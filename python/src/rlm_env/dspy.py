"""An interpreter for dspy 3.4 and newer: Python sessions for dspy.RLM and its other modules that run code.

    import dspy
    from rlm_env.dspy import Interpreter

    dspy.configure(interpreter_factory=Interpreter)

Code runs in a CPython process of its own, which is not a sandbox. docs/python.md tells how dspy's default differs.
"""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import os
from collections.abc import Callable
from typing import Any

from ._config import SessionConfig
from ._documents import Response
from ._dspy_session import SETUP
from ._errors import SessionError, UsageError
from ._files import write_own_file
from ._sync import Session
from ._tools import tool
from ._versions import require

require("dspy", "3.4", "4", "dspy")

from dspy.primitives.code_interpreter import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    CodeExecutionError,
    CodeInterpreterError,
    FinalOutput,
)

_MAX_SET_BYTES = 1 << 20
_RESERVED = ("SUBMIT", "__builtins__")


class Interpreter:
    """A dspy CodeInterpreter. Also a factory of itself: `dspy.RLM(…, interpreter_factory=Interpreter)`.

    `execution_timeout` is in seconds, the tools' time included. `config` is the session's directory, or its whole
    configuration.
    """

    execution_instructions = (
        "Code runs as Python in a process that persists: variables, imports and functions stay. Tools and SUBMIT are "
        "global functions. Code that runs too long is stopped, and keeps what it has set."
    )

    def __init__(
        self,
        tools: dict[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        *,
        execution_timeout: float | None = None,
        config: SessionConfig | str | os.PathLike[str] = ".",
    ) -> None:
        if not isinstance(config, SessionConfig):
            config = SessionConfig(config, language="python", exec_timeout=execution_timeout)
        if config.language != "python":
            raise ValueError("dspy runs Python: config must have language='python'")
        self.tools = dict(tools or {})
        self.output_fields = output_fields
        self.execution_timeout = execution_timeout
        self._session = Session(config, tools=[tool(name="rlm_dspy_call")(self._call)])
        self._is_started = self._is_ended = False
        self._configured: Any = None
        self._sent: dict[str, tuple[Any, bytes]] = {}
        """The value that each variable was set to, and the digest of its text."""
        self._submitted: list[Any] = []

    def start(self) -> None:
        """Starts the session. Without effect on one that runs."""
        if self._is_ended:
            raise CodeInterpreterError("the interpreter has been shut down: create another")
        if not self._is_started:
            try:
                self._session.start()
                self._done(self._session.execute(SETUP))
            except SessionError as error:
                raise self._end(str(error)) from error
            self._is_started = True

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Runs code: what it prints, the value of its last expression, or FinalOutput after SUBMIT.

        Raises SyntaxError or CodeExecutionError for what the code did, and CodeInterpreterError if its state is lost.
        """
        self.start()
        try:
            self._configure()
            self._send(variables or {})
            self._submitted.clear()
            response = self._session.execute(code, timeout=self.execution_timeout)
        except UsageError as error:
            raise CodeInterpreterError(str(error)) from error
        except SessionError as error:
            raise self._end(str(error)) from error
        if response.state != "kept":
            raise self._end(response.hint or "the state of the session is lost")
        if self._submitted:
            return FinalOutput(self._submitted[-1])
        if response.outcome in ("timed_out", "interrupted"):
            raise CodeExecutionError(f"{_printed(response)}\n{response.outcome}: {response.hint or ''}".strip())
        if response.exception is not None:
            if response.exception.type in ("SyntaxError", "IndentationError", "TabError"):
                raise SyntaxError(response.exception.message)
            raise CodeExecutionError(f"{response.exception.type}: {response.exception.message}")
        if response.outcome != "ok":
            raise CodeInterpreterError(response.hint or f"the code was refused: {response.outcome}")
        return _shown(response)

    def shutdown(self) -> None:
        """Ends the session. Safe to repeat."""
        self._is_ended = True
        self._session.close()

    def __enter__(self) -> Interpreter:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()

    def _end(self, reason: str) -> CodeInterpreterError:
        self.shutdown()
        return CodeInterpreterError(reason)

    def _call(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Answers a call of a tool, or of SUBMIT."""
        if name == "SUBMIT":
            self._submitted.append(json.loads(args[0]))
            return None
        return self.tools[name](*args, **kwargs)

    def _done(self, response: Response) -> None:
        if response.outcome != "ok":
            raise CodeInterpreterError(f"the session cannot be set up: {response.hint or response.result}")

    def _configure(self) -> None:
        for name in self.tools:
            if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED:
                raise ValueError(f"the tool's name {name!r} is not an identifier, or is reserved")
        fields = None if self.output_fields is None else [str(field["name"]) for field in self.output_fields]
        wanted = (list(self.tools), fields)
        if wanted != self._configured:
            self._done(self._session.execute(f"_rlm_dspy.configure({wanted[0]!r}, {wanted[1]!r})"))
            self._configured = wanted

    def _send(self, variables: dict[str, Any]) -> None:
        """Sets the variables that have changed since they were sent."""
        small: dict[str, Any] = {}
        for name, value in variables.items():
            if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED or name in self.tools:
                raise CodeInterpreterError(f"the variable's name {name!r} is not an identifier, or is that of a tool")
            sent = self._sent.get(name)
            if sent is not None and sent[0] is value and isinstance(value, (str, int, float, type(None))):
                continue
            try:
                text = json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise CodeInterpreterError(f"the variable {name} cannot be sent as JSON: {error}") from error
            digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
            if sent is not None and sent[1] == digest:
                continue
            self._sent[name] = (value, digest)
            if len(text) < _MAX_SET_BYTES // 8:
                small[name] = value
            else:
                path = os.path.join(self._session.control_dir, "dspy.json")
                write_own_file(path, text)
                load = f"with open({path!r}, encoding='utf-8') as {name}: {name} = __import__('json').load({name})"
                self._done(self._session.execute(load))
                os.unlink(path)
        if small:
            self._done(self._session.set(small))


def _printed(response: Response) -> str:
    return (response.stdout + response.stderr).rstrip("\n")


def _shown(response: Response) -> Any:
    printed = _printed(response)
    if response.result is None:
        return printed or None
    if printed:
        return f"{printed}\n{response.result}"
    try:
        return ast.literal_eval(response.result)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return response.result
