"""dspy's own RLM, with a scripted model, solves a task through our interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

dspy = pytest.importorskip("dspy")

from dspy.primitives.code_interpreter import (  # noqa: E402
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.primitives.local_interpreter import LocalInterpreter  # noqa: E402
from dspy.utils import DummyLM  # noqa: E402

from rlm_env import SessionConfig  # noqa: E402
from rlm_env.dspy import Interpreter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of dspy and its libraries


@pytest.fixture
def interpreter(work: Path) -> Iterator[Interpreter]:
    with Interpreter(config=SessionConfig(work, language="python")) as started:
        yield started


def test_it_is_an_interpreter_of_dspy(interpreter: Interpreter) -> None:
    assert isinstance(interpreter, CodeInterpreter)


def test_results(interpreter: Interpreter) -> None:
    assert interpreter.execute("x = 5; x + 1") == 6
    assert interpreter.execute("print('printed')") == "printed"
    assert interpreter.execute("print('printed'); x") == "printed\n5"
    assert interpreter.execute("'text'") == "text" and interpreter.execute("[1, 'a']") == [1, "a"]
    assert interpreter.execute("y = 1") is None
    assert interpreter.execute("object") == "<class 'object'>"


def test_errors(interpreter: Interpreter) -> None:
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError: division by zero"):
        interpreter.execute("kept = 1\n1/0")
    with pytest.raises(SyntaxError):
        interpreter.execute("x = = 1")
    interpreter.execution_timeout = 0.2
    with pytest.raises(CodeExecutionError, match="^begun\ntimed_out: .*the session's state is kept"):
        interpreter.execute("print('begun', flush=True)\nimport time; time.sleep(1000)")
    assert interpreter.execute("kept") == 1
    with pytest.raises(CodeInterpreterError, match="SIGKILL"):
        interpreter.execute("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(CodeInterpreterError, match="has been shut down"):
        interpreter.execute("1")


def test_tools_and_submit(interpreter: Interpreter) -> None:
    async def later(text: str) -> str:
        return text + "!"

    interpreter.tools.update(add=lambda a, b: a + b, later=later)
    assert interpreter.execute("add(1, b=2), later('now')") == (3, "now!")
    interpreter.tools["mul"] = lambda a, b: a * b
    assert interpreter.execute("mul(a=2, b=3)") == 6
    assert interpreter.execute("SUBMIT('done')") == FinalOutput({"output": "done"})
    interpreter.output_fields = [{"name": "answer", "type": "str"}, {"name": "count"}]
    assert interpreter.execute("SUBMIT('a', 2)") == FinalOutput({"answer": "a", "count": 2})
    swallowed = "try:\n    SUBMIT(count={1}, answer='a')\nexcept BaseException:\n    pass"
    assert interpreter.execute(swallowed) == FinalOutput({"answer": "a", "count": "{1}"})
    with pytest.raises(CodeExecutionError, match="SUBMIT takes the fields answer, count"):
        interpreter.execute("SUBMIT('a')")


def test_inputs_are_sent_when_they_have_changed(interpreter: Interpreter) -> None:
    large = "x" * 3_000_000
    rows: list[Any] = [1]
    inputs = {"text": large, "rows": rows}
    assert interpreter.execute("len(text), rows", inputs) == (3_000_000, [1])
    assert interpreter.execute("text = 'mine'; rows.append(2)", inputs) is None
    assert interpreter.execute("text, rows", inputs) == ("mine", [1, 2]), "what the code did to them stays"
    rows.append(5)
    assert interpreter.execute("text, rows", {**inputs, "text": large + "y"})[1] == [1, 5]
    assert interpreter.execute("len(text)") == 3_000_001
    for name, value in (("no name", 1), ("SUBMIT", 1), ("odd", {1, 2})):
        with pytest.raises(CodeInterpreterError, match=name):
            interpreter.execute("1", {name: value})


STEPS = [
    {"reasoning": "look", "code": "print(len(context))\nwords = [lookup(word=w) for w in context.split()[:2]]"},
    {"reasoning": "fail", "code": "1/0"},
    {"reasoning": "ask", "code": "said = llm_query('what?')\nprint(said, llm_query_batched(['a', 'b']))"},
    {
        "reasoning": "a sub-agent",
        "code": "class Ask(dspy.Module):\n"
        "    def __init__(self):\n"
        "        self.ask = dspy.Predict('question -> reply')\n"
        "print(Ask().ask(question='hi').reply)",
    },
    {"reasoning": "end", "code": "SUBMIT(answer=words[0] + ' ' + words[1])"},
]


def lookup(word: str) -> str:
    """Looks a word up."""
    return word.upper()


def test_rlm_gives_the_same_answer_as_with_its_own_interpreter() -> None:
    outputs = {}
    for factory in (Interpreter, LocalInterpreter):
        sub = DummyLM([{"reply": "sub"}] * 10)
        with dspy.context(lm=DummyLM([dict(step) for step in STEPS])):
            rlm = dspy.RLM("context, question -> answer: str", tools=[lookup], sub_lm=sub, interpreter_factory=factory)
            result = rlm(context="red pandas eat bamboo " * 100_000, question="?")
        assert result.answer == "RED PANDAS"
        outputs[factory] = [step["output"] for step in result.trajectory]
    assert outputs[Interpreter] == outputs[LocalInterpreter]


def test_a_configuration_for_another_language_is_refused(work: Path) -> None:
    with pytest.raises(ValueError, match="dspy runs Python"):
        Interpreter(config=SessionConfig(work))
