"""`experiences approve`, `reject`, `diff`, `remove` and `edit`: manual changes to a library."""

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.experiences import RunOption
from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    JsonOption,
    on_database,
    run_names,
    workspace,
)
from grpo_practice.cli.terminal.formatting import count, print_json, say, say_next
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.core.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.api.stored_runs import EditedLibrary
    from grpo_practice.reports.experience_reports import DecisionReport

HeldArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="H12", help="Labels, as in `experiences list`."),
]
HeldOrQuarantined = Annotated[
    list[str] | None,
    typer.Argument(metavar="H12|Q12", help="Labels, as in `experiences list`; Q12 is quarantined."),
]
HeldRunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        autocompletion=run_names,
        help="Practice run that holds them (default: the latest).",
    ),
]
StepOption = Annotated[str, typer.Option(metavar="last|best|N", help="Library after this step.")]


def approve(
    held: HeldOrQuarantined = None,
    all_: Annotated[bool, typer.Option("--all", help="All held texts.")] = False,
    run: HeldRunOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Approve held experiences for the library.

    A run with practice.approve holds the experiences that it learns. Texts approved during a step
    enter the library at the end of that step. Approving a quarantined text (Q12) creates a separate
    library that contains it, regardless of the problem found, so read the text first.

    Example: grpo-practice experiences approve H12 H15 --run math
    """
    names = _names(held, "approve", all_=all_)
    quarantined = [name for name in names or () if name[:1] in "Qq"]
    if quarantined:
        # Approving both would change two different libraries with one command.
        if quarantined != names:
            raise ConfigError(
                "held and quarantined texts cannot be approved together, because held texts"
                " enter the run's library and quarantined texts make a separate one",
                hint="approve them with two commands",
            )
        _show_edited(workspace(db).edit_library(run, approve=quarantined), json=json)
        return
    _show_decision(workspace(db).approve(names, run), json=json)


def reject(
    held: HeldArgument = None,
    all_: Annotated[bool, typer.Option("--all", help="All held texts.")] = False,
    run: HeldRunOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Reject held experiences for good.

    The same text is never held again.

    Example: grpo-practice experiences reject H12 --run math
    """
    names = _names(held, "reject", all_=all_)
    _show_decision(workspace(db).reject(names, run), json=json)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN:STEP or L<id>.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The library to compare with A.")],
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show the differences between two libraries.

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
        list[str], typer.Argument(metavar="E12", help="Labels, as in `experiences list`.")
    ],
    run: RunOption = None,
    step: StepOption = "last",
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Make a new library without some experiences.

    The run keeps its own library.

    Example: grpo-practice experiences remove E3 E7 --run math
    """
    _show_edited(workspace(db).edit_library(run, step, remove=experiences), json=json)


def edit(
    experience: Annotated[
        str, typer.Argument(metavar="E12", help="Label, as in `experiences list`.")
    ],
    text: Annotated[str, typer.Option(help="New text: 'Short name: one sentence.'")],
    run: RunOption = None,
    step: StepOption = "last",
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Make a new library with a changed text for one experience.

    The run keeps its own library.

    Example: grpo-practice experiences edit E3 --text 'Units: name them first.' --run math
    """
    _show_edited(workspace(db).edit_library(run, step, rewrite={experience: text}), json=json)


def _names(held: list[str] | None, command: str, *, all_: bool) -> list[str] | None:
    """Return the names as typed; None means all texts.

    Raises:
        ConfigError: Neither names nor `--all` were given, or both.
    """
    if bool(held) == all_:
        raise ConfigError(
            f"experiences {command} takes either labels of held texts or --all",
            hint=f"{PROGRAM} experiences list",
        )
    return held or None


def _show_decision(report: "DecisionReport", *, json: bool) -> None:
    if json:
        print_json(report.document())
        return
    for one in report.decided:
        is_now = f" as {report.experiences[one.id]}" if one.id in report.experiences else ""
        say(f"{one.id} {'approved' if report.approved else 'rejected'}{is_now}: {one.text}")
    if not report.decided:
        say(f"{report.run} has no held texts")
    elif report.waits:
        say(
            "the texts will enter the library when the open step closes; until then the step"
            " keeps its library"
        )
    elif report.approved:
        say(f"{report.run} now has L{report.library.id}")
    if report.left:
        say(f"{count(report.left, 'text')} still held for approval")
    say_next(report.next_command)


def _show_edited(report: "EditedLibrary", *, json: bool) -> None:
    """Print the new library and the commands that use it."""
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
