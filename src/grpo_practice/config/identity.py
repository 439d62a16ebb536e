"""Identity of a run: the config keys that a branch is bound to.

The caller adds the parts that do not come from a config: the verify file's hash, the start library,
the format version and the planned samples.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from grpo_practice.config.reading.problems import model_in
from grpo_practice.config.redact import redacted
from grpo_practice.config.schema.base import Effect
from grpo_practice.config.schema.runs import PracticeConfig, RunConfig
from grpo_practice.config.schema.tools import what_answers


def _effects(
    model: type[BaseModel], prefix: str = "", outer: Effect | None = None
) -> Iterator[tuple[str, Effect]]:
    """Yield every key of the model with its effect: its own effect, or else its section's."""
    # The type of a field carries its effect as metadata: `Extend[int]` is `Annotated[int, …]`.
    for name, field in model.model_fields.items():
        own = next((m for m in field.metadata if isinstance(m, Effect)), None)
        inner = model_in(field.annotation)
        if inner is None:
            yield f"{prefix}{name}", own or outer or Effect.IDENTITY
        else:
            yield from _effects(inner, f"{prefix}{name}.", own or outer)


EFFECTS: Mapping[str, Effect] = dict(_effects(PracticeConfig))
"""Effect of every key of a practice config; evaluation configs omit the prefix `evaluation.`."""
_SHARED = ("evaluation.verify.", "evaluation.agent.agent.instructions", "evaluation.judge_model.")
"""Keys outside `train:` that a training run is bound to: it shares its prompt and its scoring with
practice.
"""


def flat(config: RunConfig) -> dict[str, Any]:
    """Return every dotted key of the config with its value as JSON, secrets hidden.

    A nested section that is null contributes no keys. A free-form mapping counts as one value.
    """
    return dict(_leaves(redacted(config), "" if config.kind == "practice" else "evaluation."))


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        # This comes before the mapping test, because a free-form mapping is one value, whatever its
        # keys.
        if key in EFFECTS:
            yield key, value
        elif isinstance(value, dict):
            yield from _leaves(value, f"{key}.")
        elif value is not None:
            raise KeyError(key)


def identity_of(config: RunConfig) -> dict[str, Any]:
    """Return the keys that a branch is bound to, as the config's own YAML names them.

    Values are JSON. `extra_args.timeout` is omitted because the timeout does not change the
    request. Addresses of the services behind tools are omitted too.
    """
    practice = config.kind == "practice"
    bound = {Effect.IDENTITY} if practice else {Effect.IDENTITY, Effect.EVAL}
    out = {}
    for key, value in flat(config).items():
        if EFFECTS[key] not in bound:
            continue
        if key.endswith(".extra_args") and value:
            value = {k: v for k, v in value.items() if k != "timeout"} or None
        if key.endswith(".toolkits"):
            # Keys dropped here may change freely, so never drop one that affects a tool's answer.
            value = {name: what_answers(toolkit) for name, toolkit in value.items()}
        out[key if practice else key.removeprefix("evaluation.")] = value
    return out


def train_identity_of(config: PracticeConfig) -> dict[str, Any]:
    """Return the keys that a training run is bound to, in the format of `identity_of`.

    They include the run's length unless the learning rate is constant, because any other schedule
    depends on it.

    Raises:
        ValueError: The config has no `train:` section.
    """
    train = config.train
    if train is None:
        raise ValueError(
            "the config has no `train:` section, so it does not describe a training run"
        )
    bound = {Effect.TRAIN, *([Effect.EXTEND] if train.scheduler != "constant" else [])}
    out = {
        key: value
        for key, value in flat(config).items()
        if (key.startswith("train.") and EFFECTS[key] in bound)
        or (key.startswith(_SHARED) and EFFECTS[key] is Effect.IDENTITY)
    }
    filled = {"learning_rate": train.rate, "temperature": temperature_of(config)}
    return out | {f"train.{name}": value for name, value in filled.items()}


def temperature_of(config: PracticeConfig) -> float:
    """Return the sampling temperature for a training run: its own, or else that of practice."""
    own = config.train.temperature if config.train else None
    return config.practice.rollout_temperature if own is None else own
