"""The sandbox environment `rlm` of Inspect: confined sessions in place of containers."""

from __future__ import annotations

import asyncio
import builtins
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, Union, overload

import anyio  # pyright: ignore[reportMissingImports]
from inspect_ai.util import (  # pyright: ignore[reportMissingImports]
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandbox,
    sandboxenv,
)
from inspect_ai.util._sandbox.events import SandboxTimeoutError  # pyright: ignore[reportMissingImports]
from pydantic import BaseModel  # pyright: ignore[reportMissingImports]

from ._asyncio import AsyncSession
from ._config import Confine, SessionConfig
from ._documents import Response
from ._errors import EndedError
from ._files import PrivateDirectory, read_own_file, write_own_file
from ._inspect_session import SETUP

_ERRORS = ("FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "PermissionError")


def confinement(wanted: Confine | None = None) -> Confine:
    """`full` unless the caller or the environment says otherwise."""
    return wanted or os.environ.get("RLM_CONFINE") or "full"  # type: ignore[return-value]


class RlmSandboxConfig(BaseModel):  # type: ignore[misc]
    """The configuration of a sandbox: `SandboxEnvironmentSpec("rlm", RlmSandboxConfig(env={"A": "1"}))`."""

    model_config = {"frozen": True}

    confine: Literal["full", "landlock", "try", "off"] | None = None
    """docs/confinement.md. None: `RLM_CONFINE` of the environment, else "full"."""
    env: dict[str, str] = {}
    """Further variables of programs in the sandbox."""


@sandboxenv(name="rlm")
class RlmSandbox(SandboxEnvironment):  # type: ignore[misc]
    """A directory of a sample, and confined sessions that run programs in it."""

    def __init__(self, config: RlmSandboxConfig) -> None:
        super().__init__()
        self._directory = PrivateDirectory()
        self._env = config.env
        self.config = SessionConfig(self._directory.path, language="python", confine=confinement(config.confine))
        """The configuration of its sessions; `fs_root` is the directory."""
        self._sessions: list[AsyncSession] = []
        self._idle: list[AsyncSession] = []

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        if config is not None and not isinstance(config, RlmSandboxConfig):
            raise TypeError(f"the sandbox rlm is configured by an RlmSandboxConfig, not by {config!r}")
        return {"default": cls(config or RlmSandboxConfig())}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await environment.as_type(cls)._close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return RlmSandboxConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user not in (None, str(os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name):
            raise SandboxUserUnsupportedError(f"the sandbox rlm runs programs as its own user only, not as {user!r}")
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        async with self._session() as session:
            given, out, err = (os.path.join(session.control_dir, f"sandbox.{name}") for name in ("in", "out", "err"))
            if input is not None:
                write_own_file(given, input)
            where = os.path.join(self._directory.path, cwd or "")
            arguments = (cmd, where, {**self._env, **(env or {})}, "" if input is None else given, out, err, most)
            response = await session.execute(f"_rlm_sandbox.run(*{arguments!r})", timeout=timeout)
            status = "" if response.outcome == "timed_out" else _checked(response)
            stdout, stderr = (read_own_file(path, most).decode(errors="replace") for path in (out, err))
            if not status:
                raise SandboxTimeoutError(f"the command ran longer than {timeout} s", (stderr + stdout) or None)
        return ExecResult(status == "0", int(status), stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        async with self._session() as session:
            given = os.path.join(session.control_dir, "sandbox.in")
            write_own_file(given, contents)
            _checked(await session.execute(f"_rlm_sandbox.write({given!r}, {file!r})"))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        async with self._session() as session:
            out = os.path.join(session.control_dir, "sandbox.out")
            if _checked(await session.execute(f"_rlm_sandbox.read({file!r}, {out!r}, {most})")) != "True":
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            contents = read_own_file(out, most)
            os.unlink(out)
        return contents.decode() if text else contents

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AsyncSession]:
        """A session that runs nothing. There are as many as programs have run at once."""
        session = self._idle.pop() if self._idle else await self._started()
        try:
            yield session
        except (EndedError, _StateLost) as error:
            self._sessions.remove(session)
            await asyncio.shield(session.close())
            raise SandboxUnavailableError(f"the session of the sandbox died: {error}") from error
        finally:
            if session in self._sessions:
                self._idle.append(session)

    async def _started(self) -> AsyncSession:
        session = AsyncSession(self.config)
        self._sessions.append(session)
        try:
            await session.start()
            _checked(await session.execute(SETUP))
        except BaseException:
            self._sessions.remove(session)
            with anyio.CancelScope(shield=True):
                await session.close()
            raise
        return session

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(session.close() for session in self._sessions))
        finally:
            self._directory.remove()


def sample_config() -> SessionConfig | None:
    """The sessions' configuration in the sample's sandbox; None if it has no sandbox."""
    try:
        environment = sandbox()
    except ProcessLookupError:
        return None
    try:
        config: SessionConfig = environment.as_type(RlmSandbox).config
    except TypeError as error:
        raise RuntimeError('sessions of rlm_env run in the sandbox "rlm", or without one: set sandbox="rlm"') from error
    return config


class _StateLost(Exception):
    """The interpreter of the session is another one now."""


def _checked(response: Response) -> str:
    """The value of the code. Raises the error that the sandbox's caller expects."""
    exception = response.exception
    if response.state != "kept":
        raise _StateLost(response.hint)
    if response.outcome == "error" and exception is not None and exception.type in _ERRORS:
        raise getattr(builtins, exception.type)(exception.message)
    if response.outcome != "ok":
        raise SandboxUnavailableError(response.hint or response.result or response.outcome)
    return response.result or ""
