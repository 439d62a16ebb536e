"""The viewer's pages on a step and on a group: one question with its attempts side by side."""

from dataclasses import replace

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Rollout
from grpo_practice.run.library_refs import run_and_step
from grpo_practice.store import Store, datasets, rollouts, steps, trained_steps
from grpo_practice.store.queries import group_operations, pages, rollout_list, runs
from grpo_practice.store.queries.group_operations import teacher_calls
from grpo_practice.store.queries.rollout_list import Place, RolloutRow, Wanted
from grpo_practice.store.queries.traced import MERGE
from grpo_practice.store.records import Branch, RunRow, StepRow
from grpo_practice.viewer.address import Page, Query

ROWS = 50
"""Rows of a list per page."""
ASKED = 24
"""Maximum number of groups of the same question that a page links to."""
ATTEMPTS = 64
"""Attempts of a group per page."""
TRAINED = ("all", "scored", "uniform", "too_few")
"""Status filters for the groups of a training run."""
STATUSES = ("all", "distilled", "uniform", "too_few", "failed", "scored")
"""Status filters for the groups of other runs."""


def group_words(run: RunRow) -> dict[str, str]:
    """Return the labels of group statuses that differ from the stored names."""
    if not run.learns:
        return {}
    words = {"scored": "informative", "uniform": "not informative", "too_few": "too few rewards"}
    if run.kind == "practice":
        words |= {"scored": "informative, not compared", "distilled": "informative"}
        words |= {"failed": "informative, comparison failed"}
    return words


def step_page(store: Store, query: Query) -> Page:
    """Return the page of a step: its numbers, its groups and the merge."""
    run, branch, row, around = step_of(store, query)
    step = row.plan.step
    statuses = TRAINED if run.kind == "train" else STATUSES
    status = query.choice("status", *statuses)
    updates = store.read(trained_steps.updates, branch) if run.kind == "train" else []
    saved = store.read(trained_steps.checkpoints, branch) if run.kind == "train" else []
    values: dict[str, object] = {
        "run": run,
        "ref": query.text("run"),
        "row": row,
        "stats": row.stats or {},
        "around": around,
        "status": status,
        "statuses": statuses,
        "words": group_words(run),
        "updates": [update for update in updates if update.step == step],
        "saved": next((one for one in saved if one.step == step), None),
        "operations": store.read(group_operations.operations_at, branch, step, None),
        "merge": store.read(teacher_calls, branch, step, MERGE),
        "groups": [],
        "rollouts": [],
        "more": None,
    }
    if run.learns and row.closed:
        last = query.numbers("after", 2) or (-1, -1)
        wanted = None if status == "all" else status
        groups = store.read(
            lambda db: pages.group_page(
                db, branch, (last[0], last[1]), ROWS + 1, step=step, status=wanted
            )
        )
        values["groups"] = groups[:ROWS]
        if len(groups) > ROWS:
            values["more"] = f"{groups[ROWS - 1].step}.{groups[ROWS - 1].slot}"
    else:
        after = place_of(query)
        # Read one extra row, to find out whether there is a next page.
        rows = store.read(rollout_list.rollout_page, branch, after, ROWS + 1, Wanted(step))
        values["rollouts"] = rows[:ROWS]
        if len(rows) > ROWS:
            values["more"] = place_text(rows[ROWS - 1])
    return Page("view/step.html", values)


def place_text(of: RolloutRow | Place) -> str:
    """Return the place of a rollout as it is written in an address."""
    return f"{of.step}.{of.slot}.{of.attempt}"


def place_of(query: Query) -> Place:
    """Return the place after which a page begins; by default, the one before all rollouts."""
    given = query.numbers("after", 3)
    return Place(*given) if given else rollout_list.FIRST


def step_of(
    store: Store, query: Query
) -> tuple[RunRow, Branch, StepRow, tuple[int | None, int | None]]:
    """Return the step that an address names, and the numbers of the steps before and after.

    Raises:
        ConfigError: The run or step does not exist.
    """
    run, branch, _ = run_and_step(store, query.text("run"))
    wanted = query.number("step")
    row = store.read(steps.one_on_line, branch, wanted)
    last = store.read(steps.last, branch)
    if row is None or last is None:
        hint = "no step is planned yet" if last is None else f"its steps are 0 to {last}"
        raise ConfigError(f"{run.name} has no step {wanted}", hint=hint)
    return run, branch, row, (wanted - 1 if wanted else None, wanted + 1 if wanted < last else None)


def group_page(store: Store, query: Query) -> Page:
    """Return the page of a group: its attempts side by side, and the lessons from them."""
    run, branch, row, _ = step_of(store, query)
    step, slot = row.plan.step, query.number("slot")
    if slot >= len(row.plan.slots):
        raise ConfigError(
            f"step {step} of {run.name} has no group {slot}",
            hint=f"its groups are 0 to {len(row.plan.slots) - 1}",
        )
    stored = store.read(rollouts.stored, branch, row, transcripts=False, slot=slot)
    # Check this after the read, which returns nothing and raises no error for a run that was
    # deleted in between.
    store.read(runs.get, branch.run)
    attempts = [rollout for _, (_, rollout) in sorted(stored.items())]
    only = replace(row.plan, slots=row.plan.slots[slot : slot + 1])
    (sample,) = store.read(datasets.samples_of, only)
    shown, links = query.paged(attempts, ATTEMPTS)
    numbers = store.read(rollout_list.numbers, row.branch_id, {sample.id})
    # The query returns the groups that follow a place.
    before = (step, slot - 1)
    found = store.read(lambda db: pages.group_page(db, branch, before, 1, step=step))
    line = found[0] if found and found[0].slot == slot else None
    values = {
        "run": run,
        "ref": query.text("run"),
        "step": step,
        "slot": slot,
        "slots": len(row.plan.slots),
        "sample": sample,
        "number": numbers.get(sample.id),
        "planned": row.attempts(slot),
        "attempts": shown,
        **links,
        "line": line,
        "words": group_words(run),
        "ends": _ends(attempts),
        "lessons": store.read(pages.lessons_of, branch, step, slot),
        "teacher": store.read(teacher_calls, branch, step, slot),
        "operations": store.read(group_operations.operations_at, branch, step, slot),
        "asked": store.read(group_operations.groups_of_question, branch, sample.id, ASKED),
    }
    return Page("view/group.html", values)


def _ends(attempts: list[Rollout]) -> dict[int, str]:
    """Return attempt → `best` or `worst`; empty if all rewards are equal."""
    scored = [(one.reward, one.attempt) for one in attempts if one.reward is not None]
    rewards = {reward for reward, _ in scored}
    if len(rewards) < 2:
        return {}
    ranks = {max(rewards): "best", min(rewards): "worst"}
    return {attempt: ranks[reward] for reward, attempt in scored if reward in ranks}
