"""Reports of evaluations and practice runs on the terminal."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from grpo_practice.cli.options import PROGRAM, continuing, on_database
from grpo_practice.cli.terminal.findings_view import show_findings
from grpo_practice.cli.terminal.formatting import count, duration, reward, say, say_next
from grpo_practice.cli.terminal.health_view import costs, shrunk_groups, trouble
from grpo_practice.cli.terminal.tables import facts, show_conclusion, table
from grpo_practice.core.findings import remedy

if TYPE_CHECKING:
    from grpo_practice.core.stats import Score
    from grpo_practice.core.types import Experience
    from grpo_practice.reports.before_after import When
    from grpo_practice.reports.known_scores import KnownScore
    from grpo_practice.reports.learning_findings import Distillation, StepRow
    from grpo_practice.reports.run_reports import EvalReport, PracticeReport

SHOWN = 10
"""Maximum number of experiences in a report."""


def simulated(is_so: bool) -> str:
    """Return the suffix for results that involve a simulated model."""
    return " (simulated: says nothing about a real model)" if is_so else ""


def show_eval(report: "EvalReport") -> None:
    """Print the score with its interval, failures, costs, and the next command."""
    library = report.library
    taught = f" with {count(len(library), 'experience')} (L{library.id})" if library else ""
    say(f"{report.run}{simulated(report.simulated)}", style="bold")
    if report.conclusion:
        show_conclusion(report.conclusion)
        say("")
    dataset = report.dataset
    facts(
        [
            ("agent", f"{report.agent}{taught}"),
            ("dataset", f"{dataset.name}, {count(report.score.questions, 'question')}"),
            *_scores(report.score, report.k),
            *trouble(report),
            *costs(report),
            ("time", duration(report.seconds)),
        ]
    )
    if report.by_source:
        say("")
        table(
            ["source", "score", "95 % interval", "questions", "coverage"],
            [
                (name or "(none)", reward(s.mean), interval(s), str(s.questions), coverage(s))
                for name, s in report.by_source.items()
            ],
            right=["score", "questions", "coverage"],
            least=["questions", "coverage"],
        )
    show_findings(report.findings)
    # Not `next:`, because the command would fail again until the verify function is fixed.
    if any(name == "error.verify" for name in report.outcomes):
        again = on_database(continuing())
        say(f"once the verify function is fixed, score the answers again with: {again}")
    elif report.failures:
        failed = count(sum(report.failures.values()), "rollout")
        say_next(f"{continuing()} (retries only the {failed} that failed)")
    else:
        say_next(remedy(report.findings) or f"{PROGRAM} runs show {quote(report.run)}")


def interval(score: "Score") -> str:
    """Format the interval: `0.764 to 0.835`, or the reason why there is no interval."""
    if score.ci95 is None:
        return "none: too few questions"
    return f"{score.ci95[0]:.3f} to {score.ci95[1]:.3f}"


def coverage(score: "Score") -> str:
    """Format the share of planned rollouts that were scored: `99.5 %`."""
    return f"{100 * score.coverage:.1f} %"


def passed(score: "Score") -> str:
    """Format each Pass@j, the last with its interval: `@1 0.463 @2 0.550 (0.389 to 0.701)`."""
    found = [f"@{j} {p:.3f}" for j, p in score.pass_at.items()]
    ends = next(reversed(score.pass_at_ci95.values()), None)
    return "   ".join(found) + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")


def _scores(score: "Score", k: int) -> list[tuple[str, str]]:
    from grpo_practice.reports.run_reports import unscorable_count

    mean = f"{reward(score.mean)}   95 % interval {interval(score)}"
    some = score.questions_at_k < score.questions
    return [
        ("score", mean),
        (
            "pass",
            f"{passed(score)}{f'   (@{k} over {score.questions_at_k} questions)' if some else ''}",
        ),
        (
            "rollouts",
            f"{score.correct} correct, {score.scored} scored of {score.planned} planned"
            f" (coverage {coverage(score)})",
        ),
        ("left out", unscorable_count(score)),
    ]


def show_practice(
    report: "PracticeReport", *, next_line: bool = True, limit: int | None = SHOWN
) -> None:
    """Print steps, scores, up to `limit` experiences, costs, and the next command."""
    say(f"{report.run}{simulated(report.simulated)}", style="bold")
    _before_and_after(report)
    say("")
    show_steps(report.steps, {step: known.score for step, known in report.evals.items()})
    say("")
    show_library(report.library.experiences, f"L{report.library.id}", report.run, limit=limit)
    facts(
        [
            *trouble(report),
            ("groups", shrunk_groups(report.health)),
            *funnel(report.steps, report.run),
            ("held", held(report.held, report.run)),
            *costs(report),
            ("time", duration(report.seconds)),
        ]
    )
    show_findings(report.findings)
    if next_line:
        say_next(report.next_command)


def funnel(steps: Sequence["StepRow"], run: str) -> list[tuple[str, str]]:
    """Return the results of the informative groups, from comparison to library."""
    from grpo_practice.reports.learning_findings import Distillation, counted_steps

    counted = counted_steps(steps)
    if not counted:
        return []
    sums = Distillation.total(list(counted.values()))
    refused = sum(sums.refused.values())
    return [
        ("compared", _compared(sums)),
        ("failed", _failed(sums)),
        ("summaries", f"{sums.unsummarised} failed" if sums.unsummarised else ""),
        ("shortened", _shortened(sums)),
        ("lessons", str(sums.lessons or "")),
        ("confirmed", f"{count(sums.confirmed, 'vote')} for experiences" if sums.confirmed else ""),
        ("proposals", str(sums.proposals or "")),
        ("refused", f"{count(refused, 'operation')} ({_kinds(sums.refused)})" if refused else ""),
        ("outvoted", count(sums.outvoted, "operation") if sums.outvoted else ""),
        ("quarantined", _quarantined(steps, run, sums.quarantined)),
        ("removed", count(sums.removed, "experience") if sums.removed else ""),
    ]


def held(n: int, run: str) -> str:
    """Return the number of texts waiting for approval and the command that lists them, or ''."""
    look = on_database(f"{PROGRAM} experiences list --run {quote(run)}")
    return f"{count(n, 'text')} awaiting approval, not yet in a library: {look}" if n else ""


def _compared(sums: "Distillation") -> str:
    groups = count(sums.informative, "informative group")
    return f"{sums.compared} of {groups}" if sums.informative else ""


def _failed(sums: "Distillation") -> str:
    lost = sum(sums.failed.values())
    late = sums.compared + lost - sums.informative
    after = f", {late} of them after a readable comparison" if late else ""
    return f"{count(lost, 'group')} taught nothing ({_kinds(sums.failed)}){after}" if lost else ""


def _kinds(counts: Mapping[Any, int]) -> str:
    """Return `2 unreadable, 1 cut`, or the kind without a number if there is only one."""
    from grpo_practice.reports.learning_findings import spoken

    if len(counts) == 1:
        return spoken(next(iter(counts)))
    return ", ".join(f"{n} {spoken(kind)}" for kind, n in counts.items())


def _shortened(sums: "Distillation") -> str:
    if not sums.shortened:
        return ""
    attempts = count(sums.shortened, "transcript")
    return f"{attempts} by {sums.cut_chars:,} characters, to fit the teacher's context"


def _quarantined(steps: Sequence["StepRow"], run: str, rules: Mapping[Any, int]) -> str:
    """Return the number of quarantined texts and the command that lists them, or ''."""
    n = sum((row.stats or {}).get("quarantined") or 0 for row in steps)
    look = on_database(f"{PROGRAM} experiences list --quarantined --run {quote(run)}")
    why = f" ({_kinds(rules)})" if rules else ""
    return f"{count(n, 'proposed text')} kept out of the library{why}: {look}" if n else ""


def show_steps(steps: Sequence["StepRow"], scores: Mapping[int, "Score"]) -> None:
    """Print a row for each step; `scores` has the scores of evaluated libraries by step."""
    headers = [
        "step",
        "epoch",
        "mean reward",
        "scored",
        "informative",
        "experiences",
        "library",
        "status",
        "score",
    ]
    rows = [(*_step(row), _scored(scores.get(row.plan.step))) for row in steps]
    if not any(row[-1] for row in rows):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    least = ["epoch", "library", "status", "scored", "experiences"]
    table(headers, rows, right=headers[:6], least=least)


def steps_named(steps: Sequence[int]) -> str:
    """Format step numbers: `step 6`, or `steps 6 to 11` if they are consecutive."""
    first, last = steps[0], steps[-1]
    if first == last:
        return f"step {first}"
    if last - first == len(steps) - 1:
        return f"steps {first} to {last}"
    return f"steps {', '.join(map(str, steps))}"


def _step(row: "StepRow") -> tuple[str, ...]:
    stats = row.stats or {}
    informative = stats.get("informative")
    groups = f"{informative} of {row.groups}" if informative is not None else "-"
    scored = f"{stats['scored']} of {stats['planned']}" if "scored" in stats else "-"
    return (
        str(row.plan.step),
        str(row.plan.epoch),
        reward(stats.get("mean_reward")),
        scored,
        groups,
        str(stats.get("experiences", "-")),
        f"L{row.library_out}" if row.library_out else "-",
        row.status.replace("_", " "),
    )


def _scored(score: "Score | None") -> str:
    if not score:
        return ""
    partly = "" if score.scored == score.planned else f", coverage {coverage(score)}"
    return f"{reward(score.mean)} ({interval(score)}{partly})"


def _before_and_after(report: "PracticeReport") -> None:
    """Print the verdict, the scores before and after, and the command for a missing score."""
    before, after = report.before, report.after
    if report.conclusion:
        show_conclusion(report.conclusion)
    scores: list[tuple[When, KnownScore | None]] = [("before", before), ("after", after)]
    untested = "" if report.tested else " (no evaluation dataset)"
    facts(
        (f"{when:6}", _known(known) + (untested if known is None else "")) for when, known in scores
    )
    if before and after and _asked(before) != _asked(after):
        say("  before and after cover different questions, so their difference means nothing")
    for command in dict.fromkeys(report.measure.values()):
        say(f"  gain    {on_database(command)}")  # on one line, so that it can be copied


def _known(known: "KnownScore | None") -> str:
    if known is None:
        return "not measured"
    score = known.score
    asked = f"{count(score.questions, 'question')} of {known.dataset}"
    left_out = (
        f", {score.questions_unscorable} cannot be scored" if score.questions_unscorable else ""
    )
    asked += f" (coverage {coverage(score)}{left_out})"
    return f"{reward(score.mean)}   95 % interval {interval(score)}   {asked}   {known.run}"


def _asked(known: "KnownScore") -> tuple[str, int]:
    return known.dataset, known.score.questions


def show_library(
    experiences: Sequence["Experience"],
    name: str,
    run: str,
    *,
    limit: int | None = None,
    evidence: Mapping[str, str] | None = None,
) -> None:
    """Print up to `limit` experiences of a library, each with its evidence."""
    if not experiences:
        say(f"no experiences ({name} is empty)")
        return
    say(f"{count(len(experiences), 'experience')} in {name}:")
    from grpo_practice.reports.experience_reports import invented

    rows = list[tuple[str, str]]()
    for e in experiences[:limit]:
        rows += [(e.id, e.text), ("", invented(e.text))]
        if evidence:
            rows.append(("", evidence[e.id]))
    facts(rows)
    if limit is not None and len(experiences) > limit:
        command = on_database(f"{PROGRAM} experiences list --run {quote(run)}")
        say(f"  and {len(experiences) - limit} more: {command}")
