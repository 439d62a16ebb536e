"""A connection to a Ray cluster, existing or local; a process can have only one connection."""

import asyncio
import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from weakref import WeakKeyDictionary

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import LOOPBACK
from grpo_practice.core.user_code import in_thread, start_thread
from grpo_practice.rollout.agents.program_context import PASSED

LOCAL = "local"
CONNECT_S = 45.0
"""Maximum seconds to wait for a cluster; Ray itself would try for 200 s and then end the
process.
"""
_PORT_S = 5.0
_SAID = 6
"""Number of lines kept from a Ray error; a version mismatch needs this many lines to name all four
versions.
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A live node."""

    id: str
    address: str
    capacity: int
    """Number of programs that the node can run simultaneously."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A cluster, and the resources that each program uses on it."""

    address: str
    """`host:port`; `local` starts a cluster on this machine and ends it afterwards."""
    num_cpus: float = 1.0
    """CPU cores reserved for each program."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources reserved for each program."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Environment that Ray creates on a node before it runs programs."""


class RayCluster:
    """The connection of this process, shared by all its agents, whose settings must be equal."""

    def __init__(self) -> None:
        self._settings: ClusterSettings | None = None
        self._users = 0
        self._changing = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
        """Lock per event loop, because a lock can serve only one loop."""
        self._over, self._ended = Event(), Event()
        self._ended.set()

    async def enter(self, settings: ClusterSettings, local_cores: int) -> None:
        """Connect, unless already connected; raise ConfigError if connecting is impossible."""
        async with self._lock():
            if self._users and settings != self._settings:
                raise ConfigError("agent.ray: all agents of a process must share one cluster")
            if not self._users:
                await self._connect(settings, local_cores)
                self._settings = settings
            self._users += 1

    async def leave(self) -> None:
        """Close the connection, unless other agents still use it."""
        async with self._lock():
            self._users -= 1
            if not self._users:
                self._over.set()
                await in_thread(partial(self._ended.wait, CONNECT_S))

    def _lock(self) -> asyncio.Lock:
        return self._changing.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def _connect(self, settings: ClusterSettings, local_cores: int) -> None:
        if importlib.util.find_spec("ray") is None:
            hint = "pip install 'grpo-practice[ray]': 18 packages, 260 MB"
            raise ConfigError("agent.executor is ray, which is not installed", hint=hint)
        if settings.address != LOCAL:
            # Fail fast: Ray itself tries for minutes if nothing listens.
            await _check_port(settings.address)
        # An abandoned attempt may still be connecting, and Ray supports one connection per
        # process.
        await in_thread(partial(self._ended.wait, CONNECT_S))
        self._over, self._ended, connected = Event(), Event(), Future[None]()
        events = self._over, self._ended
        start_thread(partial(_hold, settings, local_cores, connected, *events))
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.shield(asyncio.wrap_future(connected))
        except asyncio.CancelledError:
            self._over.set()  # ends the connection as soon as it is established
            raise
        except (Exception, SystemExit) as e:
            self._over.set()
            raise ConfigError(
                f"agent.ray, address {settings.address}: {_first_lines(e)}",
                hint="this machine needs the cluster's versions of Ray and Python;"
                " `ray status` on its head node shows whether it is running",
            ) from e


def _hold(
    settings: ClusterSettings,
    local_cores: int,
    connected: "Future[None]",
    over: Event,
    ended: Event,
) -> None:
    """Connect and keep the thread alive: Ray's processes end with the thread that started them."""
    try:
        try:
            _initialise(settings, local_cores)
        except BaseException as e:  # noqa: BLE001 - Ray gives up by SystemExit
            connected.set_exception(e)
            return
        connected.set_result(None)
        over.wait()
        import ray

        ray.shutdown()
    finally:
        ended.set()


async def _check_port(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_PORT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
    except OSError as e:  # a TimeoutError is an OSError as well
        raise ConfigError(
            f"agent.ray.address {address}: no server listens there: {e.strerror or 'no answer'}",
            hint="`ray start --head` prints the address of a cluster; `local` starts one here",
        ) from e


def _initialise(settings: ClusterSettings, local_cores: int) -> None:
    """Connect; start a local cluster without the keys in our environment."""
    modules = [*settings.runtime_env.get("py_modules", ()), str(Path(__file__).parents[2])]
    options: dict[str, Any] = {
        "runtime_env": {**settings.runtime_env, "py_modules": modules},
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    if settings.address != LOCAL:
        import ray

        ray.init(settings.address, **options)
        _keep_quiet()
        return
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise RuntimeError("Ray is already imported: set RAY_AUTH_MODE=token before you import it")
    login = {
        # Ray listens on the network and would run code for anyone who asks.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    redactor.know({login["RAY_AUTH_TOKEN"]})
    os.environ.update(login)
    with _nothing_but({*PASSED, *login}):
        import ray  # reads the authentication mode on import

        ray.init(
            LOCAL,
            num_cpus=local_cores,
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            **options,
        )
    _keep_quiet()


def _keep_quiet() -> None:
    """Stop Ray from printing a page to stdout for each dead process of a program.

    No option does this. The rollout's own error reports the failure.
    """
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


@contextmanager
def _nothing_but(names: set[str]) -> Iterator[None]:
    """Reduce the environment, which Ray's processes inherit, to these variables."""
    before = dict(os.environ)
    for name in before.keys() - names:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)


def nodes_for(settings: ClusterSettings) -> list[Node]:
    """Return the nodes that have room for a program; raise ConfigError if no node has any."""
    import ray

    wanted = {"CPU": settings.num_cpus, **settings.resources}
    found = list[Node]()
    for node in ray.nodes():
        has = node["Resources"]
        rooms = [int(has.get(name, 0) / much) for name, much in wanted.items() if much]
        if node["Alive"] and (room := min(rooms, default=0)):
            found.append(Node(node["NodeID"], node["NodeManagerAddress"], room))
    if not found:
        needs = ", ".join(f"{much:g} {name}" for name, much in wanted.items())
        raise ConfigError(
            f"agent.ray: no node has the resources for a program: {needs}",
            hint="agent.ray.num_cpus and agent.ray.resources determine the resources of a program",
        )
    return found


def _first_lines(error: BaseException) -> str:
    if isinstance(error, SystemExit):  # Ray's way of giving up
        return "Ray does not answer there"
    if isinstance(error, TimeoutError):
        return f"Ray does not answer there within {CONNECT_S:g} s"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:_SAID]) or type(error).__name__


ray_cluster = RayCluster()
"""Connection of this process."""
