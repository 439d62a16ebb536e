"""Specification of the run for a configuration: its name, its identity and its stored parts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_practice.config import Loaded
from grpo_practice.config.identity import identity_of
from grpo_practice.config.schema.provider import ModelConfig, is_sim
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig, PracticeSettings, RunConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import digest
from grpo_practice.core.prompts.files import Prompt, load_prompts
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Library
from grpo_practice.llm.prices import context_window
from grpo_practice.practice import METHOD
from grpo_practice.practice.reading import ASSUMED_CONTEXT, MOST_CONTEXT
from grpo_practice.run.own_code import sha_of
from grpo_practice.run.weights import agent_name
from grpo_practice.store import Store
from grpo_practice.store.identity import (
    AGENT_SHA,
    LIBRARY_SHA,
    WEIGHTS_SHA,
    agent_of,
)
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import (
    Branch,
    DatasetRow,
    Purpose,
    RunSpec,
    TestSet,
    VerifierRecord,
)
from grpo_practice.verify.resolve import VerifyFunction

FORMAT = 1
"""Version of the identity; increased if the meaning of stored runs changes."""


def configured_prompts(config: PracticeConfig, base_dir: Path) -> dict[str, Prompt]:
    """Return the distillation prompts of a new run; raise ConfigError if one cannot be used."""
    own = config.practice.prompts_dir
    if own and config.teacher.model_provider.simulated:
        raise ConfigError(
            "practice.prompts_dir: the simulated teacher reads only the shipped prompts",
            hint="leave out prompts_dir, or name a real model in practice.teacher_model",
        )
    return load_prompts(base_dir / own if own else None)


def practice_spec(
    loaded: Loaded[PracticeConfig],
    agent_sha: str | None,
    verify: VerifyFunction,
    dataset: DatasetRow,
    prompts: Mapping[str, Prompt],
    start: Library | None,
) -> RunSpec:
    """Return the practice run for this configuration, starting from a library (None: empty)."""
    config = loaded.config
    return RunSpec(
        name=config.exp_id,
        exp_id=config.exp_id,
        kind="practice",
        identity=_identity(config, agent_sha, verify, start or Library())
        | {"practice.method": METHOD, "practice.teacher_context": teacher_context(config)},
        config_text=loaded.text,
        base_dir=loaded.base_dir,
        dataset_id=dataset.id,
        verifier=verifier_record(verify, config.judge),
        purpose="practice",
        k=config.practice.grpo_n,
        seed=config.evaluation.seed,
        tests=TestSet(
            config.evaluation.data.dataset,
            config.evaluation.pass_k,
            config.practice.eval_data_truncate,
        ),
        prompts={name: prompt.text for name, prompt in prompts.items()},
        library=start or Library(),
        simulated=simulated(*config.models.values()),
    )


def at_practice(config: PracticeConfig) -> ModelConfig:
    """Return the agent's model at the practice temperature; evaluation uses the configured one."""
    model = config.student
    warm = {"temperature": config.practice.rollout_temperature}
    return model.model_copy(update={"model_settings": model.model_settings.model_copy(update=warm)})


def teacher_context(config: PracticeConfig) -> int:
    """Return the teacher's context length in tokens: configured, listed or assumed.

    The number is part of a run's identity, because it determines the teacher's prompts.
    """
    return _context(config)[0]


def teacher_context_text(config: PracticeConfig) -> str:
    """Return a phrase with the teacher's context length and the source of this number."""
    tokens, origin = _context(config)
    return f"{tokens:,} tokens for a request and its reply ({origin})"


def _context(config: PracticeConfig) -> tuple[int, str]:
    if config.practice.teacher_context is not None:
        return config.practice.teacher_context, "practice.teacher_context"
    provider = config.teacher.model_provider
    listed = context_window(provider.model, provider.base_url) if provider.base_url else None
    if listed is None:
        return ASSUMED_CONTEXT, "assumed; to change it, set practice.teacher_context"
    if listed > MOST_CONTEXT:
        return (
            MOST_CONTEXT,
            f"of the {listed:,} in the price list; set practice.teacher_context to use more",
        )
    return listed, "listed"


NO_LIBRARY = Library()
DEFAULT_LIMITS = PracticeSettings()
"""Limits of a standalone evaluation: the defaults of practice."""


