"""The documents of the protocol, from the same files as the tests of the Rust crate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlm_env import Answer, CellException, Info, Limit, Limits, ProtocolError, Response, Truncated, Usage

GOLDEN = Path(__file__).parents[2] / "rlm-core/testdata/protocol"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def test_golden_responses() -> None:
    response = Response.from_json((GOLDEN / "response.json").read_bytes())
    assert response == Response(
        status="ok",
        stdout="aé\n",
        stderr="",
        result=None,
        execution_count=3,
        seq=7,
        answer=Answer(True, "42"),
        outcome="ok",
        state="kept",
        execution_time=0.25,
        exit_code=0,
        exception=None,
        truncated=None,
        hint=None,
        protocol=1,
    )
    refused = Response.from_json((GOLDEN / "response-refused.json").read_bytes())
    assert (refused.outcome, refused.seq, refused.hint) == ("error", -1, "why")
    assert refused.exception == CellException("ValueError", "no")
    assert refused.truncated == Truncated(5, 0, 0)


def test_golden_info() -> None:
    info = Info.from_json((GOLDEN / "info.json").read_text())
    assert (info.language, info.version, info.cwd, info.pid) == ("bash", "5.2.15(1)-release", "/data", None)
    limits = Limits(Limit(64, "pid_namespace"), Limit(4096, "cgroup"), Limit(1, "rlimit"), Limit(2, None))
    assert info.limits == limits
    assert info.usage == Usage(3, None, 0.5)
    older = golden("info.json")
    del older["limits"], older["usage"]
    assert Info.from_json(json.dumps(older)).limits == Limits(), "workers before these fields"


@pytest.mark.parametrize("field", golden("response.json"))
def test_each_field_is_needed_and_has_its_type(field: str) -> None:
    document = golden("response.json")
    del document[field]
    with pytest.raises(ProtocolError, match=f"has no field `{field}`"):
        Response.from_json(json.dumps(document))
    for wrong in ({"x": 1} if field not in ("answer", "exception", "truncated") else 5, True, [1]):
        document[field] = wrong
        with pytest.raises(ProtocolError, match="must be|has no field"):
            Response.from_json(json.dumps(document))


def test_unknown_fields_are_ignored_and_unknown_values_are_not() -> None:
    document = golden("response.json")
    assert Response.from_json(json.dumps({**document, "later": 1})) == Response.from_json(json.dumps(document))
    for field in "status", "outcome", "state":
        with pytest.raises(ProtocolError, match=f"`{field}` of a response must be one of .*, not 'odd'"):
            Response.from_json(json.dumps({**document, field: "odd"}))


@pytest.mark.parametrize(("result", "shown"), [(None, "lost"), ("5", "lost\n5"), ("", "lost\n")])
def test_a_hint_in_the_result_is_taken_out_again(result: str | None, shown: str) -> None:
    document = {**golden("response.json"), "state": "reset", "hint": "lost", "result": shown}
    assert Response.from_json(json.dumps(document)).result == result
