"""Builds the programs of the package by cargo, and puts them into the wheel."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = (
    "rlm",
    "rlm-root-tool",
    "rlm-worker-bash",
    "rlm-worker-python",
    "librlm_cell_engine.so",
)
CRATES = ("rlm-cli", "rlm-worker-bash", "rlm-worker-python", "rlm-cell-engine")

# The oldest glibc that the programs should run with, such as 2.28. Links by zig: needs cargo-zigbuild and ziglang.
GLIBC = "RLM_WHEEL_GLIBC"

# A directory of programs that are built already.
BUILT = "RLM_PROGRAMS"


class BuildPrograms(BuildHookInterface):
    def initialize(self, version, build_data):
        repository = Path(self.root).parent
        if version == "editable":
            self.app.abort("rlm-env has no editable install: set RLM_BIN_DIR and PYTHONPATH=python/src instead")
        if not (repository / "Cargo.lock").is_file():
            self.app.abort(f"the programs of rlm-env are built from its checkout, and {repository} is none")
        if shutil.which("cargo") is None:
            self.app.abort(
                "rlm-env is built from source here, and that needs Rust: install it from https://rustup.rs, "
                "or install a wheel of rlm-env, which needs nothing"
            )
        built = self.build(repository)
        programs = {str(built / name): f"rlm_env/_bin/{name}" for name in PROGRAMS}
        build_data["force_include"].update(programs)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{self.platform_tag([built / name for name in PROGRAMS])}"

    def build(self, repository):
        """Runs cargo, unless the programs are there already. Returns their directory."""
        if built := os.environ.get(BUILT):
            return repository / built
        glibc = os.environ.get(GLIBC)
        target = f"{platform.machine()}-unknown-linux-gnu"
        command = ["cargo", "zigbuild" if glibc else "build", "--locked", "--release"]
        command += [argument for crate in CRATES for argument in ("--package", crate)]
        if glibc:
            command += ["--target", f"{target}.{glibc}"]
        self.app.display_info(" ".join(command))
        if subprocess.run(command, cwd=repository).returncode != 0:
            self.app.abort(f"cargo could not build the programs of rlm-env: run {' '.join(command)} in {repository}")
        directory = Path(os.environ.get("CARGO_TARGET_DIR", repository / "target"))
        return repository / directory / (target if glibc else "") / "release"

    def platform_tag(self, files):
        """The tag that is true: that of the newest symbol of glibc that a program needs."""
        needed = [int(minor) for file in files for minor in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes())]
        return f"manylinux_2_{max([17, *needed])}_{platform.machine()}"
