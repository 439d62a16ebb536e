"""Pages in a browser: the part of `Workspace` that shows a database while it is looked at."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from grpo_practice.app.database_file import DatabaseFile
from grpo_practice.events import Emit, Notice, silent, tee

if TYPE_CHECKING:
    from grpo_practice.see.server import Viewed as Viewed

VIEW_PORT = 8390
"""Port to show pages at where none is given."""


class ViewedRuns(DatabaseFile):
    """Runs that are looked at in a browser; a base of `Workspace`."""

    def view(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Show the runs in a browser as `view_async` does, until Ctrl-C."""
        work = self.view_async(
            port=port, open_browser=open_browser, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def view_async(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Show the runs as pages on this machine, until the task is cancelled.

        Nothing is written to the database, and runs may go on meanwhile.

        Args:
            port: 0 takes any free one.
            open_browser: Whether to start the system's browser with the first address.
            on_ready: Called once pages are shown; the address that it is given is a secret.
            on_event: Told what a person should know.

        Raises:
            ConfigError: There is no such database, or the port cannot be used.
            StoreError: The database cannot be read, or has another schema.
        """
        from grpo_practice.see.server import serve_pages

        self._check_usable(made=True)
        emit = tee(on_event)
        await serve_pages(
            self.path,
            port,
            on_ready=on_ready,
            open_browser=open_browser,
            notice=lambda text: emit(Notice(text)),
        )
