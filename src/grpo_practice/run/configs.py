"""Find a request's configuration and run: from a file, the latest run, or the request itself."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from grpo_practice.config import (
    EvalConfig,
    Loaded,
    PracticeConfig,
    StoredText,
    find_config,
    load_eval,
    load_practice,
)
from grpo_practice.config.input import ConfigInput
from grpo_practice.config.reading.compose import Override
from grpo_practice.config.reading.discover import Command, config_here
from grpo_practice.config.reading.yaml_reader import Tree, parse_yaml
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import count
from grpo_practice.core.types import Library
from grpo_practice.run.library_file import start_ref
from grpo_practice.run.library_refs import library_of
from grpo_practice.run.own_code import PythonObjects
from grpo_practice.run.requests.runs import EvalRequest, PracticeRequest
from grpo_practice.run.specs import EvalTarget, unless_edited
from grpo_practice.run.weights import agent_name
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import EFFECT, Branch, RunRow
from grpo_practice.store.run_names import eval_name, library_variant, questions_of

C = TypeVar("C", PracticeConfig, EvalConfig)
EvalOf = tuple[Loaded[EvalConfig], EvalTarget]
"""An evaluation's configuration, and its target run."""


def config_file(config: ConfigInput, command: Command) -> Path | Tree:
    """Return the path of a configuration file, or the contents of a config that is not a file.

    Raises:
        ConfigError: The file does not exist, or the text is not valid YAML.
    """
    match config:
        # A YAML text has a line break, and no one puts a line break into the name of a file.
        case str() if "\n" in config:
            return parse_yaml(config, "the config")
        case str():
            return find_config(config, command)
        case Path():
            return config
        case Mapping():
            return Tree(dict(config))
        case _:
            return Tree(_as_written(config))


def _as_written(value: Any) -> Any:
    """Return a typed config as the mapping from which it could have been loaded."""
    match value:
        case BaseModel():
            # Defaults and values filled in by the loader must not look like keys that the user
            # wrote.
            kept = value.model_fields_set - WORKED_OUT
            out = {name: _as_written(getattr(value, name)) for name in kept}
            return out | ({"mode": value.mode} if hasattr(value, "mode") else {})
        case SecretStr():
            return value.get_secret_value()
        case dict():
            return {key: _as_written(inner) for key, inner in value.items()}
        case tuple() | list():
            return [_as_written(inner) for inner in value]
        case _:
            return value


def practice_config(
    store: Store, request: PracticeRequest, objects: PythonObjects
) -> Loaded[PracticeConfig]:
    """Return the requested configuration; without one, the configuration of a practice run.

    The practice run is the one whose library this practice starts from, or else the one that is
    named by `exp_id`, or else the latest. A notice names the practice run.

    Raises:
        ConfigError: There is no configuration, or it cannot be used.
    """
    env, named = request.environment(), list[Override]()
    if isinstance(request.verify, str):
        named.append(("evaluation.verify", request.verify))
    overrides = [*named, *request.changes, *objects.overrides]
    if request.config is not None:
        return load_practice(config_file(request.config, "practice"), overrides, env)
    began = start_ref(store, request.start)
    own = store.read(runs.find, request.exp_id) if request.exp_id else None
    if began:
        latest: RunRow | None = store.read(runs.get, began.run)
    elif own is not None and own.kind == "practice":
        latest = own
    else:
        latest = store.read(runs.latest, ["practice"], to_play=True)
    stored = stored_text(store, latest.name) if latest else None
    if stored is None and (here := config_here("practice")) is not None:
        return unnamed(load_practice(here, overrides, env), here, "practice")
    if latest is None or stored is None:
        raise ConfigError(
            "there is no run to resume: name a config with --config",
            hint="`grpo-practice init my-task` writes a config to start from",
        )
    if began and request.attempts is None:  # a run that learnt from recorded attempts goes on live
        overrides.insert(0, ("practice.attempts", None))
    loaded = load_practice(stored, overrides, env)
    config, name = loaded.config, loaded.config.exp_id
    agent, dataset = config.evaluation.agent.agent.name, config.data.practice_dataset_name
    return _announced(loaded, name, latest, f"agent {agent}, dataset {dataset}")


def _announced(loaded: Loaded[C], name: str, latest: RunRow, what: str) -> Loaded[C]:
    """Return the configuration with a notice that names its run and purpose."""
    how = "resumed" if name == latest.name else f"with the config of {latest.name}"
    return replace(loaded, notices=[f"{name}: {how} ({what})", *loaded.notices])


