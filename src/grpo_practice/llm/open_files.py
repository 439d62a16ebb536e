"""The limit of files that this process may have open: each connection is one."""

import resource

from grpo_practice.errors import ConfigError

OTHERS = 256
"""Files besides connections to endpoints: the database, workers, what is read and written."""
FEWEST_OTHERS = 96
"""Files kept for all that where the system lets a process have few; less than half of those."""


class Descriptors:
    """The system's soft limit, raised to what the connections taken here need."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, connections: int) -> int:
        """Allow so many more connections to be open, or as many as the system lets.

        Returns:
            The number allowed: where files are few, at most half of those left, so that
            other endpoints get some.

        Raises:
            ConfigError: There is room for none.
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
                    f"no request has room for its connection: this system lets a process have"
                    f" {limit} open files, and {self._taken} are for other connections",
                    hint="raise the limit of open files (`ulimit -n`, its most is `ulimit -Hn`)",
                )
        self._taken += allowed
        return allowed

    def give(self, connections: int) -> None:
        """Take back so many connections that are closed for good."""
        self._taken -= connections


def _raised(need: int) -> int:
    """Return the limit, raised to `need` or as far as the system lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return need
    most = need if hard == resource.RLIM_INFINITY else min(need, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # the kernel's own limit
        return soft
    return most


descriptors = Descriptors()
"""Limit of this process."""


def fewer_notice(where: str, allowed: int, wanted: int) -> str:
    """Return the sentence that says that fewer requests go there at once than were wanted."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{allowed} requests at once to {where} instead of {wanted}: this system lets a process"
        f" have {limit} open files (`ulimit -Hn`)"
    )
