"""Decisions by a person on experiences that are held for approval."""

import re
from collections.abc import Sequence
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.practice.approval import admitted
from grpo_practice.reports.before_after import before_after
from grpo_practice.reports.experience_reports import DecisionReport
from grpo_practice.run.library_refs import latest_or_named
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.queries.held import Held, held
from grpo_practice.store.records import Branch, StepRow


def decide(
    store: Store, names: Sequence[str] | None, run: str | None, *, approve: bool
) -> DecisionReport:
    """Approve or reject held experiences of a run; see `Workspace.approve`.

    An open step continues with the library that it started with. Experiences approved during the
    step enter the library that the step produces.
    """
    row = latest_or_named(store, run)
    # Hold the lock, so that no step closes between reading and writing.
    with store.lock(row.name):
        branch = store.read(branches.load, row.head_branch)
        rows = store.read(steps.on_line, branch)
        waiting = store.read(held, branch.id, until=len(rows))
        chosen = _chosen(waiting, names, row.name)
        made, ids = [row.library_out for row in rows if row.closed], dict[str, str]()
        library = store.read(libraries.load, made[-1]) if made else branch.library
        step = _step_to_change(branch, rows)
        if approve:
            found = admitted(library, chosen)
            if found.refused:
                why = "; ".join(f"{name}: {reason}" for name, reason in found.refused.items())
                raise ConfigError(
                    f"nothing is approved: {why}",
                    hint=f"grpo-practice experiences reject {next(iter(found.refused))}"
                    f" --run {quote(row.name)}",
                )
            if step is not None:
                library_id = store.approve(branch, step, found.approvals)
                library = store.read(libraries.load, library_id)
                ids = {f"H{a.held}": f"E{a.edit.label}" for a in found.approvals.approved}
        if not approve or step is None:
            # Do not record an approval again while it waits for its step.
            new = [one.row for one in chosen if not (approve and one.approved)]
            # A decision belongs to the last closed step, or else to where the branch begins.
            last = max((r.plan.step for r in rows if _own(branch, r) and r.closed), default=None)
            store.decide(branch, branch.from_step if last is None else last, new, approve=approve)
        left = store.read(held, branch.id, until=len(rows))
    return DecisionReport(
        run=row.name,
        approved=approve,
        decided=chosen,
        experiences=ids,
        waits=approve and step is None,
        library=library,
        left=sum(not one.approved for one in left),
        measure=before_after(store, branch.id, row.name, library).missing(),
    )


def _chosen(waiting: Sequence[Held], names: Sequence[str] | None, run: str) -> list[Held]:
    if names is None:
        return [*waiting]
    by_id, chosen = {one.id: one for one in waiting}, dict[str, Held]()
    for name in names:
        number = re.fullmatch(r"[Hh]?([1-9]\d{0,17})", name)
        one = by_id.get(f"H{number[1]}") if number else None
        if one is None:
            raise ConfigError(
                f"{run} holds no experience {name!r}",
                hint=f"grpo-practice experiences list --run {quote(run)}",
            )
        chosen[one.id] = one
    return [*chosen.values()]


def _own(branch: Branch, row: StepRow) -> bool:
    return row.branch_id == branch.id


def _step_to_change(branch: Branch, rows: Sequence[StepRow]) -> int | None:
    """Return the last closed step, at which the library can be changed; None if it may not be.

    An open step already uses this library. Changing it would change the step's requests, which
    would then be paid for again. Closed steps of another branch belong to that branch.
    """
    closed = [row for row in rows if row.closed]
    if any(row.status == "open" for row in rows) or not closed or not _own(branch, closed[-1]):
        return None
    return closed[-1].plan.step
