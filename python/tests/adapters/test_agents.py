"""The examples of docs/agents.md with the real frameworks, whose models are scripted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from promises import in_threads, parameters
from rlm_env import SessionConfig
from rlm_env.testing import Adapter

from .pages import example

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the frameworks and their libraries

CALLS = [("bash", "n=$(wc -l <a.txt)"), ("bash", "echo $n lines"), ("python", "x = 2"), ("python", "x + 40")]
"""The calls of the models, one after another. Then they say what the calls returned."""


@pytest.fixture(autouse=True)
def data(work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory `data` of the examples."""
    directory = work / "data"
    directory.mkdir()
    (directory / "a.txt").write_text("one\ntwo\n")
    monkeypatch.chdir(work)
    yield directory


def test_the_agents_sdk() -> None:
    agents = pytest.importorskip("agents")
    from agents.items import ModelResponse
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    agents.set_tracing_disabled(True)

    class Scripted(agents.Model):
        calls = 0

        async def get_response(self, *, input: Any, tools: Any, **_: Any) -> Any:  # type: ignore[override]
            assert {tool.name for tool in tools} == {"bash", "python"}
            schema = tools[0].params_json_schema["properties"]
            assert schema["code"]["description"] == "The code to run." and "timeout" in schema
            assert "persistent" in tools[0].description and "Args:" not in tools[0].description
            self.calls += 1
            if self.calls <= len(CALLS):
                name, code = CALLS[self.calls - 1]
                arguments = json.dumps({"code": code, "timeout": None})
                call_id = f"c{self.calls}"
                item: Any = ResponseFunctionToolCall(
                    arguments=arguments, call_id=call_id, name=name, type="function_call"
                )
            else:
                said = "|".join(one["output"] for one in input if one.get("type") == "function_call_output")
                text = ResponseOutputText(annotations=[], text=said, type="output_text")
                item = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    ask = example("agents.md", "from agents import")["ask"]
    assert asyncio.run(ask("How many lines?", Scripted())) == "(no output)|2 lines|(no output)|Out[2]: 42"


def test_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    def scripted(messages: Any, info: Any) -> ModelResponse:
        assert [tool.name for tool in info.function_tools] == ["bash", "python"]
        schema = info.function_tools[0].parameters_json_schema["properties"]
        assert schema["code"]["description"] == "The code to run."
        said = [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
        if len(said) < len(CALLS):
            name, code = CALLS[len(said)]
            return ModelResponse(parts=[ToolCallPart(name, {"code": code})])
        return ModelResponse(parts=[TextPart("|".join(said))])

    ask = example("agents.md", "pydantic_ai")["ask"]
    expected = "(no output)|2 lines|(no output)|Out[2]: 42"
    assert asyncio.run(ask("How many lines?", FunctionModel(scripted))) == expected


def test_langgraph() -> None:
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain.agents")
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        _llm_type = "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            assert [tool.name for tool in tools] == ["bash", "python"]
            assert "persistent" in tools[0].description
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            said = [one.content for one in messages if isinstance(one, ToolMessage)]
            if len(said) < len(CALLS):
                name, code = CALLS[len(said)]
                call = {"name": name, "args": {"code": code}, "id": f"c{len(said)}"}
                message = AIMessage(content="", tool_calls=[call])
            else:
                message = AIMessage(content="|".join(said))
            return ChatResult(generations=[ChatGeneration(message=message)])

    ask = example("agents.md", "langchain")["ask"]
    expected = "(no output)|2 lines|(no output)|Out[2]: 42"
    assert asyncio.run(ask("How many lines?", Scripted())) == expected


def scripted_smolagents(replies: list[str]) -> Any:
    from smolagents import ChatMessage, Model

    class Scripted(Model):
        seen: list[str] = []

        def generate(self, messages: Any, **_: Any) -> Any:
            self.seen.append(str(messages[-1].content))
            code = replies.pop(0)
            return ChatMessage(role="assistant", content=f"Thought: look.\n<code>\n{code}\n</code>")

    return Scripted()


def test_smolagents() -> None:
    pytest.importorskip("smolagents")
    replies = ["lines = open('a.txt').read().split()\nprint(len(lines))", "1/0", "final_answer(lines)"]
    model = scripted_smolagents(replies)
    ask = example("agents.md", "SessionExecutor(")["ask"]
    assert ask("Which lines?", model) == ["one", "two"]
    assert "Execution logs:\\n2\\n" in model.seen[1] and "ZeroDivisionError: division by zero" in model.seen[2]


@in_threads
@contextmanager
def executor(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    from rlm_env.smolagents import SessionExecutor

    executor = SessionExecutor(execution_timeout=timeout)
    executor.send_tools({function.__name__: function for function in tools})

    def run(code: str) -> str:
        try:
            output = executor(code)
            return f"{output.logs}\n{output.output}"
        except ValueError as error:
            return f"{executor.state['_print_outputs']}\n{error}"

    try:
        yield run, executor._session.interrupt
    finally:
        executor.cleanup()


@pytest.mark.parametrize("case", parameters(Adapter("smolagents", executor, ("python",))))
async def test_a_promise_of_the_executor(case: Callable[[], Any]) -> None:
    pytest.importorskip("smolagents")
    await case()


def test_an_executor_of_smolagents(data: Path) -> None:
    pytest.importorskip("smolagents")
    from smolagents import CodeAgent, tool
    from smolagents.local_python_executor import InterpreterError

    from rlm_env.smolagents import SessionExecutor

    @tool
    def shout(text: str) -> str:
        """Shouts.

        Args:
            text: what to shout
        """
        if not text:
            raise ValueError("nothing to shout")
        return text.upper()

    executor = SessionExecutor(SessionConfig(data, language="python"), execution_timeout=0.5)
    executor.send_tools({"shout": shout})
    executor.send_variables({"given": {"a": (1, b"2")}})
    try:
        assert executor("print('printed'); given").output == {"a": (1, b"2")}
        assert executor.state["_print_outputs"] == "printed\n"
        assert (
            executor("try:\n    shout('')\nexcept RuntimeError as error:\n    print(error)")
            .logs.strip()
            .endswith("nothing to shout")
        )
        began = time.monotonic()
        with pytest.raises(InterpreterError, match="time limit of 0.5 s"):
            executor("kept = shout(text='a')\nwhile True: pass")
        assert time.monotonic() - began < 5
        assert executor("kept").output == "A"
        with pytest.raises(InterpreterError, match="status 3"):
            executor("import os; os._exit(3)")
        assert executor("shout('b'), given['a'][0], 'kept' in globals()").output == ("B", 1, False)
        with pytest.raises(InterpreterError, match="died"):
            executor("import os; os.kill(os.getppid(), 9); import time; time.sleep(100)")
        assert executor("shout('c')").output == "C"
    finally:
        executor.cleanup()
        executor.cleanup()
    with pytest.raises(ValueError, match="language='python'"):
        SessionExecutor(SessionConfig(data))
    # A final answer of a type that cannot leave the session.
    with CodeAgent(
        [shout], scripted_smolagents(["class A: pass", "final_answer(object)"]), executor=SessionExecutor(data)
    ) as agent:
        assert agent.run("?") == "<class 'object'>"
    assert os.listdir(data) == ["a.txt"]
