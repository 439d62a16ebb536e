"""Reports say what a score rests on, what went wrong, what it cost and what comes next."""

from dataclasses import replace

import pytest

from grpo_practice.cli.terminal.reports_view import show_eval, show_practice
from grpo_practice.core.calls import Usage
from grpo_practice.core.stats import Question, Score, score
from grpo_practice.core.types import Experience, Library, PlannedStep
from grpo_practice.reports.known_scores import KnownScore
from grpo_practice.reports.run_reports import EvalReport, PracticeReport
from grpo_practice.store.queries.run_health import Health, Shrunk
from grpo_practice.store.queries.scores import Requests
from grpo_practice.store.records import Branch, DatasetRow, StepRow

LIMIT = "hint: raise agent.model.model_settings.max_tokens"
HOSTILE = "HTTP 503 \x1b[2J[bold]x"
LIBRARY = Library(tuple(Experience(i, f"Name {i}: do [this]\x07") for i in range(1, 13)), 13, id=8)
BRANCH = Branch(2, "math/eval", 0, (), 1, 1, LIBRARY, {})
DATASET = DatasetRow(1, "AIME24", 1, "00", 30, "file", "2026-01-01T00:00:00.000+00:00")


def scored(n: int = 30, right: int = 20, k: int = 4) -> Score:
    counts = [k if i < right else 1 for i in range(n)]
    return score((Question(str(i), k, c, float(c), float(c), k) for i, c in enumerate(counts)), k)


KEY = "evaluation.prices (in an evaluation's file: prices)"
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
    unpriced={"gpt-x": 120},
    requests=Requests(120, 3),
    replayed=7,
    seconds=190.0,
    seconds_per_rollout=1.5,
    health=Health(),
)


def test_an_eval_report_says_all_that_the_score_rests_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["grpo-practice", "eval", "--restart-step=0", "--again"])
    show_eval(REPORT)
    text = " ".join(capsys.readouterr().out.split())
    assert "agent math_agent with 12 experiences (L8)" in text
    assert "dataset AIME24, 30 questions" in text
    assert "score 0.750 95 % interval 0." in text
    assert "pass @1 0.750 @2 " in text
    assert "90 correct, 120 scored of 120 planned (coverage 100.0 %)" in text
    assert "outcomes 12 truncated, 3 error.provider" in text
    assert r"errors 2 times HTTP 503 \x1b[2J[bold]x; and 1 other" in text
    cut = "warning truncated: 12 of 117 answers ran out of tokens"
    assert f"{cut} {LIMIT} type: grpo-practice rollouts list math/eval --failed" in text
    assert "requests 120 new, 7 replayed from the file, 3 failed" in text
    assert "total 1.23M tokens in (300.0k cached, 24 %), 45.7k out" in text
    assert "time 3 min 10 s" in text
    assert text.endswith("next: grpo-practice eval (retries only the 3 rollouts that failed)")
    assert "simulated" not in text


@pytest.mark.parametrize(
    ("cached", "said"), [(None, "1.23M tokens in, 45.7k out"), (0, "(0 cached, 0 %)")]
)
def test_what_was_cached_is_not_0_where_nobody_says_so(
    cached: int | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_eval(replace(REPORT, usage=replace(REPORT.usage, tokens_cached=cached)))
    assert said in " ".join(capsys.readouterr().out.split())


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


def test_a_score_without_an_interval_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, score=scored(1, 1)))
    assert "95 % interval none: too few questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("micro", "unpriced", "uncounted", "said"),
    [
        (None, {"gpt-x": 120}, 0, f"unknown: no price for gpt-x (120 calls); add {KEY}"),
        (None, {"a": 3, "b": 1}, 0, f"unknown: no price for a, b (4 calls); add {KEY}"),
        (None, {"m": 9}, 9, "unknown: the endpoint reported no tokens for 9 calls"),
        (
            None,
            {"m": 9},
            1,
            "unknown: no price for m (8 calls) and the endpoint reported no tokens for 1 call;"
            f" add {KEY}",
        ),
        (2_900_000, {}, 0, "$2.90"),
        (2_900_000, {"j": 2}, 0, f"at least $2.90: no price for j (2 calls); add {KEY}"),
        (31, {}, 0, "$0.000031"),
        (0, {}, 0, "$0.00"),
        (None, {}, 0, "no requests"),
    ],
)
def test_1_42_a_cost_that_is_not_known_is_neither_blank_nor_nothing(
    capsys: pytest.CaptureFixture[str],
    micro: int | None,
    unpriced: dict[str, int],
    uncounted: int,
    said: str,
) -> None:
    usage = Usage(None, None, 1, None, micro)
    health = Health(uncounted=uncounted)
    show_eval(replace(REPORT, usage=usage, unpriced=unpriced, health=health))
    text = " ".join(capsys.readouterr().out.split())
    assert f"cost {said} time" in text
    assert "unknown tokens in, 1 out" in text


