"""A harness for verifiers (github.com/PrimeIntellect-ai/verifiers), tested with 0.4.0: `rlm acp` as the agent.

    vf-eval my-taskset --env.agent.harness.id rlm_env_harness

`setup` uploads the programs of this package, unless the box has them, and `session` speaks the Agent Client Protocol
with `rlm acp` from the host. The box needs glibc, and bash or CPython. docs/python.md has the fields and the limits.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import PositiveFloat, PositiveInt, model_validator  # pyright: ignore[reportMissingImports]
from verifiers.v1 import (  # pyright: ignore[reportMissingImports]
    Harness,
    HarnessConfig,
    HarnessError,
    HarnessSession,
    InterceptionError,
    Messages,
    ModelContext,
    ProgramResult,
    Runtime,
    RuntimeProcess,
    TaskData,
    Trace,
)
from verifiers.v1.semantic import SemanticEdgeSet  # pyright: ignore[reportMissingImports]
from verifiers.v1.utils.aio import run_shielded  # pyright: ignore[reportMissingImports]

from rlm_env import find_program
from rlm_env._acp import AgentConnection, AgentError
from rlm_env._programs import is_bundle

__all__ = ["RlmHarness", "RlmHarnessConfig"]

_T = TypeVar("_T")

_CONTRACT = "ai.prime.rlm/runtime-v1"
_SNAPSHOT = "ai.prime.rlm/session-v1"
_EDGES = "ai.prime.acp/semantic-edges-v1"

_POLICY = (
    "max_total_turns",
    "max_total_tokens",
    "max_tokens",
    "exec_timeout",
    "max_tool_output_bytes",
    "compaction",
    "summarize_at_tokens",
)
"""The fields of the configuration that the contract has under the same names."""

_PROGRAMS = {
    "bash": ("rlm", "rlm-worker-bash", "rlm-root-tool"),
    "python": ("rlm", "rlm-worker-python", "librlm_cell_engine.so"),
}

_STOP_CONDITIONS = {
    "max_total_turns": "max_turns",
    "max_total_tokens": "max_total_tokens",
    "compaction_failed": "compaction_failed",
}
"""The stop reasons of a session that truncate a trace, and their names in verifiers."""

_UPLOADS = "/tmp"
"""The directory for the programs, in boxes."""

_END_SECONDS = 5
_DEATH_SECONDS = 0.5
_STDERR_BYTES = 4000

# Several rollouts may upload at once, and any of them may die half way: a directory gets its name when it is complete.
_PUBLISH = """
chmod -R a+rx "$1" && "$1/rlm" --version >/dev/null || exit
mv -T "$1" "$2" 2>/dev/null || [ -x "$2/rlm" ]
"""


class RlmHarnessConfig(HarnessConfig):  # type: ignore[misc]
    """A limit that is not given is that of `rlm run`. Its variables (`RLM_…`) in `env` set what has no field here."""

    language: Literal["bash", "python"] = "bash"
    """The language of the session."""
    python: str | None = None
    """The interpreter of Python sessions in the box: a path, name or `builtin`. None: `python3`, else the built-in."""
    max_total_turns: PositiveInt | None = None
    """Most turns of the model in a rollout; None: 50 per user message."""
    max_total_tokens: PositiveInt | None = None
    """Most tokens of a rollout, prompts and completions of all its calls together; None: no limit."""
    max_tokens: PositiveInt | None = None
    """Most tokens of one completion; None: the model's own limit."""
    exec_timeout: PositiveFloat | None = None
    """Time limit of one call, seconds; None: 120."""
    max_tool_output_bytes: PositiveInt | None = None
    """Most characters of a call's output that the model gets; None: 8192."""
    compaction: bool | None = None
    """True: a conversation that becomes long is replaced by a summary. None: only if `summarize_at_tokens` is given."""
    summarize_at_tokens: PositiveInt | None = None
    """Tokens of a conversation that is long; None: 16,384 less than the model's context window."""
    append_to_system_prompt: str | None = None
    """Appended to the model's system prompt, after that of the task."""
    leaf_append_to_system_prompt: str | None = None
    """Appended to the system prompt of `llm_batch`."""

    @model_validator(mode="after")  # type: ignore[untyped-decorator]
    def _check(self) -> RlmHarnessConfig:
        if self.disabled_tools:
            raise ValueError("rlm_env_harness cannot disable tools: leave disabled_tools empty")
        if self.python is not None and self.language != "python":
            raise ValueError("python names the interpreter of Python sessions: set language to python as well")
        return self


