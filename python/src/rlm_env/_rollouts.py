"""Rollouts: `rlm run`, driven over its JSON lines. docs/rlm-run.md describes the command and its settings."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from signal import Signals
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from ._config import Confine, check_count, check_json
from ._errors import EndedError, StartError
from ._events import Event, Result, RolloutResult, read_event
from ._files import PrivateDirectory
from ._models import ChatModel, name_of
from ._programs import SECRET_VARIABLE, log_tail, start_rlm
from ._server import FunctionServer, Route
from ._tools import AnyTool, tools_of

if TYPE_CHECKING:
    from typing_extensions import Unpack  # pyright: ignore[reportMissingModuleSource]

_MAX_LINE_BYTES = 1 << 30
_END_LIMIT = 10.0

Path = Union[str, "os.PathLike[str]"]


class Settings(TypedDict, total=False):
    """The settings of `rlm run`, by their names in docs/rlm-run.md. One that is absent comes from the environment or
    `rlm.toml`, as it does for the command."""

    config: Path
    base_url: str
    api: Literal["chat", "responses", "anthropic"]
    server: str | Mapping[str, Any]
    """A row of the table of servers, or rules: docs/models.md."""
    api_key_env: str
    headers: Mapping[str, str]
    sampling: Mapping[str, Any]
    token_ids: bool
    tool_calls: bool
    sub_base_url: str
    sub_api: Literal["chat", "responses", "anthropic"]
    sub_server: str | Mapping[str, Any]
    sub_api_key_env: str
    sub_headers: Mapping[str, str]
    sub_sampling: Mapping[str, Any]
    language: Literal["bash", "python"]
    python: Path
    final_functions: bool
    show_images: bool
    answer_schema: Path | Mapping[str, Any]
    """A JSON schema, or the file that has it."""
    callbacks: Literal["network", "intercept"]
    navigation: bool
    mcp: Path
    prices: Path
    max_turns: int
    timeout: float | str
    call_timeout: float | str
    budget_usd: float
    budget_tokens: int
    context_tokens: int
    max_completion_tokens: int
    max_output_chars: int
    max_context_bytes: int | str
    gitignore: bool
    exclude: Sequence[str]
    confine: Confine
    confine_read: Sequence[Path]
    confine_write: Sequence[Path]
    confine_tmp: int | str
    checkpoint: bool | int | str
    fork_server: bool
    python_preload: Sequence[str]
    max_depth: int
    depth_models: Sequence[str]
    child_tools: Sequence[str]
    max_children: int
    sub_parallelism: int
    server_parallelism: int
    stream: bool
    request_timeout: float | str
    max_retries: int
    verbosity: Literal["light", "medium", "heavy"]
    prompts: Path
    summarize_turns: int
    messages_in_context: bool
    trajectory: Path
    max_recorded_runs: int
    keep: Path
    sync_results: bool


@dataclass(frozen=True)
class Question:
    """A question, and the files that the model explores. At most one context is given."""

    question: str
    id: str | None = field(default=None, kw_only=True)
    """The id of the question. None: its number, from 1. Rollouts have the ids `ID-ATTEMPT`."""
    context: Path | Iterable[Path] | None = field(default=None, kw_only=True)
    """Files and directories, or the contents of a single directory. They are copied."""
    context_text: str | None = field(default=None, kw_only=True)
    """A text, as the file context.txt."""
    context_json: Any = field(default=None, kw_only=True)
    """A value that JSON can hold, as the file context.json."""
    expected: str | float | list[str | float] | None = field(default=None, kw_only=True)
    """The right answer, or several. It is used for the score, and the model never sees it."""
    metadata: Any = field(default=None, kw_only=True)
    """A value that JSON can hold. It goes into the results, and the model never sees it."""

    def __post_init__(self) -> None:
        if isinstance(self.context, Iterator):
            # A list, since it is read several times.
            object.__setattr__(self, "context", list(self.context))

    def line(self) -> str:
        """The question's line in a file of questions. Raises ValueError if it cannot be one."""
        document = self.document()
        try:
            self._check_fields()
            if self.context is not None:
                document["context"] = absolute_paths(self.context)
            check_json(document)
            line = json.dumps(document, allow_nan=False, ensure_ascii=False)
            line.encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"the question {self.id or repr(self.question)} cannot be sent: {error}") from error
        return line

    def _check_fields(self) -> None:
        if self.id is not None and not isinstance(self.id, str):
            raise TypeError(f"id must be a str, not {self.id!r}")
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"question must be a str that is not empty, not {self.question!r}")
        if self.context_text is not None and not isinstance(self.context_text, str):
            raise TypeError(f"context_text must be a str, not {self.context_text!r}")
        if sum(one is not None for one in (self.context, self.context_text, self.context_json)) > 1:
            raise ValueError("at most one of context, context_text and context_json can be given")
        expected = self.expected if isinstance(self.expected, list) else [self.expected]
        if self.expected is not None and not (expected and all(map(_is_answer, expected))):
            raise ValueError(
                f"expected must be a str that is not empty, a number, or a list of those, not {self.expected!r}"
            )

    def document(self) -> dict[str, Any]:
        """The line without `context`, as an object."""
        document: dict[str, Any] = {"question": self.question}
        for name in ("id", "context_text", "context_json", "expected", "metadata"):
            if (value := getattr(self, name)) is not None:
                document[name] = value
        return document


