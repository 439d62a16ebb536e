"""Reuse of an earlier evaluation's answers by one with the same questions, agent and address."""

from functools import partial

from grpo_practice.store import Store, branches, invocations
from grpo_practice.store.identity import agent_record
from grpo_practice.store.queries import evaluations, runs, scores
from grpo_practice.store.records import DatasetRow, RunSpec


def asked_before(store: Store, spec: RunSpec, dataset: DatasetRow) -> int | None:
    """Return the branch of another evaluation that sent this agent the same questions.

    An equal prompt means an equal agent, whatever the run's name. The library may have been
    separate from the instructions or, as in an exported agent, part of them.
    """
    address = store.read(invocations.address_hash, spec.addresses["student_at"])
    lenders = partial(evaluations.lenders, batch_size=spec.identity["batch_size"])
    for lender in store.read(lenders, spec.name, agent_record(spec), dataset.sha256):
        branch = store.read(branches.load, lender.branch_id)
        # The identity does not contain the address, because a run continues when its endpoint
        # moves. Answers are reused only from the same address.
        if store.read(scores.student_addresses, [branch.id, *branch.reuses]) == {address}:
            return branch.id
    return None


def moved(store: Store, spec: RunSpec) -> str | None:
    """Return a notice if the run has answers from an address other than the spec's."""
    branch = store.read(runs.newest_branch, spec.name)
    if branch is None or "student_at" not in spec.addresses:
        return None
    known = store.read(scores.student_addresses, [branch.id, *branch.reuses]) - {None}
    here = {store.read(invocations.address_hash, spec.addresses["student_at"])}
    if not known - here:
        return None
    return (
        f"{spec.name} has answers from another address (base_url, extra_headers or extra_query),"
        " which still count; if another model answers now, give the evaluation another exp_id or"
        " add --restart-step 0"
    )
