"""Rollouts and sessions on a Ray cluster. Needs `pip install rlm-env[ray]` on all nodes; docs/scale.md in the project.

    import ray
    from rlm_env.ray import run_batch

    ray.init("auto")
    for result in run_batch(questions, attempts=8, model="large-model", base_url=url, results="results.jsonl"):
        print(result.id, result.answer)

Placement, the object store and the death of nodes are Ray's; a node has one actor of ours, which runs its rollouts.
"""

from __future__ import annotations

from ._batch import Batch, Progress, run_batch

__all__ = ["Batch", "Progress", "run_batch"]