async def run(
    question: str | Question,
    *,
    context: Path | Iterable[Path] | None = None,
    model: str | ChatModel | None = None,
    sub_model: str | ChatModel | None = None,
    tools: Iterable[AnyTool] = (),
    **settings: Unpack[Settings],
) -> RolloutResult:
    """Asks a model a question about files, and returns how that ended.

        result = await rlm_env.run("Which host failed first?", context="logs", model="large-model", tools=[lookup])

    `model` leads, and `sub_model` answers `llm_batch`: names at `base_url`, or functions of this program (`ChatModel`).
    `tools` are functions that the model's code can call. A rollout without an answer is a result, too: `stop_reason`
    says why.

    Raises ValueError for a question that cannot be sent, StartError if a setting is wrong or something is missing, and
    EndedError if `rlm run` ends without a result.
    """
    if not isinstance(question, (str, Question)):
        raise TypeError(f"question must be a str or a Question, not {question!r}: `batch` takes several")
    events = stream(question, context=context, model=model, sub_model=sub_model, tools=tools, **settings)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Result):
                return event.result
    raise AssertionError("`stream` raises before it ends without a result")


async def batch(
    questions: Iterable[str | Question],
    *,
    attempts: int = 1,
    parallel: int = 4,
    resume: Path | None = None,
    max_cost: float | None = None,
    resume_any: bool = False,
    score: str | None = None,
    context: Path | Iterable[Path] | None = None,
    model: str | ChatModel | None = None,
    sub_model: str | ChatModel | None = None,
    tools: Iterable[AnyTool] = (),
    **settings: Unpack[Settings],
) -> AsyncGenerator[RolloutResult, None]:
    """Many rollouts, `parallel` at once: their results as they come.

        async for result in rlm_env.batch(questions, attempts=4, parallel=8, resume="results.jsonl"):

    With `resume`, each result is also saved in that file. The results that it already has come first, and are not run
    again. They must be of the same models and settings (StartError), except with `resume_any`. `score` is "exact",
    "contains", "number" or "command:PROGRAM". `max_cost` is the most in USD that all of them together may spend;
    EndedError says so when that ends the batch before all are run. The rest is as in `run`. Ending the loop early ends
    the rollouts: use `contextlib.aclosing` where you do.
    """
    events = stream(
        questions,
        attempts=attempts,
        parallel=parallel,
        resume=resume,
        max_cost=max_cost,
        resume_any=resume_any,
        score=score,
        context=context,
        model=model,
        sub_model=sub_model,
        tools=tools,
        **settings,
    )
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Result):
                yield event.result