class RlmHarness(Harness[RlmHarnessConfig]):  # type: ignore[misc]
    """`rlm acp` in the rollout's runtime, driven from the host."""

    NEEDS_CONTAINER = False
    SUPPORTS_MCP = True
    APPENDS_SYSTEM_PROMPT = True

    async def setup(self, runtime: Runtime) -> None:
        if runtime.type != "subprocess":
            await _upload(runtime, self._files())

    async def session(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
        tool_interception_url: str | None = None,
    ) -> HarnessSession:
        if not runtime.supports_live_processes:
            raise HarnessError(f"the runtime {runtime.type} has no live processes, and rlm_env_harness needs one")
        return RlmHarnessSession(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url)

    async def launch(self, *_: Any, **__: Any) -> ProgramResult:
        raise HarnessError("rlm_env_harness runs in sessions only")

    def command(self, runtime: Runtime) -> list[str]:
        """The agent in the box."""
        files = self._files()
        # A subprocess runs on this host, which has the programs.
        directory = files[0].parent if runtime.type == "subprocess" else Path(_directory(files))
        command = [str(directory / "rlm"), "acp", "--permissions", "allow"]
        python = self.config.python
        return command + ([f"--python={python}"] if python else ["--language", self.config.language])

    def contract(self, session: HarnessSession) -> dict[str, Any]:
        """The configuration of a rollout's session."""
        config = self.config
        system_prompt, _ = self.resolve_prompt(session.data)
        appended = [text for text in (system_prompt, config.append_to_system_prompt) if text]
        return {
            "session_id": session.trace.id,
            "model": session.ctx.model,
            "provider": {"base_url": session.endpoint, "api_key": session.secret},
            "append_to_system_prompt": "\n\n".join(appended) or None,
            "leaf_append_to_system_prompt": config.leaf_append_to_system_prompt,
            "kernel_env": session.runtime.env,
            "policy": {name: getattr(config, name) for name in _POLICY},
        }

    def _files(self) -> tuple[Path, ...]:
        rlm = find_program("rlm")
        return (rlm,) if is_bundle(rlm) else tuple(map(find_program, _PROGRAMS[self.config.language]))


