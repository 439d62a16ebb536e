"""The difference that an evaluation could find is said before it is paid for."""

import json
from pathlib import Path

import pytest

from grpo_practice.core.stats.power import OMEGA, SIGMA2, Noise, detectable
from tests.cli.conftest import Gp

ASKED = ("--dataset", "test", "--model", "sim", "--verify", "math", "--dry-run")


def test_without_any_evaluation_it_rests_on_what_is_usual(demo: Gp) -> None:
    words = ("eval", *ASKED, "--exp-id", "fresh", "-k", "4")
    power = demo(*words, "--json").document["power"]
    ends = [
        detectable(Noise(omega**2, sigma2, sigma2), 40, 4, 4)
        for omega, sigma2 in zip(OMEGA, SIGMA2, strict=True)
    ]
    assert power["finds"] == pytest.approx(ends, abs=1e-4)
    assert (power["questions"], power["k"], power["measured"]) == (40, 4, False)
    low, high = (f"{100 * end:.1f}" for end in ends)
    said = f"a difference of {low} to {high} points, with 80 % power (40 questions \u00d7 4, partly"
    assert said in " ".join(demo(*words).out.split())


def test_what_was_measured_is_used(demo: Gp) -> None:
    practice = ("practice", "--config", "practice.yaml", "--restart-step", "0", "--dry-run")
    power = demo(*practice, "--json").document["power"]
    assert (power["questions"], power["k"], power["measured"]) == (40, 2, True)
    found = demo("runs", "compare", "demo/eval", "demo", "--json").document["contrasts"][0]
    low, high = power["finds"]
    # The plan knows the variance of each run, but not how the two vary together.
    assert low / 1.2 < found["could_find"] < high * 1.2
    assert "detectable" in demo(*practice).out


@pytest.mark.long
@pytest.mark.parametrize("words", [("-k", "4"), ("-k", "2", "--again")])
def test_a_plan_that_begins_runs_anew_or_lets_them_grow_rests_on_what_they_measured(
    demo: Gp, words: tuple[str, ...]
) -> None:
    arms = ("eval", "--run", "demo", "--arms", "none,full", *words)
    power = demo(*arms, "--dry-run", "--json").document["power"]
    assert (power["questions"], power["measured"]) == (40, True)
    # A run that was paused on its way has not lost what it measured before.
    assert demo(*arms, "--max-requests", "20").code == 6
    if "--again" not in words:
        assert demo(*arms, "--dry-run", "--json").document["power"]["measured"]
    going_on = [word for word in arms if word != "--again"]
    ran = demo(*going_on, "--json")
    assert ran.code == 0, ran.err
    low, high = power["finds"]
    assert low < ran.document["contrasts"][0]["could_find"] < high


def test_few_questions_find_nothing(demo: Gp) -> None:
    words = ("eval", *ASKED, "--exp-id", "fresh", "--limit", "9")
    assert demo(*words, "--json").document["power"]["finds"] is None
    assert "no difference, because 9 questions \u00d7 1 are too few" in demo(*words).out


def test_a_practice_without_an_evaluation_has_none(demo: Gp) -> None:
    words = ("practice", "--config", "practice.yaml", "--exp-id", "other", "--dry-run")
    off = ("--set", "practice.do_eval=false")
    assert demo(*words, *off, "--json").document["power"] is None
    assert "detectable" not in demo(*words, *off).out


def test_questions_of_a_family_are_fewer_than_they_seem(demo: Gp) -> None:
    rows = [json.loads(line) for line in Path("test.jsonl").read_text().splitlines()]
    for families, told in ((20, True), (8, False)):
        grouped = [row | {"cluster": f"f{i % families}"} for i, row in enumerate(rows)]
        Path("families.jsonl").write_text("\n".join(map(json.dumps, grouped)))
        assert demo("data", "upload", "families.jsonl", "--name", "in", "--replace").code == 0
        words = ("eval", "--dataset", "in", *ASKED[2:], "--exp-id", "fresh", "-k", "4")
        power = demo(*words, "--json").document["power"]
        assert (power["questions"], power["effective_clusters"]) == (40, families)
        asked = f"40 questions \u00d7 4 in families worth {families} independent questions"
        assert asked in " ".join(demo(*words).out.split())
        assert (power["finds"] is not None) == told
        if told:
            low, high = OMEGA[0] ** 2 / 2, OMEGA[1] ** 2  # two of a family: as any, or alike
            ends = [
                detectable(Noise(omega2, sigma2 / 2, sigma2 / 2), families, 4, 4)
                for omega2, sigma2 in zip((low, high), SIGMA2, strict=True)
            ]
            assert power["finds"] == pytest.approx(ends, abs=1e-4)
