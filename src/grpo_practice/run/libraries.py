"""Reports on stored libraries and experiences, with the evidence for each experience."""

import re
from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.practice.evidence import Evidence, evidence_on, evidence_text
from grpo_practice.reports.experience_reports import (
    Changes,
    EvidenceSummary,
    ExperienceReport,
    LibraryReport,
)
from grpo_practice.run.library_refs import LibraryRef, library_of
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import history, past_votes, references, rollout_list
from grpo_practice.store.queries.held import held


def library_report(store: Store, ref: str | None, step: str, *, quarantined: bool) -> LibraryReport:
    """Return the library selected by `ref` and `step`; see `library_of`."""
    found = library_of(store, ref, step)
    evidence = {id_: _summary(e) for id_, e in _evidence(store, found).items()}
    at = {"branch": found.branch, "until": _last_step(store, found)}
    waiting = store.read(held, **at)
    outside = store.read(history.quarantined, **at) if quarantined else None
    return LibraryReport(found.run, found.step, found.library, evidence, waiting, outside)


def experience_report(store: Store, name: str, ref: str | None) -> ExperienceReport:
    """Return the history of an experience such as `E12`; see `Workspace.experience`."""
    label = re.fullmatch(r"[Ee]?([1-9]\d{0,8})", name)
    if label is None:
        of_run = "" if ref is None else f" --run {quote(ref)}"
        hint = f"experiences are called E1, E2, …: grpo-practice experiences list{of_run}"
        raise ConfigError(f"{name!r} is not an experience", hint=hint)
    found = library_of(store, ref)
    at = {"branch": found.branch, "until": _last_step(store, found), "library": found.library.id}
    origin = store.read(history.experience, found.run, int(label[1]), **at)
    shown = replace(origin, changes=Changes(origin.changes))
    evidence = _evidence(store, found).get(origin.id)
    if evidence is None:
        return ExperienceReport(shown, None)
    numbers = store.read(rollout_list.numbers, found.branch, evidence.votes)
    return ExperienceReport(shown, _summary(evidence, numbers))


def _last_step(store: Store, found: LibraryRef) -> int:
    """Return the last step with evidence about a library; -1 if there is no evidence.

    A library derived from a run's library shares the evidence of that library.
    """
    if found.step is not None:
        return found.step
    return store.read(references.step_before, found.library.id)


def _evidence(store: Store, found: LibraryRef) -> dict[str, Evidence]:
    """Return id → evidence for the library's experiences at the time the library was made."""
    branch = store.read(branches.load, found.branch)
    past = store.read(past_votes.past, branch, found.library, end=_last_step(store, found) + 1)
    truth = branch.identity.get("practice.given_ground_truth", True)
    return evidence_on(found.library, past, rewards=bool(truth))


def _summary(e: Evidence, numbers: Mapping[int, int] | None = None) -> EvidenceSummary:
    sentence = evidence_text(e, numbers)
    return EvidenceSummary(e.supporting, e.opposing, e.change, len(e.changes), e.support, sentence)
