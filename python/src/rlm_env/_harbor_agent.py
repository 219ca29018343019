"""Rollouts as an agent of Harbor: its own client of the Agent Client Protocol runs `rlm acp`."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

from harbor.agents.installed.acp import AcpAgent  # pyright: ignore[reportMissingImports]
from harbor.environments.base import BaseEnvironment  # pyright: ignore[reportMissingImports]

from . import __version__
from ._harbor_environment import RlmEnvironment

_ARGUMENTS = ["acp", "--permissions", "allow"]
ENTRY = {
    "id": "rlm",
    "name": "RLM",
    "version": __version__,
    "description": "Explores a working directory in a persistent bash or Python session.",
    "distribution": {
        "local": {"cmd": "rlm", "args": _ARGUMENTS},
        "uvx": {"package": "rlm-env", "args": _ARGUMENTS},
    },
}
"""The agent as Harbor describes agents."""

_SETTINGS = ("RLM_BASE_URL", "RLM_API_KEY", "RLM_API", "RLM_SERVER")


class RlmAgent(AcpAgent):  # type: ignore[misc]
    """A rollout over the task's files. The model's server and key are this program's, by `RLM_BASE_URL` and others."""

    def __init__(self, *arguments: Any, extra_env: dict[str, str] | None = None, **options: Any) -> None:
        settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
        options.setdefault("registry_entry", ENTRY)
        super().__init__(*arguments, extra_env={**settings, **(extra_env or {})}, **options)
        self._is_here = False

    @staticmethod
    def name() -> str:
        return "rlm"

    async def setup(self, environment: BaseEnvironment) -> None:
        self._is_here = isinstance(environment, RlmEnvironment)
        if self._is_here:
            self._distribution_preference = ("local",)
        await super().setup(environment)

    def _build_dependencies_command(self, kind: Any) -> str:
        """In our environment everything is there already: Harbor's runner has this program's Python."""
        if not self._is_here:
            return str(super()._build_dependencies_command(kind))
        python = f"{self._RUNNER_VENV_PATH}/bin/python"
        script = shlex.quote(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        return f"mkdir -p {os.path.dirname(python)} && printf %s {script} >{python} && chmod +x {python}"
