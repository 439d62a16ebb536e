"""The limit of files that this process may have open: each connection is one."""

import resource

from grpo_practice.errors import ConfigError

OTHERS = 256
"""Files besides connections to endpoints: the database, workers, what is read and written."""


class Descriptors:
    """The system's soft limit, raised to what the connections taken here need."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, connections: int) -> None:
        """Allow so many more connections to be open.

        Raises:
            ConfigError: The system does not let this process have that many.
        """
        need = self._taken + connections + OTHERS
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if connections and soft != resource.RLIM_INFINITY and soft < need:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
            except (OSError, ValueError) as e:  # beyond the hard limit, or the kernel's own
                raise ConfigError(
                    f"{connections} requests at once need {need} open files, and this system lets"
                    f" a process have {soft if hard == resource.RLIM_INFINITY else hard}",
                    hint="lower `concurrency`, or raise the limit of open files (`ulimit -Hn`)",
                ) from e
        self._taken += connections

    def give(self, connections: int) -> None:
        """Take back so many connections that are closed for good."""
        self._taken -= connections


descriptors = Descriptors()
"""Limit of this process."""
