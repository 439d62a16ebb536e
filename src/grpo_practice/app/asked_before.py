"""The evaluation whose answers a new one may use: same questions, same agent, same address."""

from collections.abc import Iterator
from typing import Any

from grpo_practice.canonical import text_sha
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.prompts.system import system_prompt
from grpo_practice.store import Store, branches, datasets, invocations
from grpo_practice.store.bound_keys import INSTRUCTIONS, Identity, agent_of
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import Branch, DatasetRow, RunSpec
from grpo_practice.types import Library


def asked_before(
    store: Store, spec: RunSpec, config: EvalConfig, dataset: DatasetRow, library: Library
) -> int | None:
    """Return the branch of another evaluation that asked this agent the same questions.

    The same prompt makes the same agent, whatever the run's name, and whether the library was
    apart from the instructions or, as in an exported agent, part of them.
    """
    agent = _answer_keys(spec.identity)
    address = store.read(invocations.address_hash, spec.addresses["student_at"])
    for run, branch in _with_prompt(store, system_prompt(config.agent.agent.instructions, library)):
        if (
            run != spec.name
            and store.read(datasets.by_id, branch.dataset_id).sha == dataset.sha
            and _answer_keys(branch.identity) == agent
            # No identity has the address: a run goes on when its endpoint has moved.
            and store.read(scores.student_addresses, [branch.id, *branch.reuses]) == {address}
        ):
            return branch.id
    return None


def moved(store: Store, spec: RunSpec) -> str | None:
    """Return a notice if the run has answers from another address than the spec's, else None."""
    run = store.read(runs.find, spec.name)
    if run is None or run.head_branch is None or "student_at" not in spec.addresses:
        return None
    branch = store.read(branches.load, run.head_branch)
    known = store.read(scores.student_addresses, [branch.id, *branch.reuses]) - {None}
    here = {store.read(invocations.address_hash, spec.addresses["student_at"])}
    if not known - here:
        return None
    return (
        f"{spec.name} has answers from another address (base_url, extra_headers or extra_query),"
        " which count on; if another model answers now, give the evaluation another exp_id or add"
        " --restart-step 0"
    )


def _with_prompt(store: Store, prompt: str) -> Iterator[tuple[str, Branch]]:
    """Yield (run, branch) of the evaluations whose agent has this system prompt."""
    for run, _, branch_id in store.read(scores.evaluations_with_prompt, text_sha(prompt)):
        yield run, store.read(branches.load, branch_id)
    for run, branch_id in store.read(scores.evaluations_without_rollouts):
        branch = store.read(branches.load, branch_id)
        if system_prompt(str(branch.identity.get(INSTRUCTIONS, "")), branch.library) == prompt:
            yield run, branch


def _answer_keys(identity: Identity) -> dict[str, Any]:
    """Return what an evaluation's answers depend on besides its questions and its prompt."""
    answers = agent_of(identity) | {key: identity.get(key) for key in ("seed", "batch_size")}
    return {key: value for key, value in answers.items() if key != INSTRUCTIONS}
