"""How many files this process may have open: each connection is one."""

import resource

from grpo_practice.errors import ConfigError

OTHERS = 256
"""Files that are no connections to an endpoint: the database, workers, what is read and written."""


class Descriptors:
    """Raises the system's soft limit to what the connections taken here need."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, connections: int) -> None:
        """So many more connections may be open.

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
        """So many are closed for good."""
        self._taken -= connections


descriptors = Descriptors()
"""The process's own."""
