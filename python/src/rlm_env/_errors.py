"""Errors of a session, by what the caller can do about them. Code that fails in a session is not an error."""

from __future__ import annotations


class SessionError(Exception):
    """The base of all errors of a session."""


class StartError(SessionError):
    """The worker cannot be started. Nothing is left behind; the message says what to change."""


class EndedError(SessionError):
    """The worker has ended, with everything it started. `restart()` starts another; its state is lost.

    `status` is how the process ended, and `log_tail` the end of its log.
    """

    def __init__(self, message: str, status: str = "", log_tail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.log_tail = log_tail


class BranchError(SessionError):
    """The session cannot hand on its state. Nothing of the branch is left, and the session is as it was."""


class ProtocolError(SessionError):
    """The worker sent something other than a response. It still runs: `restart()` it to be sure of its state."""


class UsageError(SessionError, RuntimeError):
    """The call cannot be made here: another one is running, or the session is closed or belongs to another process.

    The session is unharmed; the message says what to write instead.
    """
