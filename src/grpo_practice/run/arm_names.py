"""Names of the arms of a comparison, and how each differs from the arm before it."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from grpo_practice.core.prompts.system import block_sha, library_sha
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import Library
from grpo_practice.run.evaluation_run import EvalJob
from grpo_practice.store import Store, libraries
from grpo_practice.store.identity import agent_changes, instructions_of
from grpo_practice.store.queries import references
from grpo_practice.store.records import RunSpec
from grpo_practice.store.run_labels import ArmName

NAMED = 3
"""Maximum number of experiences named for each kind of change."""
CHARS = 200
"""Maximum number of characters of a difference."""


def with_names(store: Store, evaluations: Mapping[str, EvalJob]) -> dict[str, EvalJob]:
    """Return the evaluations of a comparison, each with the name of its arm."""
    specs = [job.spec for job in evaluations.values()]
    changes = ["", *(brief(_change(*pair), CHARS) for pair in pairwise(specs))]
    return {
        arm: replace(job, spec=replace(job.spec, arm=ArmName(_name(store, arm, job), change)))
        for (arm, job), change in zip(evaluations.items(), changes, strict=True)
    }


def _name(store: Store, arm: str, job: EvalJob) -> str:
    """Return the name as typed; for a library that a person edited, with the edit."""
    library = job.spec.library
    parent = store.read(references.edited_from, library.id) if arm == f"L{library.id}" else None
    if parent is None:
        return arm
    return f'{arm} "{library_change(store.read(libraries.load, parent), library)}"'


def _change(before: RunSpec, after: RunSpec) -> str:
    parts = [_experiences(before, after), *agent_changes(before.identity, after.identity)]
    if before.seed != after.seed:
        parts.append(f"seed {before.seed} → {after.seed}")
    return "; ".join(filter(None, parts)) or "nothing"


def _experiences(before: RunSpec, after: RunSpec) -> str:
    blocks = [block_sha(instructions_of(spec.identity)) for spec in (before, after)]
    if not any(blocks):
        return library_change(before.library, after.library)
    # The instructions of an exported agent contain its library as text.
    shas = [
        library_sha(spec.library) if spec.library else block
        for spec, block in zip((before, after), blocks, strict=True)
    ]
    if shas[0] == shas[1]:
        return ""
    if not shas[1]:
        return "without experiences"
    return "other experiences" if shas[0] else "experiences in the instructions"


def library_change(before: Library, after: Library) -> str:
    """Return how a library differs from another: `E3 edited, E7 added`; "" if it does not."""
    was, now = ({e.label: e.text for e in library.experiences} for library in (before, after))
    if not was or not now:
        more = count(len(now or was), "experience")
        return "" if was == now else ("+" if now else "\u2212") + more
    if not set(was.values()) & set(now.values()):
        return f"{count(len(now), 'other experience')} instead of {len(was)}"
    kinds = {
        "edited": [label for label in was.keys() & now.keys() if was[label] != now[label]],
        "removed": [*(was.keys() - now.keys())],
        "added": [*(now.keys() - was.keys())],
    }
    return ", ".join(
        f"{', '.join(f'E{label}' for label in sorted(labels))} {kind}"
        if len(labels) <= NAMED
        else f"{len(labels)} {kind}"
        for kind, labels in kinds.items()
        if labels
    )
