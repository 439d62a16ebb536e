"""`verify` scores answers: each built-in function, one of one's own, and what cannot be scored."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.endpoint.actions import always, ok
from tests.contract.endpoint.server import serving

SCORED: Sequence[tuple[str, str, str, float]] = [
    ("math", "1/2", r"So it is \boxed{0.5}.", 1),
    ("math", "1/2", r"\boxed{\frac{2}{4}}", 1),
    ("math", "1/2", r"\boxed{0.6}", 0),
    ("math", "25", "The answer is 25.", 1),
    ("math", r"\sqrt{8}", r"\boxed{2\sqrt{2}}", 1),
    ("math", "[0, 1)", r"\boxed{[0, 1)}", 1),
    ("math", "x = 3", r"\boxed{3}", 1),
    ("math", "25", "", 0),
    ("exact", "Paris", "It is\nparis", 1),
    ("exact", "Paris", "It is\nRome", 0),
    ("contains", "Paris", "Paris it is", 1),
    ("contains", "Paris", "Parisian", 0),
    ("choice", "B", "Answer: B", 1),
    ("choice", "B", "Answer: C", 0),
    ("choice", "A", "**A**", 1),
]
"""Function, right answer, response, reward."""
OWN = """
def plain(sample):
    return float(sample.correct_answer in sample.response)
def full(sample, *, low: float = 0.0):
    right = sample.correct_answer in sample.response
    return {"reward": 1.0 if right else low, "reasoning": f"wanted {sample.correct_answer}"}
def counts(sample):
    return True
async def waits(sample):
    return True
def out(sample):
    return 1.5
def odd(sample):
    return "good"
def leaves(sample):
    raise SystemExit(3)
"""


def test_each_built_in_gives_its_reward(gp: Gp) -> None:
    wrong = {}
    for name, answer, response, reward in SCORED:
        ran = gp("verify", name, "--answer", answer, "--response", response, "--json")
        if ran.code != 0 or ran.document["reward"] != reward:
            wrong[name, answer, response] = ran
    assert wrong == {}
    said = gp("verify", "math", "--answer", "25", "--response", r"\boxed{24}").out
    assert "expected 25, the answer was 24" in said


def test_parameters_are_given_and_checked(gp: Gp) -> None:
    words = ("--answer", "Paris", "--response", "It is Paris", "--json")
    ran = gp("verify", "regex", *words, "--param", r"pattern=is (\w+)")
    assert ran.document["reward"] == 1
    assert gp("verify", "regex", *words, "--param", "pattern=(").code == 2
    said = "--param pattern=1e-3 is a text in YAML; for a number, write pattern=0.001"
    assert said in gp("verify", "regex", *words, "--param", "pattern=1e-3").err
    assert gp("verify", "regex", *words, "--param", "patern=x").code == 2
    unknown = gp("verify", "maths", *words)
    assert unknown.code == 2
    assert "math" in unknown.document["hint"]


def test_a_function_of_one_s_own_scores_or_says_why_not(gp: Gp) -> None:
    Path("own.py").write_text(OWN)
    words = ("--answer", "2", "--response", "2", "--json")
    assert gp("verify", "own.py:plain", *words).document["reward"] == 1
    full = gp("verify", "own.py:full", "--answer", "2", "--response", "3", "--json").document
    assert (full["reward"], full["critique"]) == (0, "wanted 2")
    assert gp("verify", "own.py:counts", *words).document["reward"] == 1
    for name, said in (
        ("out", "1.5"),
        ("odd", "good"),
        ("leaves", "3"),
        ("waits", "llm"),
        ("no", "no"),
    ):
        ran = gp("verify", f"own.py:{name}", *words)
        assert ran.code in (1, 2), ran
        assert said in ran.document["message"], ran


def test_a_judge_is_asked_and_its_reply_is_read(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_LLM_MODEL", "j")
    words = ("verify", "judge", "--answer", "Paris", "--response", "It is Paris", "--json")
    for reply, reward in (("It fits.\nGRADE: CORRECT", 1), ("No.\nGRADE: INCORRECT", 0)):
        with serving(always(ok(reply))) as server:
            monkeypatch.setenv("JUDGE_LLM_BASE_URL", server.url)
            ran = gp(*words)
        assert ran.document["reward"] == reward, ran
        assert server.asked[0].stage == "judge"
    with serving(always(ok("I cannot say."))) as server:
        monkeypatch.setenv("JUDGE_LLM_BASE_URL", server.url)
        ran = gp(*words)
    assert ran.code == 1, "a judge without a verdict is no reward 0"
