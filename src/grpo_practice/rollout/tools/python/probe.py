"""Trial of a CPython backend before it is used: it runs a first piece of code."""

import asyncio
import json

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.python.backend import Run, refused

LIMIT_S = 30.0
"""Time limit of the trial in seconds."""
_PACKAGES = ("numpy", "sympy", "scipy", "pandas", "networkx")
_CODE = """
import importlib.util, json, platform, socket
def reached():
    tries = [(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PORT))]
    tries += [(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))]
    tries += [(socket.AF_INET6, socket.SOCK_DGRAM, ("2001:db8::1", 9))]
    for family, kind, address in tries:
        try:
            with socket.socket(family, kind) as s:
                s.settimeout(3)
                s.connect(address)
                return address[0]
        except OSError:
            pass
found = [name for name in PACKAGES if importlib.util.find_spec(name)]
print(json.dumps([6 * 7, platform.python_version(), found, reached()]))
"""
"""Code that the trial runs. `connect` on a datagram socket sends nothing and only checks for a
route.
"""


async def try_backend(name: str, run: Run, *, closed: bool) -> tuple[str, str]:
    """Return the backend's Python version and the packages that code can import.

    With `closed`, the code must be able to reach neither a listening port on this machine nor a
    route to any address.

    Raises:
        ConfigError: The code did not run, or it reached a network.
    """
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        code = _CODE.replace("PORT", str(port)).replace("PACKAGES", repr(_PACKAGES))
        try:
            said = await run(code, LIMIT_S)
        except ToolError as e:
            raise refused(name, str(e)) from e
    try:
        answer, version, found, reached = json.loads(said)
    except (ValueError, TypeError) as e:
        raise refused(name, f"a trial run printed: {said[-500:] or 'nothing'}") from e
    if answer != 42:
        raise refused(name, f"a trial run computed 6 * 7 as {answer}")
    if closed and reached:
        raise refused(name, f"its code can reach the network ({reached})")
    minor = ".".join(str(version).split(".")[:2])
    packages = f"with {', '.join(found)}" if found else "without further packages"
    return str(version), f"Python {minor} {packages}"
