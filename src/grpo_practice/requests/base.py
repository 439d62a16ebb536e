"""Runs as they are asked for: each field is a keyword in Python, and most are options of a command.

Nothing here imports the configuration: a command that only reads would wait for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from grpo_practice.errors import ConfigError
from grpo_practice.redact import redactor

if TYPE_CHECKING:
    from grpo_practice.config import Environment
    from grpo_practice.config.input import Override
    from grpo_practice.events import Emit
    from grpo_practice.llm.budget import Caps

YES_OR_NO = Literal["yes", "no"]
"""Type, on the command line, of a field that is True by default."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a command fills a field."""

    names: Sequence[str] = ()
    """`--pass-k`, `-k`; empty for the field's own name."""
    type: Any = str
    """Type of the value as it is typed."""
    least: float | None = None
    metavar: str | None = None
    stored: Literal["datasets", "runs"] | None = None
    """Stored names that the shell completes the value with."""
    blank: bool = False
    """Whether an empty text gives no value: `--dataset "$UNSET"`."""


def keyword(default: Any, text: str) -> Any:
    """Return a field that only Python fills; `text` documents it."""
    metadata = {"text": text}
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
    """Return a field that is an option, too, with `text` as its help; `how` is for `Option`.

    The value is laid over the configuration at the dotted `key`, if it has one. `python` documents
    the keyword if that is more than the option.
    """
    of = Option(names, **{"blank": key is not None, **how})
    return field(
        default=default, metadata={"text": python or text, "key": key, "as": of, "help": text}
    )


def number(text: str, *names: str, least: int = 1, key: str | None = None, **how: Any) -> Any:
    """Return an option for a whole number of at least `least`."""
    return option(None, text, *names, key=key, type=int, least=least, **how)


def option_of(of: "Field[Any]") -> Option | None:
    """Return how a command fills a field; None for a field that only Python fills."""
    found: Option | None = of.metadata.get("as")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The fields that all requests for a run have."""

    method: ClassVar[str]
    """Method of `Workspace` that takes the fields as keywords."""

    overrides: Mapping[str, Any] = keyword(
        dict, "Typed values by dotted key, laid over those of `sets`."
    )
    sets: Sequence[str] = option(
        (),
        "Set one key of the config; repeatable.",
        "--set",
        python="Texts `KEY=VALUE`, values read as YAML, laid over the configuration first.",
        type=list[str],
        metavar="KEY=VALUE",
    )
    env: Mapping[str, str] | None = keyword(
        None,
        "Variables that the config may name; None: the process's, and those of `.env`. Those that"
        " `environment(trust=…)` returns trust files or hosts, too.",
    )
    verify: str | Callable[..., Any] | None = keyword(
        None, "Verify function in place of the configured one: its name, or a Python function."
    )
    max_cost: float | None = option(
        None,
        "Pause before the run costs more.",
        python="Pause before the run costs more US dollars.",
        type=float,
        least=0,
        metavar="USD",
    )
    max_tokens: int | None = number("Pause before it takes more, in + out.", least=0, metavar="N")
    max_requests: int | None = number("Pause before it sends more.", least=0, metavar="N")
    restart_step: int | None = number(
        "Keep the steps before N and play the others afresh (default: continue).",
        least=0,
        metavar="N",
    )
    again: bool = option(
        False,
        "With --restart-step: repeat it, even if it is under way or finished.",
        "--again",
        python="Repeat the restart at `restart_step`, even if it is under way or finished.",
        type=bool,
    )
    verbose: bool = option(
        False, "Also say which keys of the config have no effect.", "--verbose", "-v", type=bool
    )
    on_event: "Emit | None" = keyword(
        None, "Callback for progress. An exception in it is logged, and the run goes on."
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is too small."""
        for of in fields(self):
            how, value = option_of(of), getattr(self, of.name)
            if how and how.least is not None and value is not None and how.type is int:
                check_least(of.name, value, int(how.least))
        cost: object = self.max_cost  # Python may have given anything
        if cost is None:
            return
        if not isinstance(cost, int | float) or not (math.isfinite(cost) and cost >= 0):
            raise ConfigError(f"--max-cost {cost}: should be dollars, for instance 2.50")

    @property
    def changes(self) -> "list[Override]":
        """All that is laid over the configuration, in this order."""
        keyed = [(of.metadata.get("key"), getattr(self, of.name)) for of in fields(self)]
        return [
            *self.sets,
            *self.overrides.items(),
            *((key, value) for key, value in keyed if key is not None and value is not None),
        ]

    @property
    def caps(self) -> "Caps":
        """The limits at which the run pauses."""
        from grpo_practice.llm.budget import Caps

        micro = None if self.max_cost is None else round(self.max_cost * 1e6)
        return Caps(self.max_requests, self.max_tokens, micro)

    def environment(self) -> "Environment":
        """Return the variables; see `known`."""
        from grpo_practice.config.input import known

        return known(self.env)

    def call(self, database: Path) -> str:
        """Return the call from Python as it can be made again; a long value goes by its name."""
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
    """Return the fields of a request, or those that another kind of request has, too."""
    return {of.name: getattr(request, of.name) for of in fields(kind or request)}


def check_least(name: str, value: int | None, least: int) -> None:
    """Raise ConfigError if a value is given that is no whole number, or less than `least`."""
    if value is not None and not isinstance(value, int):
        raise ConfigError(f"{name} {value!r}: should be a whole number")
    if value is not None and value < least:
        raise ConfigError(f"{name} {value}: should be {least} or more")


def check_share(share: float) -> None:
    """Raise ConfigError unless it is a share of the groups that can be traced."""
    if not 0 < share <= 1:
        raise ConfigError(f"trace_sample {share:g}: should be above 0, and 1 at most")


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
    """A run that OpenTelemetry can follow."""

    trace_content: bool = option(
        True,
        "Whether traces show questions and answers, where they are sent.",
        type=YES_OR_NO,
    )
    trace_sample: float = option(
        1.0,
        "Trace this share of the questions: 0.1 is one in ten.",
        type=float,
        metavar="SHARE",
    )

    @override
    def __post_init__(self) -> None:
        RunRequest.__post_init__(self)
        check_share(self.trace_sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotedRequest(TracedRequest):
    """A run of which a little can be played first."""

    pilot: int | None = number("Play N questions, keep them, and forecast.", metavar="N")
