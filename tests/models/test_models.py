"""Rollouts with stand-ins of the servers that people use."""

import asyncio
import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace

import judge
import pytest
from habits import ENDINGS, HABITS
from servers import SUMMARY_IS_ASKED, Habit, Request, Server, said
from wires import Refusal, Turn

import rlm_env
from conftest import PATIENCE, PRICES, PROGRAMS, REPOSITORY, Place, call, script, serve

CASES = [
    pytest.param(habit, mode, language, id=f"{habit}-{mode}-{language}")
    for habit in HABITS
    for mode in habit.modes
    for language in habit.languages
]
BY_NAME = {habit.name: habit for habit in HABITS}
WIRES = [BY_NAME[name] for name in ("deepseek", "anthropic", "responses")]

METRICS = {
    "prompt": "root_llm_prompt_tokens",
    "completion": "root_llm_completion_tokens",
    "cached": "root_llm_cached_tokens",
    "written": "root_llm_cache_write_tokens",
    "reasoning": "root_llm_reasoning_tokens",
}


def cost(server: Server) -> float:
    """The cost by the prices of the tests, unless the server tells it."""
    total = server.totals
    other = total["prompt"] - total["cached"] - total["written"]
    units = other * PRICES["prompt"] + total["cached"] * PRICES["cached"] + total["written"] * PRICES["cache_write"]
    return server.cost or (units + total["completion"] * PRICES["completion"]) / 1e6


def check_bill(server: Server, metrics: dict) -> None:
    assert {name: metrics.get(METRICS[name]) for name in METRICS} == {name: server.totals[name] for name in METRICS}
    assert metrics["cost_usd"] == pytest.approx(cost(server))


@pytest.mark.parametrize(("habit", "mode", "language"), CASES)
def test_a_rollout(habit: Habit, mode: str, language: str, place: Place) -> None:
    with serve(habit, language, mode) as server:
        status, result, entries = place.run(server, language)
    server.check()
    assert (status, result["stop_reason"], result["answer"]) == (0, "answered", "42"), (
        result["error"],
        server.refusals,
    )
    assert server.replies == len(server.turns)
    kept = [entry["message"] for entry in entries if entry["event"] == "message" and entry["kind"] == "reply"]
    server.compare(server.sent, [unit for message in kept for unit in server.wire.kept(message)], "the trajectory")
    server.check()
    if habit.name == "no usage":
        assert result["metrics"]["usage_estimated"]
    elif not habit.faults:
        check_bill(server, result["metrics"])
    if "RLM_TOKEN_IDS" in habit.settings:
        extra = [entry["extra"] for entry in entries if entry["event"] == "model_call"]
        assert extra == [{"prompt_token_ids": [1, 2, n], "token_ids": [3, n]} for n in range(1, 7)]


@pytest.mark.parametrize(("habit", "turn", "reason"), [pytest.param(*case, id=str(case[0])) for case in ENDINGS])
@pytest.mark.parametrize("mode", ["streamed", "whole"])
def test_an_end_is_told_as_what_it_is(habit: Habit, turn: Turn, reason: str, mode: str, place: Place) -> None:
    turns = [Turn("I look.", "", (call("RLM_CONTENT=draft"),)), turn]
    with serve(habit, "bash", mode, turns, repeats=True) as server:
        status, result, _ = place.run(server, "bash")
    assert (result["stop_reason"], result["answer"], result["answer_ready"]) == (reason, "draft", False), result
    assert status in (1, 3)
    server.check()


@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize("habit", WIRES, ids=str)
def test_a_compaction_keeps_what_is_left_as_it_came(habit: Habit, mode: str, place: Place) -> None:
    with serve(habit, "bash", mode) as server:
        status, result, entries = place.run(server, "bash", RLM_SUMMARIZE_TURNS="2")
    server.check()
    assert (status, result["answer"], server.summaries) == (0, "42", 1)
    assert result["metrics"]["root_llm_summary_count"] == 1
    check_bill(server, result["metrics"])


IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOWN = [
    Turn("Draw.", "A plot.", (call(f"base64 -d <<< {IMAGE} > plot.png; show plot.png"),)),
    Turn(None, "A dot.", (call("RLM_CONTENT=dot RLM_READY=1"),)),
]


