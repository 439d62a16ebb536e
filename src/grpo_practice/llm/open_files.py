"""Limit on the open files of this process; each connection counts as an open file."""

import resource

from grpo_practice.core.errors import ConfigError

OTHERS = 256
"""Number of files reserved for other purposes than endpoints: the database, workers, input,
output.
"""
FEWEST_OTHERS = 96
"""The same reserve if the system permits few files; it never exceeds half of them."""


class Descriptors:
    """The system's soft limit, raised as far as the registered connections need."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, connections: int) -> int:
        """Register more connections, as many as the system permits.

        Returns:
            The number permitted. If files are scarce, it is at most half of the remaining ones, so
            that other endpoints get some.

        Raises:
            ConfigError: No further connection is permitted.
        """
        if not connections:
            return 0
        need, allowed = self._taken + connections + OTHERS, connections
        limit = _raised(need)
        if limit < need:
            left = limit - min(FEWEST_OTHERS, limit // 2) - self._taken
            allowed = min(connections, (left + 1) // 2)
            if allowed < 1:
                raise ConfigError(
                    f"no file is left for a connection: this system allows a process {limit} open"
                    f" files, and {self._taken} are reserved for other connections",
                    hint="raise the limit of open files (`ulimit -n`, at most `ulimit -Hn`)",
                )
        self._taken += allowed
        return allowed

    def give(self, connections: int) -> None:
        """Release connections that are permanently closed."""
        self._taken -= connections


def _raised(need: int) -> int:
    """Raise the limit to `need`, or as far as the system permits, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return need
    most = need if hard == resource.RLIM_INFINITY else min(need, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # the kernel's own limit is lower
        return soft
    return most


descriptors = Descriptors()
"""Limit of this process."""


def fewer_notice(where: str, allowed: int, wanted: int) -> str:
    """Return a notice that fewer concurrent requests are sent there than configured."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{allowed} concurrent requests to {where} instead of {wanted}: this system allows a"
        f" process {limit} open files (`ulimit -Hn`)"
    )
