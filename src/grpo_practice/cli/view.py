"""`view`: the runs of a database as pages in a browser, on this machine alone."""

import gc
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import note, print_json, say, warn

if TYPE_CHECKING:
    from grpo_practice.api.workspace import Viewed

PORT = 8390


def view(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="Where; 0 takes any free one.")
    ] = PORT,
    open_: Annotated[bool, typer.Option("--open", help="Start the browser, too.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Look at runs in a browser, down to what was said, also while they go on; until Ctrl-C.

    Only this machine and only who has the printed address gets pages, and nothing is written to
    the database. With --json the document is printed as soon as pages are shown.

    Example: grpo-practice view --open
    """

    def ready(now: "Viewed") -> None:
        if json:
            print_json(now.document())
            return
        say(now.url)
        note(f"pages of {now.database} at the address above, until Ctrl-C")
        note("whoever has it can read all that is stored: it is a secret")

    # A page makes tens of thousands of values and drops them at once: looked through as often as
    # by default, they take a third more time.
    gc.set_threshold(50_000)
    workspace(db).view(port=port, open_browser=open_, on_ready=ready, on_event=warn)
    note("stopped")
