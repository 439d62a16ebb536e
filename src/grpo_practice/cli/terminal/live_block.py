"""A block at the end of the terminal that is drawn again and again."""

import os
import sys
from collections.abc import Mapping

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from typing_extensions import override

from grpo_practice.cli.terminal.consoles import is_coloured_file
from grpo_practice.cli.terminal.progress_block import Block


class LiveBlock(Live):
    """Draws the block four times a second; where that fails, it is drawn no more."""

    def __init__(self, block: Block, console: Console) -> None:
        super().__init__(
            get_renderable=lambda: block,
            console=console,
            refresh_per_second=4,
            transient=True,
            # What code of the user's prints would tear the block, on the same terminal. In a pipe
            # or a file it stays where it is.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._block = block
        self._works = True

    @override
    def start(self, refresh: bool = False) -> None:
        """Begin to draw."""
        try:
            super().start(refresh)
            # Whatever ends the process, SIGKILL too, leaves a shell whose cursor can be seen.
            self.console.show_cursor(True)
        except OSError:
            self._works = False

    @override
    def refresh(self) -> None:
        """Draw the block as it is now."""
        try:
            if self._works:
                super().refresh()
        except Exception:  # noqa: BLE001 - in a thread of its own, where nobody would catch it
            self._works = False

    @override
    def stop(self) -> None:
        """Remove the block."""
        try:
            super().stop()
        except OSError:  # a terminal that is gone has nothing to erase
            self._works = False

    @override
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Put the renderables where the block is, and the block below them."""
        drawn = super().process_renderables(renderables)
        extra = self._block.reflowed(self.console.width) if reflows(os.environ) else 0
        if not extra:
            return drawn
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * extra
        return [Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up), *drawn]


def is_live(console: Console) -> bool:
    """Return True for a terminal that a block can be drawn on again and again."""
    return console.is_interactive and not is_coloured_file(console)


def reflows(environ: Mapping[str, str]) -> bool:
    """Return True for a terminal that breaks long lines anew when it becomes narrower."""
    if environ.get("TMUX"):
        return True
    # xterm, GNU screen and the console cut them off: rows above the block would be erased there.
    is_cutting = environ.get("XTERM_VERSION") or environ.get("STY")
    return not is_cutting and environ.get("TERM", "") not in ("linux", "vt100", "vt220")
