"""An MCP server as its authors would write one, for tests: over stdio."""

import os
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("teller", version="1.2.3", log_level="CRITICAL")
total = met = 0
everybody = anyio.Event()


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool(name="count.up")
def count_up(n: int) -> str:
    """Adds to what this server has been told before."""
    global total
    total += n
    if log := os.environ.get("COUNTED"):
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()} {n}\n")
    return str(total)


@server.tool()
def environment() -> str:
    """Its variables."""
    return ",".join(sorted(os.environ))


@server.tool()
async def together(n: int) -> str:
    """Waits until so many calls are under way."""
    global met
    met += 1
    if met == n:
        everybody.set()
    await everybody.wait()
    return "done"


@server.tool()
def fail() -> str:
    """Cannot."""
    raise ToolError("no such row")


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """Text and an image."""
    return ["look:", Image(data=b"x" * 12_000, format="png")]


@server.tool()
def table() -> dict[str, int]:
    """Structured."""
    return {"rows": 3}


if __name__ == "__main__":
    server.run("stdio")
