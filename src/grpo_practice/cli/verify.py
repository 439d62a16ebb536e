"""`verify`: a verify function alone, on one answer."""

import os
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_practice.cli.options import PROGRAM, JsonOption
from grpo_practice.cli.terminal.formatting import note, print_json, reward, say
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.calls import Address, Entry, Reply
    from grpo_practice.config import ModelConfig
    from grpo_practice.errors import EndpointError
    from grpo_practice.types import Sample, Verdict
    from grpo_practice.verify.resolve import VerifyFunction


def verify(
    function: Annotated[
        str, typer.Argument(metavar="NAME|FILE.py:FUNC", help="math, exact, …, or your own.")
    ],
    answer: Annotated[str, typer.Option(help="The right answer.")],
    response: Annotated[str, typer.Option(help="What the agent said.")],
    question: Annotated[str, typer.Option(help="What it was asked.")] = "",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="Of the function; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    r"""Score one answer with a verify function.

    A function that asks a judge uses JUDGE_LLM_* or UTU_LLM_*, from the environment or .env.

    Example: grpo-practice verify math --answer 25 --response 'It is \boxed{25}.'
    """
    import asyncio

    from grpo_practice.types import Sample
    from grpo_practice.verify.resolve import check_gold, resolve

    found = resolve(function, _params(param or []), None, Path.cwd())
    sample = Sample(question, answer)
    unusable = check_gold(found, sample)
    if unusable:
        raise ConfigError(unusable, hint="give it another --answer")
    judge = _judge_model() if found.is_judge else None
    started = monotonic()
    verdict = asyncio.run(_score(found, sample, response, judge))
    seconds = monotonic() - started
    if json:
        print_json(
            {
                "schema": "grpo-practice.verdict/1",
                "verify": found.name,
                "reward": verdict.reward,
                "critique": verdict.critique,
                "extracted": verdict.extracted,
                "seconds": round(seconds, 3),
                "exit": 0,
            }
        )
    else:
        _show(verdict, seconds)
        say(f"next: {PROGRAM} eval --model MODEL --dataset NAME --verify {function}")


def _show(verdict: "Verdict", seconds: float) -> None:
    say(f"reward {reward(verdict.reward)}", style="bold")
    facts(
        [
            ("read", verdict.extracted or ""),
            ("critique", verdict.critique or ""),
            ("time", f"{seconds:.3f} s"),
        ]
    )


def _params(pairs: Iterable[str]) -> dict[str, Any]:
    from grpo_practice.config.reading.yaml_reader import plain

    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise ConfigError(f"--param {pair!r} is not KEY=VALUE", hint="--param fast_path=false")
        params[key] = plain(value)
    return params


def _judge_model() -> "ModelConfig":
    """The model that judges, as an evaluation that says nothing of it would find it."""
    from grpo_practice.config import load_eval, read_environment

    env = read_environment(os.environ)
    for text in env.notices:
        note(f"note: {text}", style="yellow")
    overrides = ["exp_id=verify", "verify=judge", "data.dataset=none"]
    if not env.get("UTU_LLM_MODEL"):  # nobody plays here, so it need not be named
        overrides.append("agent.model.model_provider.model=sim")
        if not env.get("JUDGE_LLM_MODEL"):
            raise ConfigError(
                "this function asks a judge, and none is configured",
                hint="set JUDGE_LLM_MODEL, JUDGE_LLM_BASE_URL and JUDGE_LLM_API_KEY",
            )
    return load_eval(None, overrides, env).config.judge


async def _score(
    function: "VerifyFunction", sample: "Sample", response: str, judge: "ModelConfig | None"
) -> "Verdict":
    from grpo_practice.app.clients import Models
    from grpo_practice.calls import Address, Scope
    from grpo_practice.events import silent
    from grpo_practice.llm.admission import Admission
    from grpo_practice.verify.verifier import Verifier

    models = Models(
        _NoLedger(),
        silent,
        concurrency=(1, 1),
        admission=Admission(),
        prices={},
    )
    async with models, Verifier(function) as score:
        chat = None
        if judge is not None:
            scope = Scope(Address(0, 0, 0, 0, "judge"), 0, sample.sha, 0)
            chat = (await models.chats(judge, "judge"))(scope)
        return await score(sample, response, chat)


class _NoLedger:
    """A `Ledger` for calls outside of any run: nothing is kept."""

    async def get(self, address: "Address", request_hash: bytes, nth: int) -> "Reply | None":
        return None

    async def put(self, entry: "Entry") -> int:
        return 0

    def fail(self, address: "Address", error: "EndpointError") -> None:
        pass
