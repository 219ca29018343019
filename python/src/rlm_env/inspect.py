"""Inspect (inspect-ai): tools over sessions, rollouts as an agent, and a sandbox without containers.

    from inspect_ai import Task, task
    from inspect_ai.agent import react
    from rlm_env.inspect import bash_session, python

    @task
    def analysis():
        return Task(dataset, solver=react(tools=[bash_session(), python()]), scorer=match(), sandbox="rlm")

`rlm()` in place of `react(…)` runs a whole rollout over the sample's files. docs/inspect.md has the rest.
"""

from __future__ import annotations

from ._versions import require

require("inspect-ai", "0.3.285", "0.4", "inspect")

from ._inspect_agent import chat_model, rlm  # noqa: E402
from ._inspect_sandbox import RlmSandbox, RlmSandboxConfig  # noqa: E402
from ._inspect_tools import bash_session, python  # noqa: E402

__all__ = ["RlmSandbox", "RlmSandboxConfig", "bash_session", "chat_model", "python", "rlm"]
