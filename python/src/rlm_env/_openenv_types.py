"""Actions, observations and rewards of the OpenEnv environment, with the fields of `repl_env`."""

from __future__ import annotations

import ast
import json

from openenv.core.env_server.types import Action, Observation  # pyright: ignore[reportMissingImports]
from pydantic import BaseModel, Field  # pyright: ignore[reportMissingImports]

from ._documents import Response


class ReplAction(Action):  # type: ignore[misc]
    """Code to run, or the final answer."""

    code: str = ""
    is_final: bool = False
    final_answer: str | None = None


class CodeBlockResult(BaseModel):  # type: ignore[misc]
    """The outcome of a step's code."""

    stdout: str = ""
    stderr: str = ""
    locals_snapshot: dict[str, str] = Field(default_factory=dict)
    execution_time: float = 0.0
    success: bool = True
    exception: str | None = None


class ReplObservation(Observation):  # type: ignore[misc]
    """The outcome of a step, with the fields of `repl_env`."""

    result: CodeBlockResult = Field(default_factory=CodeBlockResult)
    context_preview: str | None = None
    context_length: int = 0
    available_variables: list[str] = Field(default_factory=list)
    iteration: int = 0
    max_iterations: int = 30


class ExactMatch:
    """The reward of `repl_env`: 1 for the expected answer, -0.1 without an answer, -0.05 for a step that fails."""

    expected: str | None = None

    def reset(self) -> None:
        self.expected = None

    def set_expected(self, expected: str | None) -> None:
        self.expected = expected

    def __call__(self, action: ReplAction, observation: ReplObservation) -> float:
        if not observation.done:
            return 0.0 if observation.result.success else -0.05
        answer = observation.metadata.get("final_answer")
        if answer is None:
            return -0.1
        expected = self.expected
        return float(expected is not None and str(answer).strip().lower() == str(expected).strip().lower())


def result_of(response: Response, new: dict[str, str], most: int) -> CodeBlockResult:
    """The result of a call that has set these new variables, with at most so many characters of each stream."""
    said, errors, exception = [response.stdout], [response.stderr], None
    if response.outcome == "ok":
        said.append("" if response.result is None else _as_json(response.result))
    else:
        kind = "TimeoutError" if response.outcome == "timed_out" else response.outcome
        exception = f"{kind}: {response.hint}"
        if response.outcome == "error" and response.exception is not None:
            exception = f"{response.exception.type}: {response.exception.message}"
        errors += [exception, response.result or ""]
    return CodeBlockResult(
        stdout=_cut("\n".join(filter(None, said)), most),
        stderr=_cut("\n".join(filter(None, errors)), most),
        locals_snapshot=new,
        execution_time=response.execution_time,
        success=response.outcome == "ok",
        exception=exception,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n... (truncated, total {len(text)} chars)"


def _as_json(result: str) -> str:
    try:
        return json.dumps(ast.literal_eval(result))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return result
