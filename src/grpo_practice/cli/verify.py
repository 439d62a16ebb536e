"""`verify`: run a verify function on one answer."""

import shlex
from collections.abc import Iterable
from contextlib import suppress
from json import dumps as json_text
from typing import Annotated, Any

import typer

from grpo_practice.cli.options import (
    PROGRAM,
    JsonOption,
    TrustHostOption,
    needed_model,
    trusting,
    workspace,
)
from grpo_practice.cli.terminal.formatting import note, print_json, reward, say, say_next, warn
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.core.errors import ConfigError, GrpoPracticeError


def verify(
    function: Annotated[
        str, typer.Argument(metavar="NAME|FILE.py:FUNC", help="math, exact, …, or your own.")
    ],
    answer: Annotated[str, typer.Option(help="The correct answer.")],
    response: Annotated[str, typer.Option(help="The agent's response.")],
    question: Annotated[str, typer.Option(help="The question.")] = "",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="Parameter of the function; repeatable."),
    ] = None,
    trust_host: TrustHostOption = None,
    json: JsonOption = False,
) -> None:
    r"""Score one answer with a verify function.

    A function that calls a judge uses JUDGE_LLM_* or UTU_LLM_*, from the environment or .env.

    Example: grpo-practice verify math --answer 25 --response 'It is \boxed{25}.'
    """
    from grpo_practice.core.types import Sample

    params, sample = _params(param or []), Sample(question, answer)
    # None delays reading `.env` until a judge needs it, because an unreadable file must not stop
    # functions that need no judge.
    env = trusting(None, trust_host) if trust_host else None
    scored = workspace(None).score_answer(
        function, sample, response, params, env=env, on_event=warn
    )
    if json:
        print_json(scored.document())
        return
    verdict = scored.verdict
    say(f"reward {reward(verdict.reward)}", style="bold")
    time = f"{scored.seconds:.3f} s"
    read, critique = verdict.extracted or "", verdict.critique or ""
    facts([("read", read), ("critique", critique), ("time", time)])
    say_next(_next(function, params))


def _next(function: str, params: dict[str, Any]) -> str:
    """Return the command that scores a dataset this way, or one that starts a project.

    If this folder's project evaluates, its config supplies the model and the number of attempts.
    """
    from grpo_practice.config.reading.discover import TEMPLATES, project_evaluation

    named = f" --verify {shlex.quote(function)}"
    if params:
        spec = json_text({"name": function, **params}, ensure_ascii=False)
        named += f" --set {shlex.quote(f'verify={spec}')}"
    # Used only for advice, so its errors are left to the command that needs the project.
    with suppress(GrpoPracticeError):
        rows = workspace(None).datasets.list().datasets
        project = project_evaluation()
        if project.at("data").data.get("dataset") in {row.name for row in rows}:
            alike = project.data.get("verify") in (function, {"name": function, **params})
            return f"{PROGRAM} eval --config {TEMPLATES[0]}{'' if alike else named}"
        if rows:
            newest = max(rows, key=lambda row: row.id).name
            return f"{PROGRAM} eval{needed_model()} --dataset {shlex.quote(newest)}{named}"
    return f"{PROGRAM} init my-task"


def _params(pairs: Iterable[str]) -> dict[str, Any]:
    from grpo_practice.config.reading.problems import number_in
    from grpo_practice.config.reading.yaml_reader import plain

    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise ConfigError(f"--param {pair!r} is not KEY=VALUE", hint="--param fast_path=false")
        params[key] = plain(value)
        if isinstance(params[key], str) and (number := number_in(params[key])) is not None:
            note(f"--param {pair} is a text in YAML; for a number, write {key}={number}")
    return params