def test_1_35_answers_that_never_began_are_counted_apart_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_eval(replace(REPORT, health=Health(mute=4)))
    text = " ".join(capsys.readouterr().out.split())
    assert f"12 of 117 answers ran out of tokens {LIMIT}" in text
    assert f"4 answers never began because reasoning used up all tokens {LIMIT}" in text
    few = {"ok": 200, "truncated": 1}
    show_eval(replace(REPORT, outcomes=few, health=Health(mute=1)))
    text = capsys.readouterr().out
    assert "ran out of tokens" not in text
    assert "1 answer never began" in text


def test_requests_that_were_retried_or_given_up_are_told_by_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unwell = Health(unanswered={"HTTP 503": 2, "deadline": 1}, maybe_paid=1, retried=7)
    show_eval(replace(REPORT, health=unwell))
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "7 requests answered only after a retry;"
        " 3 requests given up (2 HTTP 503, 1 deadline), 1 of them possibly billed"
    ) in text


def test_where_nothing_was_asked_no_token_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, usage=Usage(), unpriced={}))
    text = " ".join(capsys.readouterr().out.split())
    assert "total 0 tokens in, 0 out" in text
    assert "cost no requests" in text


def test_what_voids_the_promise_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(REPORT)
    assert "not reproducible" not in capsys.readouterr().out
    unwell = Health(
        timed_out=3,
        lost=1,
        seedless=120,
        answered_by={
            "gpt-x": {"gpt-x-2\x1b[2J@h": 100, "gpt-x@h": 19, "a@h": 1, "b@h": 1, "c@h": 1},
            "same": {"same@h": 5},
        },
    )
    show_eval(replace(REPORT, health=unwell))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("warning  not reproducible: ")] == [
        "warning  not reproducible: 3 rollouts timed out",
        "warning  not reproducible: 1 rollout got no reward because of an error",
        "warning  not reproducible: 120 replies requested without a seed, because the endpoint does"
        " not accept one or send_seed is off",
    ]
    shown = " ".join(lines)
    assert shown.count(f"grpo-practice rollouts list {REPORT.run} --failed") >= 2
    assert "grpo-practice doctor" in shown
    told = "gpt-x-2\\x1b[2J@h (100), gpt-x@h (19), a@h (1), 2 others"
    assert [line for line in lines if line.startswith("warning  model: ")] == [
        f"warning  model: gpt-x was answered by {told}"
    ]


def test_1_58_groups_that_shrank_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    shrunk = [Shrunk(0, 5, 3, 3), Shrunk(1, 5, 3, 1), Shrunk(1, 5, 0, 2)]
    show_practice(replace(PRACTICE, health=Health(shrunk=shrunk)))
    text = " ".join(capsys.readouterr().out.split())
    assert "groups 3 of 5 attempts count in 4 groups; 0 of 5 attempts count in 2 groups" in text


def test_a_practice_report_tells_failures_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = {"ok": 10, "error.judge": 6, "error.provider": 2, "truncated": 2}
    unwell = replace(PRACTICE, outcomes=outcomes, failures={HOSTILE: 6, "other": 2})
    show_practice(replace(unwell, health=Health(untaught=1)))
    text = " ".join(capsys.readouterr().out.split())
    assert "outcomes 6 error.judge, 2 error.provider, 2 truncated" in text
    assert r"errors 6 times HTTP 503 \x1b[2J[bold]x; and 1 other" in text
    assert "2 of 12 answers ran out of tokens" in text
    assert "not reproducible: 1 comparison failed because a request got no answer" in text
    assert f"grpo-practice runs diagnose {PRACTICE.run}" in text