async def stream(
    questions: str | Question | Iterable[str | Question],
    *,
    attempts: int = 1,
    parallel: int = 4,
    resume: Path | None = None,
    max_cost: float | None = None,
    resume_any: bool = False,
    score: str | None = None,
    context: Path | Iterable[Path] | None = None,
    model: str | ChatModel | None = None,
    sub_model: str | ChatModel | None = None,
    tools: Iterable[AnyTool] = (),
    **settings: Unpack[Settings],
) -> AsyncGenerator[Event, None]:
    """The events of one or many rollouts as they happen, each rollout's `Result` after its last one.

        async for event in rlm_env.stream("Which host failed first?", context="logs", model="large-model"):
            if isinstance(event, rlm_env.CallEnded) and event.output:
                print(event.output.stdout)

    The arguments are those of `batch`.
    """
    asked = questions_of(questions)
    check_count("attempts", attempts)
    check_count("parallel", parallel)
    arguments = [f"--attempts={attempts}", f"--jobs={parallel}"]
    if resume is not None:
        arguments += [f"--results={os.path.abspath(resume)}", "--resume=any" if resume_any else "--resume"]
    if score is not None:
        arguments.append(f"--score={score}")
    if max_cost is not None:
        arguments.append(f"--max-cost={max_cost}")
    paths = [] if context is None else absolute_paths(context)
    arguments += [f"--context={path}" for path in paths or [""]]
    if not asked:
        return
    async with running(arguments, asked, model=model, sub_model=sub_model, tools=tools, settings=settings) as process:
        left = attempts * len(asked)
        async for line in process.lines:
            event = read_event(line)
            left -= isinstance(event, Result)
            process.is_done = left == 0
            if event is not None:
                yield event
        if left > 0:
            raise await process.error(f"before {left} rollouts had a result")


@asynccontextmanager
async def running(
    arguments: list[str],
    questions: Sequence[Question] | None,
    *,
    model: str | ChatModel | None,
    sub_model: str | ChatModel | None,
    tools: Iterable[AnyTool],
    settings: Mapping[str, Any],
    ledger: Route | None = None,
) -> AsyncIterator[Process]:
    """Runs `rlm run --events` with functions of this program, on these questions or on attempts that it is fed.

    `ledger` answers the requests of `--ledger`.
    """
    arguments = [*arguments, *_flags(settings)]
    async with AsyncExitStack() as stack:
        try:
            directory = PrivateDirectory()
        except OSError as error:
            raise StartError(f"cannot make a private directory: {error}") from error
        stack.callback(directory.remove)
        functions = _functions(model, sub_model, settings)
        server = FunctionServer(tools_of(tools), directory.path, functions, {"ledger": ledger} if ledger else {})
        stack.push_async_callback(server.close)
        await server.start()
        for flag, which in (("--model", model), ("--sub-model", sub_model)):
            if which is not None:
                arguments.append(f"{flag}={which if isinstance(which, str) else name_of(which)}")
        for name in functions:
            prefix = "--" if name == "model" else "--sub-"
            arguments += [f"{prefix}base-url={server.model_url(name)}", f"{prefix}api-key-env={SECRET_VARIABLE}"]
        if "model" in functions and "sub_model" not in functions and settings.get("sub_base_url") is None:
            # Set whatever the environment says: sub-calls go to the function, too.
            arguments += [f"--sub-base-url={server.model_url('model')}", f"--sub-api-key-env={SECRET_VARIABLE}"]
        if server.tools:
            arguments += [
                "--tools",
                _write(directory, "tools.json", json.dumps({"tool": server.declarations()})),
            ]
        if ledger is not None:
            arguments.append(f"--ledger={server.url}/ledger")
        schema = settings.get("answer_schema")
        if schema is not None:
            if isinstance(schema, Mapping):
                schema = _write(directory, "answer.json", _text(schema))
            arguments.append(f"--answer-schema={_text(schema)}")
        if questions is None:
            arguments.append("--feed")
        else:
            lines = "".join(f"{one.line()}\n" for one in questions)
            arguments += ["--questions", _write(directory, "questions.jsonl", lines)]
        process = Process(arguments, server.secret, directory, is_fed=questions is None)
        stack.push_async_callback(process.end)
        await process.open()
        yield process


