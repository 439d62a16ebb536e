"""What a configuration asks of a run: its name, its identity, and what is stored with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.app.custom_agent import sha_of
from grpo_practice.canonical import digest
from grpo_practice.config.identity import identity_of
from grpo_practice.config.schema.provider import ModelConfig, is_sim
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig, PracticeSettings, RunConfig
from grpo_practice.llm.prices import context_window
from grpo_practice.practice import METHOD
from grpo_practice.practice.reading import ASSUMED_CONTEXT, MOST_CONTEXT
from grpo_practice.prompts import Prompt
from grpo_practice.prompts.system import library_sha
from grpo_practice.store.records import Branch, DatasetRow, JudgeRecord, RunSpec
from grpo_practice.types import Library
from grpo_practice.verify.resolve import VerifyFunction

FORMAT = 1
"""Raised when stored runs mean something else than they did."""


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where a configuration was written, for the record."""

    text: str
    """Composed, uninterpolated YAML, secrets redacted."""
    base_dir: Path


def practice_spec(
    config: PracticeConfig,
    source: ConfigSource,
    verify: VerifyFunction,
    dataset: DatasetRow,
    prompts: Mapping[str, Prompt],
    start: Library | None,
) -> RunSpec:
    """A practice run of this configuration, from this library (None: empty)."""
    return RunSpec(
        name=config.exp_id,
        exp_id=config.exp_id,
        kind="practice",
        identity=_identity(config, verify, start or Library(), source.base_dir)
        | {"practice.method": METHOD, "practice.teacher_context": teacher_context(config)},
        config_text=source.text,
        base_dir=source.base_dir,
        dataset_id=dataset.id,
        judge=judge_record(verify, config.judge),
        prompts={name: prompt.text for name, prompt in prompts.items()},
        library=start,
        simulated=simulated(*config.models.values()),
    )


def teacher_context(config: PracticeConfig) -> int:
    """Return how many tokens the teacher takes: as configured, as listed, or as assumed.

    A run is bound to this number: what the teacher is shown depends on it.
    """
    return _context(config)[0]


def teacher_context_text(config: PracticeConfig) -> str:
    """Say how many tokens the teacher takes, and where that is from."""
    tokens, origin = _context(config)
    return f"{tokens:,} tokens for a request and its reply ({origin})"


def _context(config: PracticeConfig) -> tuple[int, str]:
    if config.practice.teacher_context is not None:
        return config.practice.teacher_context, "practice.teacher_context"
    provider = config.teacher.model_provider
    listed = [context_window(provider.model, url) for url in provider.base_url]
    known = [tokens for tokens in listed if tokens is not None]
    if not known:
        return ASSUMED_CONTEXT, "assumed; practice.teacher_context sets it"
    if min(known) > MOST_CONTEXT:
        return MOST_CONTEXT, f"of {min(known):,} listed; practice.teacher_context allows more"
    return min(known), "listed"


NO_LIBRARY = Library()
DEFAULT_LIMITS = PracticeSettings()
"""An evaluation by itself has the limits that practice has by default."""


@dataclass(frozen=True, slots=True)
class EvalTarget:
    """Which evaluation run: its full name, and whose it is."""

    name: str
    library: Library = NO_LIBRARY
    role: str = ""
    parent_run: str | None = None
    parent_step: int | None = None


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """An evaluation that was asked for: its config, and the run it is."""

    config: EvalConfig
    source: ConfigSource
    target: EvalTarget
    rejudge: Branch | None = None
    """Whose rollouts are scored again; None plays its own."""
    notices: Sequence[str] = ()
    """What a person should know of the config."""
    ignored: Sequence[str] = ()
    """A sentence for each key of it that has no effect."""
    limits: PracticeSettings = DEFAULT_LIMITS
    """Whose `task_timeout` and `max_failed_share` hold: the practice run's that makes it."""


def eval_spec(
    config: EvalConfig,
    source: ConfigSource,
    verify: VerifyFunction,
    dataset: DatasetRow,
    target: EvalTarget,
) -> RunSpec:
    """An evaluation run of this configuration, the target's library put into the agent."""
    return RunSpec(
        name=target.name,
        exp_id=config.exp_id,
        kind="eval",
        identity=_identity(config, verify, target.library, source.base_dir)
        | {"data.dataset": dataset.name},
        config_text=source.text,
        base_dir=source.base_dir,
        dataset_id=dataset.id,
        judge=judge_record(verify, config.judge),
        library=target.library,
        simulated=simulated(*config.models.values()),
        role=target.role,
        parent_run=target.parent_run,
        parent_step=target.parent_step,
        cause="rejudge" if target.role == "rejudge" else "start",
    )


def _identity(
    config: RunConfig, verify: VerifyFunction, start: Library, folder: Path
) -> dict[str, Any]:
    """What a branch is bound to: the identity keys, and what the config only names."""
    return identity_of(config) | {
        "agent.sha256": sha_of(config.evaluation.agent, folder),
        "verify.sha256": verify.sha.hex(),
        "library.sha256": library_sha(start).hex(),
        "format_version": FORMAT,
    }


def judge_record(verify: VerifyFunction, model: ModelConfig) -> JudgeRecord:
    """The verify function as its verdicts are filed: with the model behind it, if it asks one."""
    spec = dict(verify.spec)
    if verify.is_judge:
        spec["model"] = model.model_provider.model
        spec["model_settings"] = identity_settings(model)
    sha = digest({"function": verify.sha.hex(), "spec": spec})
    return JudgeRecord(sha, verify.name, spec, verify.source)


def identity_settings(model: ModelConfig) -> dict[str, Any]:
    """The settings of a model that can change its answers."""
    free = {"metadata", "store", "prompt_cache_retention", "extra_query", "extra_headers"}
    return model.model_settings.model_dump(exclude_none=True, exclude=free)


def simulated(*models: ModelConfig) -> bool:
    """Return whether any of the models is a simulated one; what they touch is labelled so."""
    return any(is_sim(model.model_provider.model) for model in models)
