"""Load the configuration that `config` and `doctor` inspect, for practice or for evaluation."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.config import (
    Environment,
    EvalConfig,
    Loaded,
    PracticeConfig,
    RunConfig,
    load_eval,
    load_practice,
    show,
)
from grpo_practice.config.input import ConfigInput
from grpo_practice.config.reading.compose import compose
from grpo_practice.config.reading.discover import config_here
from grpo_practice.config.reading.yaml_reader import Tree, parse_yaml
from grpo_practice.config.trust.keys import KeyRoute, sentences
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redact_url
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report
from grpo_practice.run.clients import endpoint_of
from grpo_practice.run.configs import config_file, stored_text
from grpo_practice.run.specs import configured_prompts, teacher_context_text
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.verify.resolve import check_defined, resolve


@dataclass(frozen=True, slots=True, repr=False)
class ConfigReport(Report):
    """A configuration with the settings that take effect."""

    schema: ClassVar = "grpo-practice.config/1"
    in_document: ClassVar = ("command", "path", "used", "ignored", "notices", "routes", "settings")

    config: RunConfig
    path: Path | None
    """File with the configuration; None if it was passed as a value or is the latest run's."""
    used: Mapping[str, str]
    """Purpose → setting that a run would use."""
    ignored: Sequence[str]
    """Messages about keys that have no effect, one per key."""
    notices: Sequence[str]
    """Notices for the user."""
    text: str
    """The configuration as YAML that can be loaded again, with secrets hidden."""
    routes: Sequence[KeyRoute] = ()
    """Routes of secrets from the environment: each with its host, and the file that sets it."""

    @property
    def command(self) -> str:
        """Name of the command that the configuration is for."""
        trains = self.config.kind == "practice" and self.config.only_trains
        return "train" if trains else self.config.kind

    @property
    def settings(self) -> Any:
        """The configuration as plain data, with secrets hidden."""
        # Use the text, which hides the secrets that `config` contains.
        return parse_yaml(self.text, "the config").data

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the settings in use, and the keys without effect."""
        rows = [*self.used.items(), *(("ignored", text) for text in self.ignored)]
        rows += [("key", text) for text in sentences(self.routes)]
        return [(self.config.exp_id,), *rows, *(("note", text) for text in self.notices)]


AnyConfig = Loaded[PracticeConfig] | Loaded[EvalConfig]


def load_config(
    config: ConfigInput | None,
    overrides: Sequence[str],
    env: Environment,
    open_store: Callable[[], AbstractContextManager[Store]] | None,
    *,
    agent: Path | None = None,
) -> AnyConfig:
    """Load a configuration in the same way as the command that will use it.

    Without `config`, load the configuration of the latest run, or else the file in this folder;
    `open_store` is None if there is no database. An agent file replaces the evaluation's agent; if
    there is no run, the agent is loaded alone.

    Raises:
        ConfigError: There is no configuration, or it cannot be used.
    """
    if config is not None:
        return _given(config_file(config, "practice"), overrides, env, agent)
    run, text, trains = None, None, False
    if open_store is not None:
        with open_store() as store:
            run = store.read(runs.latest, ["practice", "eval", "train"], to_play=True)
            text = stored_text(store, run.name) if run else None
            trains = run is not None and run.kind == "train"
    if agent is not None:
        if text is not None:
            return load_eval(text, overrides, env, agent=agent)
        return _alone(agent, overrides, env)
    if (run is None or text is None) and (here := config_here("eval")) is not None:
        return _given(here, overrides, env, None)
    if run is None or text is None:
        raise ConfigError("no run has a configuration yet", hint="name one with --config")
    # Load as training first, because a config that only trains names no model for practice.
    if trains and (loaded := load_practice(text, overrides, env, trains=True)).config.only_trains:
        return loaded
    if trains or run.kind == "practice":
        return load_practice(text, overrides, env)
    return load_eval(text, overrides, env)


def _given(
    given: Path | Tree, overrides: Sequence[str], env: Environment, agent: Path | None
) -> AnyConfig:
    tree = compose(given) if isinstance(given, Path) else given
    if agent is None and tree.data.keys() & {"practice", "evaluation"}:
        # Without a model in the environment, a config with `train` may be meant for training only.
        if "train" in tree.data and not env.get("UTU_LLM_MODEL"):
            loaded = load_practice(given, overrides, env, trains=True)
            if loaded.config.only_trains:  # otherwise check practice, too
                return loaded
        return load_practice(given, overrides, env)
    return load_eval(given, overrides, env, agent=agent)


def _alone(agent: Path, overrides: Sequence[str], env: Environment) -> Loaded[EvalConfig]:
    """Load an agent without a dataset."""
    # The loader requires both keys; the placeholder dataset is removed below.
    loaded = load_eval(None, ["data.dataset=none", "verify=exact", *overrides], env, agent=agent)
    data = loaded.config.data.model_copy(update={"dataset": None})
    unasked = data if loaded.config.data.dataset == "none" else loaded.config.data
    return replace(loaded, config=loaded.config.model_copy(update={"data": unasked}), path=agent)


def _learning(config: PracticeConfig) -> dict[str, str]:
    """Return a description of the practice and training settings, by purpose."""
    plan, train = config.practice, config.train
    used = dict[str, str]()
    if config.only_trains:
        used["model"] = "none at an endpoint: this config only trains"
    else:
        used["practice"] = (
            f"{config.data.practice_dataset_name}, {count(plan.epochs, 'epoch')}, batches of"
            f" {count(plan.batch_size, 'sample')}, {plan.grpo_n} rollouts each"
        )
        used["teacher"] = teacher_context_text(config)
    if train is not None:
        length = count(train.epochs, "epoch") if train.steps is None else count(train.steps, "step")
        used["training"] = (
            f"{train.model} on {config.data.practice_dataset_name}, {length} of"
            f" {count(train.prompts_per_step, 'question')}, {train.group_size} rollouts each"
        )
    return used


def _reply_limits(config: RunConfig) -> str:
    """Return the `max_tokens` of each role, with the key or the default that they come from."""
    found = list[str]()
    for role, model in config.models.items():
        if not model.model_provider.model:  # a config that only trains
            continue
        params, endpoint = endpoint_of(model)
        most, change = params.get("max_tokens"), f"to change it, set {endpoint.limit_key}"
        if most is not None:
            limit = f"{most} tokens ({endpoint.limit_key})"
        elif role == "teacher":
            limit = f"by the form of its replies (default; {change})"
        else:
            limit = f"none ({change})"
        found.append(f"{role}: {limit}")
    return "; ".join(found) or "none"


def config_report(loaded: AnyConfig) -> ConfigReport:
    """Return a report on a configuration's effective settings.

    Raises:
        ConfigError: A prompt template or the verify function cannot be used.
    """
    config = loaded.config
    if config.kind == "practice":
        configured_prompts(config, loaded.base_dir)
    spec = config.evaluation.verify
    verify = resolve(spec.name, spec.params, spec.timeout_s, loaded.base_dir, load=False)
    check_defined(verify)
    evaluation, provider = config.evaluation, config.student.model_provider
    where = redact_url(provider.base_url)
    data = evaluation.data.dataset
    evaluated = f"{data}, {count(evaluation.pass_k, 'rollout')} per question"
    used = {
        "experiment": config.exp_id,
        "agent": evaluation.agent.agent.name,
        "model": f"{provider.model} at {where}" if where else f"{provider.model} (simulated)",
        "max_tokens": _reply_limits(config),
        "verify": evaluation.verify.name + (f" ({verify.file.path})" if verify.file else ""),
        "evaluation": evaluated if data else "none",
    }
    if config.kind == "practice":
        used |= _learning(config)
    if not config.datasets:  # only an agent
        used = {name: used[name] for name in ("agent", "model")}
    text, routes = show(config, loaded.text), loaded.routes
    notices = [*loaded.notices, *([verify.note] if verify.note else [])]
    return ConfigReport(config, loaded.path, used, loaded.ignored, notices, text, routes)
