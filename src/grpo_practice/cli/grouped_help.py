"""Help for commands with many options: options in groups, with descriptive placeholders."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

FEW = 10
"""Maximum number of options that are listed without groups."""
_OF_GROUP = {
    "What to run": (
        *("--config", "--agent", "--model", "--base-url", "--dataset", "--verify"),
        *("--exp-id", "--pass-k", "--limit", "--attempts", "--epochs", "--batch-size"),
        *("--grpo-n", "--truncate", "--from", "--arms", "--step", "--set"),
    ),
    "Rows": (
        *("--from-run", "--map", "--shape", "--format", "--delimiter", "--split", "--revision"),
        *("--template", "--seed", "--dedup", "--skip-bad", "--no-answers"),
    ),
    "Name": ("--name", "--replace", "--append"),
    "Speed and cost": (
        *("--concurrency", "--max-cost", "--max-tokens", "--max-requests", "--dry-run"),
        "--pilot",
    ),
    "Replaying and rescoring": ("--restart-step", "--again", "--rejudge", "--run"),
    "Traces": ("--trace-content", "--trace-sample"),
    "Trust": ("--trust", "--trust-host"),
}
GROUPS = {option: group for group, options in _OF_GROUP.items() for option in options}
"""Group of each option by its long name; other options are listed last, under `Options`."""

_PLACES = {option: place for place, option in enumerate(GROUPS)}

_NUMBER = re.compile(r"<(?:int|float)(?: range)?>")
_TYPE = re.compile(r" <[\w\[\]]+>$")
_COUNT = re.compile(r"\bx>=[01](?:; |(?=\]))")
"""Pattern that matches the range of a count; the range is obvious, so it is not shown."""
_FROM = re.compile(r"\bx>=(\d+)\b")


class _Plain:
    """Converter that calls Typer only for values that Typer may change or refuse.

    Typer imports pydantic to convert any option, even one that was not given. The import takes half
    the time of a read-only command.
    """

    def __init__(self, typers: Callable[[], Any]) -> None:
        self._typers = typers

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value in the form in which the command's function receives it."""
        if value is None and param.nargs == 1:
            return None
        # Other texts may contain invalid Unicode, which pydantic refuses.
        if param.type_descriptor.annotation is str and isinstance(value, str) and value.isascii():
            return value
        return self._typers().coerce(value, param=param, ctx=ctx)


def _plainly(params: list[Any]) -> list[Any]:
    """Make the options use Typer's conversion only if necessary."""
    for param in params:
        # Typer may return the same parameters again, so wrap each of them only once.
        if not isinstance(param.get_runtime_param, partial):
            param.get_runtime_param = partial(_Plain, param.get_runtime_param)
    return params


class Commands(TyperGroup):
    """The program, or a group of commands in it."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return _plainly(super().get_params(ctx))


class GroupedCommand(TyperCommand):
    """A command whose help lists many options in groups."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return _plainly(super().get_params(ctx))

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, groups = (
            [],
            {group: list[tuple[str, str]]() for group in (*_OF_GROUP, "Options")},
        )
        params = sorted(self.get_params(ctx), key=_place)
        many = sum(p.param_type_name == "option" for p in params) > FEW
        for param in params:
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                arguments.append((_TYPE.sub("", record[0]), record[1]))
                continue
            name = max(param.opts, key=len)
            group = GROUPS.get(name, "Options") if many else "Options"
            groups[group].append(_plain(name, *record))
        # A heading for a single option takes more room than it saves.
        for group in [group for group, records in groups.items() if len(records) == 1]:
            groups["Options"][:0] = groups.pop(group)
        for title, records in {"Arguments": arguments, **groups}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _place(param: Any) -> int:
    """Return the position of an option for sorting; options without a group come last."""
    return _PLACES.get(max(param.opts, key=len), len(_PLACES))


def _plain(name: str, option: str, text: str) -> tuple[str, str]:
    """Return a help line with N for a number and the option's name for a text."""
    option = _NUMBER.sub("N", option).replace("<str>", name.removeprefix("--").upper())
    text = _FROM.sub(r"\1 or more", _COUNT.sub("", text))
    return option, text.removesuffix("  []")


def group_options(app: typer.Typer) -> None:
    """Make all commands of the program list their options in groups."""
    for command in app.registered_commands:
        command.cls = GroupedCommand
    for inner in app.registered_groups:
        inner.cls = Commands
        if inner.typer_instance is not None:
            group_options(inner.typer_instance)
