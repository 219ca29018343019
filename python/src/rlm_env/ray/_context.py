"""Contexts on their way to the nodes: packed into the object store, or paths on storage that all nodes share."""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Ray need not be here.
from __future__ import annotations

import asyncio
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from .._errors import StartError


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

    async def pack(self, paths: Sequence[str]) -> Packed:
        """Raises StartError if a path cannot be read."""
        key = tuple(paths)
        if key not in self._packed:
            self._packed[key] = asyncio.create_task(asyncio.to_thread(self._pack, key))
        return await asyncio.shield(self._packed[key])

    def has(self, paths: Sequence[str]) -> bool:
        """Whether packing it takes no time any more."""
        packed = self._packed.get(tuple(paths))
        return packed is not None and packed.done() and packed.exception() is None

    def _pack(self, paths: tuple[str, ...]) -> Packed:
        try:
            archive, names = _archive(paths, with_git=self._with_git)
        except OSError as error:
            raise StartError(f"a context cannot be read: {error}") from error
        return Packed(ray.put(archive), names)


def check_path(path: str) -> None:
    """Raises OSError unless this is a file or a directory."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(f"{path} is neither a file nor a directory")


def _archive(paths: Sequence[str], *, with_git: bool) -> tuple[bytes, tuple[str, ...]]:
    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        is_git = os.path.basename(entry.name) == ".git" and not with_git
        return entry if (entry.isreg() or entry.isdir() or entry.issym()) and not is_git else None

    file, names = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.inodes = _Forgetful()  # type: ignore[attr-defined]  # a hard link is a file like others
        for number, path in enumerate(paths):
            check_path(path)
            # Of a directory, a name with a number alone would become a part of the context.
            name = f"{number}/{os.path.basename(os.path.normpath(path))}"
            archive.add(os.path.realpath(path), name, filter=chosen)
            names.append(name)
    return file.getvalue(), tuple(names)


class _Forgetful(dict[Any, Any]):
    """Holds nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Unpacker:
    """Unpacks each context once on a node."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._unpacked: dict[str, asyncio.Task[str]] = {}

    async def paths(self, packed: Packed) -> list[str]:
        """The paths of the files on this node. Raises OSError if they cannot be written here."""
        key = packed.archive.hex()
        if key not in self._unpacked:
            self._unpacked[key] = asyncio.create_task(self._unpack(key, packed))
        directory = await asyncio.shield(self._unpacked[key])
        return [os.path.join(directory, name) for name in packed.names]

    async def _unpack(self, key: str, packed: Packed) -> str:
        archive = await packed.archive
        directory = os.path.join(self._directory, f"context-{key}")
        try:
            await asyncio.to_thread(_extract, archive, directory)
        except OSError:
            del self._unpacked[key]  # the next one may find room
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise
        return directory


def _extract(archive: bytes, directory: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        # Our own archive: modes and links stay as they are, those of directories once their contents are there.
        opened.extractall(directory, filter="fully_trusted")
