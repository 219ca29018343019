"""The file of results: a line of JSON for each attempt that has ended, in the form of `rlm run --results`."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from .._errors import StartError
from .._events import RolloutResult, read_result
from .._rollouts import Question

_AGAIN = ("stopped", "cancelled")
"""Rollouts that ended so are run again."""


class Results:
    """A file to which one program at a time appends. A last line that was cut off by its death is removed."""

    def __init__(self, path: str, *, resume: bool) -> None:
        self._path = path
        try:
            self._file = open(path, "a+b", buffering=0)
        except OSError as error:
            raise StartError(f"the results cannot be kept in {path}: {error}") from error
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise StartError(f"the results cannot be kept in {path}: it is not a regular file")
            self._lock()
            self.before = self._read(resume=resume)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"{self._path} is in use: another program appends results to it") from None

    def _read(self, *, resume: bool) -> dict[str, RolloutResult]:
        """The results of rollouts that have ended, by their ids."""
        self._file.seek(0)
        text = self._file.read()
        if text and not resume:
            raise StartError(f"{self._path} has results already: give resume=True to go on from them")
        found: dict[str, RolloutResult] = {}
        lines = text.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                result = read_result(json.loads(line))
            except Exception as error:
                is_cut_off = number == len(lines) and line.startswith(b"{") and isinstance(error, ValueError)
                if not is_cut_off:
                    raise StartError(
                        f"{self._path}:{number} is not a result: remove that line, or give another file ({error})"
                    ) from error
                self._file.truncate(len(text) - len(line))
                return found
            if result.stop_reason not in _AGAIN:
                found.setdefault(result.id, result)
        if lines[-1]:
            self._file.write(b"\n")
        return found

    def append(self, document: Mapping[str, Any]) -> None:
        """Raises OSError if it cannot be written."""
        line = json.dumps(document, ensure_ascii=False).encode() + b"\n"
        written = os.write(self._file.fileno(), line)
        if written < len(line):
            # Removes a part of a line, to which the next line would be joined.
            self._file.truncate(os.fstat(self._file.fileno()).st_size - written)
            raise OSError(f"{self._path}: only {written} of {len(line)} bytes could be written: is the disk full?")

    def close(self) -> None:
        self._file.close()


def check_same(path: str, before: Mapping[str, RolloutResult], questions: Iterable[Question]) -> None:
    """Raises StartError if a result is one of another question with the same id."""
    asked = {question.id: question.question for question in questions}
    for result in before.values():
        now = asked.get(result.question_id)
        if now is not None and now != result.question:
            raise StartError(
                f"{path}: the result {result.id} is of another question ({result.question[:60]!r}, not {now[:60]!r}): "
                "give questions an `id` that stays, or another file"
            )
