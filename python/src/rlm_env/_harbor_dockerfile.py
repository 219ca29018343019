"""Dockerfiles of Harbor's tasks, as far as they can be followed without an image."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from string import Template
from typing import NamedTuple


class Instruction(NamedTuple):
    """A line of a Dockerfile, its continuation lines included."""

    name: str
    text: str

    def words(self, variables: dict[str, str]) -> list[str]:
        """Its arguments, in either form, with the values of variables."""
        text = Template(self.text).safe_substitute(variables)
        return json.loads(text) if text.startswith("[") else shlex.split(text)

    def command(self) -> str:
        """The command of a RUN."""
        return shlex.join(json.loads(self.text)) if self.text.startswith("[") else self.text


FOLLOWED = {"FROM", "WORKDIR", "ENV", "RUN", "COPY", "ADD"}
_WITHOUT_EFFECT = {"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"}


def read_dockerfile(path: Path) -> list[Instruction]:
    """Its instructions. Raises ValueError for one that needs an image, or Docker."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    instructions: list[Instruction] = []
    for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        name, _, text = line.strip().partition(" ")
        found = Instruction(name.upper(), text.strip())
        if found.name not in FOLLOWED | _WITHOUT_EFFECT:
            raise ValueError(f"{path}: the environment rlm has no images, and does not follow {found.name}")
        if found.name in ("RUN", "COPY", "ADD") and re.match(r"--|.*<<", found.text):
            raise ValueError(f"{path}: the environment rlm does not follow options and here-documents of {found.name}")
        if found.name in FOLLOWED:
            instructions.append(found)
    if sum(found.name == "FROM" for found in instructions) > 1:
        raise ValueError(f"{path}: the environment rlm has no images, and does not follow several stages")
    return instructions


def sources(directory: Path, patterns: list[str]) -> list[Path]:
    """The paths that a COPY names. Raises ValueError if there are none, or one lies elsewhere."""
    found = []
    for pattern in patterns:
        relative = pattern.lstrip("/")
        paths = [directory] if relative in ("", ".", "./") else sorted(directory.glob(relative))
        if not paths or not all(path.resolve().is_relative_to(directory.resolve()) for path in paths):
            raise ValueError(f"{directory}: there is no {pattern} to copy into the environment")
        found += paths
    return found
