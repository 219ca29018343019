"""Environments for rlms (github.com/alexzhang13/rlm, `import rlm`), tested with 0.1.3: its REPL as a session.

    from ._config import SessionConfig
from ._rlms_cells import FUNCTIONS, Cells, ExecResult, function_tool
from ._versions import require

require("rlms", "0.1.3", "0.2", "rlms")

from rlm import RLM
    from rlm_env.rlms import use_sessions

    use_sessions()  # environment="local" is a session from here on
    RLM(backend="openai", environment="local", environment_kwargs={"execution_timeout": 60})

`SessionBackend` is the same for its training package, rlm_train. docs/python.md tells how the REPL of rlms differs.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from ._config import SessionConfig
from ._rlms_cells import FUNCTIONS, Cells, ExecResult, function_tool
from ._versions import require

require("rlms", "0.1.3", "0.2", "rlms")

from rlm import environments  # noqa: E402  # pyright: ignore[reportMissingImports]
from rlm.core.types import REPLResult  # noqa: E402  # pyright: ignore[reportMissingImports]
from rlm.environments.base_env import extract_tool_value  # noqa: E402  # pyright: ignore[reportMissingImports]
from rlm.environments.local_repl import LocalREPL  # noqa: E402  # pyright: ignore[reportMissingImports]


class SessionREPL(LocalREPL):  # type: ignore[misc]
    """A stand-in for `LocalREPL`: the same names, functions, contexts, histories and persistence.

    `execution_timeout` is the time limit of a cell in seconds. `session` is the configuration of the session.
    """

    def __init__(
        self,
        *arguments: Any,
        execution_timeout: float | None = None,
        session: SessionConfig | None = None,
        setup_code: str | None = None,
        compaction: bool = False,
        **options: Any,
    ) -> None:
        self._execution_timeout, self._config = execution_timeout, session
        super().__init__(*arguments, compaction=compaction, **options)
        if compaction:
            self._cells.load("history", [])
        if setup_code:
            self.execute_code(setup_code)

    def setup(self) -> None:
        values = {name: extract_tool_value(entry) for name, entry in self.custom_tools.items()}
        functions = {name: value for name, value in values.items() if callable(value)}
        functions.update({name: getattr(self, f"_{name}") for name in FUNCTIONS})
        self.globals: dict[str, Any] = dict(functions)
        self.locals: dict[str, Any] = {}
        self._pending_llm_calls: list[Any] = []
        tools = [function_tool(name, function) for name, function in functions.items()]
        self._cells = Cells(self._config, tools, self._execution_timeout)
        for name in values.keys() - functions.keys():
            try:
                self._cells.load(name, values[name])
            except (TypeError, ValueError) as error:
                self.cleanup()
                message = f"the custom tool {name} must be a function or a value that JSON can hold: {error}"
                raise TypeError(message) from None
        self.locals = dict(self._cells.variables)

    def execute_code(self, code: str) -> REPLResult:
        self._pending_llm_calls = []
        ran = self._cells.run(code)
        self.locals = dict(self._cells.variables)
        calls = list(self._pending_llm_calls)
        return REPLResult(ran.stdout, ran.stderr, self.locals, ran.execution_time, calls, ran.final_answer)

    def add_context(self, context_payload: Any, context_index: int | None = None) -> int:
        index = self._context_count if context_index is None else context_index
        self._cells.load(f"context_{index}", context_payload)
        self._context_count: int = max(self._context_count, index + 1)
        self.locals = dict(self._cells.variables)
        return index

    def add_history(self, message_history: list[dict[str, Any]], history_index: int | None = None) -> int:
        index = self._history_count if history_index is None else history_index
        self._cells.load(f"history_{index}", message_history)
        self._history_count: int = max(self._history_count, index + 1)
        self.locals = dict(self._cells.variables)
        return index

    def append_compaction_entry(self, entry: Any) -> None:
        super().append_compaction_entry(entry)
        if self.compaction:
            self._cells.load("history", self._compaction_history)

    def cleanup(self) -> None:
        if hasattr(self, "_cells"):
            self._cells.close()
        super().cleanup()


def use_sessions() -> None:
    """Makes `environment="local"` of rlms a session, in RLMs that are created and those that they spawn."""
    environments.LocalREPL = SessionREPL


class SessionBackend:
    """A `ReplBackend` of rlm_train: `RLMTrainEnv(backend_factory=SessionBackend)`."""

    def __init__(self, execution_timeout: float | None = 600.0, session: SessionConfig | None = None) -> None:
        self._arguments = (session, execution_timeout)
        self._cells: Cells | None = None
        self._count = 0

    async def start(self, proxy_url: str, rollout_id: str, depth: int = 1) -> None:
        """Starts the session. Its sub-calls go to the proxy."""
        url = f"{proxy_url.rstrip('/')}/rollout/{rollout_id}"

        def llm_query(prompt: str, model: str | None = None) -> str:
            reply = _post(f"{url}/llm_query", {"prompt": prompt, "depth": depth})
            return f"Error: {reply['error']}" if reply.get("error") else str(reply.get("response", ""))

        def llm_query_batched(prompts: list[str], model: str | None = None) -> list[str]:
            if not prompts:
                return []
            reply = _post(f"{url}/llm_query_batched", {"prompts": list(prompts), "depth": depth})
            replies = reply.get("responses")
            if reply.get("error") or not isinstance(replies, list) or len(replies) != len(prompts):
                return [f"Error: {reply.get('error') or 'malformed batched response'}"] * len(prompts)
            return [one if isinstance(one, str) else f"Error: {one}" for one in replies]

        functions: tuple[Callable[..., Any], ...] = (llm_query, llm_query_batched) * 2
        tools = [function_tool(name, function) for name, function in zip(FUNCTIONS, functions, strict=True)]
        config, limit = self._arguments
        self._cells = await asyncio.to_thread(Cells, config, tools, limit)

    async def load_context(self, payload: Any, index: int | None = None) -> int:
        """Sets `context_N`, and `context` to the first one."""
        index = self._count if index is None else index
        await asyncio.to_thread(self._started().load, f"context_{index}", payload)
        self._count = max(self._count, index + 1)
        return index

    async def execute(self, code: str) -> ExecResult:
        """Runs a cell. A cancelled `await` interrupts it."""
        cells = self._started()
        running = asyncio.ensure_future(asyncio.to_thread(cells.run, code))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            cells.session.interrupt()
            await asyncio.wait([running])
            raise

    async def bootstrap(self, code: str) -> None:
        """Runs code before the first cell. Raises RuntimeError if it fails."""
        ran = await self.execute(code or "")
        if ran.stderr:
            raise RuntimeError(f"bootstrap failed: {ran.stderr}")

    async def stop(self) -> None:
        """Ends the session. Safe to repeat."""
        cells, self._cells = self._cells, None
        if cells is not None:
            await asyncio.to_thread(cells.close)

    def _started(self) -> Cells:
        if self._cells is None:
            raise RuntimeError("the backend has not been started")
        return self._cells


def _post(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            reply: dict[str, Any] = json.loads(response.read())
            return reply
    except urllib.error.HTTPError as error:
        with error:
            return {"error": f"HTTP {error.code}: {error.read().decode(errors='replace') or error.reason}"}
    except (OSError, ValueError) as error:
        return {"error": f"Proxy request failed: {error}"}
