"""`doctor`: what would go wrong, before a run is paid."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpo_practice.cli.options import ConfigOption, DbOption, JsonOption, SetOption, database
from grpo_practice.cli.terminal.formatting import count, note, print_json, say

if TYPE_CHECKING:
    from grpo_practice.config import Environment
    from grpo_practice.doctor.machine import Finding

STYLES = {"ok": None, "warning": "yellow", "problem": "red"}


def doctor(
    config: ConfigOption = None,
    set_: SetOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine, the database, the endpoints, the tools, the verify function and the data.

    Each endpoint is asked two tiny questions, and each toolkit is opened; nothing of it is stored.
    Without --config the latest run's configuration is looked at, and without a run the machine
    alone.

    Example: grpo-practice doctor --config practice.yaml
    """
    from grpo_practice.config import Environment, read_environment
    from grpo_practice.doctor.machine import look_here, problem
    from grpo_practice.errors import ConfigError, GrpoPracticeError

    path, found = database(db), []
    try:
        env = read_environment(os.environ)
    except ConfigError as e:
        env = Environment(os.environ)
        found.append(problem(".env", e))
    found += look_here(path, env)
    requests = 0
    try:
        requests = _configured(found, config, set_ or [], db, env)
    except GrpoPracticeError as e:
        found.append(problem("config", e))
    code = next((f.exit_code for f in found if f.state == "problem"), 0)
    if json:
        print_json(_document(found, requests, code))
    else:
        _show(found)
    if code:
        raise typer.Exit(code)


def _configured(
    found: "list[Finding]",
    config: str | None,
    overrides: Sequence[str],
    db: Path | None,
    env: "Environment",
) -> int:
    """Add what the configuration leads to; how many requests were made."""
    import asyncio

    from grpo_practice.app.specs import teacher_context_text
    from grpo_practice.cli.config import load
    from grpo_practice.doctor.data import look_at_questions, look_at_verify, samples_of
    from grpo_practice.doctor.endpoints import asked_for, look_at_models, models_of
    from grpo_practice.doctor.machine import current, ok, warning
    from grpo_practice.doctor.tools import look_at_tools
    from grpo_practice.llm.prices import Prices
    from grpo_practice.store import Store

    path = database(db)
    if path.exists() and not current(path):
        found.append(warning("config", "not looked at: the database has to be usable first"))
        return 0
    if config is None and not path.exists():
        text = "none given, and no run yet: endpoints, verify function and data are not checked"
        found.append(warning("config", text, "doctor --config FILE"))
        return 0
    loaded = load(config, overrides, db, env)
    found.append(ok("config", f"{loaded.path or 'that of the latest run'} can be used"))
    found += [warning("config", text) for text in loaded.notices if text not in env.notices]
    settings = loaded.config
    evaluation = settings.evaluation
    with Store(path) if path.exists() else nullcontext() as store:
        data, lacking = samples_of(settings, store, loaded.base_dir)
    found += [*lacking, *look_at_questions(data)]
    found += asyncio.run(look_at_verify(settings, data, loaded.base_dir))
    found += asyncio.run(look_at_tools(evaluation.agent, loaded.base_dir))
    models = models_of(settings)
    if settings.kind == "practice":
        found.append(ok("teacher", f"is given {teacher_context_text(settings)}"))
    requests = asked_for(models)
    if requests:
        note(f"asking {count(requests, 'tiny request')} of {count(len(models), 'model')}")
    prices, tools = Prices(evaluation.prices), bool(evaluation.agent.toolkits)
    found += asyncio.run(look_at_models(models, prices, settings.key("prices"), tools=tools))
    return requests


def _document(found: Sequence["Finding"], requests: int, code: int) -> dict[str, object]:
    return {
        "schema": "grpo-practice.doctor/1",
        "findings": [
            {"about": f.about, "state": f.state, "text": f.text, "hint": f.hint} for f in found
        ],
        "requests": {"new": requests},
        "exit": code,
    }


def _show(found: Sequence["Finding"]) -> None:
    for finding in found:
        say(f"{finding.state:8} {finding.about}: {finding.text}", style=STYLES[finding.state])
        if finding.hint:
            say(f"{'':8} hint: {finding.hint}")
    problems = sum(f.state == "problem" for f in found)
    warnings = sum(f.state == "warning" for f in found)
    say(f"{count(problems, 'problem')}, {count(warnings, 'warning')}", style="bold")