@dataclass(frozen=True, slots=True)
class EvalTarget:
    """Target of an evaluation: its full name, and the run it belongs to."""

    name: str
    library: Library = NO_LIBRARY
    purpose: Purpose = "test"
    parent_run: str | None = None
    source: Branch | None = None
    """Branch whose stored rollouts are scored again; None plays new rollouts."""


def unless_edited(
    store: Store, file: Path | None, loaded: Loaded[EvalConfig], name: str, library: Library
) -> tuple[Loaded[EvalConfig], EvalTarget]:
    """Return the evaluation with this name, or with a new name if its agent's file has changed.

    The new name is `pa@1a2b3c`, with the hash of the agent in the changed file.
    """
    branch = store.read(runs.newest_branch, name) if file else None
    if file is None or branch is None:
        return loaded, EvalTarget(name, library)
    sha = sha_of(loaded.config.agent, loaded.base_dir)
    now = agent_of(identity_of(loaded.config) | {AGENT_SHA: sha})
    # The agent of a run without results may still change, so the run keeps its name.
    if now == agent_of(branch.identity) or not store.read(scores.outcomes, branch):
        return loaded, EvalTarget(name, library)
    before, _, after = f"{name}/".rpartition(f"/{agent_name(file)}/")
    # Six digits are enough to tell a few versions of one file apart, and short enough to read.
    other = f"{before}/{agent_name(file)}@{digest(now).hex()[:6]}/{after}".rstrip("/")
    notice = f"{file} has changed since {name} was played, so this evaluation is called {other}"
    return replace(loaded, notices=[*loaded.notices, notice]), EvalTarget(other, library)


def eval_spec(
    loaded: Loaded[EvalConfig],
    agent_sha: str | None,
    verify: VerifyFunction,
    dataset: DatasetRow,
    target: EvalTarget,
) -> RunSpec:
    """Return the evaluation run for this configuration, with the target's library in the agent."""
    config = loaded.config
    asked = _weights_asked(target)
    judges = [config.judge] if verify.is_judge else []
    # No configured model answered the rollouts of a training process, so only the judge counts.
    models = judges if asked and target.source else config.models.values()
    return RunSpec(
        name=target.name,
        exp_id=config.exp_id,
        kind="eval",
        identity=_identity(config, agent_sha, verify, target.library)
        | {"data.dataset": dataset.name}
        | asked,
        config_text=loaded.text,
        base_dir=loaded.base_dir,
        dataset_id=dataset.id,
        verifier=verifier_record(verify, config.judge),
        library=target.library,
        purpose=target.purpose,
        k=config.pass_k,
        seed=config.seed,
        simulated=simulated(*models),
        parent_run=target.parent_run,
        fence_key=target.source.fence_key if target.source else None,
    )


def _weights_asked(target: EvalTarget) -> dict[str, Any]:
    """Return the identity keys for trained weights under evaluation; {} for any other model.

    For a rejudge, the source may have been sampled in the training process, which the configuration
    does not describe.
    """
    source = target.source.identity if target.source else {}
    if WEIGHTS_SHA not in source:
        return {}
    return {k: v for k, v in source.items() if k == WEIGHTS_SHA or k.startswith("agent.")}


def _identity(
    config: RunConfig, agent_sha: str | None, verify: VerifyFunction, start: Library
) -> dict[str, Any]:
    """Return a branch's identity: its config keys, and hashes of files and functions."""
    return identity_of(config) | {
        "agent.sha256": agent_sha,
        "verify.sha256": verify.sha.hex(),
        LIBRARY_SHA: library_sha(start).hex(),
        "format_version": FORMAT,
    }


def verifier_record(verify: VerifyFunction, model: ModelConfig) -> VerifierRecord:
    """Return the record under which verdicts are stored, including the judge model, if any."""
    spec = dict(verify.spec)
    if verify.is_judge:
        spec["model"] = model.model_provider.model
        # These label a request, or are addressed to the endpoint rather than to the model.
        free = {"metadata", "store", "prompt_cache_retention", "extra_query", "extra_headers"}
        spec["model_settings"] = model.model_settings.model_dump(exclude_none=True, exclude=free)
    sha = digest({"function": verify.sha.hex(), "spec": spec})
    return VerifierRecord(sha, verify.name, spec, verify.source)


def simulated(*models: ModelConfig) -> bool:
    """Return whether any of the models is simulated, so that the run is labelled."""
    return any(is_sim(model.model_provider.model) for model in models)