@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize("habit", WIRES, ids=str)
def test_images_reach_the_model(habit: Habit, mode: str, place: Place) -> None:
    image = place.path / "dot.png"
    image.write_bytes(base64.b64decode(IMAGE))
    habit = replace(habit, told={1: IMAGE, 2: IMAGE})
    with serve(habit, "bash", mode, SHOWN) as server:
        options = ["--image", str(image), "--show-images", "true"]
        status, result, entries = place.run(server, "bash", *options)
    server.check()
    assert (status, result["answer"]) == (0, "dot"), result
    files = [path.read_bytes() for path in (place.path / "trajectory.jsonl.images").iterdir()]
    assert files == [image.read_bytes()] and "base64," not in json.dumps(entries)


def image_words(error: str, status: int = 400) -> Callable[[Request], Refusal | None]:
    """A server refuses requests with images in these words."""
    refusal: Refusal = (status, [{"error": {"message": error, "type": "invalid_request_error"}}])
    return lambda request: refusal if '"image' in request.text else None


@pytest.mark.parametrize(
    ("wire", "status", "words"),
    [
        # rikkahub/rikkahub#1433
        ("deepseek", 400, "messages[3]: unknown variant `image_url`, expected `text` at line 1 column 679289"),
        # ggml-org/llama.cpp#13566
        ("deepseek", 500, "image input is not supported by this server"),
        # anthropics/claude-code#8227
        ("anthropic", 400, "messages.4.content.1.image.source.base64: image exceeds 5 MB maximum: 9 bytes > 5 bytes"),
    ],
)
def test_a_refused_image_is_left_out_and_the_model_hears_why(wire: str, status: int, words: str, place: Place) -> None:
    habit = replace(
        BY_NAME[wire], rules=(image_words(words, status),), learns=9, told={2: "You do not see these images"}
    )
    with serve(habit, "bash", "whole", SHOWN) as server:
        done, result, entries = place.run(server, "bash", "--show-images", "true")
    server.check()
    assert (done, result["answer"]) == (0, "dot"), result
    notice = [entry["message"]["content"] for entry in entries if entry.get("kind") == "notice"][-1]
    assert words in notice and isinstance(notice, str), notice


def test_the_image_of_a_question_is_never_left_out(place: Place) -> None:
    image = place.path / "dot.png"
    image.write_bytes(base64.b64decode(IMAGE))
    words = "unknown variant `image_url`, expected `text`"
    habit = replace(BY_NAME["deepseek"], rules=(image_words(words),), learns=1)
    with serve(habit, "bash", "whole", SHOWN) as server:
        status, result, _ = place.run(server, "bash", "--image", str(image))
    server.check()
    assert (status, result["stop_reason"]) == (3, "model_failed") and words in result["error"], result


@pytest.mark.parametrize("habit", WIRES, ids=str)
def test_sub_llms_speak_the_same_wire(habit: Habit, place: Place) -> None:
    turns = [
        Turn(
            "Ask.", "Two.", (call("llm_batch 'judge: a' 'judge: b' > two; RLM_CONTENT=$(grep -c re: two) RLM_READY=1"),)
        )
    ]
    with serve(habit, "bash", "whole", turns) as server:
        status, result, _ = place.run(server, "bash")
    server.check()
    assert (status, result["answer"]) == (0, "2"), result
    headers = [request.headers for request in server.sub_requests]
    batch, *others = {header["x-rlm-batch-id"] for header in headers}
    assert batch and others == [] and len({uuid.UUID(header["x-request-id"]) for header in headers}) == 2


@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize("habit", [*WIRES, BY_NAME["gemini"]], ids=str)
def test_children_keep_replies_as_well(habit: Habit, mode: str, place: Place) -> None:
    turns = [
        Turn("I ask.", "A child may know.", (call("n=$(rlm_query 'Count again.'); echo got $n"),)),
        Turn("So:", "It knows.", (call("RLM_CONTENT=$n RLM_READY=1"),)),
    ]
    with serve(habit, "bash", mode, turns) as server:
        child = server.others["Count again."] = serve(habit, "bash", mode)
        status, result, entries = place.run(server, "bash")
    server.check()
    assert (status, result["answer"], server.replies, child.replies) == (0, "42", 2, 6), result
    ends = [entry["stop_reason"] for entry in entries if entry["event"] == "rollout_ended"]
    assert ends == ["answered"] * 2


