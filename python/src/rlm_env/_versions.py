"""The versions of other packages that an adapter was tested with."""

from __future__ import annotations

import importlib.metadata
import re


def require(package: str, oldest: str, before: str, extra: str) -> None:
    """Raises ImportError unless the package is here, in a version from `oldest` on and below `before`."""
    wanted = f"rlm_env.{extra} needs {package} >={oldest},<{before}"
    advice = f"pip install 'rlm-env[{extra}]'"
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{wanted}, which is not installed: {advice}") from None
    if not _numbers(oldest) <= _numbers(version) < _numbers(before):
        raise ImportError(f"{wanted}, and {version} is installed: {advice}")


def _numbers(version: str) -> list[int]:
    """The release of a version, without what marks a preview of it."""
    return [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]
