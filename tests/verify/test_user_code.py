import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core import processes
from grpo_practice.core.errors import EndpointError, EndpointRefusedError, JudgeError, VerifyError
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier
from tests.processes import HANG_S
from tests.verify.test_judge import Scripted

SAMPLE = Sample("What?", "that", source="src", level="3", meta={"k": [1]})

FUNCTIONS = """
import asyncio, os, sys, time
from utu.db import EvaluationSample

class Timeout(BaseException):
    pass

def by_response(sample: EvaluationSample, timeout_score=0, **kwargs) -> dict:
    match sample.response:
        case "none": return None
        case "text": return {"reward": "1"}
        case "nan": return {"reward": float("nan")}
        case "inf": return {"reward": float("inf")}
        case "high": return {"reward": 1.7}
        case "low": return {"reward": -0.1}
        case "true": return {"reward": True}
        case "null": return {"reward": None}
        case "no reward": return {"score": 1.0}
        case "list": return [1.0]
        case "reasoning": return {"reward": 1.0, "reasoning": ["no", "text"]}
        case "lambda": return lambda: 1
        case "raises": raise ValueError("oh\\nno")
        case "exits": sys.exit(0)
        case "base": raise Timeout("out of time")
        case "dies": os._exit(7)
        case "hangs":
            if "began" in sample.meta:
                open(sample.meta["began"] + str(os.getpid()), "w").close()
            time.sleep(600)
        case "spins": sum(range(10 ** 13))  # C code that never looks for signals
        case "eats": return {"reward": len(bytearray(1 << 34)) * 0.0}
        case "prints":
            print("by print")
            os.write(1, b"by write")
        case "coroutine":
            async def later():
                await asyncio.sleep(0)
                return {"reward": 0.5, "reasoning": "later"}
            return later()
        case "pid": return {"reward": 1.0, "reasoning": str(os.getpid())}
        case "int": return {"reward": 1, "reasoning": "", "extracted": "1"}
    return {"reward": 0.25, "reasoning": f"{timeout_score} {kwargs.get('k')}"}

def fields(sample, **kwargs):
    sample.note = "may be set"
    seen = [sample.raw_question, sample.question, sample.correct_answer, sample.response,
            sample.source, sample.level, sample.meta, sample.augmented_question,
            sample.extracted_final_answer, sample.get("file_name", "-"), sample.note]
    return {"reward": 1.0, "reasoning": repr(seen)}

async def asks(sample, timeout_score=0, **kwargs):
    text = await kwargs["llm"].query_one(messages=f"Is {sample.response} right?")
    return {"reward": 1.0 if text == "yes" else 0.0, "reasoning": text}

async def hides(sample, llm):
    try:
        await llm.query_one([{"role": "user", "content": "?"}])
    except Exception:
        pass
    return {"reward": 0.0, "reasoning": "made up"}

async def sleeps(sample, timeout_score=0, llm=None):
    await asyncio.sleep(60)

async def exits(sample, llm):
    sys.exit(1)

async def bad(sample, llm):
    return {"reward": 2}
"""


def verifier(tmp_path: Path, func: str, timeout_s: float | None = None, **params: Any) -> Verifier:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return Verifier(resolve(f"mine.py:{func}", params, timeout_s, tmp_path))


async def test_a_bad_result_is_an_error_naming_file_function_and_value(tmp_path: Path) -> None:
    bad = {
        "none": "returned None",
        "text": "the reward '1'",
        "nan": "the reward nan",
        "inf": "the reward inf",
        "high": "the reward 1.7",
        "low": "the reward -0.1",
        "true": "the reward True",
        "null": "the reward None",
        "no reward": "{'score': 1.0}",
        "list": "[1.0]",
        "reasoning": "the reasoning ['no', 'text']",
        "lambda": "<function",
        "raises": "raised ValueError: oh\nno",
        "exits": "raised SystemExit: 0",
        "base": "raised Timeout: out of time",
    } | ({"eats": "raised MemoryError"} if processes.STATM.exists() else {})
    async with verifier(tmp_path, "by_response") as verify:
        for response, why in bad.items():
            with pytest.raises(VerifyError) as caught:
                await verify(SAMPLE, response, None)
            assert why in str(caught.value)
            assert f"{tmp_path / 'mine.py'}:by_response" in str(caught.value)


async def test_a_good_result_is_the_verdict(tmp_path: Path) -> None:
    async with verifier(tmp_path, "by_response", k="v") as verify:
        assert await verify(SAMPLE, "coroutine", None) == Verdict(0.5, "later")
        assert await verify(SAMPLE, "int", None) == Verdict(1.0, None, "1")
        assert await verify(SAMPLE, "other", None) == Verdict(0.25, "0 v")
        pid = (await verify(SAMPLE, "pid", None)).critique
        assert pid != str(os.getpid())


