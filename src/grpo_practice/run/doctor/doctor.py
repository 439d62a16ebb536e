"""All findings of `doctor`: about the machine, and about a configuration if there is one."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.config import Environment, EvalConfig, PracticeConfig, RunConfig
from grpo_practice.config.input import ConfigInput, known
from grpo_practice.config.reading.discover import config_here
from grpo_practice.config.trust.keys import sentences
from grpo_practice.core.errors import ConfigError, GrpoPracticeError
from grpo_practice.core.findings import Finding, exit_code, ok, problem, problems, totals, warning
from grpo_practice.core.text import count
from grpo_practice.llm.prices import Prices
from grpo_practice.reports.base import Report
from grpo_practice.run.any_config import load_config
from grpo_practice.run.doctor.data import (
    diagnose_prompts,
    diagnose_questions,
    diagnose_verify,
    samples_of,
)
from grpo_practice.run.doctor.endpoints import (
    asked_for,
    diagnose_models,
    diagnose_teacher,
    models_of,
)
from grpo_practice.run.doctor.line import settings_to_lower
from grpo_practice.run.doctor.machine import current, diagnose_machine
from grpo_practice.run.doctor.tools import diagnose_tools
from grpo_practice.run.specs import configured_prompts, teacher_context_text
from grpo_practice.store import Store

SliceCheck = Callable[[PracticeConfig, Path], Sequence[Finding]]
"""Check of a practice configuration; the folder is the base of its relative paths."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Report):
    """All findings, in the order in which a run would encounter them."""

    schema: ClassVar = "grpo-practice.doctor/1"

    findings: Sequence[Finding]
    requests: int = 0
    """Number of requests sent to endpoints."""

    @property
    @override
    def exit_code(self) -> int:
        """Exit code of the first problem; 0 if there is no problem."""
        return exit_code(self.findings)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each finding."""
        rows = ((f.severity, f"{f.about}: {f.sentence}") for f in self.findings)
        return [(totals(self.findings),), *rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """The database and the configuration to check."""

    database: Path
    config: ConfigInput | None = None
    """Configuration in any form; None uses the configuration of the latest run, if there is one."""
    overrides: Sequence[str] = ()
    """Overrides as texts, `KEY=VALUE`."""
    agent: Path | None = None
    """Agent file to be evaluated with this configuration."""
    run: bool = False
    """Whether to try the programs that the configuration names."""
    env: Mapping[str, str] | None = None
    """Variables that the configuration may name; None uses the process's and `.env`."""
    slice_checks: Sequence[SliceCheck] = ()
    """Additional checks from slices."""


async def diagnose(
    request: DoctorRequest, notice: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Check everything that can be checked; return problems, never raise them.

    The check sends two tiny requests to each endpoint, two more at once to a local server, and one
    tiny comparison to the teacher, and it opens each toolkit; nothing is stored. The programs that
    a configuration names are run only if `request.run` is set.

    Args:
        request: The database and the configuration.
        notice: Receives a text about the next requests and their number.
    """
    findings = list[Finding]()
    try:
        env = known(request.env)
    except ConfigError as e:
        env = Environment(os.environ)  # continue without `.env`, to report other problems as well
        findings.append(problem(".env", e))
    findings += diagnose_machine(request.database, env)
    requests = 0
    # The check adds to the list, so that an error does not lose the findings before it.
    try:
        requests = await _check_config(request, env, findings, notice)
    except GrpoPracticeError as e:
        findings.append(problem("config", e))
    return Diagnosis(findings, requests)


async def _check_config(
    request: DoctorRequest, env: Environment, findings: list[Finding], notice: Callable[[str], None]
) -> int:
    """Add findings about a configuration's contents; return the number of requests sent."""
    path = request.database
    if path.exists() and not current(path):
        findings.append(warning("config", "not checked: the database has to be usable first"))
        return 0
    stored = path.exists()
    unnamed = request.config is None and request.agent is None
    if unnamed and not stored and config_here("eval") is None:
        text = "no config and no run yet: endpoints, verify function and data are not checked"
        findings.append(warning("config", text, "doctor --config FILE"))
        return 0
    # Opening a missing database would create the file.
    open_store = partial(Store, path) if stored else None
    loaded = load_config(request.config, request.overrides, env, open_store, agent=request.agent)
    which = "the latest run's config" if request.config is None else "the given config"
    findings.append(ok("config", f"{loaded.path or which} can be used"))
    for sentence in sentences(loaded.routes):
        notice(sentence)
        findings.append(ok("keys", sentence))
    for text in (text for text in loaded.notices if text not in env.notices):
        findings.append((ok if text in loaded.addresses else warning)("config", text))
    config, folder = loaded.config, loaded.base_dir
    evaluation = config.evaluation
    with ExitStack() as held:
        store = held.enter_context(Store(path)) if path.exists() else None
        data, lacking = samples_of(config, store, folder, held)
        findings += diagnose_prompts(config, store, folder)
        findings += [*lacking, *diagnose_questions(data)]
        findings += await diagnose_verify(config, data, folder, run=request.run)
    findings += await diagnose_tools(evaluation.agent, folder, run=request.run)
    match config:
        case PracticeConfig():
            if not config.only_trains:
                findings.append(ok("teacher", f"is given {teacher_context_text(config)}"))
            for check in request.slice_checks:
                findings += check(config, folder)
            findings += _diagnose_approval(config)
        case EvalConfig():
            pass
    return await _diagnose_endpoints(config, folder, findings, notice)


async def _diagnose_endpoints(
    config: RunConfig, folder: Path, findings: list[Finding], notice: Callable[[str], None]
) -> int:
    """Add findings about the models; return the number of requests sent."""
    models, to_lower = models_of(config), settings_to_lower(config)
    requests = asked_for(models, to_lower)
    if requests:
        notice(f"sending {count(requests, 'tiny request')} to {count(len(models), 'model')}")
    prices, tools = Prices(config.evaluation.prices), bool(config.evaluation.agent.toolkits)
    key = config.key("prices")
    findings += await diagnose_models(models, prices, key, to_lower, tools=tools)
    # A finding names all roles of its model, as in `student, teacher`. A teacher that already
    # failed would only fail again, and slowly.
    broken = {at for found in problems(findings) for at in found.about.split(", ")}
    if config.kind == "practice" and not (config.only_trains or broken & {"teacher", "prompts"}):
        prompts = configured_prompts(config, folder)
        found, more = await diagnose_teacher(config, prompts, prices, notice)
        findings += found
        requests += more
    return requests


def _diagnose_approval(config: PracticeConfig) -> list[Finding]:
    """Return a warning if an agent learns from the web and no person reviews its experiences."""
    if config.practice.approve or not config.evaluation.agent.page_tools:
        return []
    text = "the agent reads the web, and its experiences enter its instructions without a review"
    hint = (
        "set practice.approve: true, and review the held texts in `grpo-practice experiences list`;"
        " without it, text that only one site supports is quarantined unless"
        " practice.trusted_sites names the site"
    )
    return [warning("practice.approve", text, hint)]
