"""`config`: what a configuration comes to, before anything is paid."""

from typing import TYPE_CHECKING

import typer

from grpo_practice.cli.options import PROGRAM, ConfigOption, DbOption, SetOption, workspace
from grpo_practice.cli.terminal.formatting import count, note, say
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.text import visible

if TYPE_CHECKING:
    from grpo_practice.app.any_config import AnyConfig

app = typer.Typer(no_args_is_help=True, help="What a configuration comes to; nothing is run.")


@app.command()
def show(config: ConfigOption = None, set_: SetOption = None, db: DbOption = None) -> None:
    """Print the configuration as it would be used.

    Keys are hidden. Without --config it is the latest run's.

    Example: grpo-practice config show --config math.yaml --set practice.epochs=2
    """
    from grpo_practice.cli.terminal.consoles import out
    from grpo_practice.config import show as as_yaml

    loaded = workspace(db).load_config(config, set_ or [])
    out.print(visible(as_yaml(loaded.config)), soft_wrap=True, end="")
    _notices(loaded)


@app.command()
def validate(config: ConfigOption = None, set_: SetOption = None, db: DbOption = None) -> None:
    """Say what of a configuration would be used.

    And what has no effect. Without --config it is the latest run's.

    Example: grpo-practice config validate --config practice.yaml
    """
    loaded = workspace(db).load_config(config, set_ or [])
    say(f"{loaded.path or 'the configuration of the latest run'} can be used", style="bold")
    facts(_used(loaded))
    for text in loaded.ignored:
        say(f"ignored: {text}")
    _notices(loaded)
    command = "practice" if hasattr(loaded.config, "practice") else "eval"
    say(f"next: {PROGRAM} {command}{f' --config {config}' if config else ''}")


def _used(loaded: "AnyConfig") -> list[tuple[str, str]]:
    from grpo_practice.app.specs import teacher_context_text
    from grpo_practice.redact import redact_url

    config = loaded.config
    evaluation, provider = config.evaluation, config.student.model_provider
    where = ", ".join(redact_url(url) for url in provider.base_url)
    data = evaluation.data.dataset
    evaluated = f"{data}, {count(evaluation.pass_k, 'rollout')} per question"
    rows = [
        ("experiment", config.exp_id),
        ("agent", evaluation.agent.agent.name),
        ("model", f"{provider.model} at {where}" if where else f"{provider.model} (simulated)"),
        ("verify", evaluation.verify.name),
        ("evaluation", evaluated if data else "none"),
    ]
    if config.kind == "practice":
        plan = config.practice
        practised = (
            f"{config.data.practice_dataset_name}, {count(plan.epochs, 'epoch')}, batches of"
            f" {count(plan.batch_size, 'sample')}, {plan.grpo_n} rollouts each"
        )
        rows += [("practice", practised), ("teacher", teacher_context_text(config))]
    return rows


def _notices(loaded: "AnyConfig") -> None:
    for text in loaded.notices:
        note(f"note: {text}", style="yellow")
