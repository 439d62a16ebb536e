"""Transports to a server: a program that is started, or an HTTP address."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation

from grpo_practice import __version__
from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.reaper import Reaper
from grpo_practice.core.redact import redactor, url_secrets, variable_secrets
from grpo_practice.llm.size_limit import ENCODINGS, MEBIBYTE
from grpo_practice.rollout.tools.mcp.limited_body import MOST, limit_body
from grpo_practice.rollout.tools.mcp.program import open_program

CONNECT_S = 30.0
_TAIL = 2_000
"""Maximum number of bytes kept from the end of the server's stderr."""
INHERITED = ("PATH", "HOME")
WORKDIR = "{workdir}"
"""Placeholder for the rollout's own folder in arguments and variables."""
# It compares the parent after `prctl`: if the parent had ended before, no signal would come.
LAUNCHER = """
import ctypes, os, signal, sys
parent, names, *command = sys.argv[1:]
try:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: end with whoever started this
except AttributeError:
    pass  # not Linux
if os.getppid() != int(parent):
    sys.exit(1)
for name in set(os.environ) - set(names.split(",")):
    del os.environ[name]
os.execvp(command[0], command)
"""
"""Program that runs the server with only the named variables and ends when its parent ends."""


@dataclass(slots=True)
class Notes:
    """Observations about a server, other than its answers, for error messages."""

    tail: bytes = b""
    """Last bytes that the server wrote to stderr."""
    ended: bool = False
    """True once stderr is closed: the server has very likely ended."""
    garbage: int = 0
    """Number of invalid messages received."""
    oversize: bool = False
    """stdio: whether the server was killed for sending an overlong message."""
    status: int = 0
    """HTTP: status of the last error response."""
    session: bool = False
    """HTTP: whether the server has created a session."""

    @property
    def explanation(self) -> str:
        """All observations that may explain a failure; '' if there are none."""
        said = []
        if self.status:
            said.append(f"HTTP {self.status}")
        if self.oversize:
            said.append(f"it sent a message larger than {MOST / MEBIBYTE:g} MiB and was stopped")
        if self.garbage:
            said.append(f"it wrote lines to stdout that are not messages ({self.garbage})")
        if tail := redactor.text(self.tail.decode(errors="replace").strip()):
            said.append(f"its stderr ends: {tail}")
        return "; ".join(said)

    async def record(self, message: object) -> None:
        """Count an invalid message; ignore other messages outside of calls."""
        await asyncio.sleep(0)
        if isinstance(message, Exception):
            self.garbage += 1

    def see_oversize(self) -> None:
        """Record an overlong message."""
        self.oversize = True

    async def see_response(self, response: httpx2.Response) -> None:
        """Record the status of an HTTP response, and whether it creates a session."""
        await asyncio.sleep(0)
        # 405 is not an error: the event stream that the client requests is optional.
        if response.status_code >= 400 and response.status_code != 405:
            self.status = response.status_code
        self.session = self.session or "mcp-session-id" in response.headers

    @contextmanager
    def stderr(self) -> Iterator[TextIO]:
        """Yield a file of unlimited size that receives a program's stderr while the block runs."""
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        # The event loop drains the pipe, because a program blocks on write once its pipe is full.
        os.set_blocking(read, False)

        def ready() -> None:
            data = os.read(read, 1 << 16)
            self.tail = (self.tail + data)[-_TAIL:]
            if not data:
                self.ended = True
                # A closed pipe is always readable, so the event loop would call this forever.
                loop.remove_reader(read)

        loop.add_reader(read, ready)
        try:
            with os.fdopen(write, "w") as file:
                yield file
        finally:
            loop.remove_reader(read)
            os.close(read)


Reach = Callable[[Notes], AbstractAsyncContextManager[Client]]
"""Opens a client of the server for the duration of a block."""


