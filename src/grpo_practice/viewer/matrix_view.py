"""The viewer's matrix of questions by runs: which runs are right, and what each of them said."""

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.stats.scores import mean
from grpo_practice.reports.rollout_report import is_right
from grpo_practice.reports.run_list import runs_report
from grpo_practice.reports.side_by_side import answers_of, means_of, said
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import arms, pages, rollout_list, runs, scores
from grpo_practice.verify.answers import gold_texts
from grpo_practice.viewer import charts
from grpo_practice.viewer.address import Page, Query

ROWS = 50
"""Questions per page."""
COLUMNS = 8
"""Maximum number of runs; more do not fit on a page."""
ANSWER = 300
"""Maximum number of characters of each answer."""


def alike(store: Store) -> dict[str, list[str]]:
    """Return dataset → its newest evaluations, for datasets with several."""
    found = dict[str, list[str]]()
    for run in runs_report(store).runs:
        if run.has_score and run.dataset and run.steps_closed:
            found.setdefault(run.dataset, []).append(run.name)
    return {dataset: names[:COLUMNS] for dataset, names in found.items() if len(names) > 1}


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A question with its mean reward in each run."""

    sample: int
    means: Sequence[float | None]
    """Mean reward in each run; None without a reward."""

    def passes(self, only: str) -> bool:
        """Return whether the question matches a filter; `only_2`: only the second run is right."""
        known = [value for value in self.means if value is not None]
        right = [value is not None and is_right(value) for value in self.means]
        match only:
            case "disagree":
                return bool(known) and max(known) - min(known) > 1e-9
            case "all_wrong":
                return not any(right)
            case "all_right":
                return all(right)
            case "all":
                return True
            case _:
                return right[int(only.removeprefix("only_")) - 1] and sum(right) == 1


def matrix_page(store: Store, query: Query) -> Page:
    """Return the matrix of questions by runs, with rewards and answers.

    Raises:
        ConfigError: There are too few or too many runs, or one of them has no scores.
    """
    names = [name for name in query.text("runs").split(",") if name]
    if not 2 <= len(names) <= COLUMNS:
        raise ConfigError(f"a matrix shows 2 to {COLUMNS} runs, not {len(names)}")
    chosen, lines = [store.read(runs.named, name) for name in names], []
    for run in chosen:
        if not run.has_score or run.head_branch is None:
            raise ConfigError(f"{run.name} has no scores", hint="choose evaluations")
        lines.append(store.read(branches.load, run.head_branch))
    questions = [store.read(scores.questions, line) for line in lines]
    means = [means_of(each) for each in questions]
    samples = dict.fromkeys(int(q.key) for each in questions for q in each)
    found = [MatrixRow(sample, [of.get(sample) for of in means]) for sample in samples]
    one = [f"only_{n}" for n in range(1, len(names) + 1)]
    only = query.choice("only", "all", "disagree", "all_wrong", "all_right", *one)
    rows, links = query.paged([row for row in found if row.passes(only)], ROWS)
    shown = [row.sample for row in rows]
    answers = [
        answers_of(store, line, max((q.planned for q in each), default=1), shown)
        for line, each in zip(lines, questions, strict=True)
    ]
    gold = store.read(arms.answers, shown)
    values = {
        "runs": chosen,
        "only": only,
        "rows": rows,
        **links,
        "numbers": store.read(rollout_list.numbers, lines[0].id, shown),
        "texts": store.read(arms.question_texts, shown),
        "expected": {sample: " or ".join(gold_texts(of)) for sample, of in gold.items()},
        "said": [{sample: said(of, ANSWER) for sample, of in each.items()} for each in answers],
        "places": [store.read(pages.last_plays, line) for line in lines],
        "scores": [mean([*of.values()]) if of else None for of in means],
        "shade": charts.shade,
    }
    return Page("view/matrix.html", values)
