"""Scripts in the place of the programs."""

from __future__ import annotations

from pathlib import Path

import pytest


def stand_ins(directory: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Puts scripts in the place of the programs."""
    directory.mkdir()
    for name in ("rlm", "rlm-worker-bash", "rlm-root-tool"):
        (directory / name).write_text(f"#!/bin/sh\n{code}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("RLM_BIN_DIR", str(directory))
