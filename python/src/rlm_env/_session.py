"""The parts that both kinds of sessions share. The kinds differ in how they wait."""

from __future__ import annotations

import dataclasses
import os
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

from ._config import SessionConfig
from ._core import Core
from ._documents import Answer, Response
from ._errors import BranchError, UsageError
from ._link import Watcher
from ._models import ChatModel, Models, models_of
from ._rootd import Rootd
from ._tools import AnyTool, tools_of


def new_name() -> str:
    """A name for a branch, which no other on this machine has."""
    return f"rlm-branch-{os.urandom(16).hex()}"


def can_branch(forked: Response) -> Response:
    """The response to `branch`. Raises BranchError if the request itself has ended the state."""
    if forked.state != "kept":
        raise BranchError(f"the session cannot branch: {forked.hint}")
    return forked


def handed_on(response: Response) -> Response:
    """The response to a save or load. Raises BranchError if it has not succeeded."""
    if response.outcome != "ok":
        raise BranchError(f"the session cannot branch: {response.hint}")
    return response


class BaseSession:
    """The attributes of a session, and its end without `close`. A session does not pickle."""

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        tools: Iterable[AnyTool] = (),
        models: Models | ChatModel | None = None,
    ) -> None:
        self.config = config if isinstance(config, SessionConfig) else SessionConfig(config)
        """How the session was started. It pickles; the session does not."""
        self._tools = tools_of(tools)
        self._models = models_of(models)
        self.branched: Response | None = None
        """The origin's response to the fork of a branch, or its own to the load. `hint` names what is missing."""
        self.is_forked = False
        """True for a branch that was forked, and has all that was in the memory of its origin."""
        self._set_up()

    def _set_up(self) -> None:
        """Makes the watcher, and the rest in which the kinds differ, after the arguments were checked."""
        raise NotImplementedError

    def _use(self, watcher: Watcher) -> None:
        """Makes the core, which waits by this watcher."""
        self._core = Core(self.config, watcher)
        self._finalizer = weakref.finalize(self, self._core.abandon)

    def _new_branch(self, directory: str | os.PathLike[str] | None, name: str | None = None) -> Any:
        """A session with this one's settings and functions, in a directory that may be another, as a named branch."""
        fs_root = self.config.fs_root
        if directory is not None:
            os.makedirs(directory, exist_ok=True)
            fs_root = directory
        config = dataclasses.replace(self.config, fs_root=fs_root, control_dir=None)
        branch = type(self)(config, tools=self._tools.values(), models=self._models)
        branch._core.branch_name = name
        return branch

    def _has_forked(self, forked: Response) -> None:
        self.branched, self.is_forked, self._core.answer = forked, True, forked.answer

    def _has_loaded(self, not_forked: Response, saved: Response, loaded: Response) -> None:
        reason = f"it was saved and loaded, not forked: {not_forked.hint}"
        hints = [hint for hint in (reason, saved.hint, handed_on(loaded).hint) if hint]
        self.branched = dataclasses.replace(loaded, hint="; ".join(hints))

    def _rootd(self) -> Rootd:
        if self._models is None:
            raise UsageError("the session has no models: create it with models=")
        if self._core.tools is None or self._core.tools.rootd is None:
            raise UsageError("the session has not been started: call start(), or use it in a `with` statement")
        return self._core.tools.rootd

    @property
    def answer(self) -> Answer:
        """The answer after the latest call."""
        return self._core.answer

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        return None if self._core.link is None else self._core.link.pid

    @property
    def control_dir(self) -> str:
        """The directory of the FIFOs, the history and the worker's log."""
        return self._core.control

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled, since its worker belongs to this process: "
            "pickle session.config, and create the session where it is needed"
        )

    def __del__(self) -> None:
        finalizer = getattr(self, "_finalizer", None)  # not there if the arguments were wrong
        if finalizer is not None and finalizer.alive and self._core.link is not None:
            kind = type(self).__name__
            message = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind} was not closed: {self.config}"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=1)
