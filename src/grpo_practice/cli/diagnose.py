"""`runs diagnose`: what stands in the way of a run?"""

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import print_json


def diagnose(run: RunArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """Say what stands in the way of a run.

    Nothing is asked: it is all in what is stored.

    Example: grpo-practice runs diagnose math
    """
    report = workspace(db).diagnose(run)
    if json:
        print_json(report.document())
    else:
        from grpo_practice.cli.terminal.run_diagnosis_view import show_diagnosis

        show_diagnosis(report)
