"""Reports say what a score rests on, what went wrong, what it cost and what comes next."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.build.reports import EvalReport, Known, PracticeReport
from grpo_practice.calls import Usage
from grpo_practice.cli.reports import show_eval, show_practice
from grpo_practice.metrics import Question, Score, score
from grpo_practice.store.records import Branch, DatasetRow, StepRow
from grpo_practice.store.scores import Requests
from grpo_practice.types import Experience, Library, PlannedStep

HOSTILE = "HTTP 503 \x1b[2J[bold]x"
LIBRARY = Library(tuple(Experience(i, f"Name {i}: do [this]\x07") for i in range(1, 13)), 13, id=8)
BRANCH = Branch(2, "math/eval", 0, (), 1, 1, LIBRARY, {})
DATASET = DatasetRow(1, "AIME24", 1, "00", 30, "file", "2026-01-01T00:00:00.000+00:00")


def scored(n: int = 30, right: int = 20, k: int = 4) -> Score:
    counts = [k if i < right else 1 for i in range(n)]
    return score((Question(str(i), k, c, float(c), float(c), k) for i, c in enumerate(counts)), k)


REPORT = EvalReport(
    run="math/eval",
    branch=BRANCH,
    simulated=False,
    dataset=DATASET,
    agent="math_agent",
    library=LIBRARY,
    k=4,
    score=scored(),
    by_source={},
    outcomes={"ok": 105, "truncated": 12, "error.provider": 3},
    failures={HOSTILE: 2, "other": 1},
    usage=Usage(1_234_567, 300_000, 45_678, None),
    unpriced=0,
    requests=Requests(120, 3),
    replayed=7,
    seconds=190.0,
    seconds_per_rollout=1.5,
)


def test_an_eval_report_says_all_that_the_score_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_eval(REPORT)
    text = " ".join(capsys.readouterr().out.split())
    assert "agent math_agent with 12 experiences (L8)" in text
    assert "dataset AIME24, 30 questions" in text
    assert "score 0.750 95 % interval 0." in text
    assert "pass @1 0.750 @2 " in text
    assert "90 correct, 120 scored of 120 planned (coverage 100.0 %)" in text
    assert "outcomes 12 truncated, 3 error.provider" in text
    assert r"errors 2 times HTTP 503 \x1b[2J[bold]x; and 1 other" in text
    assert "10 % of the answers ran out of tokens: raise max_tokens" in text
    assert "requests 120 new, 7 replayed from the file, 3 failed" in text
    assert "in all 1.23M tokens in (300.0k cached), 45.7k out" in text
    assert "time 3 min 10 s" in text
    assert text.endswith("next: the same command again asks only the 3 rollouts that failed")
    assert "simulated" not in text


def test_a_clean_eval_report_is_short_and_names_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clean = replace(
        REPORT, simulated=True, library=None, failures={}, outcomes={"ok": 119, "truncated": 1}
    )
    show_eval(clean)
    text = capsys.readouterr().out
    assert "(simulated" in text.splitlines()[0]
    assert "ran out of tokens" not in text
    assert "errors" not in text
    assert "experiences" not in text
    assert text.splitlines()[-1] == "next: grpo-practice runs show math/eval"
    show_eval(clean, next_command="grpo-practice practice")
    assert capsys.readouterr().out.splitlines()[-1] == "next: grpo-practice practice"


def test_a_score_without_an_interval_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, score=scored(1, 1)))
    assert "95 % interval none: too few questions" in capsys.readouterr().out


def test_money_is_shown_when_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(REPORT)
    assert "cost" not in capsys.readouterr().out
    show_eval(replace(REPORT, usage=Usage(None, None, 1, None, 2_900_000), unpriced=2))
    text = capsys.readouterr().out
    assert "$2.90, and 2 calls without a price" in text
    assert "unknown tokens in, 1 out" in text


def test_mixed_datasets_are_reported_by_source(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, by_source={"aime\x1b[2J": scored(20), "amc": scored(10, 5)}))
    text = capsys.readouterr().out
    assert r"aime\x1b[2J" in text
    assert "\x1b" not in text


def step(n: int, status: str, out: int) -> StepRow:
    stats = {"mean_reward": 0.5, "informative": 3, "experiences": 12}
    return StepRow(1, PlannedStep(n, 0, n, ((1, 5), (2, 5))), status, None, out, None, stats)


PRACTICE = PracticeReport(
    run="math",
    branch=BRANCH,
    simulated=False,
    steps=[step(0, "closed", 7), step(1, "closed", 8)],
    evals={1: Known("math/eval/L1", "AIME24", scored(30, 25))},
    library=LIBRARY,
    before=Known("math/eval", "AIME24", scored()),
    after=Known("math/eval/L1", "AIME24", scored(30, 25)),
    usage=Usage(10, 0, 20),
    unpriced=0,
    requests=Requests(1, 0),
    replayed=0,
    seconds=1.0,
    hashes={},
    costs={},
)


def test_a_practice_report_shows_steps_before_and_after_and_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_practice(PRACTICE)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    assert rows[2] == ["0", "0", "0.500", "3", "of", "2", "12", "L7", "closed"]
    assert rows[3][:9] == ["1", "0", "0.500", "3", "of", "2", "12", "L8", "closed"]
    assert rows[3][9] == "0.875"
    text = "\n".join(lines)
    assert "before  0.750   95 % interval" in text
    assert "after   0.875   95 % interval" in text
    assert "other questions" not in text
    assert "12 experiences in L8" in text
    assert r"E10  Name 10: do [this]\x07" in text
    assert "E11" not in text
    assert "and 2 more: grpo-practice experiences list --run math" in text
    assert lines[-1] == "next: grpo-practice export-agent --run math"


@pytest.mark.parametrize(
    "before", [Known("math/eval", "AIME25", scored()), Known("math/eval", "AIME24", scored(10, 5))]
)
def test_scores_of_other_questions_are_not_compared(
    capsys: pytest.CaptureFixture[str], before: Known
) -> None:
    show_practice(replace(PRACTICE, before=before))
    assert "their difference says nothing" in capsys.readouterr().out


def test_a_failed_merge_never_passes_as_success(capsys: pytest.CaptureFixture[str]) -> None:
    show_practice(replace(PRACTICE, steps=[step(0, "closed", 7), step(1, "merge_failed", 7)]))
    text = capsys.readouterr().out
    assert "merge failed" in text
    assert "step 1: the merge failed and the library is unchanged" in text
    assert text.splitlines()[-1] == "next: grpo-practice practice --restart-step 1"


def test_paths_are_not_wrapped_when_nobody_looks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    show_eval(replace(REPORT, run=f"math/eval/{'x' * 150}"))
    assert "x" * 150 in capsys.readouterr().out
