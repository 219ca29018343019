"""Cells of rlms in a Python session."""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ._config import SessionConfig, for_workers
from ._errors import EndedError
from ._files import PrivateDirectory, write_own_file
from ._sync import Session
from ._tools import Tool, tool

FUNCTIONS = ("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched")
"""Functions that every cell has."""

# `fixed` has the names that a cell can overwrite only for itself: the values are put back after the cell.
_SETUP = """
class _rlm_rlms:
    fixed = {name: globals()[name] for name in NAMES if name in globals()}
    given = {*globals(), "answer"}
    plain = (str, int, float, bool, list, dict, tuple, type(None))

    def SHOW_VARS():
        found = {name: type(globals()[name]).__name__ for name in _rlm_rlms.names()}
        return f"Available variables: {found}" if found else (
            "No variables created yet. Use ```repl``` blocks to create variables."
        )

    def names():
        return [name for name in list(globals()) if not name.startswith("_") and name not in _rlm_rlms.given]

    def load(name, path):
        import json

        with open(path, encoding="utf-8") as file:
            value = globals()[name] = json.load(file)
        if name in ("context_0", "history_0", "history"):
            _rlm_rlms.fixed[name.partition("_")[0]] = value
            globals().update(_rlm_rlms.fixed)

    def after():
        import json, reprlib

        globals().update(_rlm_rlms.fixed)
        if isinstance(globals().get("answer"), dict):
            answer["ready"] = False
        short = reprlib.Repr()
        short.maxlevel, short.maxstring, short.maxother, short.maxlong = 3, 500, 1000, 1000
        short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = 20
        found = {}
        for name in [*_rlm_rlms.names(), "answer"]:
            value = globals().get(name)
            is_whole = value is None or type(value) in (bool, int, float) or type(value) is str and len(value) <= 2000
            try:
                text = repr(value) if is_whole else short.repr(value)
            except Exception as error:
                text = f"<{type(value).__name__}: its repr raises {type(error).__name__}>"
            found[name] = (isinstance(value, _rlm_rlms.plain), is_whole or "..." not in text, text)
        return json.dumps(found)


SHOW_VARS = _rlm_rlms.fixed["SHOW_VARS"] = _rlm_rlms.SHOW_VARS
_rlm_rlms.given.add("SHOW_VARS")
"""


@dataclass
class ExecResult:
    """How a cell ended, as rlm_train expects it."""

    stdout: str = ""
    stderr: str = ""
    final_answer: str | None = None
    execution_time: float = 0.0
    locals_keys: list[str] = field(default_factory=list)


class _Shown:
    """A value that exists only in the session: its repr."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Cells:
    """A Python session with the names that rlms gives a cell. It is set up again when its interpreter was lost."""

    def __init__(self, config: SessionConfig | None, tools: Iterable[Tool[..., Any]], timeout: float | None) -> None:
        if config is not None and config.language != "python":
            raise ValueError("rlms runs Python: the session's language must be python")
        self._directory = PrivateDirectory()
        self._is_closed = False
        if config is None:
            # A sub-call may be a whole RLM, so its limit is 7 days.
            environment = {**for_workers(os.environ), "RLM_SUB_LLM_TIMEOUT": "604800"}
            config = SessionConfig(self._directory.path, language="python", env=environment)
        self.session = Session(config, tools=tools)
        self.variables: dict[str, Any] = {}
        self._timeout = timeout
        self._loaded: dict[str, str] = {}
        try:
            self.session.start()
            self._prepare()
        except BaseException:
            self.close()
            raise

    def load(self, name: str, value: Any) -> None:
        """Sets a variable, of any size, to a value that JSON can hold."""
        path = os.path.join(self.session.control_dir, f"{name}.json")
        write_own_file(path, json.dumps(value))
        self._loaded[name] = path
        self._do(f"_rlm_rlms.load({name!r}, {path!r})")
        self._look()

    def run(self, code: str) -> ExecResult:
        began = time.perf_counter()
        try:
            response = self.session.execute(code, timeout=self._timeout)
        except EndedError as error:
            self.session.restart()
            self._prepare()
            return ExecResult("", f"{error}. The variables are lost, but for the context and the history.")
        result = ExecResult(response.stdout, response.stderr)
        words = response.result if response.exception is not None else None
        if response.outcome != "ok":
            result.stderr += "".join(f"\n{text}" for text in (words, response.hint) if text) or f"\n{response.outcome}"
        if response.answer.ready:
            result.final_answer = response.answer.content
        if response.state == "kept":
            self._look()
        else:
            self._prepare()
        result.execution_time = time.perf_counter() - began
        result.locals_keys = [name for name, value in self.variables.items() if not isinstance(value, _Shown)]
        return result

    def close(self) -> None:
        self.session.close()
        if not self._is_closed:
            self._is_closed = True
            self._directory.remove()

    def _prepare(self) -> None:
        self._do(f"NAMES = {FUNCTIONS!r}\n{_SETUP}\ndel NAMES")
        for name, path in self._loaded.items():
            self._do(f"_rlm_rlms.load({name!r}, {path!r})")
        self._look()

    def _do(self, code: str) -> None:
        response = self.session.execute(code)
        if response.outcome != "ok":
            raise RuntimeError(f"the session cannot be set up: {response.hint or response.result}")

    def _look(self) -> None:
        """Puts back what the cell has overwritten, and reads the variables."""
        response = self.session.execute("_rlm_rlms.after()")
        if response.outcome != "ok" or response.result is None:
            return  # the code has broken its interpreter; the next cell tells
        self.variables = {}
        for name, (is_plain, is_whole, text) in json.loads(ast.literal_eval(response.result)).items():
            self.variables[name] = text if is_plain else _Shown(text)
            if is_plain and is_whole:
                with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                    self.variables[name] = ast.literal_eval(text)


def function_tool(name: str, function: Callable[..., Any]) -> Tool[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return tool(name=name)(call)
