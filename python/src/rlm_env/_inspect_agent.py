"""Rollouts as an agent of Inspect. Its models answer their requests."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Iterable
from typing import Any

import anyio  # pyright: ignore[reportMissingImports]
from inspect_ai._util.exception import TerminateSampleError  # pyright: ignore[reportMissingImports]
from inspect_ai.agent import Agent, AgentState, agent, agent_bridge  # pyright: ignore[reportMissingImports]
from inspect_ai.log import transcript  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ModelOutput, get_model  # pyright: ignore[reportMissingImports]
from inspect_ai.util import LimitExceededError, span  # pyright: ignore[reportMissingImports]

from ._inspect_sandbox import confinement, sample_config
from ._models import ChatModel
from ._rollouts import run
from ._tools import AnyTool


@agent  # type: ignore[untyped-decorator]
def rlm(
    context: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    *,
    model: str = "inspect",
    sub_model: str | None = None,
    tools: Iterable[AnyTool] = (),
    **settings: Any,
) -> Agent:
    """A rollout as an agent: the model explores a copy of the sample's files by code, until it sets an answer.

    `context` is files; None: those of the sandbox `rlm`, or none. `model` and `sub_model` are names as for
    `chat_model`, and the rest is that of `rlm_env.run`.
    """

    async def execute(state: AgentState) -> AgentState:
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            failures.append(error)
            task.cancel()

        async def lead(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
            try:
                return await _complete(model, messages, tools, sampling)
            except Exception as error:
                failed(error)
                raise

        async def answer(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
            try:
                return await chat_model(sub_model or model)(messages, tools, **sampling)
            except (LimitExceededError, TerminateSampleError) as error:
                failed(error)
                raise

        question = "\n\n".join(message.text for message in state.messages if message.role in ("system", "user"))
        place = sample_config()
        files = context if context is not None or place is None else place.fs_root
        wanted = {"confine": place.confine if place else confinement(), **settings}
        if wanted.get("language") == "python" and "RLM_PYTHON" not in os.environ:
            # The Python of this program, as in sessions.
            wanted = {"python": sys.executable, **wanted}
            del wanted["language"]
        async with agent_bridge(state) as bridge:
            # A task of its own, which has ended when this one goes on.
            task = asyncio.ensure_future(
                run(question, context=files, model=lead, sub_model=answer, tools=tools, **wanted)
            )
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([task])
        if failures:
            raise failures[0]
        result = task.result()
        if result.stop_reason in ("setup_failed", "worker_failed", "model_failed"):
            raise RuntimeError(f"the rollout failed ({result.stop_reason}): {result.error}")
        state = bridge.state
        state.output = ModelOutput.from_content(get_model().name, result.answer or "")
        state.output.metadata = {"stop_reason": result.stop_reason, "metrics": dict(result.metrics)}
        state.messages.append(state.output.message)
        transcript().info(state.output.metadata, source="rlm")
        return state

    return execute


def chat_model(model: str = "inspect") -> ChatModel:
    """A model of the evaluation as a function, for `models=` of sessions: "inspect", or "inspect/ROLE_OR_MODEL"."""

    async def ask(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        # A conversation of its own: the agent's state is that of the root model.
        async with span("sub-call"), agent_bridge(AgentState(messages=[])):
            return await _complete(model, messages, tools, sampling)

    return ask


@functools.cache
def _client() -> Any:
    """A client of OpenAI's, whose requests Inspect answers itself: nothing listens at the address."""
    from openai import AsyncOpenAI  # pyright: ignore[reportMissingImports]

    return AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:1")


async def _complete(model: str, messages: list[Any], tools: list[Any], sampling: dict[str, Any]) -> Any:
    given = {"tools": tools} if tools else {}
    return await _client().chat.completions.create(model=model, messages=messages, **given, **sampling)
