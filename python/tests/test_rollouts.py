"""Whole rollouts: `run`, `batch`, `stream`."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import rlm_env
from conftest import until, wait_until
from rlm_env import (
    CallEnded,
    CallStarted,
    EndedError,
    Message,
    ModelCall,
    ProtocolError,
    Question,
    Result,
    RolloutEnded,
    RolloutStarted,
    StartError,
    SubCall,
)

EXAMPLE = Path(__file__).parents[2] / "docs/trajectory-example.jsonl"
CALLER = contextvars.ContextVar("CALLER", default="nobody")


def calling(code: str, tool: str = "call_bash_repl") -> dict[str, Any]:
    """A message that runs code."""
    function = {"name": tool, "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def running(*codes: str, tool: str = "call_bash_repl") -> Callable[..., Any]:
    """A model that runs one code after the other. To a sub-call it answers by the length of the prompt."""

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        if not tools:
            return f"{len(messages[-1]['content'])} characters"
        turn = sum(message["role"] == "assistant" for message in messages)
        return calling(codes[min(turn, len(codes) - 1)], tool)

    return model


def lookup(word: str) -> str:
    """Looks a word up."""
    return f"{word} by {CALLER.get()}"


def answering(text: str) -> str:
    return f"RLM_CONTENT={text} RLM_READY=1"


async def test_a_rollout_answers_by_tools_and_sub_calls(work: Path) -> None:
    (work / "a.txt").write_text("some text")
    codes = ['sub=$(llm_batch "$(cat a.txt)")', 'RLM_CONTENT="$sub, $(lookup x)" RLM_READY=1']
    CALLER.set("me")
    result = await rlm_env.run("What?", context=work, model=running(*codes), tools=[lookup])
    assert (result.answer, result.answer_ready, result.stop_reason) == ("9 characters, x by me", True, "answered")
    assert (result.id, result.question, result.error, result.dir) == ("1-1", "What?", None, None)
    assert (result.metrics["root_llm_turns"], result.metrics["root_tool_calls"]) == (2, {"llm_batch": 1, "lookup": 1})


@pytest.mark.parametrize("callbacks", ["network", "intercept"])
async def test_python_code_calls_functions_in_both_ways(work: Path, callbacks: Any) -> None:
    code = "found = lookup('x')\nanswer['content'] = found; answer['ready'] = True"
    model = running(code, tool="call_python_repl")
    result = await rlm_env.run("?", model=model, tools=[lookup], language="python", callbacks=callbacks)
    assert result.answer == "x by nobody"


async def test_events_come_as_they_happen_and_are_those_of_the_trajectory(work: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    model = running("llm_batch a", answering("1"))
    question = Question("What?", context_text="text")
    events = [event async for event in rlm_env.stream(question, model=model, trajectory=file)]
    kinds = [type(event) for event in events]
    assert kinds[0] is RolloutStarted and kinds[-2:] == [RolloutEnded, Result]
    assert {Message, ModelCall, CallStarted, SubCall, CallEnded} < set(kinds)
    assert list(rlm_env.read_trajectory(file)) == events[:-1]
    output = next(event for event in events if isinstance(event, CallEnded)).output
    assert output is not None and (output.outcome, output.stdout) == ("ok", "1 characters\n")
    assert {event.rollout for event in events} == {"1-1"}


async def test_an_event_is_seen_before_the_next_thing_happens() -> None:
    seen = asyncio.Event()
    turns = []

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        turns.append(len(messages))
        if len(turns) == 2:
            await asyncio.wait_for(seen.wait(), 30)
        return calling(answering("1") if len(turns) > 1 else "echo first")

    async for event in rlm_env.stream("?", model=model):
        if isinstance(event, CallEnded) and event.output and "first" in event.output.stdout:
            seen.set()
    assert len(turns) == 2


async def test_each_kind_of_context(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    questions = [
        Question("?", id="paths", context=[tmp_path / "one", tmp_path / "two"]),
        Question("?", id="text", context_text="a text"),
        Question("?", id="json", context_json={"a": [1]}),
        Question("?", id="shared"),
    ]
    model = running("RLM_CONTENT=$(ls | tr '\\n' ' ') RLM_READY=1")
    results = rlm_env.batch(questions, model=model, context=tmp_path / "two")
    answers = {result.id: (result.answer or "").strip() async for result in results}
    assert answers == {"paths-1": "one two", "text-1": "context.txt", "json-1": "context.json", "shared-1": "two"}


async def test_a_context_is_filtered_and_may_be_empty(tmp_path: Path) -> None:
    for name, text in [(".gitignore", "*.log"), ("a.log", ""), ("b.csv", ""), ("c", ""), ("d.tmp", "")]:
        (tmp_path / name).write_text(text)
    model = running("RLM_CONTENT=$(ls | tr '\\n' ' ') RLM_READY=1")

    async def run(**given: Any) -> tuple[str, tuple[rlm_env.LeftOut, ...]]:
        left_out, answer = None, None
        async for event in rlm_env.stream("?", model=model, **given):
            if isinstance(event, RolloutStarted):
                left_out = event.context_left_out
            if isinstance(event, Result):
                answer = (event.result.answer or "").strip()
        assert answer is not None and left_out is not None
        return answer, left_out

    ignored = rlm_env.LeftOut("gitignore", 1, ["a.log"])
    excluded = rlm_env.LeftOut("exclude", 2, ["b.csv", "d.tmp"])
    exclude = ["*.csv", "*.tmp"]
    assert await run(context=tmp_path, exclude=exclude) == ("c", (ignored, excluded))
    assert await run(context=tmp_path, exclude=exclude, gitignore=False) == ("a.log c", (excluded,))
    for nothing in (None, []):
        assert await run(context=nothing) == ("", ())


async def test_a_batch_gives_results_as_they_come_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    asked = []

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        asked.append(messages)
        return calling(answering(str(len(asked))))

    async def ids(questions: list[str], attempts: int) -> list[str]:
        results = rlm_env.batch(questions, attempts=attempts, parallel=2, resume=file, model=model)
        return [result.id async for result in results]

    assert sorted(await ids(["a?", "b?"], 1)) == ["1-1", "2-1"]
    assert len(asked) == 2
    again = await ids(["a?", "b?"], 2)
    assert again[:2] == ["1-1", "2-1"] and sorted(again[2:]) == ["1-2", "2-2"]
    assert len(asked) == 4 and len(file.read_text().splitlines()) == 4
    assert await ids([], 1) == []


async def test_results_say_what_made_them_and_others_are_refused(tmp_path: Path) -> None:
    async def results(**more: Any) -> list[rlm_env.RolloutResult]:
        question = Question("Why?", id="a", metadata={"gold": 7})
        batch = rlm_env.batch(
            [question], resume=tmp_path / "r.jsonl", model=running(answering("1")), tools=[lookup], **more
        )
        return [result async for result in batch]

    (first,) = await results()
    assert (first.question_id, first.attempt, first.metadata) == ("a", 1, {"gold": 7})
    assert (first.model, first.sub_model, len(first.settings or "")) == ("model", "model", 16)
    assert await results() == [first], "the tools are at another address now"
    with pytest.raises(StartError, match="the result a-1 is of other settings"):
        await results(max_turns=7)
    assert await results(max_turns=7, resume_any=True) == [first]


async def test_results_have_scores() -> None:
    async def scores(**more: Any) -> list[float | None]:
        questions = [Question("a?", expected=[7, "seven"]), Question("b?", expected="8"), "c?"]
        results = rlm_env.batch(questions, parallel=1, model=running(answering("'it is 7'")), **more)
        return [result.score async for result in results]

    assert await scores() == [0.0, 0.0, None]
    assert await scores(score="contains") == [1.0, 0.0, None]
    assert await scores(score="command:true") == [1.0, 1.0, 1.0]
    with pytest.raises(StartError, match='must be a number, not "seven"'):
        await scores(score="number")


async def test_an_answer_fits_its_schema(tmp_path: Path) -> None:
    schema = {"type": "integer"}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    given: list[Any] = [schema, tmp_path / "schema.json"]
    for answer_schema in given:
        model = running(answering("no"), answering("3"))
        result = await rlm_env.run("How many?", model=model, answer_schema=answer_schema)
        assert (result.answer, result.metrics["root_llm_turns"]) == ("3", 2)


async def test_a_rollout_that_fails_is_a_result(work: Path) -> None:
    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        raise ValueError("no luck")

    result = await rlm_env.run("?", model=model)
    assert (result.stop_reason, result.answer) == ("model_failed", None)
    assert "ValueError: no luck" in (result.error or "")
    result = await rlm_env.run("?", model=running("echo more"), max_turns=2)
    assert result.stop_reason == "max_turns"
    with pytest.raises(StartError, match="cannot read /no/such/file: No such file"):
        await rlm_env.run("?", context="/no/such/file", model=running(":"))


async def test_what_a_server_adds_to_a_reply_comes_with_the_events() -> None:
    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        assert sampling["logprobs"] is True
        choice = {"message": calling(answering("1")), "logprobs": {"content": []}, "token_ids": [5, 6]}
        return {"choices": [choice], "prompt_token_ids": [1, 2, 3]}

    events = rlm_env.stream("?", model=model, sampling={"logprobs": True})
    extras = [event.extra async for event in events if isinstance(event, ModelCall)]
    assert extras == [{"logprobs": {"content": []}, "token_ids": [5, 6], "prompt_token_ids": [1, 2, 3]}]


async def test_a_sub_model_may_be_another_function() -> None:
    def sub(messages: list[Any], tools: list[Any], **sampling: Any) -> str:
        return "from the other"

    model = running("RLM_CONTENT=$(llm_batch a) RLM_READY=1")
    assert (await rlm_env.run("?", model=model, sub_model=sub)).answer == "from the other"


async def test_wrong_arguments_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLM_MODEL", "RLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    async def refused(error: type[Exception], *arguments: Any, **settings: Any) -> str:
        with pytest.raises(error) as caught:
            await rlm_env.run(*arguments, **settings)
        return str(caught.value)

    model = running(":")
    assert "the model is not set" in await refused(StartError, "?")
    assert "max-turns" in await refused(StartError, "?", model=model, max_turns=0)
    assert "there is no setting max_turn:" in await refused(TypeError, "?", model=model, max_turn=1)
    assert "leave out its base_url" in await refused(ValueError, "?", model=model, base_url="http://h/v1")
    assert "must be a str or a Question" in await refused(TypeError, [3], model=model)
    assert "two tools with the name lookup" in await refused(ValueError, "?", model=model, tools=[lookup, lookup])
    assert "leave out its api_key_env" in await refused(ValueError, "?", model=model, api_key_env="KEY")
    assert "cannot be read" in await refused(StartError, "?", model="m", base_url="nowhere")
    assert "must be the name of a model or a function" in await refused(TypeError, "?", model=5)
    assert "`batch` takes several" in await refused(TypeError, ["a?", "b?"], model=model)


async def test_a_question_that_cannot_be_sent_is_named_before_any_runs(tmp_path: Path) -> None:
    started = tmp_path / "started"
    nested: Any = functools.reduce(lambda inner, _: [inner], range(101), [])
    for question, words in [
        ("", "the question 2 cannot be sent: question must be a str that is not empty, not ''"),
        (" \n", "the question 2 cannot be sent: question must be a str that is not empty"),
        (Question(5), "the question 2 cannot be sent: question must be a str that is not empty, not 5"),  # type: ignore[arg-type]
        (Question("?", id=5), "the question 5 cannot be sent: id must be a str, not 5"),  # type: ignore[arg-type]
        (
            Question("?", id="a", expected=["x", {}]),  # type: ignore[list-item]
            "the question a cannot be sent: expected must be a str that is not empty, a number, or a list of those",
        ),
        (
            Question("?", id="a", context_text=5),  # type: ignore[arg-type]
            "the question a cannot be sent: context_text must be a str, not 5",
        ),
        (
            Question("?", id="a", context_text="a", context_json=1),
            "the question a cannot be sent: at most one of context, context_text and context_json can be given",
        ),
        (Question("?", id="a", context="\udcff"), "the question a cannot be sent: 'utf-8' codec can't encode"),
        (Question("\ud800", id="a"), "the question a cannot be sent: 'utf-8' codec can't encode"),
        (Question("?", id="a", metadata=float("nan")), "the question a cannot be sent: Out of"),
        (Question("?", context_json=nested), "the question 2 cannot be sent: it has more than 100 levels"),
        (Question("?", metadata={"b": [10**400]}), "the question 2 cannot be sent: it has an int beyond a 64-bit"),
    ]:
        with pytest.raises(ValueError) as caught:
            await anext(rlm_env.batch(["?", question], model=running(f": > {started}; RLM_READY=1")))
        assert str(caught.value).startswith(words)
        assert not started.exists()


def waiting(tmp_path: Path) -> Callable[..., Any]:
    return running(f": > {tmp_path}/started; sleep 1000")


async def test_a_cancelled_await_ends_the_rollout_with_all_it_started(tmp_path: Path) -> None:
    task = asyncio.create_task(rlm_env.run("?", model=waiting(tmp_path)))
    await until((tmp_path / "started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_loop_that_is_left_ends_the_rollouts(tmp_path: Path) -> None:
    async with aclosing(rlm_env.stream("?", model=waiting(tmp_path))) as events:
        async for event in events:
            if isinstance(event, CallStarted):
                break


def test_a_command_that_is_killed_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(rlm_env.run("?", model=waiting(tmp_path)))
        await until((tmp_path / "started").exists)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in map(int, children):
            if b"run\0--events" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EndedError, match="signal SIGKILL before 1 rollouts had a result"):
            await task

    asyncio.run(main())
    # The next one removes what it left.
    assert asyncio.run(rlm_env.run("?", model=running(answering("1")))).answer == "1"


HOST = """
import asyncio, json, sys
import rlm_env
async def model(messages, tools, **sampling):
    code = f"echo $$ > {sys.argv[1]}; sleep 1000"
    function = {"name": "call_bash_repl", "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
asyncio.run(rlm_env.run("?", model=model))
"""


def test_nothing_is_left_of_a_host_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    host = subprocess.Popen([sys.executable, "-c", HOST, str(file)])
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the code runs")
    shell = int(file.read_text())
    host.kill()
    host.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{shell}"), "the session ends")
    assert asyncio.run(rlm_env.run("?", model=running(answering("1")))).answer == "1"


async def test_many_rollouts_share_one_loop() -> None:
    model = running("lookup a", answering("$(lookup b)"))
    results = rlm_env.batch(["?"] * 40, parallel=8, model=model, tools=[lookup])
    assert [result.answer async for result in results] == ["b by nobody"] * 40


def test_the_example_of_the_documentation_is_read() -> None:
    events = list(rlm_env.read_trajectory(EXAMPLE))
    assert len(events) == len(EXAMPLE.read_text().splitlines())
    assert isinstance(events[0], RolloutStarted) and isinstance(events[-1], RolloutEnded)


def test_lines_that_are_no_events_are_named(tmp_path: Path) -> None:
    line = EXAMPLE.read_text().splitlines()[4]
    assert isinstance(rlm_env.read_event(line), ModelCall)
    assert rlm_env.read_event(line.replace('"model_call"', '"of_tomorrow"')) is None
    assert isinstance(rlm_env.read_event(line.replace('"turn"', '"colour": 3, "turn"')), ModelCall)
    older = json.loads(line)
    del older["extra"]
    assert rlm_env.read_event(json.dumps(older)) == rlm_env.read_event(line)
    for old, new, words in [
        ('"turn":1', '"turn":true', "`model_call.turn` must be int, not True"),
        ('"turn":1,', "", "`model_call` has no field `turn`"),
        ('"error":null', '"error":3', "`model_call.error` must be str | None, not 3"),
        ('{"rollout"', '{"rollout', "an event is not JSON"),
    ]:
        assert old in line
        with pytest.raises(ProtocolError) as caught:
            rlm_env.read_event(line.replace(old, new, 1))
        assert words in str(caught.value)
    with pytest.raises(ProtocolError, match="an object with the field `event`"):
        rlm_env.read_event("[1]")
    file = tmp_path / "cut.jsonl"
    file.write_text(f"{line}\n{line[:50]}")
    assert len(list(rlm_env.read_trajectory(file))) == 1


async def test_numbers_of_rollouts_are_checked() -> None:
    options: dict[str, Any]
    for options in ({"attempts": 0}, {"attempts": -1}, {"attempts": "2"}, {"parallel": 0}):
        with pytest.raises(ValueError, match="must be an int from 1"):
            await anext(rlm_env.batch(["?"], model=running(":"), **options))


async def test_results_of_other_questions_are_refused(tmp_path: Path) -> None:
    async def ids(questions: list[str]) -> list[str]:
        results = rlm_env.batch(questions, resume=tmp_path / "r.jsonl", model=running(answering("1")))
        return [result.id async for result in results]

    assert len(await ids(["capital of France?", "capital of Spain?"])) == 2
    with pytest.raises(StartError, match="the result 1-1 is of another question"):
        await ids(["capital of Italy?", "capital of France?"])


async def test_sub_calls_reach_a_function_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_SUB_API_KEY_ENV", "FOO")
    monkeypatch.setenv("FOO", "x")
    monkeypatch.setenv("RLM_SUB_BASE_URL", "http://127.0.0.1:9/v1")
    model = running("RLM_CONTENT=$(llm_batch hello) RLM_READY=1")
    result = await rlm_env.run("?", model=model, base_url=None, timeout=None)  # type: ignore[arg-type]
    assert result.answer == "5 characters"


def test_a_rollout_may_run_in_a_loop_of_another_thread() -> None:
    def main(_number: int) -> Any:
        return asyncio.run(rlm_env.run("?", model=running(answering("1")))).answer

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(main, range(3))) == ["1"] * 3


def test_a_number_without_a_float_is_no_event() -> None:
    line = EXAMPLE.read_text().splitlines()[4].replace('"time":1790000001.2', '"time":1' + "0" * 400)
    with pytest.raises(ProtocolError, match="`model_call.time` must be float"):
        rlm_env.read_event(line)
