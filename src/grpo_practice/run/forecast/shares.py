"""Figures measured from a run's own history: teaching groups, summaries, requests per rollout."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from operator import attrgetter

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.runs import PracticeConfig, PracticeSettings
from grpo_practice.core.stats import score
from grpo_practice.core.text import DENSE_CHARS_PER_TOKEN
from grpo_practice.core.types import Group
from grpo_practice.practice.reading import room_of
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.run.clients import endpoint_of
from grpo_practice.run.forecast.range import ONE, Range, around
from grpo_practice.run.specs import teacher_context
from grpo_practice.store import Store, rollouts
from grpo_practice.store.queries import runs, scores, spending
from grpo_practice.store.queries.spending import ENOUGH
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.store.run_names import eval_name

ASSUMED_SHARE = Range(0.1, 0.6)
"""Share of groups that teach, assumed for a run without groups; the agent's score may lower it."""


def share_of(
    store: Store, branch: Branch, rows: Sequence[StepRow], config: PracticeConfig
) -> tuple[Range, int]:
    """Return the share of groups that teach, and the number of groups used to compute the share.

    Played groups of open steps count too. Without any group, the share is assumed, within the
    limits set by the agent's score before practice.
    """
    truth = config.practice.given_ground_truth
    groups, informative = store.read(spending.informative, branch)
    for row in rows:
        if row.closed or row.status == "planned":
            continue
        # Transcripts are large, and the status of a group does not depend on them.
        stored = store.read(rollouts.stored, branch, row, transcripts=False)
        played_in_order = (stored[key][1] for key in sorted(stored))
        by_slot = groupby(played_in_order, attrgetter("slot"))
        for slot, played in by_slot:
            attempts = list(played)
            status = status_of(Group(slot, attempts[0].sample, attempts), truth=truth)
            groups += status != "too_few"
            informative += status == "scored"
    if not groups:
        return _by_score(store, config) if truth else ASSUMED_SHARE, 0
    return _interval(groups, informative), groups


def _by_score(store: Store, config: PracticeConfig) -> Range:
    """Return the assumed share, limited by the score of `EXP/eval`.

    If a question is answered right with probability p, a group of n attempts contains both right
    and wrong ones with probability 1 - p^n - (1 - p)^n. This is concave in p, so at the mean score
    it is an upper bound on the share over all questions.
    """
    run = store.read(runs.find, eval_name(config.exp_id))
    tallies = store.read(scores.questions_of, run) if run else []
    found = score(tallies, 1).ci95
    if found is None or any(q.total != q.c for q in tallies):  # partial rewards break the formula
        return ASSUMED_SHARE
    low, high = found
    n, middle = config.practice.grpo_n, min(max(0.5, low), high)
    ends = [1 - p**n - (1 - p) ** n for p in (low, middle, high)]
    return Range(min(ASSUMED_SHARE.low, *ends), min(ASSUMED_SHARE.high, max(ends)))


def _interval(n: int, k: int) -> Range:
    """Return the Agresti-Coull interval for a proportion k / n, which also works for 0 and n."""
    # Two standard errors: z² is about 4, of which half count as successes.
    n += 4
    share = (k + 2) / n
    width = 2 * sqrt(share * (1 - share) / n)
    return Range(max(share - width, 0.0), min(share + width, 1.0))


def summarised_share(store: Store, branch: Branch, settings: PracticeSettings) -> Range:
    """Return the share of compared groups whose attempts are summarised.

    With `auto`, the share is unknown in advance: the range is 0 to 1 until a group of this branch
    has been compared.
    """
    if settings.summaries == "always":
        return ONE
    if settings.summaries == "never":
        return Range()
    groups, summarised = store.read(spending.summarised, branch.id)
    return _interval(groups, summarised) if groups else Range(0, 1)


def reads_of(config: PracticeConfig) -> float:
    """Return the maximum number of tokens in a prompt that shows attempts."""
    reply = endpoint_of(config.teacher)[0].get("max_tokens")
    return room_of(teacher_context(config), reply) / DENSE_CHARS_PER_TOKEN


ASSUMED_MOST = 50
"""Upper bound assumed for a user's own agent that has played no rollout yet."""


@dataclass(frozen=True, slots=True)
class RolloutRequests:
    """Number of requests per rollout, and the evidence for it."""

    each: Range
    rollouts: int
    """Number of rollouts whose requests were counted; if 0, `each` reaches the agent's limit."""


def rollout_requests(
    store: Store, spec: RunSpec, agent: AgentConfig, to_come: float
) -> RolloutRequests | None:
    """Return the requests per rollout of this agent so far, in any run; None if always one.

    Args:
        store: The database.
        spec: The run; its identity specifies the agent that plays.
        agent: Agent in the run's configuration.
        to_come: Number of rollouts still to be played.
    """
    if agent.type == "simple" and not agent.toolkits:
        return None
    most = agent.max_turns + 1 if agent.type == "simple" else ASSUMED_MOST
    played, mean, spread = store.read(spending.turns, spec.identity)
    if not played:
        return RolloutRequests(Range(1, most), 0)
    few = Range(mean / 2, mean * 2)
    each = few if played < ENOUGH else around(mean, spread, played, to_come)
    return RolloutRequests(Range(max(each.low, 1.0), max(min(each.high, most), 1.0)), played)
