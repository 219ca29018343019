"""A user's file, for type checkers: mypy --strict and pyright find nothing in it."""

from __future__ import annotations

from rlm_env import Answer, AsyncSession, EndedError, Outcome, Response, Session, SessionConfig, tool


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
