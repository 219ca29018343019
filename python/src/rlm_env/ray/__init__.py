"""Rollouts and sessions on a Ray cluster. Needs `pip install rlm-env[ray]` on all nodes; docs/scale.md in the project.

    import ray
    from rlm_env.ray import run_batch

    ray.init("auto")
    for result in run_batch(questions, attempts=8, model="large-model", base_url=url, results="results.jsonl"):
        print(result.id, result.answer)

Placement, the object store and the death of nodes are Ray's; a node has one actor of ours, which runs its rollouts.
`SessionActor` is a session on a node, and `SessionPool` has one for each key, for programs that drive sessions.
`Rollouts` answers the questions of a dataset of Ray Data.
"""

from __future__ import annotations

from ._batch import Batch, Progress, run_batch
from ._data import Rollouts
from ._pool import SessionPool
from ._session import SessionActor

__all__ = ["Batch", "Progress", "Rollouts", "SessionActor", "SessionPool", "run_batch"]
