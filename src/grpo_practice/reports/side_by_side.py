"""Answers of several evaluations side by side: where they disagree, and what each of them said."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from grpo_practice.core.stats import Question
from grpo_practice.core.text import brief
from grpo_practice.store import Store
from grpo_practice.store.queries import rollout_list
from grpo_practice.store.queries.rollout_list import FIRST, RolloutRow, rollout_page
from grpo_practice.store.records import Branch

MOST_TIMES = 4
"""Maximum number of visits per question and evaluation whose answers are shown."""
_SAME = 1e-9
"""Difference of mean rewards that is only rounding."""


def means_of(questions: Iterable[Question]) -> dict[int, float]:
    """Return sample → mean reward, for the questions that have a reward."""
    return {int(q.key): q.mean for q in questions if q.n and not q.unscorable}


def disagreed(arms: Sequence[Mapping[int, float]]) -> list[int]:
    """Return the samples whose mean reward differs between arms, largest difference first."""
    known = dict[int, list[float]]()
    for means in arms:
        for sample, mean in means.items():
            known.setdefault(sample, []).append(mean)
    apart = {sample: max(means) - min(means) for sample, means in known.items()}
    return sorted((s for s, by in apart.items() if by > _SAME), key=lambda s: -apart[s])


def answers_of(
    store: Store, branch: Branch, k: int, samples: Collection[int]
) -> dict[int, list[RolloutRow]]:
    """Return sample → an evaluation's rollouts, in the order of attempts."""
    found, most = dict[int, list[RolloutRow]](), len(samples) * max(k, 1) * MOST_TIMES
    wanted = rollout_list.Wanted(samples=samples)
    for row in store.read(rollout_page, branch, FIRST, most, wanted) if samples else ():
        found.setdefault(row.sample_id, []).append(row)
    return found


def said(rows: Iterable[RolloutRow], chars: int) -> str:
    """Return the different answers of rollouts, the most frequent first: `220, 216`."""
    texts = (row.error or row.extracted or row.head or "(empty answer)" for row in rows)
    counts = Counter(brief(text, chars) for text in texts)
    return ", ".join(f"{text} \u00d7{n}" if n > 1 else text for text, n in counts.most_common())
