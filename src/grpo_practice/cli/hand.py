"""`experiences diff`, `remove` and `edit`: a person's hand on a library."""

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.experiences import RunOption
from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, on_database, workspace
from grpo_practice.cli.terminal.formatting import count, print_json, say, say_next
from grpo_practice.cli.terminal.tables import facts

if TYPE_CHECKING:
    from grpo_practice.reports.edited_library import EditedLibrary

StepOption = Annotated[
    str, typer.Option(metavar="last|best|N", help="The library after that step.")
]


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN:STEP or L<id>.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The library to compare with A.")],
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show what differs between two libraries.

    Example: grpo-practice experiences diff math:0 math
    """
    report = workspace(db).diff_libraries(a, b)
    if json:
        print_json(report.document())
        return
    for word, experiences in (("removed", report.removed), ("added", report.added)):
        if experiences:
            say(word, style="bold")
            facts([(e.id, e.text) for e in experiences])
    if report.reworded:
        say("reworded", style="bold")
    for one in report.reworded:
        facts([(one.id, one.was), ("", one.now)])
    say(f"{count(report.unchanged, 'text')} unchanged")
    say_next(report.next_command)


def remove(
    experiences: Annotated[
        list[str], typer.Argument(metavar="E12", help="As `experiences list` names them.")
    ],
    run: RunOption = None,
    step: StepOption = "last",
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Make a library without some experiences.

    The run goes on with its own library: this one is beside it.

    Example: grpo-practice experiences remove E3 E7 --run math
    """
    show_edited(workspace(db).edit_library(run, step, remove=experiences), json=json)


def edit(
    experience: Annotated[
        str, typer.Argument(metavar="E12", help="As `experiences list` names it.")
    ],
    text: Annotated[str, typer.Option(help="The text it has then: 'Short name: one sentence.'")],
    run: RunOption = None,
    step: StepOption = "last",
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Make a library in which an experience says something else.

    The run goes on with its own library: this one is beside it.

    Example: grpo-practice experiences edit E3 --text 'Units: name them first.' --run math
    """
    show_edited(workspace(db).edit_library(run, step, rewrite={experience: text}), json=json)


def show_edited(report: "EditedLibrary", *, json: bool) -> None:
    """Print the library that was made, and what can be done with it."""
    if json:
        print_json(report.document())
        return
    made, run = f"L{report.library.id}", quote(report.run)
    say(f"{made}: {count(len(report.library), 'experience')}; {report.run} keeps its own library")
    afresh = quote(f"{report.run}-{made}")
    commands = {
        "compare": f"{PROGRAM} experiences diff {run} {made}",
        "export": f"{PROGRAM} export-agent --run {made} -o {made}.yaml",
        "practise from it": f"{PROGRAM} practice --from {made} --exp-id {afresh}",
    }
    for label, command in commands.items():
        say(f"  {label}: {on_database(command)}")
    say_next(report.next_command)
