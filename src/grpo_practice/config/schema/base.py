"""Base of all config models: unknown keys are errors, types are strict, instances are frozen."""

import re
from enum import StrEnum
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from grpo_practice.config.reading.yaml_reader import plain
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import is_web_address

NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
"""Pattern for names of experiments and datasets, which become parts of run and file names."""


def check_name(name: str, what: str) -> None:
    """Raise ConfigError unless the name is valid for an experiment, a dataset or a recorded run."""
    if not re.fullmatch(NAME[1:-1], name):
        raise ConfigError(
            f"{name!r} cannot be the name of {what}",
            hint="letters, digits, `.`, `_`, `-`; 1 to 100, not starting with . or -",
        )


def check_address(value: str | None) -> str | None:
    """Return the URL; raise ValueError unless it is an http:// or https:// URL with a host."""
    if value is not None and not is_web_address(value):
        if "://" not in value and is_web_address(f"http://{value}"):
            raise ValueError("has no scheme, and should start with http:// or https://")
        raise ValueError("should be an http:// or https:// URL with a host")
    return value


T = TypeVar("T")


class Effect(StrEnum):
    """Effect of changing a key on an existing run; a field's type states it: `Extend[int]`."""

    IDENTITY = "identity"
    """The run refuses the change and shows a diff. This is the default for every key."""
    EVAL = "eval"
    """An evaluation run refuses the change; a practice run ignores it."""
    TRAIN = "train"
    """A training run refuses the change; other runs ignore it."""
    PLAN = "plan"
    """The key determines the ordered samples, which are stored for the steps already planned."""
    EXTEND = "extend"
    """The change is allowed; only the missing part is played."""
    OPERATIONAL = "operational"
    """The change is always allowed."""
    TEXTS = "texts"
    """The change has no effect: a run keeps the texts that were stored when it started."""
    ELSEWHERE = "elsewhere"
    """The change has no effect: the key is a name, or another key already covers it."""


EvalOnly = Annotated[T, Effect.EVAL]
TrainOnly = Annotated[T, Effect.TRAIN]
Plan = Annotated[T, Effect.PLAN]
Extend = Annotated[T, Effect.EXTEND]
Operational = Annotated[T, Effect.OPERATIONAL]
Texts = Annotated[T, Effect.TEXTS]
Elsewhere = Annotated[T, Effect.ELSEWHERE]

Url = Annotated[T, AfterValidator(check_address)]
"""An http:// or https:// URL with a host."""
Secret = Annotated[
    SecretStr | None, AfterValidator(lambda key: key if key and key.get_secret_value() else None)
]
"""A secret key; an empty value, as an unset variable produces, becomes None."""
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A string; null becomes an empty string."""
Table = Annotated[dict[str, T], BeforeValidator(lambda value: {} if value is None else value)]
"""A mapping; null becomes an empty mapping."""
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: () if value is None else value)]
"""A list of strings; null becomes an empty list."""


class EnvText(str):
    """A value read from the environment, where every value is text."""

    __slots__ = ()


class Model(BaseModel):
    """Base of all config models."""

    model_config = ConfigDict(
        extra="forbid",
        # Strict, because `yes` for a boolean or 1.0 for a count is usually a mistake.
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        # A model is compiled on first use, together with the models that it contains. Compiling
        # each model on import, and parsing its source for the texts below fields, would take twice
        # as long.
        defer_build=True,
        protected_namespaces=(),  # the published names begin with `model_`, which pydantic reserves
    )

    # Strict types refuse a text for a number, but environment variables are always texts.
    @field_validator("*", mode="before")
    @classmethod
    def _scalars(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse numbers and booleans from the environment like YAML; accept an integer as text."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation} if get_origin(annotation) is dict else set(get_args(annotation))
        kinds = kinds or {annotation}
        # A mapping of models keeps its marks, because each model needs them to parse its own
        # values.
        if any(get_origin(kind) is dict for kind in kinds):
            return value if _models_by_name(annotation) else _without_marks(value)
        if isinstance(value, EnvText) and kinds & {int, float, bool}:
            return plain(value)
        if type(value) is int and str in kinds and not kinds & {int, float}:
            return str(value)
        return value


def _models_by_name(annotation: Any) -> bool:
    """Return whether the type is `dict[str, SomeModel]`, whose models parse their own values."""
    kinds = get_args(annotation) if get_origin(annotation) is dict else ()
    return any(
        get_origin(kind) is Annotated or (isinstance(kind, type) and issubclass(kind, BaseModel))
        for kind in kinds
    )


def _without_marks(value: Any) -> Any:
    """Convert `EnvText` values in an untyped mapping to `str`: its types do not ask for numbers."""
    match value:
        case EnvText():
            return str(value)
        case dict():
            return {k: _without_marks(v) for k, v in value.items()}
        case list():
            return [_without_marks(v) for v in value]
        case _:
            return value
