"""Command options generated from the fields of a request."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_practice.cli.options import dataset_names, run_names
from grpo_practice.cli.terminal.formatting import warn
from grpo_practice.run.requests.base import YES_OR_NO, Option, RunRequest, option_of

if TYPE_CHECKING:
    from grpo_practice.core.events import Emit

_STORED = {"datasets": dataset_names, "runs": run_names, None: None}


def shown(*, dry_run: bool, json: bool) -> "AbstractContextManager[Emit]":
    """Return a context manager that shows a run's progress, or only the notices of a dry run."""
    if dry_run:
        return nullcontext(warn)
    from grpo_practice.cli.terminal.progress_view import progress

    return progress(json=json)


def takes_request(
    kind: type[RunRequest],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a kind of request to a command.

    The command is called with the request and with its own options.
    """
    given = {of.name: (of, how) for of in fields(kind) if (how := option_of(of)) is not None}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:
            asked = {name: _value(values.pop(name), how) for name, (_, how) in given.items()}
            command(kind(**asked), **values)

        own = list(signature(command, eval_str=True).parameters.values())[1:]
        options = [_parameter(of, how) for of, how in given.values()]
        # Keyword-only, so that parameters without a default may follow others.
        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*options, *own)]
        # typer reads both the annotations and the signature.
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        called.__dict__["__signature__"] = signature(command).replace(parameters=parameters)
        return called

    return decorated


def _parameter(of: "Field[Any]", how: Option) -> Parameter:
    """Return a field of a request as a parameter that typer turns into an option."""
    option = typer.Option(
        *(how.names or (f"--{of.name.replace('_', '-')}",)),
        help=of.metadata["help"],
        metavar=how.metavar,
        min=how.least,
        autocompletion=_STORED[how.stored],
        dir_okay=False,
    )
    default = "yes" if of.default is True else None if of.default == () else of.default
    typed = how.type | None if default is None else how.type
    return Parameter(
        of.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, option]
    )


def _value(typed: Any, how: Option) -> Any:
    """Convert a typed value to the request's type."""
    if how.type == list[str]:
        return typed or ()
    if how.type == YES_OR_NO:
        return typed == "yes"
    return None if how.blank and typed == "" else typed
