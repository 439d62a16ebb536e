"""What an evaluation and a practice run came to, for a person."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from grpo_practice.cli.common import PROGRAM, count, duration, reward, say, tokens
from grpo_practice.cli.tables import facts, table
from grpo_practice.text import brief

if TYPE_CHECKING:
    from grpo_practice.build.reports import EvalReport, Known, PracticeReport
    from grpo_practice.calls import Message, Usage
    from grpo_practice.metrics import Score
    from grpo_practice.store import Store
    from grpo_practice.store.records import StepRow
    from grpo_practice.store.scores import Requests
    from grpo_practice.types import Experience, Rollout

SHOWN = 10
"""Experiences that a report lists."""
LINE = 160
"""Characters of an error or of a question."""
MANY = 0.02
"""Share of truncated answers from which a report says what to do."""


def simulated(is_so: bool) -> str:
    """The mark behind whatever a simulated model had a part in."""
    return " (simulated: says nothing about a real model)" if is_so else ""


def show_eval(report: "EvalReport", *, next_command: str | None = None) -> None:
    """The score with its interval, what it rests on, what went wrong, what it cost, what next."""
    library = report.library
    taught = f" with {count(len(library), 'experience')} (L{library.id})" if library else ""
    say(f"{report.run}{simulated(report.simulated)}", style="bold")
    dataset = report.dataset
    facts(
        [
            ("agent", f"{report.agent}{taught}"),
            ("dataset", f"{dataset.name}, {count(report.score.n_questions, 'question')}"),
            *_scores(report.score, report.k),
            ("outcomes", _outcomes(report.outcomes)),
            ("errors", _errors(report.failures)),
            ("look at", _truncation(report)),
            *_costs(report.usage, report.unpriced, report.requests, report.replayed),
            ("time", duration(report.seconds)),
        ]
    )
    if report.by_source:
        table(
            ["source", "score", "95 % interval", "questions"],
            [
                (name, reward(s.mean), interval(s), str(s.n_questions))
                for name, s in report.by_source.items()
            ],
            right=["score", "questions"],
        )
    if any(name == "error.verify" for name in report.outcomes):
        say("next: mend the verify function, then --restart-step 0 with the mended file")
    elif report.failures:
        say(f"next: the same command again asks only the {_failed(report)} that failed")
    else:
        say(f"next: {next_command or f'{PROGRAM} runs show {report.run}'}")


def interval(score: "Score") -> str:
    """`0.764 to 0.835`, or why there is none."""
    if score.ci95 is None:
        return "none: too few questions"
    return f"{score.ci95[0]:.3f} to {score.ci95[1]:.3f}"


def _scores(score: "Score", k: int) -> list[tuple[str, str]]:
    mean = f"{reward(score.mean)}   95 % interval {interval(score)}"
    at = "   ".join(f"@{j} {p:.3f}" for j, p in score.pass_at.items())
    some = score.questions_at_k < score.n_questions
    return [
        ("score", mean),
        ("pass", f"{at}{f'   (@{k} over {score.questions_at_k} questions)' if some else ''}"),
        (
            "rollouts",
            f"{score.correct} correct, {score.scored} scored of {score.planned} planned"
            f" (coverage {100 * score.coverage:.1f} %)",
        ),
    ]


def _outcomes(outcomes: Mapping[str, int]) -> str:
    ordered = sorted(outcomes.items(), key=lambda item: -item[1])
    return ", ".join(f"{n} {name}" for name, n in ordered if name != "ok")


def _errors(failures: Mapping[str, int]) -> str:
    if not failures:
        return ""
    error, n = next(iter(failures.items()))
    others = len(failures) - 1
    return f"{n} times {brief(error, LINE)}" + (f"; and {count(others, 'other')}" if others else "")


def _failed(report: "EvalReport") -> str:
    return count(sum(report.failures.values()), "rollout")


def _truncation(report: "EvalReport") -> str:
    cut = sum(n for name, n in report.outcomes.items() if name.startswith("truncated"))
    share = cut / max(report.score.planned, 1)
    if share < MANY:
        return ""
    return f"{100 * share:.0f} % of the answers ran out of tokens: raise max_tokens"


def _costs(
    usage: "Usage", unpriced: int, requests: "Requests", replayed: int
) -> list[tuple[str, str]]:
    cached = f" ({tokens(usage.tokens_cached)} cached)" if usage.tokens_cached else ""
    thought = f" ({tokens(usage.tokens_reasoning)} reasoning)" if usage.tokens_reasoning else ""
    cost = ""
    if usage.cost_micro is not None:
        more = f", and {count(unpriced, 'call')} without a price" if unpriced else ""
        cost = f"${usage.cost_micro / 1e6:.2f}{more}"
    return [
        (
            "requests",
            f"{requests.new} new, {replayed} replayed from the file, {requests.failed} failed",
        ),
        (
            "in all",
            f"{tokens(usage.tokens_in)} tokens in{cached}, {tokens(usage.tokens_out)} out{thought},"
            " this command and earlier ones",
        ),
        ("cost", cost),
    ]


def show_practice(
    report: "PracticeReport", *, next_line: bool = True, limit: int | None = SHOWN
) -> None:
    """The steps, before and after, up to `limit` of the library, what it cost, what next."""
    say(f"{report.run}{simulated(report.simulated)}", style="bold")
    show_steps(report.steps, {step: known.score for step, known in report.evals.items()})
    for step in report.merge_failed:
        say(f"step {step}: the merge failed and the library is unchanged", style="red")
    _before_and_after(report)
    show_library(report.library.experiences, f"L{report.library.id}", report.run, limit=limit)
    if not report.library.experiences:
        say(f"  {_why_nothing(report)}")
    facts(
        [
            *_costs(report.usage, report.unpriced, report.requests, report.replayed),
            ("time", duration(report.seconds)),
        ]
    )
    if next_line:
        say(f"next: {report.next_command}")


def _why_nothing(report: "PracticeReport") -> str:
    """Why a run learnt nothing, as far as its steps tell."""
    stats = [row.stats or {} for row in report.steps]
    if any(s.get("informative") for s in stats):
        return f"what was compared suggested nothing: {PROGRAM} runs show {report.run}"
    means = {s.get("mean_reward") for s in stats}
    hard = " (too hard: every attempt failed)" if means == {0.0} else ""
    easy = " (too easy: every attempt was right)" if means == {1.0} else ""
    return (
        f"in every group all attempts scored the same, so there was nothing to compare{hard}{easy};"
        f" look at some: {PROGRAM} eval --limit 3 --show"
    )


def show_steps(steps: Sequence["StepRow"], scores: Mapping[int, "Score"]) -> None:
    """A row for each step; `scores` of the libraries that were evaluated, by step."""
    headers = [
        "step",
        "epoch",
        "mean reward",
        "informative",
        "experiences",
        "library",
        "status",
        "score",
    ]
    rows = [(*_step(row), _scored(scores.get(row.plan.step))) for row in steps]
    if not any(row[-1] for row in rows):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    table(headers, rows, right=headers[:5])


def _step(row: "StepRow") -> tuple[str, ...]:
    stats = row.stats or {}
    informative = stats.get("informative")
    groups = f"{informative} of {len(row.plan.slots)}" if informative is not None else "-"
    return (
        str(row.plan.step),
        str(row.plan.epoch),
        reward(stats.get("mean_reward")),
        groups,
        str(stats.get("experiences", "-")),
        f"L{row.library_out}" if row.library_out else "-",
        row.status.replace("_", " "),
    )


def _scored(score: "Score | None") -> str:
    return f"{reward(score.mean)} ({interval(score)})" if score else ""


def _before_and_after(report: "PracticeReport") -> None:
    before, after = report.before, report.after
    how = "" if after else " (export-agent, then eval --agent; or practice.do_eval: true)"
    facts([("before", _known(before)), ("after", _known(after) + how)])
    if before and after and not _comparable(before, after):
        say("  before and after are of other questions: their difference says nothing")


def _known(known: "Known | None") -> str:
    if known is None:
        return "not measured"
    score = known.score
    asked = f"{count(score.n_questions, 'question')} of {known.dataset}"
    return f"{reward(score.mean)}   95 % interval {interval(score)}   {asked}   {known.run}"


def _comparable(before: "Known", after: "Known") -> bool:
    same = before.dataset == after.dataset
    return same and before.score.n_questions == after.score.n_questions


def show_library(
    experiences: Sequence["Experience"], name: str, run: str, *, limit: int | None = None
) -> None:
    """The experiences of a library, up to `limit` of them."""
    if not experiences:
        say(f"no experiences ({name} is empty)")
        return
    say(f"{count(len(experiences), 'experience')} in {name}:")
    facts([(e.id, e.text) for e in experiences[:limit]])
    if limit is not None and len(experiences) > limit:
        say(f"  and {len(experiences) - limit} more: {PROGRAM} experiences list --run {run}")


def show_transcripts(store: "Store", report: "EvalReport", limit: int) -> None:
    """The first rollout of the first `limit` questions: every message, the verdict, the gold."""
    found = (
        rollout
        for row in store.steps(report.branch)
        for (_, attempt), (_, rollout) in sorted(
            store.stored(report.branch, row, store.samples_of(row.plan), transcripts=True).items()
        )
        if attempt == 0
    )
    for rollout in islice(found, limit):
        _show(rollout)


def _show(rollout: "Rollout") -> None:
    for message in rollout.played.transcript:
        say(f"[{message.get('role', '?')}]", style="bold")
        say(_text(message))
    played, verdict = rollout.played, rollout.verdict
    why = f": {played.error}" if played.error else ""
    outcome = "answered" if played.outcome == "ok" else played.outcome
    say(f"[{outcome}{why}]  reward {reward(rollout.reward)}", style="bold")
    if rollout.sample.answer is not None:
        say(f"the answer is {rollout.sample.answer}")
    if verdict is not None and verdict.critique:
        say(f"{verdict.critique}")
    say("")


def _text(message: "Message") -> str:
    content = message.get("content")
    return content if isinstance(content, str) else str(content or "")
