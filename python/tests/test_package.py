"""The content of the wheel, and the places where it works."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import rlm_env
from rlm_env import Session, SessionConfig, StartError, find_program, for_workers
from rlm_env._versions import require

PACKAGE = Path(rlm_env.__file__).parent
REPOSITORY = Path(__file__).parents[2]
PROGRAM = "from rlm_env import *\nwith Session() as s: print(s.execute('echo $((6 * 7))').stdout, end='')\n"

installed = pytest.mark.skipif(not (PACKAGE / "_bin").is_dir(), reason="not installed from the wheel")


@installed
def test_the_programs_are_in_one_directory_and_small() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.name for path in files if path.parent.name == "_bin"} == {
        *("rlm", "rlm-root-tool", "rlm-worker-bash", "rlm-worker-python", "librlm_cell_engine.so")
    }
    # Programs that were built for tests are larger.
    if "RLM_PROGRAMS" not in os.environ:
        assert sum(path.stat().st_size for path in files) <= 45_000_000
    assert (PACKAGE / "py.typed").exists()


@installed
def test_the_command_is_on_the_path_and_has_the_version_of_the_package() -> None:
    command = Path(sysconfig.get_path("scripts")) / "rlm"
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed == f"rlm {importlib.metadata.version('rlm-env')}\n"
    demo = subprocess.run([command, "demo"], capture_output=True, text=True)
    assert demo.returncode == 0, demo.stderr
    ran = subprocess.run([command, "exec", "x=1", "echo $x; exit 3"], capture_output=True, text=True)
    assert "1\n" in ran.stdout, ran


@installed
def test_the_wheel_has_no_dependency_and_says_for_what_it_is() -> None:
    metadata = importlib.metadata.metadata("rlm-env")
    assert all("extra ==" in needed for needed in importlib.metadata.requires("rlm-env") or [])
    assert metadata["Requires-Python"] == ">=3.10"
    wheel = importlib.metadata.distribution("rlm-env").read_text("WHEEL") or ""
    assert "Tag: py3-none-manylinux_2_" in wheel and "Root-Is-Purelib: false" in wheel


def in_directory(directory: Path, *arguments: str, **options: object) -> str:
    ran = subprocess.run(  # type: ignore[call-overload]
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=60, **options
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


@installed
def test_it_works_isolated_and_with_almost_nothing_on_the_path(work: Path) -> None:
    assert in_directory(work, "-I", "-W", "error", "-c", PROGRAM) == "42\n"
    environment = {"PATH": "/usr/bin:/bin"}
    assert in_directory(work, "-c", PROGRAM, env=environment) == "42\n"


@installed
def test_it_works_with_temporary_files_elsewhere(work: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    assert in_directory(work, "-c", PROGRAM, env={**os.environ, "TMPDIR": str(elsewhere)}) == "42\n"
    assert list(elsewhere.iterdir()) == []


@installed
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_works_for_an_ordinary_user() -> None:
    python = Path("/usr/bin/python3")
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 10))"], capture_output=True)
    if version.stdout != b"True\n":
        pytest.skip("no CPython from 3.10 on that everybody can run")
    place = Path(f"/tmp/rlm-env-{os.getpid()}")  # the directories of pytest are closed to others
    try:
        place.mkdir(mode=0o755)
        shutil.copytree(PACKAGE, place / "rlm_env")
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o777)
        environment = {"TMPDIR": str(place / "tmp"), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(place)}
        options = {"cwd": place / "tmp", "env": environment, "user": 65534, "capture_output": True, "text": True}
        ran = subprocess.run([python, "-c", PROGRAM], **options)  # type: ignore[call-overload]
        assert (ran.stdout, ran.stderr) == ("42\n", "")
        assert list((place / "tmp").iterdir()) == []
    finally:
        shutil.rmtree(place)


NOTEBOOK = """
import sys
from jupyter_client.manager import start_new_kernel