ASKING = """
import asyncio, pathlib
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

async def main():
    async with Verifier(resolve("mine.py:by_response", {}, None, pathlib.Path())) as verify:
        print("reward", (await verify(Sample("q"), "prints", None)).reward)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.long
def test_what_a_function_prints_goes_to_stderr_and_not_among_the_data(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "ask.py").write_text(ASKING)
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "ask.py"],
        cwd=tmp_path,
        env=buffered,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.stdout == "reward 0.25\n"
    assert "by print" in done.stderr
    assert "by write" in done.stderr


async def test_a_function_sees_the_references_fields_and_none_for_missing_ones(
    tmp_path: Path,
) -> None:
    async with verifier(tmp_path, "fields") as verify:
        seen = (await verify(SAMPLE, "r", None)).critique
        numbers = (await verify(Sample("q", 4.5), "r", None)).critique
        listed = (await verify(Sample("q", ["a", 1]), "r", None)).critique
    wanted = ["What?", "What?", "that", "r", "src", "3", {"k": [1]}, None, None, "-", "may be set"]
    assert seen == repr(wanted)
    assert numbers is not None
    assert "'4.5'" in numbers
    assert listed is not None
    assert "['a', '1']" in listed


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("responze", "a sample has no field 'responze'; did you mean response?"),
        ("answer", "a sample has no field 'answer'; did you mean correct_answer?"),
        ("raw_queston", "did you mean raw_question?"),
        ("options", "a sample has no field 'options'; other columns of a row are in sample.meta"),
    ],
)
async def test_a_misspelt_field_is_an_error_that_names_the_nearest_one(
    tmp_path: Path, field: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(f"def f(sample):\n    return sample.{field} == 'r'\n")
    async with Verifier(resolve("mine.py:f", {}, None, tmp_path)) as verify:
        with pytest.raises(VerifyError) as caught:
            await verify(SAMPLE, "r", None)
    assert said in str(caught.value)
    assert "(line 2: return sample." in str(caught.value)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("response", ["hangs", "spins"])
async def test_a_hanging_function_is_killed_and_the_pool_goes_on(
    tmp_path: Path, response: str
) -> None:
    async with verifier(tmp_path, "by_response", 0.3) as verify:
        hung = [asyncio.create_task(verify(SAMPLE, response, None)) for _ in range(2)]
        rest = asyncio.create_task(verify(SAMPLE, "int", None))
        for task in hung:
            with pytest.raises(VerifyError, match=r"took longer than 0\.3 s"):
                await task
        assert (await rest).reward == 1.0


async def test_the_timeout_score_is_used_only_where_it_is_set(tmp_path: Path) -> None:
    async with verifier(tmp_path, "by_response", 0.3, timeout_score=0.1) as verify:
        verdict = await verify(SAMPLE, "hangs", None)
        assert verdict.reward == 0.1
        assert "took longer" in (verdict.critique or "")
        assert await verify(SAMPLE, "other", None) == Verdict(0.25, "0.1 None")


async def test_a_worker_that_dies_is_an_error_of_its_answer_alone(tmp_path: Path) -> None:
    async with verifier(tmp_path, "by_response") as verify:
        with pytest.raises(VerifyError, match="ended its worker"):
            await verify(SAMPLE, "dies", None)
        assert (await verify(SAMPLE, "int", None)).reward == 1.0


async def test_cancelling_ends_the_call_and_leaves_the_workers_usable(tmp_path: Path) -> None:
    began = tmp_path / "began"
    began.mkdir()
    sample = Sample("What?", "that", meta={"began": f"{began}/"})
    async with verifier(tmp_path, "by_response", 600.0) as verify:
        hung = [asyncio.create_task(verify(sample, "hangs", None)) for _ in range(2)]
        while len(list(began.iterdir())) < 2:  # noqa: ASYNC110 - the workers have no event
            await asyncio.sleep(0.01)
        for task in hung:
            task.cancel()
        assert (await verify(SAMPLE, "int", None)).reward == 1.0


async def test_the_file_is_used_as_it_was_at_the_start(tmp_path: Path) -> None:
    async with verifier(tmp_path, "by_response") as verify:
        (tmp_path / "mine.py").write_text("raise RuntimeError('changed')")
        assert (await verify(SAMPLE, "int", None)).reward == 1.0


async def test_an_async_function_asks_the_judge_on_the_loop(tmp_path: Path) -> None:
    chat = Scripted("yes", "no")
    async with verifier(tmp_path, "asks") as verify:
        assert await verify(SAMPLE, "it", chat) == Verdict(1.0, "yes")
        assert (await verify(SAMPLE, "it", chat)).reward == 0.0
    assert chat.asked[0] == ([{"role": "user", "content": "Is it right?"}], 0)


@pytest.mark.parametrize("func", ["asks", "hides"])
async def test_a_failed_judge_is_never_a_reward_even_if_the_function_hides_it(
    tmp_path: Path, func: str
) -> None:
    verify = verifier(tmp_path, func)
    with pytest.raises(JudgeError, match="HTTP 503"):
        await verify(SAMPLE, "it", Scripted(EndpointError("HTTP 503")))
    with pytest.raises(EndpointRefusedError, match="bad key"):
        await verify(SAMPLE, "it", Scripted(EndpointRefusedError("bad key")))


async def test_an_async_function_is_bound_by_a_time_limit_and_the_contract(tmp_path: Path) -> None:
    chat = Scripted()
    with pytest.raises(VerifyError, match="took longer"):
        await verifier(tmp_path, "sleeps", 0.05)(SAMPLE, "it", chat)
    scored = await verifier(tmp_path, "sleeps", 0.05, timeout_score=1)(SAMPLE, "it", chat)
    assert scored.reward == 1.0
    with pytest.raises(VerifyError, match="SystemExit"):
        await verifier(tmp_path, "exits")(SAMPLE, "it", chat)
    with pytest.raises(VerifyError, match="the reward 2"):
        await verifier(tmp_path, "bad")(SAMPLE, "it", chat)


async def test_no_worker_starts_before_one_is_needed_and_none_is_left_behind(
    tmp_path: Path,
) -> None:
    async with Verifier(resolve("math", {}, None, tmp_path)) as verify:
        assert (await verify(Sample("q", 5), "5", None)).reward == 1.0
        assert verify._pool._pool is None
    async with verifier(tmp_path, "by_response") as verify:
        pid = int((await verify(SAMPLE, "pid", None)).critique or "0")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
