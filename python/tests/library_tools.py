"""A toolset for the tests with verifiers, which runs this file as a server."""

from __future__ import annotations

import verifiers.v1 as vf
from mcp.server.mcpserver.exceptions import ToolError


class Shelf(vf.State):
    """The part of a rollout that a task keeps."""

    lent: list[str] = []


class LibraryTools(vf.Toolset[vf.ToolsetConfig, Shelf]):
    @vf.tool
    def lend(self, title: str, days: int = 14) -> str:
        """Lends a book."""
        if title == "lost":
            raise ToolError("there is no such book")
        self.state.lent.append(f"{title} for {days} days")
        return f"{len(self.state.lent)} lent"

    @vf.tool
    def burn(self) -> None:
        """Fails in a way that was not planned."""
        raise RuntimeError("fire")


class BareTools(LibraryTools):
    """The same without the server's name before those of the tools."""

    TOOL_PREFIX = None


if __name__ == "__main__":
    LibraryTools.run()
