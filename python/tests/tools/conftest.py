"""Sessions with tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlm_env import SessionConfig


@pytest.fixture(params=["direct", "rootd"])
def models(request: pytest.FixtureRequest) -> Any:
    """With models, calls of tools go through the endpoint: no difference can be seen."""
    return None if request.param == "direct" else lambda messages, tools, **sampling: "reply"


@pytest.fixture
def start(kind: Any, language: Any, work: Path, models: Any) -> Any:
    """A session with tools."""
    return lambda *tools: kind(SessionConfig(work, language=language), tools=tools, models=models)
