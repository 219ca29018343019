"""An executor for smolagents: the code of a `CodeAgent` runs in a Python session.

    from smolagents import CodeAgent
    from rlm_env.smolagents import SessionExecutor

    with CodeAgent(tools=[], model=model, executor=SessionExecutor("data")) as agent:
        agent.run("Which host failed first?")

Code runs in a CPython process of its own, which is not a sandbox unless the session is confined. docs/agents.md tells
how the executor of smolagents differs.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from typing import Any

from ._config import SessionConfig
from ._documents import Response
from ._errors import EndedError
from ._shown import shown
from ._smolagents_session import SETUP
from ._sync import Session
from ._tools import tool
from ._versions import require

require("smolagents", "1.24", "2", "smolagents")

from smolagents.local_python_executor import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    CodeOutput,
    InterpreterError,
    PythonExecutor,
)

_VARIABLES = "rlm variables"


class SessionExecutor(PythonExecutor):  # type: ignore[misc]
    """A `PythonExecutor` of smolagents. The session begins with the first code, and ends with `cleanup`.

    `config` is the session's directory, or its whole configuration. `execution_timeout` is the time limit of a step in
    seconds, tools included; the code that reaches it keeps what it has set.
    """

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        execution_timeout: float | None = None,
        max_print_outputs_length: int = 50_000,
    ) -> None:
        if not isinstance(config, SessionConfig):
            config = SessionConfig(config, language="python")
        if config.language != "python":
            raise ValueError("smolagents runs Python: config must have language='python'")
        self.state: dict[str, Any] = {}
        """`_print_outputs` is the output of the latest step, which smolagents shows for one that fails."""
        self._session = Session(config, tools=[tool(name="rlm_smolagents_call")(self._call)])
        self._timeout, self._max_length = execution_timeout, max_print_outputs_length
        self._tools: dict[str, Callable[..., Any]] = {}
        self._variables: dict[str, Any] = {}
        self._is_prepared = False
        self._final: list[Any] = []

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        self._tools.update(tools)
        self._is_prepared = False

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        self._variables.update(variables)
        self._is_prepared = False

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs a step. Raises InterpreterError for code that fails; the session is usable afterwards."""
        self.state["_print_outputs"] = ""
        self._final.clear()
        try:
            self._prepare()
            response = self._session.execute(code_action, timeout=self._timeout)
        except EndedError as error:
            self._session.restart()
            self._is_prepared = False
            raise InterpreterError(f"the session died ({error.status}): its variables are lost") from error
        self.state["_print_outputs"] = logs = self._logs(response)
        if response.state != "kept":
            self._is_prepared = False
        elif self._final:
            return CodeOutput(output=self._final[-1], logs=logs, is_final_answer=True)
        if response.outcome != "ok":
            words = (response.result if response.outcome == "error" else None) or response.hint
            raise InterpreterError(words or response.outcome)
        return CodeOutput(output=_value(response.result), logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """Ends the session, and everything it started. Safe to repeat."""
        self._session.close()

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        self._session.start()
        load = f"globals().update(rlm_smolagents_call({_VARIABLES!r}, (), {{}}))" if self._variables else ""
        for code in (SETUP, f"_rlm_smolagents.configure({list(self._tools)!r})", load):
            response = self._session.execute(code)
            if response.outcome != "ok":
                raise InterpreterError(f"the tools or variables cannot be sent: {shown(response, self._max_length)}")
        # Sent once: a later step may have changed them.
        self._is_prepared = True

    def _call(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Answers a call of a tool of the agent, or the request for the variables."""
        if name == _VARIABLES:
            return self._variables
        result = self._tools[name](*args, **kwargs)
        if name == "final_answer":
            self._final.append(result)
            return None
        return result

    def _logs(self, response: Response) -> str:
        text, most = response.stdout + response.stderr, self._max_length
        if len(text) <= most:
            return text
        left_out = f"\n[output cut: {len(text) - most} characters are left out]\n"
        return text[: most // 2] + left_out + text[len(text) - (most - most // 2) :]


def _value(result: str | None) -> Any:
    try:
        return None if result is None else ast.literal_eval(result)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return result
