"""The rollouts of a stored run, read back one after the other."""

from collections.abc import Iterator

from grpo_practice.practice.transcript import sections
from grpo_practice.reports.rollout_report import RolloutReport
from grpo_practice.store import Store, branches, rollouts, steps
from grpo_practice.store.queries import runs


def rollouts_of(store: Store, run: str, step: int | None = None) -> Iterator[RolloutReport]:
    """Yield the rollouts of a run, step by step, by group and attempt.

    Args:
        store: The database.
        run: Name of the run.
        step: The only step to read; None reads all.

    Raises:
        ConfigError: There is no such run, or no more.
        StoreError: It is deleted at this moment.
    """
    head = store.read(runs.get, run).head_branch
    if head is None:
        return
    branch = store.read(branches.load, head)
    for row in store.read(steps.on_line, branch):
        if step is not None and row.plan.step != step:
            continue
        stored = store.read(rollouts.stored, branch, row, transcripts=True)
        # After the read: of a run that is deleted meanwhile it finds nothing, and no error.
        store.read(runs.get, run)
        for (slot, _), (_, rollout) in sorted(stored.items()):
            turns = [(section.heading, section.body) for section in sections(rollout.played)]
            yield RolloutReport(run, row.plan.step, row.plan.slots[slot][1], rollout, turns)