def eval_config(store: Store, request: EvalRequest, objects: PythonObjects) -> EvalOf:
    """Return the evaluation described by a config, a named or the latest run, or options alone.

    If the request names no config, run or dataset, the latest run is used and a notice reports
    that.

    Raises:
        ConfigError: There is no configuration, or it cannot be used.
    """
    if request.rejudge:
        return _rejudged(store, request, objects)
    if request.run is not None and request.config is not None:
        raise ConfigError(
            f"--run {request.run} uses the config of that run, and --config names another",
            hint="leave one of them out",
        )
    env, overrides = request.environment(), _overrides(request, objects)
    agent = request.agent if isinstance(request.agent, Path) else None
    library = _library(store, request)
    variants = _variants(request, objects, library)
    alone, latest = names_dataset(overrides), None
    if request.run is not None:
        latest = _named(store, request.run, with_agent=agent is not None)
    elif request.config is None and not alone:
        latest = store.read(runs.latest, ["practice", "eval", "train"], to_play=True)
        # The config of a training run, or of an evaluation of a library, does not describe the
        # agent to evaluate, so use the experiment's own run.
        if latest is not None and latest.kind == "train":
            latest = _plain_run(
                store, latest, store.read(runs.latest, ["practice", "eval"], to_play=True)
            )
        elif latest is not None and _plays_library(store, latest):
            latest = _plain_run(store, latest, latest)
    stored = stored_text(store, latest.name) if latest else None
    if latest is None or stored is None:
        here = None if alone or request.config is not None else config_here("eval")
        given = here if request.config is None else config_file(request.config, "eval")
        loaded = load_eval(given, overrides, env, agent=agent)
        if here is not None:
            loaded = unnamed(loaded, here, "eval")
        return unless_edited(
            store, agent, loaded, eval_name(loaded.config.exp_id, *variants), library
        )
    loaded = load_eval(stored, overrides, env, agent=agent)
    config, target = loaded.config, eval_name(loaded.config.exp_id, *variants)
    if latest.purpose == "test" and latest.parent_run is None and latest.exp_id == config.exp_id:
        # The hash in a name refers to an earlier version of the file; `unless_edited` adds the new
        # one.
        name = latest.name if agent is None else re.sub("@[0-9a-f]{6}(?=/|$)", "", latest.name)
        # The latest run may already have some of these variants, as in `eval --model m` twice.
        more = [v for v in variants if f"/{v}/" not in f"{name}/"]
        target = "/".join([name, *more])
    what = f"agent {config.agent.agent.name}, dataset {config.data.dataset}"
    loaded = _announced(loaded, target, latest, what)
    return unless_edited(store, agent, loaded, target, library)


def names_dataset(overrides: Sequence[Override]) -> bool:
    """Return whether an override names a dataset, which rules out the latest run's evaluation."""
    keys = {(o if isinstance(o, str) else o[0]).partition("=")[0] for o in overrides}
    return not keys.isdisjoint(("data.dataset", "evaluation.data.dataset"))


def _plain_run(store: Store, run: RunRow, default: RunRow | None) -> RunRow | None:
    """Return an experiment's practice run, or else the evaluation of its unchanged agent."""
    for name in (run.exp_id, eval_name(run.exp_id)):
        found = store.read(runs.find, name)
        if found is not None and found.kind != "recorded" and found.head_branch is not None:
            return found
    return default


def _plays_library(store: Store, run: RunRow) -> bool:
    """Return whether the run evaluates a library, which its configuration does not contain."""
    if run.kind != "eval" or run.head_branch is None:
        return False
    return bool(store.read(branches.load, run.head_branch).library)


def unnamed(loaded: Loaded[C], here: Path, command: Command) -> Loaded[C]:
    """Return a config that the user did not name, with a notice that it is used.

    Raises:
        ConfigError: The configuration needs trust and does not have it. The folder, and the file in
            it, may be a stranger's.
    """
    if loaded.asks and not loaded.is_trusted(here):
        raise ConfigError(
            f"{here} in this folder was not named, and it runs programs, reads files or sends keys"
            " to hosts that it names",
            hint=f"read it, then name it: grpo-practice {command} --config {here}",
        )
    notice = f"using {here} in this folder, since there is no --config and no run to resume"
    return replace(loaded, notices=[notice, *loaded.notices])


def _named(store: Store, name: str, *, with_agent: bool) -> RunRow:
    """Return the run whose configuration an evaluation uses.

    Raises:
        ConfigError: The run does not exist, or its configuration does not define the agent: it is
            missing, or a practice run had added a library to the agent.
    """
    run = store.read(runs.named, name)
    name = run.name
    if run.kind == "recorded":
        raise ConfigError(
            f"{name} is a recorded run, so it has no evaluation settings", hint=questions_of(name)
        )
    if run.head_branch is None:
        raise ConfigError(
            f"{name} was never started, so it has no configuration", hint="name one with --config"
        )
    made_by_another = run.kind == "eval" and (
        run.purpose == "rejudge" or _plays_library(store, run)
    )
    if made_by_another and not with_agent:
        raise ConfigError(
            f"{name} cannot be evaluated again: add --show to view it, --rejudge to score its"
            " rollouts again, or --agent to evaluate an agent with its settings",
            hint=f"grpo-practice rollouts show {quote(name)}",
        )
    return run


