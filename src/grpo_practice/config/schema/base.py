"""Base of all config models: typos are errors, types are strict, nothing changes later."""

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
from grpo_practice.errors import ConfigError
from grpo_practice.text import is_web_address

NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
"""Names of experiments and datasets: they become parts of run names and of file names."""


def check_name(name: str, what: str) -> None:
    """Raise ConfigError unless an experiment, a dataset or a recorded run can have this name."""
    if not re.fullmatch(NAME[1:-1], name):
        raise ConfigError(
            f"{name!r} cannot be the name of {what}",
            hint="letters, digits, `.`, `_`, `-`; 1 to 100, not starting with . or -",
        )


def check_address(value: str | None) -> str | None:
    """Return the URL; raise ValueError unless it is a web address."""
    if value is not None and not is_web_address(value):
        raise ValueError("should be an http:// or https:// URL with a host")
    return value


T = TypeVar("T")


class Effect(StrEnum):
    """Effect of a changed key on a run that exists; a field's type says it: `Extend[int]`."""

    IDENTITY = "identity"
    """Refused, with a diff. Every key that says nothing else has this effect."""
    EVAL = "eval"
    """Refused by an evaluation run; nothing to a practice run."""
    TRAIN = "train"
    """Refused by a training run; nothing to others."""
    PLAN = "plan"
    """Stored as the ordered samples of the steps already planned."""
    EXTEND = "extend"
    """Allowed; only the missing part is played."""
    OPERATIONAL = "operational"
    """Free."""
    TEXTS = "texts"
    """None: a run goes on with the texts stored at its start."""
    ELSEWHERE = "elsewhere"
    """None: a name, or already contained in another key."""


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
"""A key; an empty one, as an unset variable gives, is none."""
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text; null is the empty one."""
Table = Annotated[dict[str, T], BeforeValidator(lambda value: {} if value is None else value)]
"""A mapping; null is the empty one."""
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: () if value is None else value)]
"""Texts; null is none."""


class EnvText(str):
    """A text that came out of the environment, where every value is text."""

    __slots__ = ()


class Model(BaseModel):
    """Base of all config models."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),  # `model_provider`, `model_settings` are the published names
    )

    # Strict types refuse a text for a number, and the environment has only texts.
    @field_validator("*", mode="before")
    @classmethod
    def _scalars(cls, value: Any, info: ValidationInfo) -> Any:
        """Read numbers from the environment as YAML does; let a bare number be a name."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation} if get_origin(annotation) is dict else set(get_args(annotation))
        kinds = kinds or {annotation}
        if any(get_origin(kind) is dict for kind in kinds):
            return value if _models_by_name(annotation) else _without_marks(value)
        if isinstance(value, EnvText) and kinds & {int, float, bool}:
            return plain(value)
        if type(value) is int and str in kinds and not kinds & {int, float}:
            return str(value)
        return value


def _models_by_name(annotation: Any) -> bool:
    """Return whether it is `dict[str, SomeModel]`: the models read their own values."""
    kinds = get_args(annotation) if get_origin(annotation) is dict else ()
    return any(
        get_origin(kind) is Annotated or (isinstance(kind, type) and issubclass(kind, BaseModel))
        for kind in kinds
    )


def _without_marks(value: Any) -> Any:
    """Strip the marks of a free mapping's values: nothing says which texts should be numbers."""
    match value:
        case EnvText():
            return str(value)
        case dict():
            return {k: _without_marks(v) for k, v in value.items()}
        case list():
            return [_without_marks(v) for v in value]
        case _:
            return value
