"""`rollouts`: show questions, conversations and scores."""

from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import print_json

if TYPE_CHECKING:
    from grpo_practice.api.workspace import RolloutOptions

app = typer.Typer(no_args_is_help=True, help="Show questions, conversations and scores.")

RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN[:STEP]", help="Run, as in `runs list`; RUN:0 is its first step."),
]
QuestionOption = Annotated[
    int | None,
    typer.Option(
        "--question", "-q", min=1, metavar="N", help="Only question N of the run's dataset."
    ),
]
FailedOption = Annotated[
    bool,
    typer.Option(
        "--failed",
        help="Only rollouts with a reward below 1, or whose call or scoring failed.",
    ),
]
FlippedOption = Annotated[
    bool,
    typer.Option(
        "--flipped",
        help="Only questions answered correctly (mean reward 0.5 or more) in one play and"
        " incorrectly in the other. The plays compared are an evaluation and its counterpart"
        " without experiences, or a practice run's first and last play of the question.",
    ),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Compare flipped questions with this run. Implies --flipped."),
]


@app.command("list")
def list_(
    run: RunArgument,
    question: QuestionOption = None,
    failed: FailedOption = False,
    flipped: FlippedOption = False,
    against: AgainstOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="N", help="Maximum number of rollouts.")
    ] = 50,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """List the rollouts of a run, one per line.

    The run may be a practice run or an evaluation. Questions have the numbers of the dataset.

    Example: grpo-practice rollouts list math/eval --failed
    """
    choice = _choice(question, failed=failed, flipped=flipped, against=against)
    report = workspace(db).rollout_list(run, limit=limit, **choice)
    if json:
        print_json(report.document())
        return
    from grpo_practice.cli.terminal.transcripts_view import show_rollout_list

    show_rollout_list(report)


@app.command()
def show(
    run: RunArgument,
    question: QuestionOption = None,
    failed: FailedOption = False,
    flipped: FlippedOption = False,
    against: AgainstOption = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, metavar="N", help="Number of questions, with all their attempts."
        ),
    ] = 3,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long texts.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show rollouts with their whole conversations.

    Each rollout has the system prompt, turns with tool calls and results, the answer, the verdict
    and the critique. The teacher's replies about the question follow; --full adds the teacher's
    prompts.

    Example: grpo-practice rollouts show math/eval --question 3
    """
    choice = _choice(question, failed=failed, flipped=flipped, against=against)
    report = workspace(db).transcripts(run, limit=limit, **choice)
    if json:
        print_json(report.document())
        return
    from grpo_practice.cli.terminal.transcripts_view import show_whole

    show_whole(report, full=full)


def _choice(
    question: int | None, *, failed: bool, flipped: bool, against: str | None
) -> "RolloutOptions":
    return {"question": question, "failed": failed, "flipped": flipped, "against": against}