def _library(store: Store, request: EvalRequest) -> Library:
    if isinstance(request.library, str):
        return library_of(store, request.library).library
    return store.read(libraries.as_stored, request.library or Library())


def _variants(request: EvalRequest, objects: PythonObjects, library: Library) -> list[str]:
    """Return the suffixes of the run's name for agent, model, verify function and library."""
    file = request.agent
    agent = agent_name(file) if isinstance(file, Path) else objects.agent_name
    verify = objects.verify_name or request.verify
    named = {"model": request.model, "verify": verify}
    # In another order, an evaluation would no longer be found under its earlier name.
    parts = [library_variant(library)] if request.library is not None else []
    return [*parts, *([agent] if agent else []), *(f"{k}={v}" for k, v in named.items() if v)]


def _overrides(request: EvalRequest, objects: PythonObjects) -> list[Override]:
    named = {"agent.model.model_provider.model": request.model}
    if isinstance(request.verify, str):
        named["verify"] = request.verify
    own = [(key, value) for key, value in named.items() if value]
    # `--verify` comes first, so that `--set verify={…}` can add parameters to that function.
    return [*own, *request.changes, *objects.overrides]


def _rejudged(store: Store, request: EvalRequest, objects: PythonObjects) -> EvalOf:
    """Return the evaluation that scores a run's rollouts with another verify function.

    The run is the named run, or else the run for the given config, or else the latest evaluation.

    Raises:
        ConfigError: No function is named, or the run does not exist or is incomplete.
    """
    verify = objects.verify_name or request.verify
    if verify is None or request.agent is not None or request.model is not None:
        raise ConfigError(
            "--rejudge requires --verify, and cannot change the agent or the model",
            hint="grpo-practice eval --rejudge --verify contains",
        )
    env, run = request.environment(), request.run
    if run is None and request.config is not None:
        file = config_file(request.config, "eval")
        run = eval_name(load_eval(file, request.changes, env).config.exp_id)
    found = store.read(runs.named, run) if run else store.read(runs.latest, ["eval"], to_play=True)
    stored = stored_text(store, found.name) if found else None
    if found is None or stored is None or found.head_branch is None:
        raise ConfigError("there is no evaluation to score again", hint="grpo-practice runs list")
    _check_one_agent(found)
    branch = store.read(branches.load, found.head_branch)
    n = _check_complete(store, found, branch)
    overrides = _overrides(request, objects)
    target = EvalTarget(
        f"{found.name}/rejudge={verify}",
        library=branch.library,
        purpose="rejudge",
        parent_run=found.name,
        source=branch,
    )
    loaded = load_eval(stored, overrides, env)
    notice = f"{target.name}: scores {count(n, 'rollout')} of {found.name} again"
    return replace(loaded, notices=[notice, *loaded.notices]), target


def _check_one_agent(found: RunRow) -> None:
    """Raise ConfigError unless one agent, with at most one library, played all rollouts."""
    if found.kind == "recorded":
        raise ConfigError(
            f"{found.name} is a recorded run, so it has no rollouts to score",
            hint=questions_of(found.name),
        )
    if found.kind == "train":
        raise ConfigError(
            f"{found.name} used different weights in each step, so a score over its rollouts"
            " would describe none of them",
            hint="score evaluations of its weights again; `grpo-practice runs list` lists them",
        )
    if found.purpose == EFFECT:
        raise ConfigError(
            f"{found.name} shows half of a library to each rollout, so a score over its rollouts"
            " has no meaning",
            hint=f"name an evaluation of that library: grpo-practice runs show {found.exp_id}",
        )


def stored_text(store: Store, run: str) -> StoredText | None:
    """Return a run's configuration in the form that the loader accepts; None if it has none."""
    stored = store.read(runs.config, run)
    if stored is None:
        return None
    exp_id = stored.exp_id if stored.imported else None
    return StoredText(stored.text, Path(stored.base_dir), store.path, exp_id)


def _check_complete(store: Store, run: RunRow, branch: Branch) -> int:
    """Return the number of rollouts of the run.

    Raises:
        ConfigError: Some rollouts are missing.
    """
    rows = store.read(steps.on_line, branch)
    planned = sum(row.plan.rollouts for row in rows)
    if missing := store.read(scores.missing, branch):
        raise ConfigError(
            f"{missing} of the {planned} rollouts of {run.name} are missing; only a complete "
            "evaluation can be scored again",
            hint=f"finish it first: {store.read(runs.last_command, run.name)}",
        )
    return planned