def _functions(model: object, sub_model: object, settings: Mapping[str, Any]) -> dict[str, ChatModel]:
    """The models that are functions, by the names of their settings."""
    functions: dict[str, ChatModel] = {}
    for name, which in (("model", model), ("sub_model", sub_model)):
        if callable(which):
            functions[name] = which
            for setting in ("base_url", "api_key_env"):
                if settings.get(name.removesuffix("model") + setting) is not None:
                    raise ValueError(f"{name} is a function, which has no server: leave out its {setting}")
        elif which is not None and not isinstance(which, str):
            raise TypeError(f"{name} must be the name of a model or a function, not {which!r}")
    return functions


def _is_answer(value: object) -> bool:
    return value.strip() != "" if isinstance(value, str) else type(value) in (int, float)


def questions_of(given: str | Question | Iterable[str | Question]) -> list[Question]:
    """The questions, each with an id."""
    questions: list[Question] = []
    if isinstance(given, (str, Question)):
        given = [given]
    if not isinstance(given, Iterable):
        raise TypeError(f"questions must be a str, a Question or several of them, not {given!r}")
    for one in given:
        question = Question(one) if isinstance(one, str) else one
        if not isinstance(question, Question):
            raise TypeError(f"a question must be a str or a Question, not {one!r}")
        questions.append(question if question.id is not None else replace(question, id=str(len(questions) + 1)))
    return questions


def absolute_paths(paths: Path | Iterable[Path]) -> list[str]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable) else list(paths)
    if not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise TypeError(f"a context must be a path or several of them, not {paths!r}")
    return [os.path.abspath(path) for path in given]


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that is not a setting's."""
    unknown = set(settings) - Settings.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no setting {sorted(unknown)[0]}: docs/rlm-run.md has all of them")


def _flags(settings: Mapping[str, Any]) -> list[str]:
    check_settings(settings)
    given = {name: value for name, value in settings.items() if value is not None and name != "answer_schema"}
    return [f"--{name.replace('_', '-')}={_text(value)}" for name, value in given.items()]


def _text(value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return "\n".join(value)
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def _write(directory: PrivateDirectory, name: str, text: str) -> str:
    path = os.path.join(directory.path, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Process:
    """A running `rlm run --events`."""

    def __init__(self, arguments: list[str], secret: str, directory: PrivateDirectory, *, is_fed: bool) -> None:
        self.is_done = False
        """It has no more work, and ends by itself."""
        self.directory = directory.path
        self.lines = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
        """The lines that it prints: one for each event."""
        self._log = os.path.join(directory.path, "log")
        self._transports: list[asyncio.BaseTransport] = []
        self._feed: asyncio.WriteTransport | None = None
        command = ["run", "--events", "--quiet", *arguments]
        secrets = {SECRET_VARIABLE: secret, "RLM_LEDGER_SECRET": secret}
        self._process = start_rlm(command, secrets, self._log, is_fed=is_fed)

    async def open(self) -> None:
        """Connects the process's pipes to the event loop."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self.lines)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, self._process.stdout)
        self._transports.append(transport)
        if self._process.stdin is not None:
            self._feed, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)
            self._transports.append(self._feed)

    def feed(self, line: bytes) -> None:
        """Gives the process an attempt, if it is one that is fed."""
        assert self._feed is not None
        self._feed.write(line)

    async def end(self) -> None:
        """Ends the process if it runs: its rollouts are cancelled, and their directories removed."""
        for transport in self._transports:
            abort = getattr(transport, "abort", transport.close)
            abort()
        if not self.is_done:
            self._process.terminate()
        await asyncio.to_thread(self._wait)

    def _wait(self) -> int:
        try:
            return self._process.wait(_END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    async def status(self) -> int:
        """The exit status of the process, once it has ended; negative for a signal."""
        return await asyncio.to_thread(self._wait)

    async def error(self, when: str) -> Exception:
        """The error that says why the process ended, when rollouts are left without a result."""
        status = await self.status()
        said = log_tail(self._log).removeprefix("rlm: ")
        if status == 2:
            return StartError(said)
        words = f"signal {Signals(-status).name}" if status < 0 else f"status {status}"
        return EndedError(f"rlm run ended with {words} {when}: {said}", words, said)