class RlmHarnessSession(HarnessSession):  # type: ignore[misc]
    """The process of a rollout, from the first turn on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = asyncio.Lock()
        self._process: RuntimeProcess | None = None
        self._connection: AgentConnection | None = None
        self._agent_session = ""
        self._stderr = bytearray()
        self._stderr_task: asyncio.Task[None] | None = None

    async def _run(self, messages: Messages | None) -> ProgramResult:
        _, prompt = self.harness.resolve_prompt(self.data)
        texts = _texts(prompt if messages is None else messages)
        async with self._lock:
            if self._closed:
                raise HarnessError("the session is closed")
            calls_before = len(self.trace.calls)
            try:
                connection = self._connection or await self._start()
                response = await connection.prompt(self._agent_session, texts)
            except BaseException as error:
                status = await run_shielded(self._end(is_graceful=False))
                if isinstance(error, AgentError):
                    raise self._failure(error, status) from error
                raise
            finally:
                if self._connection is not None:
                    self.trace.root_reply = self._connection.reply.strip()
        self._consume(response.get("_meta") or {})
        calls = self.trace.calls[calls_before:]
        if self.trace.stop_condition is None and all(call.node is None for call in calls):
            raise HarnessError("the agent ended its turn without a call of the model")
        return ProgramResult(exit_code=0, stdout=self.trace.root_reply or "", stderr="")

    async def close(self) -> None:
        if self._closed:
            return
        await super().close()

        async def end() -> None:
            async with self._lock:
                await self._end(is_graceful=True)

        await run_shielded(end())

    async def _start(self) -> AgentConnection:
        directory = await self.runtime.run(["pwd"], {})
        if directory.exit_code != 0:
            raise HarnessError(f"the runtime has no working directory: {directory.stderr.strip()}")
        process = await self.runtime.open_process(self.harness.command(self.runtime), self.harness.config.resolved_env)
        self._process = process
        self._stderr_task = asyncio.create_task(self._keep_stderr(process))
        connection = self._connection = AgentConnection(process)
        headers = self.harness.config.resolve_mcp_headers(self.mcp_urls)
        servers = [
            {
                "type": "http",
                "name": name,
                "url": url,
                "headers": [{"name": key, "value": value} for key, value in headers.get(name, {}).items()],
            }
            for name, url in self.mcp_urls.items()
        ]
        await connection.request("initialize", {"protocolVersion": 1})
        meta = {_CONTRACT: self.harness.contract(self)}
        session = {"cwd": directory.stdout.rstrip("\n"), "mcpServers": servers, "_meta": meta}
        self._agent_session = (await connection.request("session/new", session))["sessionId"]
        return connection

    async def _keep_stderr(self, process: RuntimeProcess) -> None:
        async for chunk in process.stderr:
            self._stderr += chunk
            del self._stderr[:-_STDERR_BYTES]

    def _consume(self, meta: dict[str, Any]) -> None:
        """Records what a response says of the rollout."""
        snapshot = meta.get(_SNAPSHOT)
        if not isinstance(snapshot, dict) or snapshot.get("session_id") != self.trace.id:
            raise HarnessError("the response of the agent has no snapshot of this rollout")
        self.trace.record_metrics(snapshot["metrics"])
        if (edges := meta.get(_EDGES)) is not None:
            self.trace.add_semantic_edges(SemanticEdgeSet.model_validate(edges))
        condition = _STOP_CONDITIONS.get(snapshot.get("last_stop_reason") or "")
        if condition is not None:
            self.trace.stop(condition)

    def _failure(self, error: AgentError, status: int | None) -> Exception:
        message = str(error)
        if status is not None:
            message += f" (exit status {status})"
        if stderr := self._stderr.decode(errors="replace").strip():
            message += f"\n\nstderr of rlm acp:\n{stderr}"
        kind = InterceptionError if error.data.get("kind") == "model_transport" else HarnessError
        return kind(message)  # type: ignore[no-any-return]

    async def _end(self, *, is_graceful: bool) -> int | None:
        """Ends the process. Returns the exit status of one that has ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        died = None
        try:
            if is_graceful and self._connection is not None:
                closing = self._connection.request("session/close", {"sessionId": self._agent_session})
                await _within(_END_SECONDS, closing)
            else:
                died = await _within(_DEATH_SECONDS, process.wait())
            status = died
            for stop in (process.terminate, process.kill):
                if status is None:
                    await _within(_END_SECONDS, stop())
                    status = await _within(_END_SECONDS, process.wait())
        finally:
            if self._connection is not None:
                await self._connection.close()
            if self._stderr_task is not None:
                await _within(_DEATH_SECONDS, self._stderr_task)
        return died


async def _within(seconds: float, awaitable: Awaitable[_T]) -> _T | None:
    """The result; None if it takes longer and is cancelled, or fails."""
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except Exception:
        return None


def _texts(prompt: str | Messages | None) -> list[str]:
    """The texts of a user's turn."""
    if isinstance(prompt, str):
        return [prompt]
    texts = []
    for message in prompt or []:
        if message.role != "user":
            raise HarnessError(f"a turn takes user messages only, and this one has the role {message.role}")
        for part in [message.content] if isinstance(message.content, str) else message.content:
            if not isinstance(part, str) and part.type != "text":
                raise HarnessError(f"a turn takes text only, and a part of its message has the type {part.type}")
            texts.append(part if isinstance(part, str) else part.text)
    if not texts:
        raise HarnessError("the turn has no user message")
    return texts


@functools.cache
def _directory(files: tuple[Path, ...]) -> str:
    """The directory of these files in a box. Their digest is in its name."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return f"{_UPLOADS}/rlm-env-{digest.hexdigest()[:32]}"


async def _upload(runtime: Runtime, files: tuple[Path, ...]) -> None:
    """Puts the programs into a box that does not have them."""
    directory = await asyncio.to_thread(_directory, files)
    if (await runtime.run(["test", "-x", f"{directory}/rlm"], {})).exit_code == 0:
        return
    aside = f"{directory}.{uuid.uuid4().hex}"
    try:
        for file in files:
            await runtime.write(f"{aside}/{file.name}", await asyncio.to_thread(file.read_bytes))
        done = await runtime.run(["sh", "-c", _PUBLISH, "sh", aside, directory], {})
        if done.exit_code != 0:
            raise HarnessError(f"the programs of rlm-env do not run in this box: {done.stderr.strip()[-1000:]}")
    finally:
        await run_shielded(runtime.run(["rm", "-rf", aside], {}))
