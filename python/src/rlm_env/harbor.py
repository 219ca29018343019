"""Harbor: rollouts as an agent, and an environment without containers.

    harbor run --path tasks/sums --agent rlm_env.harbor:RlmAgent --env rlm_env.harbor:RlmEnvironment --model large-model

docs/harbor.md has the rest.
"""

from __future__ import annotations

from ._versions import require

require("harbor", "0.25", "0.27", "harbor")
require("agent-client-protocol", "0.12", "0.13", "harbor")

from ._harbor_agent import RlmAgent  # noqa: E402
from ._harbor_environment import RlmEnvironment  # noqa: E402

__all__ = ["RlmAgent", "RlmEnvironment"]
