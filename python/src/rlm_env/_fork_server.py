"""A process from which Python sessions are forked, with modules imported, in place of being started."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ._config import SessionConfig, check_seconds
from ._errors import StartError
from ._programs import check_descriptors, find_program

_END_LIMIT = 1.0
"""Seconds in which a fork server ends after its last session. It ends by itself later."""


class ForkServer:
    """Starts Python sessions in milliseconds: docs/fork-server.md.

        with ForkServer(preload=["numpy", "pandas"]) as server:
            with Session(SessionConfig("data", language="python", fork_server=server.name)) as session:
                session.execute("import pandas")  # it is there already

    It returns when the modules are imported. `python`, `env` and `worker` are those of the sessions. A session that
    cannot come from it is started as without one, and says why in its log. Raises StartError, which names a module that
    cannot be imported.
    """

    def __init__(
        self,
        *,
        preload: Iterable[str] = (),
        python: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        worker: str | os.PathLike[str] | None = None,
        start_limit: float = 60.0,
    ) -> None:
        check_seconds("start_limit", start_limit)
        modules = [preload] if isinstance(preload, str) else list(preload)
        for module in modules:
            if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
                raise ValueError(f"preload must have names of modules, not {module!r}")
        self.name = f"rlm-{secrets.token_hex(16)}"
        """The name by which sessions find it."""
        environment = SessionConfig(language="python", python=python, env=env, worker=worker).environment()
        try:
            program = worker or find_program("rlm-worker-python")
            check_descriptors()
            self._process = subprocess.Popen(
                [program, "--fork-server", self.name, "--ready-fd", "1"],
                env={**environment, "RLM_PYTHON_PRELOAD": ",".join(modules)},
                stdin=subprocess.PIPE,  # it ends with this
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise StartError(f"cannot start a fork server: {error}") from error
        assert self._process.stdout is not None and self._process.stderr is not None
        with self._process.stdout as ready, self._process.stderr as errors:
            if not select.select([ready], [], [], start_limit)[0]:
                self._process.kill()
                self.close()
                raise StartError(f"the fork server was not ready within {start_limit:g} s, and was ended")
            if not ready.read(16):
                words = errors.read().decode(errors="replace").strip()
                self.close()
                raise StartError(words or f"the fork server ended before it was ready ({self._process.returncode})")
        self.pid = self._process.pid

    def close(self) -> None:
        """Ends it after its last session. New sessions are started without it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ForkServer({self.name!r}, pid={self._process.pid})"