@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize("habit", [*WIRES, BY_NAME["gemini"]], ids=str)
def test_what_a_cluster_feeds(habit: Habit, mode: str, place: Place) -> None:
    """The attempts of Ray's actors go to `rlm run --feed`."""
    questions = [f"How many {what}?" for what in ("a", "b", "c")]
    with serve(habit, "bash", mode) as server:
        server.others.update({question: serve(habit, "bash", mode) for question in questions})
        lines = [json.dumps({"id": question[-2], "question": question, "attempt": 1}) for question in questions]
        done = place.rlm(server, "bash", "\n".join(lines) + "\n", "--events", "--quiet", "--feed")
    server.check()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    results = [event["result"] for event in events if event["event"] == "result"]
    assert [(result["answer"], result["stop_reason"]) for result in results] == [("42", "answered")] * 3, results
    assert [other.replies for other in server.others.values()] == [6] * 3 and server.requests == 0


@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize("habit", WIRES, ids=str)
def test_an_agent_keeps_replies_from_prompt_to_prompt(habit: Habit, mode: str, place: Place) -> None:
    turns = [*script("bash"), Turn(None, "Again.", (call("RLM_CONTENT=$((n * 2)) RLM_READY=1"),))]
    with serve(habit, "bash", mode, turns) as server:
        # The SDK starts an agent with hardly any environment.
        settings = [f"{name}={value}" for name, value in place.environment(server, "bash").items()]
        agent = ["env", *settings, PROGRAMS / "rlm", "acp", "--permissions", "allow"]
        command = [sys.executable, REPOSITORY / "tests/acp_client.py", *agent]
        client = subprocess.Popen(
            command, cwd=place.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

        def ask(op: str, **arguments: object) -> dict:
            client.stdin.write(json.dumps({"op": op, "name": op, **arguments}) + "\n")
            client.stdin.flush()
            for line in client.stdout:
                if (event := json.loads(line)).get("name") == op:
                    assert "result" in event, event
                    return event["result"]
            raise AssertionError(f"the client has ended at {op}")

        try:
            ask("initialize")
            session = ask("new", cwd=str(place.path))["sessionId"]
            ends = [ask("prompt", session=session, text=text)["stopReason"] for text in ("How many?", "And twice?")]
        finally:
            rest = client.communicate(timeout=PATIENCE)[0]
    server.check()
    assert ends == ["end_turn"] * 2 and server.replies == 7 and '{"exit": 0}' in rest


@pytest.mark.parametrize("habit", WIRES, ids=str)
def test_the_python_package(habit: Habit, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(habit, "python", "streamed") as server:
        for name, value in place.environment(server, "python").items():
            monkeypatch.setenv(name, value)
        result = asyncio.run(rlm_env.run("How many?", model=habit.model, base_url=server.url, language="python"))
    server.check()
    assert (result.stop_reason, result.answer) == ("answered", "42"), result
    check_bill(server, result.metrics)


def test_what_a_user_sets_is_never_left_out(place: Place) -> None:
    def only_default(request: Request) -> Refusal | None:
        words = "'temperature' does not support 0.2 with this model. Only the default (1) value is supported."
        is_set = request.body.get("temperature", 1) != 1
        return said(f"Unsupported value: {words}", "temperature", "unsupported_value") if is_set else None

    habit = Habit("temperature", "johny-b/llmcomp#69", rules=(only_default,), learns=1)
    with serve(habit, "bash", "whole") as server:
        status, result, _ = place.run(server, "bash", RLM_SAMPLING='{"temperature": 0.2}')
    assert (status, result["stop_reason"], server.requests) == (3, "model_failed", 1), result
    assert "`sampling` sets `temperature`: leave it out" in result["error"]


def test_the_judge_is_strict() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {}, "x": 1}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call], "reasoning": ""}, {"role": "user"}]
    found = [line.split(":")[0] for line in judge.request("chat", {"messages": messages, "model": "m", "n": True})]
    assert found == [
        ".messages.tool_calls.function.arguments", ".messages.tool_calls.function.x", ".messages.reasoning",
        ".messages.content", ".n",
    ]  # fmt: skip
    assert judge.request("anthropic", {"messages": [], "model": "m"}) == [".max_tokens: missing"]
    assert judge.request("responses", {"input": [], "model": "m", "max_tokens": 1}) == [".max_tokens: unknown"]
    assert SUMMARY_IS_ASKED in (REPOSITORY / "prompts/summary_request.md").read_text()