def reaching(toolkit: McpToolkit, folder: Path, reaper: Reaper) -> Reach:
    """Return the transport to the server; raise ConfigError if its program or folder is missing.

    The reaper ends programs and removes folders if this process is killed.
    """
    config = toolkit.config
    for name, value in config.env.items():
        redactor.know(variable_secrets(name, value.get_secret_value()))
    redactor.know(value.get_secret_value() for value in config.headers.values())
    redactor.know(url_secrets(config.url or ""))
    if toolkit.mcp_transport == "stdio":
        return _by_program(toolkit, folder, reaper)
    return _by_address(toolkit)


def _by_program(toolkit: McpToolkit, folder: Path, reaper: Reaper) -> Reach:
    config, key = toolkit.config, f"toolkits.{toolkit.name}.config"
    cwd = (folder / (config.cwd or "")).resolve()
    if not cwd.is_dir():
        raise ConfigError(f"{key}.cwd: there is no folder {cwd}")
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env |= {name: value.get_secret_value() for name, value in config.env.items()}
    assert config.command is not None, "the config has been checked"
    program = str(cwd / config.command) if "/" in config.command else config.command
    found = shutil.which(program, path=env.get("PATH"))
    if found is None:
        raise ConfigError(
            f"{key}.command: cannot find the program {config.command!r}",
            hint="install it, or give its path",
        )
    # Isolated: the user's sitecustomize must not run with the server's keys.
    launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), ",".join(env)]

    own = config.workdir == "rollout"
    # In a folder of its own, the program would not find the files that the config names.
    files = [str(cwd / arg) if own and (cwd / arg).is_file() else arg for arg in config.args]

    @asynccontextmanager
    async def reach(notes: Notes) -> AsyncIterator[Client]:
        async with _folder_of_its_own(reaper) if own else nullcontext(cwd) as where:
            named = str(where) if own else WORKDIR
            with notes.stderr() as errors:
                program = open_program(
                    [*launch, found, *(arg.replace(WORKDIR, named) for arg in files)],
                    {name: value.replace(WORKDIR, named) for name, value in env.items()},
                    where,
                    errors,
                    reaper,
                    on_oversize=notes.see_oversize,
                )
                async with _client(program, notes, toolkit) as client:
                    errors.close()  # the program holds the only other end
                    yield client

    return reach


@asynccontextmanager
async def _folder_of_its_own(reaper: Reaper) -> AsyncIterator[Path]:
    """Yield an empty folder; remove it with its contents after the block."""
    folder = Path(tempfile.gettempdir(), f"grpo-practice-{token_hex(8)}")
    reaper.add(folder)  # first: a kill after mkdir would leave the folder
    try:
        await asyncio.to_thread(folder.mkdir, 0o700)
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        reaper.discard(folder)


def _by_address(toolkit: McpToolkit) -> Reach:
    config, timeout_s = toolkit.config, toolkit.mcp_client_session_timeout_seconds
    assert config.url is not None, "the config has been checked"
    url = config.url
    headers = {name: value.get_secret_value() for name, value in config.headers.items()}

    @asynccontextmanager
    async def reach(notes: Notes) -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(
            headers={"accept-encoding": ENCODINGS} | headers,
            timeout=httpx2.Timeout(CONNECT_S, read=timeout_s + CONNECT_S),
            # No limit: waiting for a connection would count against the call's time.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            event_hooks={"response": [notes.see_response, limit_body]},
        ) as http:
            transport = streamable_http_client(url, http_client=http)
            async with _client(transport, notes, toolkit) as client:
                if toolkit.stateful and not notes.session:
                    raise ConfigError(
                        f"toolkits.{toolkit.name} is stateful, and the server at"
                        f" {redactor.text(url)} creates no sessions",
                        hint="remove stateful if calls do not depend on each other",
                    )
                yield client

    return reach


def _client(transport: Any, notes: Notes, toolkit: McpToolkit) -> Client:
    # Only the older protocol has sessions, and a server may support both.
    by_session = toolkit.stateful and toolkit.mcp_transport == "streamable_http"
    return Client(
        transport,
        mode="legacy" if by_session else "auto",
        read_timeout_seconds=toolkit.mcp_client_session_timeout_seconds,
        message_handler=notes.record,
        client_info=Implementation(name="grpo-practice", version=__version__),
    )
