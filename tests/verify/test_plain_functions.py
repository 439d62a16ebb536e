"""A plain `def` in a file: it may ask the judge, return a number, and is told where it broke."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import EndpointError, JudgeError, VerifyError
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.resolve import resolve, resolve_callable
from grpo_practice.verify.verifier import Verifier
from tests.verify.test_judge import Scripted

SAMPLE = Sample("What?", "that")
FUNCTIONS = """
import threading

def asks(sample, llm):
    return llm.query_one(f"Is {sample.response} right?") == "yes"

def takes(sample, timeout_score=0, **kwargs):
    text = kwargs["llm"].query_one([{"role": "user", "content": "?"}])
    return {"reward": 0.5, "reasoning": text}

def gets(sample, **kwargs):
    llm = kwargs.get("llm")
    return llm is not None and llm.query_one("?") == "yes"

def hides(sample, llm=None):
    try:
        llm.query_one("?")
    except Exception:
        return 0.0

def number(sample, **kwargs):
    return {"yes": True, "no": False, "half": 0.5, "one": 1, "two": 2, "text": "1"}[sample.response]

def hands_on(sample, timeout_score=0, **kwargs):
    return graded(sample, **kwargs)

def graded(sample, lenient=False, llm=None):
    return llm.query_one("?") == "yes"

def optional(sample, timeout_score=0, **kwargs):
    return kwargs.get("lenient") is None and kwargs.pop("strict", 1)

def broken(sample):
    value = {}
    return value["reward"]  # here

async def broken_too(sample, **kwargs):
    return deeper(sample)

def prints(sample, llm):
    print("asked", llm.query_one("?"))
    return 1

async def prints_too(sample, llm):
    print("asked", await llm.query_one("?"))
    return 1

def deeper(sample):
    return 1 / 0

def later(sample, llm):
    async def answer():
        return llm.query_one("?")
    return answer()
"""


def verifier(tmp_path: Path, func: str, timeout_s: float | None = None) -> Verifier:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return Verifier(resolve(f"mine.py:{func}", {}, timeout_s, tmp_path))


def plain(sample: Any, llm: Any) -> float:
    assert threading.current_thread() is not threading.main_thread()
    return float(llm.query_one("right?") == "yes")


def breaks(sample: Any) -> float:
    raise ValueError("oh")  # here, too


@pytest.mark.parametrize("func", ["prints", "prints_too"])
async def test_what_a_function_prints_is_no_output_of_the_command(
    tmp_path: Path, func: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with verifier(tmp_path, func) as score:
        assert (await score(SAMPLE, "it", Scripted("yes"))).reward == 1
    sys.stdout.write("done")
    assert capsys.readouterr() == ("done", "asked yes\n")


async def test_a_plain_function_asks_the_judge_and_waits_for_it(tmp_path: Path) -> None:
    chat = Scripted("yes", "no", "well said", "yes", "yes")
    asks = verifier(tmp_path, "asks")
    assert asks.function.is_judge
    assert (await asks(SAMPLE, "it", chat)).reward == 1
    assert (await asks(SAMPLE, "it", chat)).reward == 0
    assert await verifier(tmp_path, "takes")(SAMPLE, "it", chat) == Verdict(0.5, "well said")
    assert (await verifier(tmp_path, "gets")(SAMPLE, "it", chat)).reward == 1
    assert (await Verifier(resolve_callable(plain, {}))(SAMPLE, "it", chat)).reward == 1
    assert chat.asked[0] == ([{"role": "user", "content": "Is it right?"}], 0)


async def test_its_judges_failure_is_no_reward_even_where_it_hides_it(tmp_path: Path) -> None:
    for func in ("asks", "hides"):
        with pytest.raises(JudgeError, match="HTTP 503"):
            failing = Scripted(EndpointError("HTTP 503"))
            await verifier(tmp_path, func)(SAMPLE, "it", failing)


async def test_a_plain_function_that_hands_its_kwargs_on_is_given_llm(tmp_path: Path) -> None:
    hands_on = verifier(tmp_path, "hands_on")
    assert hands_on.function.is_judge
    assert (await hands_on(SAMPLE, "it", Scripted("yes"))).reward == 1


async def test_a_function_that_reads_other_keywords_alone_stays_in_a_worker(
    tmp_path: Path,
) -> None:
    async with verifier(tmp_path, "optional") as verify:
        assert verify.function.runs == "worker"
        assert not verify.function.is_judge
        assert (await verify(SAMPLE, "it", None)).reward == 1


async def test_nobody_is_asked_for_an_answer_that_is_out_of_time(tmp_path: Path) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def never(*_: object, **__: object) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(VerifyError, match="took longer"):
        await verifier(tmp_path, "asks", 0.5)(SAMPLE, "it", never)
    assert asked.is_set()
    await cancelled.wait()


@pytest.mark.parametrize(("response", "reward"), [("yes", 1), ("no", 0), ("half", 0.5), ("one", 1)])
async def test_a_number_and_a_bool_are_rewards(
    tmp_path: Path, response: str, reward: float
) -> None:
    async with verifier(tmp_path, "number") as verify:
        assert await verify(SAMPLE, response, None) == Verdict(reward)


async def test_any_other_value_is_no_reward(tmp_path: Path) -> None:
    async with verifier(tmp_path, "number") as verify:
        with pytest.raises(VerifyError, match="the reward 2"):
            await verify(SAMPLE, "two", None)
        with pytest.raises(VerifyError, match="returned '1', not a number in"):
            await verify(SAMPLE, "text", None)


async def test_an_exception_names_the_line_of_their_file(tmp_path: Path) -> None:
    lines = FUNCTIONS.splitlines()
    for func, line, source in (
        ("broken", lines.index('    return value["reward"]  # here') + 1, 'return value["reward"]'),
        ("broken_too", lines.index("    return 1 / 0") + 1, "return 1 / 0"),
    ):
        async with verifier(tmp_path, func) as verify:
            with pytest.raises(VerifyError) as caught:
                await verify(SAMPLE, "it", Scripted())
        assert f"(line {line}: {source}" in str(caught.value)
    with pytest.raises(VerifyError, match=r"raised ValueError: oh \(line \d+: raise ValueError"):
        await Verifier(resolve_callable(breaks, {}))(SAMPLE, "it", None)


async def test_a_coroutine_that_would_block_the_loop_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match=r"must be defined with `async def`"):
        await verifier(tmp_path, "later")(SAMPLE, "it", Scripted("x"))
