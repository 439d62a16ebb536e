"""Scoring of a single answer, outside of any run, and its report."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from grpo_practice.config import Environment, EvalConfig, Loaded, load_eval
from grpo_practice.config.input import known
from grpo_practice.config.trust.keys import sentences
from grpo_practice.config.trust.word import host_of
from grpo_practice.core.calls import Address, Chat, Entry, Reply, Scope
from grpo_practice.core.errors import ConfigError, EndpointError
from grpo_practice.core.events import Emit, Notice, silent, tee
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.llm.admission import Admission
from grpo_practice.reports.base import Report
from grpo_practice.run.clients import Connections, Models
from grpo_practice.verify.builtin import BUILT_INS
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.verifier import Verifier, without_rollout


@dataclass(frozen=True, slots=True, repr=False)
class ScoredAnswer(Report):
    """Verdict of a verify function on one answer, and the time it took."""

    schema: ClassVar = "grpo-practice.verdict/1"
    in_document: ClassVar = (
        "verify",
        "verdict.reward",
        "verdict.critique",
        "verdict.extracted",
        "seconds",
    )

    verify: str
    verdict: Verdict
    seconds: float


async def score_answer(
    function: str,
    sample: Sample,
    response: str,
    params: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    on_event: Emit = silent,
) -> ScoredAnswer:
    """Score one response with a built-in verify function, or FILE.py:FUNC in the current folder.

    A function with a judge calls the model set in JUDGE_LLM_* or UTU_LLM_*. Without `env`, these
    variables are looked up in the process's environment and in `.env`.

    Raises:
        ConfigError: The function, its parameters, the answer or the judge cannot be used.
        StepError: The function cannot judge this response.
    """
    # Do this before its rules are read, because the command line cannot pass lists, and would be
    # blamed for that.
    if (built_in := BUILT_INS.get(function)) and built_in.reads_rollout:
        raise without_rollout(function)
    resolved = resolve(function, params or {}, None, Path.cwd())
    if unusable := check_gold(resolved, sample):
        raise ConfigError(unusable, hint="give it another --answer")
    judge = None
    if resolved.is_judge:
        loaded = _judge(known(env))
        judge = loaded.config.judge
        asked = host_of(judge.model_provider.base_url)  # only the judge is called
        routes = [route for route in loaded.routes if route.to == asked]
        for text in [*sentences(routes), *loaded.notices]:
            tee(on_event)(Notice(text))
    started = monotonic()
    connections = Connections(silent, concurrency=(1, 1), admission=Admission())
    models = Models(connections, _NoLedger(), silent, {})
    async with connections, Verifier(resolved) as score:
        chat: Chat | None = None
        if judge is not None:
            scope = Scope(Address(0, 0, 0, 0, "judge"), 0, sample.sha, 0)
            chat = (await models.chats(judge, "judge"))(scope)
        verdict = await score(sample, response, chat)
    return ScoredAnswer(resolved.name, verdict, monotonic() - started)


def _judge(env: Environment) -> Loaded[EvalConfig]:
    """Return an evaluation with the judge that is used if the config does not name one."""
    overrides = ["exp_id=verify", "verify=judge", "data.dataset=none"]
    if not env.get("UTU_LLM_MODEL"):  # no agent plays, so no model is required
        overrides.append("agent.model.model_provider.model=sim")
        if not env.get("JUDGE_LLM_MODEL"):
            raise ConfigError(
                "this function needs a judge, but none is configured",
                hint="set JUDGE_LLM_MODEL, JUDGE_LLM_BASE_URL and JUDGE_LLM_API_KEY",
            )
    return load_eval(None, overrides, env)


class _NoLedger:
    """A `Ledger` for calls outside of any run, which stores nothing."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        return None

    async def put(self, entry: Entry) -> int:
        return 0

    def fail(self, address: Address, error: EndpointError) -> None:
        pass
