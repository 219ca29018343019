"""Tools of a task, and the servers of a turn."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.runtimes import subprocess as subprocess_runtime

from harness.episodes import IN, Model, agent, calls
from harness.lending import LENDING, BareBorrowing, borrowing, check_lending
from harness.programs import stand_ins


@pytest.mark.parametrize("language", ["bash", "python"])
def test_code_calls_the_tools_of_a_task(model: Model, language: str, toolsets: None) -> None:
    model.replies = calls(language, *LENDING[language])
    check_lending(model, asyncio.run(agent(model, **IN[language]).run(borrowing())))


def test_tools_without_the_name_of_their_server(model: Model, toolsets: None) -> None:
    model.replies = calls("bash", "RLM_CONTENT=$(lend Emma 2) RLM_READY=1")
    trace = asyncio.run(agent(model).run(BareBorrowing(vf.TaskData(prompt="Lend."))))
    assert (trace.errors, trace.root_reply) == ([], "1 lent")
    assert trace.state.lent == ["Emma for 2 days"]


async def failed_turn(harness: Any, servers: dict[str, str]) -> tuple[Exception, str]:
    """The error of a turn without a server for the model, and its working directory."""
    trace = types.SimpleNamespace(id="trace-1", calls=[], stop_condition=None, root_reply=None)
    runtime = subprocess_runtime.SubprocessRuntime(SubprocessConfig())
    await runtime.start()
    arguments = vf.ModelContext(model="m", client=None), trace, runtime, "http://127.0.0.1:9/v1", "secret"
    session = await harness.session(*arguments, servers, vf.TaskData(prompt="?"))
    with pytest.raises(vf.RolloutError) as caught:
        await session.turn()
    await session.close()
    await runtime.stop()
    return caught.value, str(runtime.workdir)


def test_a_model_that_cannot_be_reached(model: Model) -> None:
    error, _ = asyncio.run(failed_turn(agent(model).harness, {}))
    assert isinstance(error, vf.InterceptionError)
    assert "127.0.0.1:9" in str(error)


def test_servers_of_tools_are_passed_on_with_their_headers(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = f"""exec {sys.executable} -c '
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    reply = {{"error": {{"code": 1, "message": line}}}} if request["method"] == "session/new" else {{"result": {{}}}}
    print(json.dumps({{"id": request["id"], **reply}}), flush=True)
'"""
    stand_ins(tmp_path / "programs", monkeypatch, echo)
    monkeypatch.setenv("DOCS_KEY", "hidden")
    harness = agent(model, mcp_header_env={"docs": {"X-Key": "DOCS_KEY"}}).harness
    error, directory = asyncio.run(failed_turn(harness, {"docs": "http://docs/mcp"}))
    assert isinstance(error, vf.HarnessError)
    params = json.loads(str(error))["params"]
    server = {"type": "http", "name": "docs", "url": "http://docs/mcp"}
    assert params["mcpServers"] == [{**server, "headers": [{"name": "X-Key", "value": "hidden"}]}]
    assert params["cwd"] == directory
    contract = params["_meta"]["ai.prime.rlm/runtime-v1"]
    assert (contract["session_id"], contract["model"]) == ("trace-1", "m")
    assert contract["provider"] == {"base_url": "http://127.0.0.1:9/v1", "api_key": "secret"}
