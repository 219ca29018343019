"""The server of a session's tools and models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

from ._errors import StartError
from ._models import Models
from ._rootd import Rootd
from ._server import FunctionServer
from ._threads import Raised
from ._tools import MAX_TIMEOUT, Tool

_CALL_LIMIT = 300.0
"""Seconds of a call of a tool without a limit of its own."""
_MARGIN = 5.0


class ToolServer(FunctionServer):
    """Serves tools and models to one session. If there are models, it also starts their endpoint."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], models: Models | None, directory: str) -> None:
        function = None if models is None or isinstance(models.model, str) else models.model
        super().__init__(tools, directory, {} if function is None else {"model": function})
        self.rootd = None if models is None else Rootd(models, directory)

    async def start(self) -> None:
        """Listens, and starts the endpoint. Raises StartError."""
        await super().start()
        if (rootd := self.rootd) is not None:
            declarations, base_url = self.declarations(), self.model_url("model")
            try:
                await self.threads.run(lambda: rootd.start(declarations, base_url, self.secret, self.longest))
            except Raised as raised:
                if isinstance(raised.error, RuntimeError):
                    raise StartError(f"cannot start the endpoint of models: {raised.error}") from raised.error
                raise raised.error from None

    def variables(self) -> dict[str, str]:
        """The worker's variables that declare the tools."""
        if self.rootd is not None:
            return self.rootd.variables
        return {
            "RLM_ROOT_TOOL_URL": f"{self.url}/tools",
            "RLM_ROOT_TOOL_NAMES": json.dumps(list(self.tools)),
            "RLM_ROOT_TOOL_SERIALIZATION": "pickle",
            "RLM_INTERCEPTION_SECRET": self.secret,
            **({"RLM_SUB_LLM_TIMEOUT": repr(self.longest)} if self.longest > _CALL_LIMIT else {}),
        }

    @property
    def longest(self) -> float:
        """Seconds in which every tool with a limit of its own has ended."""
        limits = [tool.timeout + _MARGIN for tool in self.tools.values() if tool.timeout is not None]
        return min(max(limits, default=0.0), MAX_TIMEOUT)

    async def close(self) -> None:
        if self.rootd is not None:
            await self.threads.run(self.rootd.close)
        await super().close()

    def abandon(self) -> None:
        if self.rootd is not None:
            self.rootd.kill()
        super().abandon()


class ThreadedToolServer:
    """A `ToolServer` for synchronous code: its event loop has a thread of its own."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], models: Models | None, directory: str) -> None:
        try:
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            raise StartError(f"cannot make an event loop for the session's tools: {error}") from error
        self._server = ToolServer(tools, models, directory)
        self.rootd = self._server.rootd
        self._thread = threading.Thread(target=self._run, name="rlm-tools", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            raise StartError(f"cannot start a thread for the session's tools: {error}") from error
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        except BaseException:
            self.close()
            raise
        self.variables = self._server.variables
        self.enter_context = self._server.enter_context

    def _run(self) -> None:
        is_running = True
        while is_running:
            try:
                self._loop.run_forever()
                is_running = False
            except BaseException:
                # SystemExit of a task that a tool has made comes out of the loop. Whoever awaits the task gets it, too.
                continue

    def is_here(self) -> bool:
        """True if the caller runs on the server's event loop."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the server and its thread. Not for callers on its event loop. Safe to repeat."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    abandon = close
