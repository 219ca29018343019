"""Contexts on their way to the nodes: packed into the object store, or paths on storage that all nodes share."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import stat
import tarfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from .._errors import StartError
from ._tasks import mark_seen

_CLOSE_LIMIT = 5.0


@dataclass(frozen=True)
class Packed:
    """Files in the object store."""

    archive: ray.ObjectRef[bytes]
    names: tuple[str, ...]


class Packer:
    """Packs each context once, however many attempts have it."""

    def __init__(self, *, with_git: bool) -> None:
        self._with_git = with_git
        self._packed: dict[tuple[str, ...], asyncio.Task[Packed]] = {}
        self._closed = threading.Event()

    async def pack(self, paths: Sequence[str]) -> Packed:
        """Packs the files at these paths. Raises StartError if a path cannot be read."""
        key = tuple(paths)
        if key not in self._packed:
            self._packed[key] = asyncio.create_task(asyncio.to_thread(self._pack, key))
        return await asyncio.shield(self._packed[key])

    def has(self, paths: Sequence[str]) -> bool:
        """True if packing these paths takes no more time."""
        packed = self._packed.get(tuple(paths))
        return packed is not None and packed.done() and packed.exception() is None

    async def close(self) -> None:
        """Ends packing: Ray, which the program may shut down then, gets nothing any more."""
        self._closed.set()
        await _ended(self._packed.values())

    def _pack(self, paths: tuple[str, ...]) -> Packed:
        file = _Archive(self._closed)
        try:
            names = _write(file, paths, with_git=self._with_git)
            archive = file.getvalue()
            _check_open(self._closed)
        except OSError as error:
            raise StartError(f"a context cannot be read: {error}") from error
        return Packed(ray.put(archive), names)


def check_path(path: str) -> None:
    """Raises OSError unless this is a file or a directory."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(f"{path} is neither a file nor a directory")


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Waits until tasks that are closed have ended. One that does not notice, on a hanging file system, is left."""
    if running := [task for task in tasks if not task.done()]:
        await asyncio.wait(running, timeout=_CLOSE_LIMIT)
        mark_seen(running)


def _check_open(closed: threading.Event) -> None:
    if closed.is_set():
        raise OSError("the batch was closed")


class _Archive(io.BytesIO):
    """An archive in memory. Writing to it fails once packing has ended."""

    def __init__(self, closed: threading.Event) -> None:
        super().__init__()
        self._no_more = closed

    def write(self, data: Any, /) -> int:
        _check_open(self._no_more)
        return super().write(data)


def _write(file: _Archive, paths: Sequence[str], *, with_git: bool) -> tuple[str, ...]:
    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        is_git = os.path.basename(entry.name) == ".git" and not with_git
        return entry if (entry.isreg() or entry.isdir() or entry.issym()) and not is_git else None

    names = []
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.inodes = _Forgetful()  # type: ignore[attr-defined]  # a hard link is a file like others
        for number, path in enumerate(paths):
            check_path(path)
            # With a directory, a name that is only a number would become a part of the context.
            name = f"{number}/{os.path.basename(os.path.normpath(path))}"
            archive.add(os.path.realpath(path), name, filter=chosen)
            names.append(name)
    return tuple(names)


class _Forgetful(dict[Any, Any]):
    """Holds nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Unpacker:
    """Unpacks each context once on a node."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._unpacked: dict[str, asyncio.Task[str]] = {}
        self._closed = threading.Event()

    async def paths(self, packed: Packed) -> list[str]:
        """The paths of the files on this node. Raises OSError if they cannot be written here."""
        key = packed.archive.hex()
        if key not in self._unpacked:
            self._unpacked[key] = asyncio.create_task(self._unpack(key, packed))
        directory = await asyncio.shield(self._unpacked[key])
        return [os.path.join(directory, name) for name in packed.names]

    async def close(self) -> None:
        """Ends what is being unpacked, so that the directory can be removed."""
        self._closed.set()
        await _ended(self._unpacked.values())

    async def _unpack(self, key: str, packed: Packed) -> str:
        archive = await packed.archive
        directory = os.path.join(self._directory, f"context-{key}")
        try:
            await asyncio.to_thread(_extract, archive, directory, self._closed)
        except OSError:
            del self._unpacked[key]  # the next one may find room
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise
        return directory


def _extract(archive: bytes, directory: str, closed: threading.Event) -> None:
    def wanted(entries: Iterable[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
        for entry in entries:
            _check_open(closed)
            yield entry

    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        # Our own archive: modes and links stay as they are, those of directories once their contents are there.
        opened.extractall(directory, wanted(opened), filter="fully_trusted")
