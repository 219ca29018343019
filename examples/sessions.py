"""Sessions from Python: a session, its answer, functions of this program as tools, many sessions at once."""

import asyncio
import sys

from rlm_env import AsyncSession, EndedError, Session, SessionConfig, tool


@tool
def search(query: str, limit: int = 3) -> list[str]:
    """Finds documents.

    Args:
        query: words to look for
        limit: most results
    """
    return [f"{query}, document {number}" for number in range(limit)]


async def translate(text: str, language: str) -> str:
    """Translates a text. An async function runs on the session's event loop."""
    await asyncio.sleep(0)
    return f"{text} ({language})"


def one(directory: str) -> None:
    with Session(directory, tools=[search, translate]) as session:
        # Code that fails is not an error: the response says how it ended.
        response = session.execute("x=1; cd /; false")
        print(response.outcome, response.exit_code)

        # Variables from JSON values: no quoting, nothing is evaluated.
        session.set({"question": "it's $5", "ids": [1, 2]})
        print(session.execute('echo "$question, ${#ids[@]} ids"').stdout, end="")

        # Tools are commands in bash, and functions in Python sessions.
        print(session.execute('search "red pandas" 2; translate hello French').stdout, end="")

        # A call that is stopped at its limit keeps the state and its output so far.
        stopped = session.execute("echo begun; sleep 1000", timeout=0.2)
        print(stopped.outcome, stopped.state, stopped.stdout.strip())

        # The answer comes with each response.
        print(session.execute("RLM_CONTENT=42; RLM_READY=1").answer)

        # A worker that died is an error, and another one can take its place.
        try:
            session.execute("kill -9 $PPID; sleep 1000")
        except EndedError:
            session.restart()
        print(session.execute("echo on").stdout, end="")


async def many(directory: str) -> None:
    async def count(number: int) -> int:
        # Python sessions run in the interpreter that runs this program.
        config = SessionConfig(directory, language="python", exec_timeout=10)
        async with AsyncSession(config) as session:
            response = await session.execute(f"sum(range({number}))")
            return int(response.result or 0)

    print(await asyncio.gather(*(count(number) for number in range(8))))


if __name__ == "__main__":
    one(sys.argv[1])
    asyncio.run(many(sys.argv[1]))
