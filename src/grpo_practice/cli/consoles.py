"""stdout and stderr. Imported where something is printed: `--help` would wait for rich."""

import errno

from rich.console import Console
from typing_extensions import override


class _Console(Console):
    """Prints text as it is: no markup, no highlighting."""

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    @override
    def on_broken_pipe(self) -> None:
        """Say so, as any other file does; rich would end the process, also amid a run."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")


out = _Console(stderr=False)
"""stdout: what the command was asked for."""
err = _Console(stderr=True)
"""stderr: progress, notices, errors."""
