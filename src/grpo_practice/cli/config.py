"""`config`: what a configuration comes to, before anything is paid."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpo_practice.cli.options import PROGRAM, ConfigOption, DbOption, SetOption, existing_store
from grpo_practice.cli.terminal.formatting import count, note, say
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.errors import ConfigError
from grpo_practice.text import visible

if TYPE_CHECKING:
    from grpo_practice.config import Environment, EvalConfig, Loaded, PracticeConfig

    AnyLoaded = Loaded[PracticeConfig] | Loaded[EvalConfig]

app = typer.Typer(no_args_is_help=True, help="What a configuration comes to; nothing is run.")


@app.command()
def show(config: ConfigOption = None, set_: SetOption = None, db: DbOption = None) -> None:
    """Print the configuration as it would be used.

    Keys are hidden. Without --config it is the latest run's.

    Example: grpo-practice config show --config math.yaml --set practice.epochs=2
    """
    from grpo_practice.cli.terminal.consoles import out
    from grpo_practice.config import read_environment
    from grpo_practice.config import show as as_yaml

    loaded = load(config, set_ or [], db, read_environment(os.environ))
    out.print(visible(as_yaml(loaded.config)), soft_wrap=True, end="")
    _notices(loaded)


@app.command()
def validate(config: ConfigOption = None, set_: SetOption = None, db: DbOption = None) -> None:
    """Say what of a configuration would be used.

    And what has no effect. Without --config it is the latest run's.

    Example: grpo-practice config validate --config practice.yaml
    """
    from grpo_practice.config import read_environment

    loaded = load(config, set_ or [], db, read_environment(os.environ))
    say(f"{loaded.path or 'the configuration of the latest run'} can be used", style="bold")
    facts(_used(loaded))
    for text in loaded.ignored:
        say(f"ignored: {text}")
    _notices(loaded)
    command = "practice" if hasattr(loaded.config, "practice") else "eval"
    say(f"next: {PROGRAM} {command}{f' --config {config}' if config else ''}")


def load(
    name: str | None, overrides: Sequence[str], db: Path | None, env: "Environment"
) -> "AnyLoaded":
    """The configuration, as the command it is for would load it; that of the latest run for None.

    Raises:
        ConfigError: There is none, or it cannot be used.
    """
    from grpo_practice.config import (
        find_config,
        load_eval,
        load_practice,
    )
    from grpo_practice.config.reading.compose import compose

    if name is None:
        return _latest(overrides, db, env)
    path = find_config(name, "practice")
    if compose(path).data.keys() & {"practice", "evaluation"}:
        return load_practice(path, overrides, env)
    return load_eval(path, overrides, env)


def _latest(overrides: Sequence[str], db: Path | None, env: "Environment") -> "AnyLoaded":
    from grpo_practice.config import load_eval_text, load_practice_text
    from grpo_practice.store.queries import runs

    with existing_store(db) as store:
        run = store.read(runs.latest, ["practice", "eval"])
        stored = store.read(runs.config, run.name) if run else None
    if run is None or stored is None:
        raise ConfigError("no run has a configuration yet", hint="name one with --config")
    text, folder = stored.text, Path(stored.base_dir)
    if run.kind == "practice":
        return load_practice_text(text, folder, env, overrides)
    return load_eval_text(text, folder, env, overrides)


def _used(loaded: "AnyLoaded") -> list[tuple[str, str]]:
    from grpo_practice.app.specs import teacher_context_text
    from grpo_practice.redact import redact_url

    config = loaded.config
    evaluation, provider = config.evaluation, config.student.model_provider
    where = ", ".join(redact_url(url) for url in provider.base_url)
    data = evaluation.data.dataset
    rows = [
        ("experiment", config.exp_id),
        ("agent", evaluation.agent.agent.name),
        ("model", f"{provider.model} at {where}" if where else f"{provider.model} (simulated)"),
        ("verify", evaluation.verify.name),
        (
            "evaluation",
            f"{data}, {count(evaluation.pass_k, 'rollout')} per question" if data else "none",
        ),
    ]
    if config.kind == "practice":
        practice = config.practice
        rows.append(
            (
                "practice",
                f"{config.data.practice_dataset_name}, {count(practice.epochs, 'epoch')}, batches"
                f" of {count(practice.batch_size, 'sample')}, {practice.grpo_n} rollouts each",
            )
        )
        rows.append(("teacher", teacher_context_text(config)))
    return rows


def _notices(loaded: "AnyLoaded") -> None:
    for text in loaded.notices:
        note(f"note: {text}", style="yellow")
