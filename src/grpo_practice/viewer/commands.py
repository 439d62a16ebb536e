"""`view`: show the runs of a database in a browser on this machine."""

import gc
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import note, print_json, say, warn

if TYPE_CHECKING:
    from grpo_practice.viewer.server import Viewed

PORT = 8390


def view(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="Port; 0 picks a free one.")
    ] = PORT,
    open_: Annotated[bool, typer.Option("--open", help="Also open the browser.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """View runs in a browser, down to every message, even while they are running; until Ctrl-C.

    Pages are served only on this machine, and only at the printed secret address. The database is
    not changed. With --json, the document is printed when the pages are ready.

    Example: grpo-practice view --open
    """

    def ready(now: "Viewed") -> None:
        if json:
            print_json(now.document())
            return
        say(now.url)
        note(f"serving {now.database} at the address above until Ctrl-C")
        note("keep the address secret: anyone who has it can read everything stored")

    # A page creates and drops tens of thousands of objects: with the default threshold, garbage
    # collection makes it a third slower.
    gc.set_threshold(50_000)
    workspace(db).view(port=port, open_browser=open_, on_ready=ready, on_event=warn)
    note("stopped")
