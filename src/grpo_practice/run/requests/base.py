"""Base classes of run requests; fields are keyword arguments in Python and command options.

This module does not import the configuration package, which would slow down read-only commands.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor

if TYPE_CHECKING:
    from grpo_practice.config import Environment
    from grpo_practice.config.input import Override
    from grpo_practice.core.events import Emit
    from grpo_practice.llm.budget import Caps

YES_OR_NO = Literal["yes", "no"]
"""Command-line type of a field whose default is True."""


@dataclass(frozen=True, slots=True)
class Option:
    """Command-line option that fills a field."""

    names: Sequence[str] = ()
    """Option names, such as `--pass-k` and `-k`; empty derives the name from the field."""
    type: Any = str
    """Type of the value on the command line."""
    least: float | None = None
    metavar: str | None = None
    stored: Literal["datasets", "runs"] | None = None
    """Kind of stored names that the shell offers as completions."""
    blank: bool = False
    """Whether an empty text means that the option is not set, as in `--dataset "$UNSET"`."""


def keyword(default: Any, text: str) -> Any:
    """Return a field that can be set only from Python and is documented by `text`."""
    metadata = {"text": text}
    # A dict itself would be shared by all requests, so a dataclass refuses it as a default.
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def option(
    default: Any,
    text: str,
    *names: str,
    key: str | None = None,
    python: str | None = None,
    **how: Any,
) -> Any:
    """Return a field that is also a command option.

    `text` is the help for the option, and `how` holds arguments for `Option`. With a dotted `key`,
    the value overrides that key of the configuration. `python` documents the keyword if `text` does
    not fit.
    """
    of = Option(names, **{"blank": key is not None, **how})
    return field(
        default=default, metadata={"text": python or text, "key": key, "as": of, "help": text}
    )


def number(text: str, *names: str, least: int = 1, key: str | None = None, **how: Any) -> Any:
    """Return an option for a whole number of at least `least`."""
    return option(None, text, *names, key=key, type=int, least=least, **how)


def option_of(of: "Field[Any]") -> Option | None:
    """Return the command option of a field; None for a field that can only be set from Python."""
    found: Option | None = of.metadata.get("as")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Fields shared by all requests for a run."""

    method: ClassVar[str]
    """Method of `Workspace` that takes the fields as keywords."""

    overrides: Mapping[str, Any] = keyword(
        dict, "Typed values by dotted key; they take precedence over `sets`."
    )
    sets: Sequence[str] = option(
        (),
        "Set one key of the config; repeatable.",
        "--set",
        python="Settings as `KEY=VALUE`, with the value as YAML; they override the config.",
        type=list[str],
        metavar="KEY=VALUE",
    )
    env: Mapping[str, str] | None = keyword(
        None,
        "Variables that the config may name; None uses the process's and `.env`. Pass the result"
        " of `environment(trust=…)` to trust files or hosts as well.",
    )
    verify: str | Callable[..., Any] | None = keyword(
        None, "Verify function to use instead of the configured one: a name or a Python function."
    )
    max_cost: float | None = option(
        None,
        "Pause before the run costs more than this.",
        python="Pause before the run costs more than this, in US dollars.",
        type=float,
        least=0,
        metavar="USD",
    )
    max_tokens: int | None = number(
        "Pause before the run uses more tokens than this, input + output.", least=0, metavar="N"
    )
    max_requests: int | None = number(
        "Pause before the run sends more requests than this.", least=0, metavar="N"
    )
    restart_step: int | None = number(
        "Keep the steps before N and replay the others (default: continue).",
        least=0,
        metavar="N",
    )
    again: bool = option(
        False,
        "With --restart-step: restart even if this restart is under way or finished.",
        "--again",
        python="Repeat the restart at `restart_step`, even if it is under way or finished.",
        type=bool,
    )
    verbose: bool = option(
        False, "Also list config keys that have no effect.", "--verbose", "-v", type=bool
    )
    on_event: "Emit | None" = keyword(
        None, "Progress callback. An exception in it is logged and does not stop the run."
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is too small."""
        for of in fields(self):
            how, value = option_of(of), getattr(self, of.name)
            if how and how.least is not None and value is not None and how.type is int:
                check_least(of.name, value, int(how.least))
        cost: object = self.max_cost  # a Python caller may pass any type
        if cost is None:
            return
        if not isinstance(cost, int | float) or not (math.isfinite(cost) and cost >= 0):
            raise ConfigError(
                f"--max-cost {cost}: should be a number of dollars, for instance 2.50"
            )

    @property
    def changes(self) -> "list[Override]":
        """All overrides of the configuration, in the order in which they apply."""
        keyed = [(of.metadata.get("key"), getattr(self, of.name)) for of in fields(self)]
        return [
            *self.sets,
            *self.overrides.items(),
            *((key, value) for key, value in keyed if key is not None and value is not None),
        ]

    @property
    def caps(self) -> "Caps":
        """Limits at which the run pauses."""
        from grpo_practice.llm.budget import Caps

        micro = None if self.max_cost is None else round(self.max_cost * 1e6)
        return Caps(self.max_requests, self.max_tokens, micro)

    def environment(self) -> "Environment":
        """Return the variables that the configuration may name; see `known`."""
        from grpo_practice.config.input import known

        return known(self.env)

    def call(self, database: Path) -> str:
        """Return the Python call of this request; a long value appears as its field's name."""
        # Positional fields come first, then the method's own keywords, then common ones.
        common = {of.name for of in fields(RunRequest)}
        words = [
            f"{of.name}={shown}" if of.kw_only else shown
            for of in sorted(fields(self), key=lambda of: (bool(of.kw_only), of.name in common))
            if of.name not in ("on_event", "again", "pilot")
            and (value := getattr(self, of.name)) not in (None, False, (), [], {}, of.default)
            and (shown := _argument(of.name, value))
        ]
        return f"Workspace({str(database)!r}).{self.method}({', '.join(words)})"


def keywords(request: RunRequest, kind: type[RunRequest] | None = None) -> dict[str, Any]:
    """Return the fields of a request, or only those that another kind of request also has."""
    return {of.name: getattr(request, of.name) for of in fields(kind or request)}


def check_least(name: str, value: int | None, least: int) -> None:
    """Raise ConfigError unless the value is None or a whole number of at least `least`."""
    if value is not None and not isinstance(value, int):
        raise ConfigError(f"{name} {value!r}: should be a whole number")
    if value is not None and value < least:
        raise ConfigError(f"{name} {value}: should be {least} or more")


def check_share(share: float) -> None:
    """Raise ConfigError unless the share of groups to trace is above 0 and at most 1."""
    if not 0 < share <= 1:
        raise ConfigError(f"trace_sample {share:g}: should be above 0 and at most 1")


def _argument(name: str, value: object) -> str:
    match value:
        case bool() | int() | float():
            return repr(value)
        case str() | Path() if "\n" not in str(value):
            return repr(redactor.text(str(value)))
        case _:
            own = getattr(value, "__name__", "")
            return own if callable(value) and own.isidentifier() else name


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest(RunRequest):
    """Request for a run that OpenTelemetry can trace."""

    trace_content: bool = option(
        True,
        "Whether traces, if sent, include questions and answers.",
        type=YES_OR_NO,
    )
    trace_sample: float = option(
        1.0,
        "Share of the questions to trace: 0.1 is one in ten.",
        type=float,
        metavar="SHARE",
    )

    @override
    def __post_init__(self) -> None:
        # Not super(): `slots=True` makes a second class, and super() would refer to the first one.
        RunRequest.__post_init__(self)
        check_share(self.trace_sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotedRequest(TracedRequest):
    """Request for a run that can begin with a pilot of a few questions."""

    pilot: int | None = number("Play and keep N questions, then forecast.", metavar="N")