def test_what_was_quarantined_is_counted_with_the_way_to_see_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [step(0, "closed", 7), step(1, "closed", 8, quarantined=2, distillation={})]
    show_practice(replace(PRACTICE, steps=rows))
    text = " ".join(capsys.readouterr().out.split())
    look = "grpo-practice experiences list --quarantined --run math"
    assert f"quarantined 2 proposed texts kept out of the library: {look}" in text


def test_mixed_datasets_are_reported_by_source(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, by_source={"aime\x1b[2J": scored(20), "amc": scored(10, 5)}))
    text = capsys.readouterr().out
    assert r"aime\x1b[2J" in text
    assert "\x1b" not in text


def step(n: int, status: str, out: int, **more: object) -> StepRow:
    stats = {"mean_reward": 0.5, "informative": 3, "experiences": 12, "planned": 10, "scored": 9}
    stats |= more  # type: ignore[arg-type]
    return StepRow(1, PlannedStep(n, 0, n, ((1, 5), (2, 5))), status, None, out, None, stats)


PRACTICE = PracticeReport(
    run="math",
    branch=BRANCH,
    simulated=False,
    steps=[step(0, "closed", 7), step(1, "closed", 8)],
    evals={1: KnownScore("math/eval/L1", "AIME24", scored(30, 25))},
    library=LIBRARY,
    tested=True,
    before=KnownScore("math/eval", "AIME24", scored()),
    after=KnownScore("math/eval/L1", "AIME24", scored(30, 25)),
    usage=Usage(10, 0, 20),
    unpriced={},
    requests=Requests(1, 0),
    replayed=0,
    seconds=1.0,
    library_shas={},
    step_cost_micro={},
    outcomes={"ok": 20},
    failures={},
    health=Health(),
)


def test_a_practice_report_shows_steps_before_and_after_and_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_practice(PRACTICE)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    assert " ".join(rows[5]) == "0 0 0.500 9 of 10 3 of 2 12 L7 closed"
    assert " ".join(rows[6]).startswith("1 0 0.500 9 of 10 3 of 2 12 L8 closed 0.875")
    text = "\n".join(lines)
    assert "before  0.750   95 % interval" in text
    assert "after   0.875   95 % interval" in text
    assert "30 questions of AIME24 (coverage 100.0 %)" in text
    assert "other questions" not in text
    assert "12 experiences in L8" in text
    assert r"E10  Name 10: do [this]\x07" in text
    assert "E11" not in text
    assert "and 2 more: grpo-practice experiences list --run math" in text
    assert lines[-1] == "next: grpo-practice export-agent --run math -o math-enhanced.yaml"


@pytest.mark.parametrize(
    "before",
    [KnownScore("math/eval", "AIME25", scored()), KnownScore("math/eval", "AIME24", scored(10, 5))],
)
def test_scores_of_other_questions_are_not_compared(
    capsys: pytest.CaptureFixture[str], before: KnownScore
) -> None:
    show_practice(replace(PRACTICE, before=before))
    assert "their difference means nothing" in capsys.readouterr().out


def test_a_failed_merge_never_passes_as_success(capsys: pytest.CaptureFixture[str]) -> None:
    failed = step(1, "merge_failed", 7, merge_failed=f"EndpointError: {HOSTILE}")
    show_practice(replace(PRACTICE, steps=[step(0, "closed", 7), failed]))
    text = capsys.readouterr().out
    why = r"EndpointError: HTTP 503 \x1b[2J[bold]x"
    said = f"problem  merge: the merge of step 1 failed, and the library is unchanged: {why}"
    assert said in text.splitlines()
    assert "type: grpo-practice practice --restart-step 1" in text
    assert text.splitlines()[-1] == "next: grpo-practice practice --restart-step 1"


def test_paths_are_not_wrapped_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, run=f"math/eval/{'x' * 150}"))
    assert "x" * 150 in capsys.readouterr().out


def test_an_error_that_came_once_came_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_eval(replace(REPORT, failures={"odd": 1}))
    assert "errors once odd" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_learnt_nothing_is_not_exported(capsys: pytest.CaptureFixture[str]) -> None:
    show_practice(replace(PRACTICE, library=Library((), 1, id=9)))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "next: grpo-practice runs diagnose math"