kernel, client = start_new_kernel(kernel_name="python3")
shown = []
client.execute_interactive(sys.argv[1], timeout=60, output_hook=lambda message: shown.append(message["content"]))
print("".join(content.get("text", "") for content in shown) or shown, end="")
client.stop_channels()
kernel.shutdown_kernel(now=True)
"""


@installed
def test_it_works_in_a_jupyter_kernel(work: Path) -> None:
    pytest.importorskip("ipykernel")
    cell = PROGRAM + "async with AsyncSession(tools=[len]) as s: print((await s.execute('len three')).stdout, end='')"
    assert in_directory(work, "-c", NOTEBOOK, cell) == "42\n5\n"


@installed
def test_the_example_of_the_documentation_runs(work: Path) -> None:
    assert in_directory(work, "-W", "error", str(REPOSITORY / "examples/sessions.py"), str(work)).splitlines() == [
        "ok 1",
        "it's $5, 2 ids",
        '["red pandas, document 0", "red pandas, document 1"]',
        "hello (French)",
        "timed_out kept begun",
        "Answer(ready=True, content='42')",
        "on",
        "[0, 0, 1, 3, 6, 10, 15, 21]",
    ]


@installed
def test_the_example_of_rollouts_runs(work: Path) -> None:
    (work / "cities.txt").write_text("Oslo\nBergen\n")
    assert in_directory(work, "-W", "error", str(REPOSITORY / "examples/rollouts.py"), str(work)).splitlines() == [
        "answered Oslo: 724290, a city of letters",
        "1 call_bash_repl",
        "['1-1', '1-2', '2-1', '2-2']",
    ]


def test_programs_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, work: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("RLM_BIN_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"no program rlm in {tmp_path}: RLM_BIN_DIR must name a directory"):
        find_program("rlm")
    with pytest.raises(StartError, match="no program rlm-worker-bash"):
        Session(work).start()
    ran = subprocess.run(
        [sys.executable, "-c", "from rlm_env._programs import main; main()"], capture_output=True, text=True
    )
    assert ran.returncode == 1 and ran.stderr.startswith("rlm: there is no program rlm in")


def test_a_free_threaded_interpreter_is_refused(work: Path, tmp_path: Path) -> None:
    """No such interpreter need be here: this one claims to be one, by the flags that those have."""
    claims = tmp_path / "python"
    claims.write_text(f"""#!/bin/bash
arguments=("$@")
for i in "${{!arguments[@]}}"; do
    [[ ${{arguments[i]}} != -c ]] || arguments[i+1]="import sys; sys.abiflags = 't'"$'\\n'"${{arguments[i+1]}}"
done
exec {sys.executable} "${{arguments[@]}}"
""")
    claims.chmod(0o755)
    with pytest.raises(StartError, match="a CPython with a GIL is needed, this is the free-threaded 3"):
        Session(SessionConfig(work, language="python", python=claims)).start()


def test_variables_for_workers_are_those_of_the_rust_crates() -> None:
    source = REPOSITORY / "rlm-core/src/env.rs"
    if not source.exists():
        pytest.skip("not in a checkout")
    text = source.read_text()
    names = dict(part.split(": &str = ") for part in text.split("pub const ")[1:] if ": &str = " in part.split(";")[0])
    names = {name: value.split('"')[1] for name, value in names.items()}
    listed = text.split("const WORKER_NAMES: [&str; ")[1].split("[", 1)[1].split("]", 1)[0]
    expected = {names[name.strip()] for name in listed.split(",") if name.strip()}
    given = {name: "v" for name in [*names.values(), "PATH", "HOME", "LC_ALL", "SECRET", "OPENAI_API_KEY"]}
    given["RLM_PASS_ENV"] = "nothing"
    assert set(for_workers(given)) == {*expected, "PATH", "HOME", "LC_ALL"}


def test_packages_of_versions_that_adapters_were_not_tested_with_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"inspect-ai": "0.3.285", "openenv": "0.8.0", "smolagents": "2.0.0rc1"}

    def version(name: str) -> str:
        if name in versions:
            return versions[name]
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    require("inspect-ai", "0.3.285", "0.4", "inspect")
    for package, oldest, before, extra, words in (
        ("openenv", "0.9", "0.11", "openenv", "rlm_env.openenv needs openenv >=0.9,<0.11, and 0.8.0 is installed: "),
        ("smolagents", "1.24", "2", "smolagents", "needs smolagents >=1.24,<2, and 2.0.0rc1 is installed: "),
        ("dspy", "3.4", "4", "dspy", "needs dspy >=3.4,<4, which is not installed: "),
    ):
        with pytest.raises(ImportError) as error:
            require(package, oldest, before, extra)
        assert words in str(error.value) and str(error.value).endswith(f"pip install 'rlm-env[{extra}]'")


def test_extras_and_adapters_agree_on_versions() -> None:
    project = REPOSITORY / "python/pyproject.toml"
    if not project.exists():
        pytest.skip("not in a checkout")
    calls = "".join(path.read_text() for path in (REPOSITORY / "python/src/rlm_env").glob("*.py"))
    found = re.findall(r'require\("([a-z-]+)", "([\d.]+)", "([\d.]+)", "([a-z]+)"\)', calls)
    assert {extra for *_, extra in found} == {"dspy", "harbor", "inspect", "openenv", "rlms", "smolagents"}
    for package, oldest, before, extra in found:
        [wanted] = re.findall(rf"^{extra} = (.*)$", project.read_text(), re.MULTILINE)
        assert f'"{package}>={oldest},<{before}"' in wanted


def test_importing_is_quick() -> None:
    """Only that nothing large is imported: times are in the bench."""
    code = "import sys, asyncio; before = set(sys.modules); import rlm_env; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pickletools", "http.client", "urllib.request", "multiprocessing", "rlm_env.tools"} & set(loaded)
