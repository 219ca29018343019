"""The host's ends of one worker: its process, and the two FIFOs, both held open.

Nothing here waits. A `Watcher` calls back when a descriptor is ready, and whoever drives the session looks at what is
new. The worker's death is an event on its process descriptor, never a time-out, and a signal cannot reach a recycled
process id.
"""

from __future__ import annotations

import os
import select
import signal as signals
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from ._errors import EndedError, ProtocolError, StartError
from ._programs import check_descriptors

MAX_RESPONSE_BYTES = 1 << 30
"""Longest response: twice 16 MiB of output, with every byte escaped."""

END_LIMIT = 2.5
"""Seconds in which a worker ends after SIGTERM, and a little more."""

_SMALL_READ = 64 << 10
_LARGE_READ = 1 << 20
_LOG_TAIL_BYTES = 2048


class Watcher(Protocol):
    """Calls back when a descriptor can be read or written, and then resumes the steps that wait."""

    def watch_reads(self, fd: int, callback: Callable[[], object]) -> None: ...
    def watch_writes(self, fd: int, callback: Callable[[], object]) -> None: ...
    def forget_reads(self, fd: int) -> None: ...
    def forget_writes(self, fd: int) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class Link:
    """A worker that was started, and the documents that go to it and come from it."""

    def __init__(self, watcher: Watcher, worker: str, control: str, environment: Mapping[str, str]) -> None:
        self.control = control
        self.responses: deque[bytes] = deque()
        """Documents that came, oldest first."""
        self.is_ready = False
        self.is_dead = False
        self.has_sent = False
        """Something was sent since this was last set to False."""
        self.fault: Exception | None = None
        """Why no more responses can be read."""
        self._watcher = watcher
        self._parts: list[bytes] = []
        self._received = 0
        self._read_size = _SMALL_READ
        self._unsent = memoryview(b"")
        self._commands = self._results = -1
        try:
            check_descriptors()
            self._process = subprocess.Popen(
                [worker, "--control-dir", control, "--ready-fd", "1"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at our terminal is for us; `interrupt` passes it on
            )
        except OSError as error:
            raise StartError(f"cannot start the worker {worker}: {error.strerror or error}") from error
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            self._process.kill()
            self._reap()
            raise StartError(f"cannot watch the worker {worker}: {error.strerror}") from error
        assert self._process.stdout is not None
        watcher.watch_reads(self._pidfd, self._on_death)
        watcher.watch_reads(self._process.stdout.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        ready = self._process.stdout
        assert ready is not None
        self._watcher.forget_reads(ready.fileno())
        self.is_ready = os.read(ready.fileno(), 16) != b""
        ready.close()

    def _on_death(self) -> None:
        self._watcher.forget_reads(self._pidfd)
        while self._results >= 0 and self._read():
            pass
        self.is_dead = True

    def open_fifos(self) -> None:
        """Opens both FIFOs. The worker has made them once it is ready."""
        # Code may have put links there.
        flags = os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            # Opened for reading and writing: such a reader never sees an end of file, and gets every response.
            self._results = os.open(f"{self.control}/rlm_res", os.O_RDWR | flags)
            self._commands = os.open(f"{self.control}/rlm_cmd", os.O_WRONLY | flags)
        except OSError as error:
            raise StartError(f"cannot open the worker's FIFOs in {self.control}: {error.strerror}") from error
        self._watcher.watch_reads(self._results, self._read)

    def send(self, document: bytes) -> None:
        """Sends a document, at once as far as the FIFO takes it."""
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + document)
        else:
            self._unsent = memoryview(document)
            self._write(is_watched=False)

    def take_back(self) -> None:
        """Drops the part that was not sent yet."""
        self._unsent = memoryview(b"")

    def _write(self, is_watched: bool = True) -> None:
        while self._unsent:
            try:
                self._unsent = self._unsent[os.write(self._commands, self._unsent) :]
                self.has_sent = True
            except BlockingIOError:
                if not is_watched:
                    self._watcher.watch_writes(self._commands, self._write)
                return
            except BrokenPipeError:
                self._unsent = memoryview(b"")  # the worker is dying: its process descriptor tells
        if is_watched:
            self._watcher.forget_writes(self._commands)

    def _read(self) -> bool:
        """Reads once. False if there was nothing."""
        try:
            chunk = os.read(self._results, self._read_size)
        except BlockingIOError:
            return False
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._received += len(first)
        for part in others:
            if document := b"".join(self._parts):
                self.responses.append(document)
            self._parts = [part]
            self._received = len(part)
        # A response beyond the FIFO's first size comes in larger pieces.
        self._read_size = _LARGE_READ if self._received else _SMALL_READ
        if self._received > MAX_RESPONSE_BYTES:
            self._watcher.forget_reads(self._results)
            self.fault = ProtocolError(f"a response is larger than {MAX_RESPONSE_BYTES} bytes")
        return True

    def signal(self, number: signals.Signals) -> None:
        """Sends a signal, if the worker is alive."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                signals.pidfd_send_signal(self._pidfd, number)

    def end(self) -> None:
        """Ends the worker and everything it started: SIGTERM, then SIGKILL. Blocks until then; safe to repeat."""
        for number, limit in ((signals.SIGTERM, END_LIMIT), (signals.SIGKILL, None)):
            if self._process.returncode is not None:
                break
            self.terminate(number)
            events = select.poll()
            events.register(self._pidfd, select.POLLIN)
            if events.poll(None if limit is None else limit * 1000):
                self._reap()

    def terminate(self, number: signals.Signals) -> None:
        """Begins the worker's end. A stopped process handles no signal until it is continued."""
        self.signal(number)
        self.signal(signals.SIGCONT)

    def _reap(self) -> None:
        self._process.wait()
        self.is_dead = True

    def death(self) -> EndedError:
        """Ends what is left of the worker, and returns the error that reports its end."""
        self.end()
        self.close()
        status, log_tail = self.status(), self.log_tail()
        words = f"; its log ends with: {log_tail}" if log_tail else ""
        return EndedError(f"the worker has ended ({status}){words}: restart() starts another", status, log_tail)

    def status(self) -> str:
        """How the process ended: `exit status 3`, `SIGKILL`."""
        code = self._process.returncode
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit status {code}"
        try:
            return signals.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def last_words(self) -> str:
        """The beginning of the worker's standard error, once the worker is dead."""
        words = self._process.stderr
        if words is None or words.closed:
            return ""
        os.set_blocking(words.fileno(), False)  # a process that outlived it could have it open
        try:
            return os.read(words.fileno(), _LOG_TAIL_BYTES).decode(errors="replace").strip()
        except BlockingIOError:
            return ""

    def log_tail(self) -> str:
        """The end of the worker's log. Code may have replaced it: no link is followed, and no FIFO is waited for."""
        try:
            log = os.open(f"{self.control}/rlm_worker.log", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return ""
        with os.fdopen(log, "rb") as file, suppress(OSError):
            file.seek(max(0, os.fstat(log).st_size - _LOG_TAIL_BYTES))
            return file.read(_LOG_TAIL_BYTES).decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Closes every descriptor. Safe to repeat."""
        if self._pidfd < 0:
            return
        self._watcher.forget_reads(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                self._watcher.forget_reads(pipe.fileno())
                pipe.close()
        if self._results >= 0:
            self._watcher.forget_reads(self._results)
            os.close(self._results)
        if self._commands >= 0:
            self._watcher.forget_writes(self._commands)
            os.close(self._commands)
        self._results = self._commands = -1
        self.is_dead = True
        self._watcher.wake()


def now() -> float:
    """The clock of all deadlines, in seconds."""
    return time.monotonic()
