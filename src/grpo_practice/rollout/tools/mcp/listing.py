"""The tools that a server lists, renamed so that every endpoint accepts them."""

import re
from collections.abc import Sequence

from mcp import Client
from mcp.types import Tool as ServerTool

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import canon, clean, clean_json, text_sha

MOST_PAGES, MOST_TOOLS = 100, 1_000
SCHEMA_BYTES = 64 * 1024
"""Maximum size in bytes of a tool's schema and description, which are sent with every request."""
_NAME_LENGTH = 64


async def every_tool(client: Client) -> list[ServerTool]:
    """Return all pages of the server's tool list; raise ValueError if the list does not end."""
    found, cursor = list[ServerTool](), None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
        if len(found) > MOST_TOOLS:
            break
    raise ValueError(f"its list of tools does not end: it has sent {len(found)} so far")


def usable(toolkit: McpToolkit, tools: Sequence[ServerTool]) -> dict[str, ServerTool]:
    """Return the usable tools by the names that models use; an excluded tool need not be usable.

    Raises:
        ConfigError: The server lists no tools, or an included tool cannot be used.
    """
    key = f"toolkits.{toolkit.name}"
    if not tools:
        raise ConfigError(f"{key}: the MCP server has no tools")
    wanted, hint = toolkit.activated_tools, "leave it out with activated_tools"
    found = dict[str, ServerTool]()
    for tool in tools:
        name = fitting(tool.name)
        chosen = wanted is None or name in wanted
        size = len(canon(clean_json([tool.input_schema, tool.description])))
        if chosen and name in found:
            both = f"{found[name].name!r} and {tool.name!r}"
            raise ConfigError(f"{key}: {both} would both be called {name!r}", hint=hint)
        if chosen and size > SCHEMA_BYTES:
            text = f"{key}: the description of tool {name!r} takes {size:,} bytes in every request"
            raise ConfigError(text, hint=hint)
        if size <= SCHEMA_BYTES:
            found.setdefault(name, tool)
    return found


def fitting(name: str) -> str:
    """Return the name in a form that endpoints accept: at most 64 letters, digits, `_` and `-`."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name) or "_"
    if len(plain) <= _NAME_LENGTH:
        return plain
    # Two long names may start with the same characters.
    mark = text_sha(clean(name)).hex()[:8]
    return f"{plain[: _NAME_LENGTH - len(mark) - 1]}_{mark}"


def version_of(client: Client, name: str) -> str:
    """Return the server's own name and version, to be stored with results."""
    info = client.server_info
    return name if info is None else f"{info.name} {info.version}"[:100].strip()
