"""Sessions that come from a fork server."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from rlm_env import AsyncSession, ForkServer, Session, SessionConfig, StartError


def parent(pid: int | None) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_sessions_share_what_it_has_imported_and_nothing_else(work: Path) -> None:
    with ForkServer(preload=["json.tool"]) as server:
        config = SessionConfig(work, language="python", fork_server=server.name)
        assert pickle.loads(pickle.dumps(config)) == config
        with Session(config) as one, Session(config) as other:
            for session in one, other:
                worker = parent(session.info().pid)
                assert parent(worker) == server.pid
            assert one.execute("import sys; 'json.tool' in sys.modules").result == "True"
            one.execute("x = 1")
            assert other.execute("'x' in globals()").result == "False"
            one.restart()
            assert parent(parent(one.info().pid)) == server.pid
    assert not os.path.exists(f"/proc/{server.pid}")
    with Session(config) as session:
        assert session.execute("1 + 1").result == "2"
        assert "without the fork server: it does not run" in Path(session.control_dir, "rlm_worker.log").read_text()


async def test_twenty_at_once_and_a_server_that_is_closed_before_they_are(work: Path) -> None:
    server = await asyncio.to_thread(ForkServer)
    config = SessionConfig(work, language="python", fork_server=server.name)
    sessions = [AsyncSession(config) for _ in range(20)]
    await asyncio.gather(*(session.start() for session in sessions))
    closing = asyncio.create_task(asyncio.to_thread(server.close))
    responses = await asyncio.gather(*(session.execute("import os; os.getppid()") for session in sessions))
    assert {parent(int(response.result or 0)) for response in responses} == {server.pid}
    await asyncio.gather(*(session.close() for session in sessions))
    await closing
    await asyncio.to_thread(server.close)
    assert not os.path.exists(f"/proc/{server.pid}")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"preload": ["absent"]}, StartError, "cannot import absent: ModuleNotFoundError"),
        ({"preload": "absent.too"}, StartError, "cannot import absent.too: ModuleNotFoundError"),
        ({"preload": ["a b"]}, ValueError, "preload must have names of modules, not 'a b'"),
        ({"python": "/no/python3"}, StartError, "/no/python3, which does not exist"),
        ({"worker": "/no/worker"}, StartError, "cannot start a fork server: .*/no/worker"),
        ({"worker": "/bin/true"}, StartError, "ended before it was ready"),
        ({"start_limit": 0}, ValueError, "start_limit must be a number of seconds above 0"),
    ],
)
def test_what_cannot_be_is_said(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ForkServer(**options)
