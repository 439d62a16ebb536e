"""A Python function as a verify function, called in this process."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, EndpointError, JudgeError, VerifyError
from grpo_practice.core.played import EvaluationSample
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.resolve import resolve, resolve_callable
from grpo_practice.verify.verifier import Verifier
from tests.verify.test_judge import Scripted

SAMPLE = Sample("What?", "that", meta={"k": 1})


def returns(sample: EvaluationSample, result: Any = None, timeout_score: float = 0) -> Any:
    return f"{sample.question} {sample.response} {timeout_score}" if result == "echo" else result


async def later(sample: EvaluationSample) -> float:
    await asyncio.sleep(0)
    return 0.5


def returns_awaitable(sample: EvaluationSample) -> Any:
    return later(sample)


def raises(sample: EvaluationSample, **kwargs: Any) -> float:
    raise SystemExit("oh no")


async def asks(sample: EvaluationSample, llm: Any) -> bool:
    return bool(await llm.query_one("right?") == "yes")


async def hides(sample: EvaluationSample, **kwargs: Any) -> float:
    with suppress(Exception):
        await kwargs["llm"].query_one("?")
    return 0.0


class Counter:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def score(self, sample: EvaluationSample) -> float:
        self.seen.append(f"{sample.response} {threading.current_thread().daemon}")
        return 1


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (1, Verdict(1.0)),
        (0.25, Verdict(0.25)),
        (True, Verdict(1.0)),
        (False, Verdict(0.0)),
        ({"reward": 0.5, "reasoning": "half"}, Verdict(0.5, "half")),
    ],
)
async def test_a_number_a_bool_and_a_dict_are_rewards(result: Any, verdict: Verdict) -> None:
    async with Verifier(resolve_callable(returns, {"result": result})) as verify:
        assert await verify(SAMPLE, "it", None) == verdict


@pytest.mark.parametrize(
    ("function", "params", "why"),
    [
        (returns, {}, "returned None"),
        (returns, {"result": 2}, "the reward 2"),
        (returns, {"result": "1"}, "returned '1'"),
        (returns, {"result": {"reward": True}}, "the reward True"),
        (returns, {"result": "echo", "timeout_score": 0.5}, "'What\\? it 0.5'"),
        (raises, {}, "raised SystemExit: oh no"),
    ],
)
async def test_a_failure_of_the_function_is_an_error_and_never_a_reward(
    function: Any, params: dict[str, Any], why: str
) -> None:
    async with Verifier(resolve_callable(function, params)) as verify:
        with pytest.raises(VerifyError, match=why) as caught:
            await verify(SAMPLE, "it", None)
    assert f"{__name__}:{function.__name__}" in str(caught.value)


async def test_async_functions_run_on_the_loop_and_others_on_a_thread() -> None:
    counter = Counter()
    for function, reward in ((later, 0.5), (returns_awaitable, 0.5), (counter.score, 1.0)):
        assert (await Verifier(resolve_callable(function, {}))(SAMPLE, "it", None)).reward == reward
    assert counter.seen == ["it True"]


async def test_a_function_that_takes_llm_asks_the_judge_whose_failure_it_cannot_hide() -> None:
    function = resolve_callable(asks, {})
    assert function.is_judge
    assert not resolve_callable(later, {}).is_judge
    assert (await Verifier(function)(SAMPLE, "it", Scripted("yes"))).reward == 1.0
    with pytest.raises(ConfigError, match="none is configured"):
        await Verifier(function)(SAMPLE, "it", None)
    with pytest.raises(JudgeError, match="HTTP 503"):
        failing = Scripted(EndpointError("HTTP 503"))
        await Verifier(resolve_callable(hides, {}))(SAMPLE, "it", failing)


async def test_a_function_out_of_time_is_left_alone() -> None:
    release, ended = threading.Event(), threading.Event()

    def hangs(sample: EvaluationSample, timeout_score: float = 0) -> float:
        release.wait()
        ended.set()
        return 1.0

    with pytest.raises(VerifyError, match=r"took longer than 0\.01 s"):
        await Verifier(resolve_callable(hangs, {}, 0.01))(SAMPLE, "it", None)
    scored = resolve_callable(hangs, {"timeout_score": 0.1}, 0.01)
    assert (await Verifier(scored)(SAMPLE, "it", None)).reward == 0.1
    release.set()
    assert await asyncio.to_thread(ended.wait, 60)


def test_the_identity_is_name_parameters_and_source() -> None:
    function = resolve(returns, {"result": 1}, None, Path())
    assert (function.name, function.kind) == (f"{__name__}:returns", "function object")
    assert function.source is not None
    assert function.source.startswith("def returns(")
    assert not function.needs_answer
    assert function.sha == resolve_callable(returns, {"result": 1}, 5.0).sha
    same_name = "def returns(sample, result=None):\n    return 1.0\n"
    other = Path("tests/verify/other.py")
    scope: dict[str, Any] = {"__name__": __name__}
    exec(compile(same_name, str(other), "exec"), scope)
    shas = {function.sha, resolve_callable(returns, {"result": 2}).sha}
    assert len(shas | {resolve_callable(later, {}).sha}) == 3
    with pytest.raises(ConfigError, match="source") as caught:
        resolve_callable(scope["returns"], {})
    assert "define it with `def` in a file" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("function", "params", "why"),
    [
        (partial(returns, result=1), {}, "its source"),
        (Counter(), {}, "its source"),
        (Counter, {}, "a class is not a function"),
        (later, {"x": 1}, "cannot be called with a sample"),
        (returns, {"timeout_score": 2}, r"in \[0, 1\]"),
        (returns, {"result": {1, 2}}, "not plain values"),
    ],
)
def test_what_cannot_score_is_an_error_at_once(
    function: Any, params: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        resolve_callable(function, params)
