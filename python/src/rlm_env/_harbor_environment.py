"""The environment `rlm` of Harbor: a directory and namespaces in place of a container."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from harbor.environments import base  # pyright: ignore[reportMissingImports]
from harbor.environments import capabilities as able  # pyright: ignore[reportMissingImports]

from . import _harbor_box
from ._files import PrivateDirectory
from ._harbor_dockerfile import Instruction, read_dockerfile, sources
from ._programs import find_program

PROGRAMS = "/opt/rlm/bin"
"""Directory of the programs in an environment."""

_PATH = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{PROGRAMS}"
_MOST_OUTPUT_BYTES = 10 << 20
# Commands run as one user, root in the namespace, who has no rights over its mounts.
_WITHOUT_RIGHTS = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]


class RlmEnvironment(base.BaseEnvironment):  # type: ignore[misc]
    """A directory of a trial, and Linux namespaces with the host's programs that run commands in it.

    `read` has further paths of the host that the trial may read.
    """

    def __init__(self, *arguments: Any, read: Sequence[str] = (), **options: Any) -> None:
        self._read = list(read)
        self._instructions: list[Instruction] = []
        self._directory: PrivateDirectory | None = None
        self._unshare: asyncio.subprocess.Process | None = None
        self._box = ""
        self._variables: dict[str, str] = {}
        self._workdir = "/app"
        super().__init__(*arguments, **options)

    @staticmethod
    def type() -> str:
        return "rlm"

    @property
    def capabilities(self) -> able.EnvironmentCapabilities:
        return able.EnvironmentCapabilities(mounted=True)

    @classmethod
    def resource_capabilities(cls) -> able.EnvironmentResourceCapabilities:
        return able.EnvironmentResourceCapabilities(fractional_cpus=True)

    def _validate_definition(self) -> None:
        path = self.environment_dir / "Dockerfile"
        if path.exists():
            self._instructions, self._workdir = read_dockerfile(path), "/"

    async def start(self, force_build: bool) -> None:
        self._directory = PrivateDirectory()
        try:
            await self._enter()
            await self.ensure_dirs(self._mount_targets())
            for instruction in self._instructions:
                await self._follow(instruction)
            self._workdir = self.task_env_config.workdir or self._workdir
            await self._do(f"mkdir -p {shlex.quote(self._workdir)}", cwd="/")
            await self._upload_environment_dir_after_start()
        except BaseException:
            await asyncio.shield(self.stop(True))
            raise

    async def stop(self, delete: bool) -> None:
        """Ends every process in the box, and removes its directory, whatever `delete` says."""
        unshare, self._unshare = self._unshare, None
        directory, self._directory = self._directory, None
        if unshare is not None:
            assert unshare.stdin is not None
            unshare.stdin.close()
            await unshare.wait()
        if directory is not None:
            await asyncio.to_thread(directory.remove)

    async def _enter(self) -> None:
        """Starts the box."""
        assert self._directory is not None
        root = os.path.join(self._directory.path, "root")
        os.mkdir(root)
        given = [[str(find_program("rlm").parent), PROGRAMS, False]]
        given += [[path, path, False] for path in [*_interpreter(), *map(os.path.abspath, self._read)]]
        for mount in self._host_mounts:
            if mount["type"] != "bind":
                raise ValueError(f"the environment rlm mounts directories of the host only, not {mount}")
            given.append([os.path.abspath(mount["source"]), mount["target"], not mount.get("read_only", False)])
        namespaces = ["--user", "--map-root-user", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        program = [sys.executable, "-I", "-S", _harbor_box.__file__, root, json.dumps(given)]
        pipe = subprocess.PIPE
        self._unshare = await asyncio.create_subprocess_exec(
            _tool("unshare"), *namespaces, *program, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert self._unshare.stdout is not None and self._unshare.stderr is not None
        if await self._unshare.stdout.readline() != b"ready\n":
            said = (await self._unshare.stderr.read()).decode(errors="replace").strip()
            raise RuntimeError(f"the environment rlm cannot start: {said}")
        pid = self._unshare.pid
        self._box = Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    async def _follow(self, instruction: Instruction) -> None:
        """Does a line of the Dockerfile. FROM has no effect."""
        name = instruction.name
        if name == "RUN":
            await self._do(instruction.command())
        elif name == "WORKDIR":
            self._workdir = os.path.join(self._workdir, *instruction.words(self._variables))
            await self._do(f"mkdir -p {shlex.quote(self._workdir)}", cwd="/")
        elif name == "ENV":
            words = instruction.words({"PATH": _PATH, **self._variables})
            pairs = [word.split("=", 1) for word in words] if "=" in words[0] else [[words[0], " ".join(words[1:])]]
            self._variables.update((key, value) for key, value in pairs)
        elif name in ("COPY", "ADD"):
            *patterns, given = instruction.words(self._variables)
            target, found = os.path.join(self._workdir, given), sources(self.environment_dir, patterns)
            is_directory = given.endswith("/") or len(found) > 1 or await self.is_dir(target)
            for path in found:
                if path.is_dir():
                    await self.upload_dir(path, target)
                else:
                    await self.upload_file(path, os.path.join(target, path.name) if is_directory else target)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> base.ExecResult:
        if (wanted := self._resolve_user(user)) not in (None, "root", "0", 0):
            raise RuntimeError(f"the environment rlm has one user only, root, and runs nothing as {wanted!r}")
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            work = self._run(command, out, err, cwd=cwd, env=self._merge_env(env))
            try:
                status = await asyncio.wait_for(work, timeout_sec)
            except asyncio.TimeoutError:
                raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
            return base.ExecResult(stdout=_text(out), stderr=_text(err), return_code=status)

    async def _run(
        self,
        command: str,
        out: IO[bytes],
        err: IO[bytes],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        given: IO[bytes] | int = subprocess.DEVNULL,
    ) -> int:
        """The exit status of a command, which ends when this is cancelled."""
        if self._unshare is None or self._unshare.returncode is not None:
            raise RuntimeError("the environment rlm is not running")
        namespaces = ["--user", "--preserve-credentials", "--mount", "--pid", "--ipc", "--uts"]
        line = f"cd -- {shlex.quote(cwd or self._workdir)} || exit\n{command}"
        process = await asyncio.create_subprocess_exec(
            _tool("nsenter"), "--target", self._box, *namespaces, "setpriv", *_WITHOUT_RIGHTS, "bash", "-c", line,
            stdin=given, stdout=out, stderr=err, start_new_session=True,
            env={"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", **self._variables, **(env or {})},
        )  # fmt: skip
        try:
            status = await process.wait()
        except BaseException:
            # Other groups of processes live on, until the box ends.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            raise
        return status if status >= 0 else 128 - status

    async def _do(self, command: str, out: IO[bytes] | None = None, **options: Any) -> None:
        """Runs a command that must succeed."""
        with tempfile.TemporaryFile() as err:
            if status := await self._run(command, out or err, err, **options):
                raise RuntimeError(f"the environment rlm: status {status} of {command}: {_text(err)[-2000:]}")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._unpack(source_path, target.name, str(target.parent))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack(source_dir, ".", target_dir)

    async def _unpack(self, source: Path | str, name: str, directory: str) -> None:
        def pack() -> None:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                tar.add(source, name)
            archive.seek(0)

        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack)
            where = shlex.quote(directory)
            command = f"mkdir -p -- {where} && tar -x --no-same-owner -f - -C {where}"
            await self._do(command, given=archive)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with tempfile.TemporaryFile() as contents:
            await self._do(f"cat -- {shlex.quote(source_path)}", contents)
            contents.seek(0)
            with open(target_path, "wb") as file:
                await asyncio.to_thread(shutil.copyfileobj, contents, file)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        def unpack() -> None:
            archive.seek(0)
            with tarfile.open(fileobj=archive) as tar:
                tar.extractall(target_dir, filter=base.transfer_tar_filter)

        with tempfile.TemporaryFile() as archive:
            await self._do(f"tar -c -f - -C {shlex.quote(source_dir)} .", archive)
            await asyncio.to_thread(unpack)


def _interpreter() -> list[str]:
    """The directories of this program's Python that are not the system's."""
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)} | {sys.prefix}
    return sorted(path for path in found if not path.startswith("/usr"))


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"the environment rlm needs {name}, of util-linux, which is not installed")
    return path


def _text(file: IO[bytes]) -> str:
    """The end of an output."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MOST_OUTPUT_BYTES))
    return file.read().decode(errors="replace")
