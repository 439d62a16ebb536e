"""Which configuration a command uses: a file, the latest run's own, or flags alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.app.specs import ConfigSource, EvalRequest, EvalTarget
from grpo_practice.config import (
    Environment,
    EvalConfig,
    Loaded,
    PracticeConfig,
    find_config,
    load_eval,
    load_eval_text,
    load_practice,
    load_practice_text,
)
from grpo_practice.errors import ConfigError
from grpo_practice.store import Store, branches, steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import Branch, RunRow
from grpo_practice.store.run_names import eval_name


@dataclass(frozen=True, slots=True)
class EvalFlags:
    """What `eval` was given beside its config; each one makes a run of its own name."""

    agent: Path | None = None
    model: str | None = None
    verify: str | None = None

    @property
    def variants(self) -> list[str]:
        """The parts these flags add to the run's name."""
        named = [("model", self.model), ("verify", self.verify)]
        parts = [f"{key}={value}" for key, value in named if value]
        return ([self.agent.stem] if self.agent else []) + parts

    @property
    def overrides(self) -> list[str]:
        """The same as overrides of the config."""
        keys = [("agent.model.model_provider.model", self.model), ("verify", self.verify)]
        return [f"{key}={quoted(value)}" for key, value in keys if value]


def quoted(value: str) -> str:
    """The text as an override's value that is read as this text and nothing else."""
    return "'" + value.replace("'", "''") + "'"


def practice_config(
    store: Store, name: str | None, overrides: Sequence[str], env: Environment
) -> Loaded[PracticeConfig]:
    """The config called `name`; without one, that of the latest practice run.

    Raises:
        ConfigError: There is none, or it cannot be used.
    """
    if name is not None:
        return load_practice(find_config(name, "practice"), overrides, env)
    latest = store.read(runs.latest, ["practice"])
    stored = store.read(runs.config, latest.name) if latest else None
    if stored is None:
        raise ConfigError(
            "there is no run to go on with: say what to practise with --config",
            hint="grpo-practice init writes a config to start from",
        )
    return load_practice_text(stored.text, Path(stored.base_dir), env, overrides)


def eval_target(
    store: Store,
    name: str | None,
    flags: EvalFlags,
    overrides: Sequence[str],
    env: Environment,
) -> EvalRequest:
    """The evaluation that a config file, the latest run, or flags alone describe.

    The latest run counts when no file and no dataset is named; that it does is among the notices.

    Raises:
        ConfigError: There is none, or it cannot be used.
    """
    overrides = [*flags.overrides, *overrides]
    if name is not None:
        loaded = load_eval(find_config(name, "eval"), overrides, env, agent=flags.agent)
        return _chosen(loaded, EvalTarget(eval_name(loaded.config.exp_id, *flags.variants)))
    alone = any(o.removeprefix("evaluation.").startswith("data.dataset=") for o in overrides)
    latest = None if alone else store.read(runs.latest, ["practice", "eval"])
    stored = store.read(runs.config, latest.name) if latest else None
    if latest is None or stored is None:
        loaded = load_eval(None, overrides, env, agent=flags.agent)
        return _chosen(loaded, EvalTarget(eval_name(loaded.config.exp_id, *flags.variants)))
    loaded = load_eval_text(stored.text, Path(stored.base_dir), env, overrides, agent=flags.agent)
    target = eval_name(loaded.config.exp_id, *flags.variants)
    if latest.kind == "eval" and latest.exp_id == loaded.config.exp_id:
        more = [v for v in flags.variants if f"/{v}/" not in f"{latest.name}/"]
        target = "/".join([latest.name, *more])
    agent, dataset = loaded.config.agent.agent.name, loaded.config.data.dataset
    how = "gone on with" if target == latest.name else f"configured as {latest.name}"
    said = f"{target}: {how} (agent {agent}, dataset {dataset})"
    return _chosen(loaded, EvalTarget(target), said)


def rejudge_target(
    store: Store,
    name: str | None,
    run: str | None,
    flags: EvalFlags,
    overrides: Sequence[str],
    env: Environment,
) -> EvalRequest:
    """The evaluation that scores a run's rollouts with another verify function.

    The run is the one named, else the one of the config called `name`, else the latest evaluation.

    Raises:
        ConfigError: It is not said which function, or there is no such run, or it is not complete.
    """
    if flags.verify is None or flags.agent is not None or flags.model is not None:
        raise ConfigError(
            "--rejudge scores rollouts that are there: give it --verify, and no agent or model",
            hint="grpo-practice eval --rejudge --verify contains --run EXP/eval",
        )
    if run is None and name is not None:
        run = eval_name(load_eval(find_config(name, "eval"), overrides, env).config.exp_id)
    found = store.read(runs.get, run) if run else store.read(runs.latest, ["eval"])
    stored = store.read(runs.config, found.name) if found else None
    if found is None or stored is None or found.head_branch is None:
        raise ConfigError("there is no evaluation to score again", hint="grpo-practice runs list")
    if found.kind == "recorded":
        raise ConfigError(
            f"{found.name} is a recorded run: it has no rollouts to score",
            hint=f"grpo-practice data upload --from-run {found.name} --name NAME",
        )
    branch = store.read(branches.load, found.head_branch)
    _complete(store, found, branch)
    text, folder = stored.text, Path(stored.base_dir)
    loaded = load_eval_text(text, folder, env, [*flags.overrides, *overrides])
    target = EvalTarget(
        f"{found.name}/rejudge={flags.verify}",
        library=branch.library,
        role="rejudge",
        parent_run=found.name,
    )
    return EvalRequest(
        loaded.config, ConfigSource(loaded.text, loaded.base_dir), target, branch, loaded.notices
    )


def _complete(store: Store, run: RunRow, branch: Branch) -> None:
    rows = store.read(steps.on_line, branch)
    if any(row.left_out for row in rows):
        raise ConfigError(
            f"{run.name} has left out groups whose question taught nothing before, so that a score"
            " over its rollouts is mostly one of the other questions",
            hint="score evaluations of its libraries again: practice.do_eval, or eval --agent",
        )
    if any(row.going_on is not None for row in rows):
        raise ConfigError(
            f"{run.name} has adaptive groups: a group that stops once its rewards differ draws a"
            " score over its rollouts to the middle",
            hint=f"score what it learnt: grpo-practice export-agent --run {run.name} > agent.yaml,"
            " then grpo-practice eval --agent agent.yaml",
        )
    missing = store.read(scores.missing, branch)
    if missing:
        planned = sum(row.plan.rollouts for row in rows)
        raise ConfigError(
            f"{missing} of the {planned} rollouts of {run.name} are missing; only a complete "
            "evaluation is scored again",
            hint=f"finish it first: {store.read(runs.last_command, run.name)}",
        )


def _chosen(loaded: Loaded[EvalConfig], target: EvalTarget, *said: str) -> EvalRequest:
    source, notices = ConfigSource(loaded.text, loaded.base_dir), [*said, *loaded.notices]
    return EvalRequest(loaded.config, source, target, notices=notices, ignored=loaded.ignored)
