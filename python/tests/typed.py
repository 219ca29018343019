"""A user's file, for type checkers: mypy --strict and pyright find nothing in it."""

from __future__ import annotations

from typing import Any

import rlm_env
from rlm_env import Answer, AsyncSession, EndedError, Models, Outcome, Response, Session, SessionConfig, tool
from rlm_env.tools import AsyncReplTools


@tool
def search(query: str, limit: int = 10) -> list[str]:
    """Finds documents."""
    return [query] * limit


@tool(name="count", timeout=5)
async def count_words(text: str) -> int:
    return len(text.split())


def plain(text: str) -> str:
    return text


found: list[str] = search("red", limit=2)


def answer(config: SessionConfig) -> Answer:
    with Session(config, tools=[search, count_words, plain]) as session:
        response: Response = session.execute("search red", timeout=5)
        outcome: Outcome = response.outcome
        if outcome == "timed_out" or response.state != "kept":
            print(response.hint or "", response.exit_code)
        session.set({"ids": [1, 2]})
        print(session.info().memory_bytes)
        return session.answer


async def main() -> str:
    async with AsyncSession("data", tools=[search]) as session:
        try:
            return (await session.execute("x=1")).stdout
        except EndedError as error:
            await session.restart()
            return error.status


async def conversation() -> str:
    async with AsyncReplTools(SessionConfig("data", confine="full"), tools=[search], timeout=60) as repl:
        definitions: list[dict[str, Any]] = repl.definitions
        return f"{len(definitions)} {await repl.bash('x=1')} {await repl.python(code='x = 1', timeout=5)}"


async def ask(messages: list[Any], tools: list[Any], **sampling: Any) -> str:
    return "reply"


async def rollouts() -> float:
    with Session(models=Models(ask), tools=[search]) as session:
        cost: float | None = session.spent().cost_usd
    result = await rlm_env.run("Why?", context="data", model=ask, tools=[search], language="python", max_turns=3)
    reason: rlm_env.StopReason = result.stop_reason
    async for event in rlm_env.stream(["Why?", rlm_env.Question("How?", context_text="text")], model="large"):
        if isinstance(event, rlm_env.CallEnded) and event.output is not None:
            print(event.output.stdout, event.rollout, reason)
    async for one in rlm_env.batch(["Why?"], attempts=2, parallel=2, model=ask, sampling={"temperature": 1.0}):
        print(one.answer)
    return cost or 0.0
