"""A task with a tool."""

from __future__ import annotations

from typing import Any, ClassVar

import verifiers.v1 as vf

from harness.episodes import Model
from library_tools import BareTools, LibraryTools, Shelf


class Borrowing(vf.Task[vf.TaskData, Shelf, vf.TaskConfig]):
    """A task with a tool, whose calls are in its state."""

    tools: ClassVar[Any] = LibraryTools

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [cls.tools(vf.ToolsetConfig())]

    @vf.reward
    async def is_right(self, trace: Any) -> float:
        return float(len(trace.state.lent))


def borrowing() -> Borrowing:
    return Borrowing(vf.TaskData(prompt="Lend."))


class BareBorrowing(Borrowing):
    tools = BareTools


LENDING = {
    "bash": (
        'library_tools_lend Emma; library_tools_lend --json \'{"title": "Persuasion", "days": 3}\'',
        'library_tools_lend lost; echo "status $?"; library_tools_burn || echo failed',
        "RLM_CONTENT=$(library_tools_lend Emma) RLM_READY=1",
    ),
    "python": (
        "print(library_tools_lend('Emma')); print(library_tools_lend(title='Persuasion', days=3))",
        "for call in (lambda: library_tools_lend('lost')), library_tools_burn:\n"
        "    try: call()\n    except Exception as error: print('failed', error)",
        "answer.update(content=library_tools_lend('Emma'), ready=True)",
    ),
}


def check_lending(model: Model, trace: Any) -> None:
    assert trace.errors == [], trace.errors[0].message
    assert "3 lent" in trace.root_reply and trace.reward == 3.0
    assert trace.state.lent == ["Emma for 14 days", "Persuasion for 3 days", "Emma for 14 days"]
    # A call that fails is an error of the code's, and the session goes on.
    assert (trace.metrics["root_llm_turns"], trace.metrics["root_tool_error_count"]) == (3, 2)
    system = model.requests[0]["messages"][0]["content"]
    assert "library_tools_lend" in system and "Lends a book." in system
    outputs = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "1 lent" in outputs[0] and "2 lent" in outputs[0], outputs
    assert "there is no such book" in outputs[1] and "failed" in outputs[1], outputs
