"""An environment for OpenEnv: its `repl_env`, over a session for each client, without containers.

    python -m rlm_env.openenv --port 8000 --max-sessions 100

serves clients of OpenEnv (`EnvClient`), such as the `REPLEnv` of `repl_env`. docs/openenv.md has the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from typing import Any

from ._models import Models
from ._versions import require

require("openenv", "0.9", "0.11", "openenv")

from openenv.core.env_server import http_server  # noqa: E402  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import ConcurrencyConfig  # noqa: E402  # pyright: ignore[reportMissingImports]

from ._openenv_environment import ReplEnvironment, client_gone  # noqa: E402
from ._openenv_types import CodeBlockResult, ExactMatch, ReplAction, ReplObservation  # noqa: E402

__all__ = [
    "CodeBlockResult",
    "ExactMatch",
    "ReplAction",
    "ReplEnvironment",
    "ReplObservation",
    "create_app",
    "use_sessions",
]


def create_app(*, max_sessions: int = 100, session_timeout: float | None = None, **options: Any) -> Any:
    """The server as an application of FastAPI. `options` are those of ReplEnvironment."""
    concurrency = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=session_timeout)
    make = functools.partial(ReplEnvironment, **options)
    app = http_server.create_app(make, ReplAction, ReplObservation, env_name="repl_env", concurrency_config=concurrency)
    app.add_middleware(_Connections)
    return app


def use_sessions() -> None:
    """Makes the environments that `LocalREPLEnv` and `LocalRLMRunner` of `repl_env` create in this program sessions."""
    from repl_env import local  # pyright: ignore[reportMissingImports]

    local.REPLEnvironment = ReplEnvironment


class _Connections:
    """Reads the messages of each connection at once, and so learns at once that its client has gone."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        messages: asyncio.Queue[Any] = asyncio.Queue(16)
        gone = asyncio.Event()

        async def read() -> None:
            while not gone.is_set():
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    gone.set()
                await messages.put(message)

        token, reading = client_gone.set(gone), asyncio.ensure_future(read())
        try:
            await self._app(scope, messages.get, send)
        finally:
            client_gone.reset(token)
            reading.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rlm_env.openenv", description="Serves sessions to OpenEnv.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-sessions", type=int, default=100, help="most clients at once")
    parser.add_argument("--session-timeout", type=float, help="seconds after which an idle client's session ends")
    parser.add_argument("--timeout", type=float, default=120.0, help="time limit of a step, seconds")
    parser.add_argument("--max-iterations", type=int, default=30, help="steps of an episode")
    parser.add_argument("--confine", choices=["full", "landlock", "try", "off"], help="docs/confinement.md")
    parser.add_argument("--model", help="the model of llm_query, at RLM_BASE_URL")
    given = vars(parser.parse_args())
    host, port, model = given.pop("host"), given.pop("port"), given.pop("model")
    import uvicorn  # pyright: ignore[reportMissingImports]

    uvicorn.run(create_app(models=Models(model) if model else None, **given), host=host, port=port)


if __name__ == "__main__":
    main()
