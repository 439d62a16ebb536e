"""A server whose state is a file where it runs, as that of many a published one is."""

import os
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("notebook", log_level="CRITICAL")
file = Path(os.environ.get("NOTEBOOK", "notebook.txt"))


@server.tool()
def write(line: str) -> str:
    """Writes a line below those there are."""
    with file.open("a") as notebook:
        notebook.write(f"{line}\n")
    return file.read_text()


@server.tool()
def read() -> str:
    """Reads all lines."""
    return file.read_text()


@server.tool()
def where() -> str:
    """Where it runs."""
    return str(Path.cwd())


if __name__ == "__main__":
    server.run("stdio")
