"""Runs and their branches: each run is begun, resumed or restarted in one transaction."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import chain

from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.core.fences import new_key
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.text import folder_text
from grpo_practice.core.types import Library
from grpo_practice.store import libraries
from grpo_practice.store.db import get_text, insert, now, put_text
from grpo_practice.store.identity import agent_record, diff
from grpo_practice.store.reading import deleted_meanwhile
from grpo_practice.store.records import (
    AgentRecord,
    Branch,
    Cause,
    RunSpec,
    Segment,
    TestSet,
    VerifierRecord,
)
from grpo_practice.store.resume import (
    Begin,
    Head,
    Rebind,
    Restart,
    Resume,
    ResumeDecision,
    resume_decision,
)

ENDLESS = 1 << 30
"""End of a branch without a successor; the views of the schema use the same number."""
_VERIFIER = "SELECT verifier_id FROM verifiers WHERE sha256 = ?"


@dataclass(frozen=True, slots=True)
class _Place:
    """Branch that a command works on, which may not be stored yet."""

    branch_id: int | None = None
    """ID of the branch; None if the branch is not stored yet."""
    parent: int | None = None
    from_step: int = 0
    lender: sqlite3.Row | None = None
    """Branch whose calls the new branch reuses."""
    notices: tuple[str, ...] = ()


def begin(
    db: sqlite3.Connection, spec: RunSpec, *, restart_step: int | None, again: bool
) -> Branch:
    """Return the branch to work on; create the run and the branch if necessary.

    Raises:
        FingerprintError: See `resume.resume_decision`.
        ConfigError: See `resume.resume_decision`; or a recorded run has this name.
    """
    place = _place(db, spec, restart_step=restart_step, again=again)
    branch_id = place.branch_id
    if branch_id is None:
        if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (spec.name,)).fetchone() is None:
            _insert_run(db, spec)
        branch_id = _insert_branch(db, spec, place)
    return load(db, branch_id, place.notices)


def foresee(
    db: sqlite3.Connection, spec: RunSpec, *, restart_step: int | None, again: bool
) -> Branch:
    """Return the branch that `begin` would return, with the ID 0 if it is new; write nothing.

    Raises: the same errors as `begin`.
    """
    place = _place(db, spec, restart_step=restart_step, again=again)
    if place.branch_id is not None:
        return load(db, place.branch_id, place.notices)
    above = line(db, place.parent) if place.parent is not None else ()
    kept = (s._replace(end=min(s.end, place.from_step)) for s in above if s.first < place.from_step)
    verifier = db.execute(_VERIFIER, (spec.verifier.sha,)).fetchone()
    lender = place.lender["branch_id"] if place.lender else None
    return Branch(
        id=0,
        run=spec.name,
        from_step=place.from_step,
        line=(Segment(0, place.from_step, ENDLESS), *kept),
        verifier_id=verifier[0] if verifier else 0,
        dataset_id=spec.dataset_id,
        library=_first_library(db, spec, place),
        prompts=spec.prompts,
        agent=agent_record(spec),
        tests=spec.tests,
        # Through JSON, as `load` returns it: with lists in place of tuples.
        identity=json.loads(json.dumps(dict(spec.identity))),
        reuses=() if lender is None else (lender, *reuses(db, lender)),
        notices=place.notices,
    )


def _place(
    db: sqlite3.Connection, spec: RunSpec, *, restart_step: int | None, again: bool
) -> _Place:
    run = db.execute("SELECT kind FROM runs WHERE run_id = ?", (spec.name,)).fetchone()
    if run and run["kind"] == "recorded":
        raise ConfigError(
            f"{spec.name} is a recorded run, so it cannot be played",
            hint="give this run another exp_id",
        )
    head, decision = decide(db, spec, restart_step=restart_step, again=again)
    match decision:
        case Resume(notice):
            assert head is not None
            return _Place(head["branch_id"], notices=(notice,) if notice else ())
        case Rebind(notice):
            assert head is not None
            # Replaces the old branch instead of descending from it, and only reuses its calls.
            return _Place(None, head["parent_id"], head["from_step"], head, (notice,))
        case Restart(step):
            assert head is not None
            _whole_or_same(spec, step, diff(json.loads(head["identity"]), spec.identity))
            # A judge's reply is not paid for twice if training produces the same answer again; nor
            # is a call of an open step that continues with a different configuration.
            lends = head if spec.kind == "train" or decision.goes_on else None
            return _Place(None, head["branch_id"], step, lends)
        case Begin():
            pass
    # None if the run reuses nothing, or if the branch has been deleted.
    lender = db.execute("SELECT * FROM branches WHERE branch_id = ?", (spec.reuses,)).fetchone()
    if lender is None:
        return _Place()
    asked = f"{lender['run_id']} made the same requests, so its answers are reused at no cost"
    return _Place(lender=lender, notices=(asked,))


def decide(
    db: sqlite3.Connection, spec: RunSpec, *, restart_step: int | None, again: bool
) -> tuple[sqlite3.Row | None, ResumeDecision]:
    """Return the run's newest branch (or None), and the decision that `begin` acts on."""
    run = db.execute("SELECT head_branch FROM runs WHERE run_id = ?", (spec.name,)).fetchone()
    row = _branch_row(db, run["head_branch"]) if run and run["head_branch"] else None
    return row, resume_decision(
        spec.name,
        _head(db, spec.name, row) if row is not None else None,
        spec.identity,
        restart_step=restart_step,
        again=again,
        whole=spec.kind == "eval",
    )


def _whole_or_same(spec: RunSpec, step: int, changes: list[ChangedKey]) -> None:
    """Raise if a score would combine the results of two agents."""
    if spec.kind == "eval" and step > 0 and changes:
        raise FingerprintError(
            f"{spec.name} cannot continue at step {step} with a different configuration:"
            " its score would combine the results of two agents",
            changes,
            hint="add --restart-step 0 to ask all questions again",
        )


def load(db: sqlite3.Connection, branch_id: int, notices: tuple[str, ...] = ()) -> Branch:
    """Return the branch with its line, its start library and its prompts.

    Raises:
        StoreError: The branch was deleted after its ID was read.
    """
    row = _branch_row(db, branch_id)
    prompts = {n: get_text(db, bytes.fromhex(h)) for n, h in json.loads(row["prompts"]).items()}
    library = libraries.load(db, row["library_id"]) if row["library_id"] else Library()
    return Branch(
        id=branch_id,
        run=row["run_id"],
        from_step=row["from_step"],
        line=line(db, branch_id),
        verifier_id=row["verifier_id"] or 0,
        dataset_id=row["dataset_id"] or 0,
        library=library,
        prompts=prompts,
        fence_key=row["fence_key"],
        agent=AgentRecord(**{f.name: row[f.name] for f in fields(AgentRecord)}),
        tests=TestSet(row["test_dataset"], row["test_k"] or 1, row["test_limit"]),
        identity=json.loads(row["identity"]),
        reuses=reuses(db, branch_id),
        notices=notices,
    )


def line(db: sqlite3.Connection, branch_id: int) -> tuple[Segment, ...]:
    """Return the segments of a branch's line, newest first (the same as the view `v_line`)."""
    segments, low, current = list[Segment](), ENDLESS, branch_id
    while True:
        row = _branch_row(db, current)
        first = min(row["from_step"], low)
        # A restart at an earlier step hides this branch: none of its steps are on the line.
        if first < low:
            segments.append(Segment(current, first, low))
        if row["parent_id"] is None:
            return tuple(segments)
        low, current = first, row["parent_id"]


def rows_on_line(db: sqlite3.Connection, branch: Branch, sql: str) -> Iterator[sqlite3.Row]:
    """Return the rows of a query over each segment of a branch's line, newest first.

    `sql` has three parameters: branch, first step, end.
    """
    # Not a generator function: after an error, it would be closed too late, and print a warning.
    return chain.from_iterable(db.execute(sql, segment) for segment in branch.line)


def sums_on_line(db: sqlite3.Connection, branch: Branch, sql: str) -> tuple[int, ...]:
    """Return the sum of each column of a query over each segment of a branch's line."""
    return tuple(map(sum, zip(*rows_on_line(db, branch, sql), strict=True)))


def put_verifier(db: sqlite3.Connection, verifier: VerifierRecord) -> int:
    """Return the ID of a verify function in its current version; insert it if it is new."""
    source = put_text(db, verifier.source, text_sha(verifier.source)) if verifier.source else None
    made = {"sha256": verifier.sha, "name": verifier.name, "source": source}
    made["spec"] = json.dumps(dict(verifier.spec), sort_keys=True)
    # Another run may already use this function; its verdicts belong to the same row.
    insert(db, "verifiers", made, more="ON CONFLICT DO NOTHING")
    # Query the id, since lastrowid is meaningless after DO NOTHING.
    row = db.execute(_VERIFIER, (verifier.sha,)).fetchone()
    return int(row[0])


def verifier_sha(db: sqlite3.Connection, verifier_id: int) -> bytes:
    """Return the hash that identifies a verify function."""
    found = db.execute("SELECT sha256 FROM verifiers WHERE verifier_id = ?", (verifier_id,))
    return bytes(found.fetchone()[0])


def start_library(db: sqlite3.Connection, run: str) -> Library | None:
    """Return the library a run started with; None if it was empty or the run does not exist."""
    # A run restarted at step 0 may have begun with another library, so the newest branch counts.
    row = db.execute(
        "SELECT library_id FROM branches WHERE run_id = ? AND from_step = 0"
        " ORDER BY branch_id DESC LIMIT 1",
        (run,),
    ).fetchone()
    library = libraries.load(db, row[0]) if row and row[0] is not None else None
    return library if library and library.experiences else None


def _branch_row(db: sqlite3.Connection, branch_id: int) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute(
        "SELECT * FROM branches WHERE branch_id = ?", (branch_id,)
    ).fetchone()
    if row is None:
        raise deleted_meanwhile()
    return row


def _head(db: sqlite3.Connection, run: str, row: sqlite3.Row) -> Head:
    # Use closed_at, not status: a step that was reopened to grow still binds the run.
    counts = db.execute(
        """SELECT coalesce(max(CASE WHEN closed_at IS NOT NULL THEN step END) + 1, 0),
                  sum(closed_at IS NOT NULL AND branch_id = :head),
                  sum(status NOT IN ('closed','merge_failed'))
             FROM v_steps WHERE run_id = :run""",
        {"run": run, "head": row["branch_id"]},
    ).fetchone()
    return Head(
        cause=row["cause"],
        from_step=row["from_step"],
        identity=json.loads(row["identity"]),
        recorded=counts[0],
        # sum() over no rows is NULL: without a plan, nothing is closed and nothing is finished.
        own_closed=counts[1] or 0,
        finished=counts[2] == 0,
    )


def _insert_run(db: sqlite3.Connection, spec: RunSpec) -> None:
    row = {
        "run_id": spec.name,
        "exp_id": spec.exp_id,
        "kind": spec.kind,
        "purpose": spec.purpose,
        "parent_run_id": spec.parent_run,
        "parent_step": spec.parent_step,
        "status": "new",
        "simulated": int(spec.simulated),
        "created_at": now(),
    }
    insert(db, "runs", row)


def _insert_branch(db: sqlite3.Connection, spec: RunSpec, place: _Place) -> int:
    """Insert a branch and move the run's head to it."""
    parent, lender = place.parent, place.lender
    # Store the texts: a resumed run uses the prompts of its start, even if the files changed.
    prompts = {n: put_text(db, t, text_sha(t)).hex() for n, t in spec.prompts.items()}
    library_id = _put_first_library(db, spec, place)
    cause: Cause = "rejudge" if spec.purpose == "rejudge" else "start"
    restarted = parent is not None and cause == "start"
    if lender:
        fence_key = lender["fence_key"]  # its prompts must match those of the reused calls
    else:
        # One key per run, even after restarts, since a run that scores it again reuses one key.
        above = _branch_row(db, parent)["fence_key"] if parent is not None else None
        fence_key = above or spec.fence_key or new_key()
    replaced = (
        lender is not None and lender["run_id"] == spec.name and lender["branch_id"] != parent
    )
    cause = lender["cause"] if lender and replaced else "restart" if restarted else cause
    row = {
        "run_id": spec.name,
        "parent_id": parent,
        "from_step": place.from_step,
        "rebinds": lender["branch_id"] if lender else None,
        "cause": cause,
        "library_id": library_id,
        "tip_library": library_id,
        "verifier_id": put_verifier(db, spec.verifier),
        "identity": json.dumps(dict(spec.identity), ensure_ascii=False, sort_keys=True),
        "config_sha": put_text(db, spec.config_text, text_sha(spec.config_text)),
        "prompts": json.dumps(prompts),
        "fence_key": fence_key,
        "base_dir": folder_text(spec.base_dir),
        "dataset_id": spec.dataset_id,
        **asdict(agent_record(spec)),
        **_tested_on(spec),
        "created_at": now(),
    }
    branch_id = insert(db, "branches", row)
    # In the same transaction as the branch, so that no reader finds a run without a head.
    db.execute(
        "UPDATE runs SET head_branch = ?, simulated = ? WHERE run_id = ?",
        (branch_id, int(spec.simulated), spec.name),
    )
    return branch_id


def _tested_on(spec: RunSpec) -> dict[str, str | int | None]:
    """Return the columns that describe the test set of a practice run."""
    if spec.kind != "practice":
        return {}
    of = spec.tests
    return {"test_dataset": of.dataset, "test_k": of.k, "test_limit": of.limit}


def _put_first_library(db: sqlite3.Connection, spec: RunSpec, place: _Place) -> int | None:
    """Return the ID of the library for a new branch's first step; insert it if it is not stored."""
    if spec.kind == "train":
        return None
    library = _first_library(db, spec, place)
    if spec.kind == "practice" and (place.parent is None or place.from_step == 0):
        return libraries.start(db, spec.name, library)
    if library.id or not library:
        return library.id or None
    # Without a stored version, the score would never belong to a library.
    return libraries.put(db, spec.name, None, library)


def _first_library(db: sqlite3.Connection, spec: RunSpec, place: _Place) -> Library:
    """Return the library for a new branch's first step, from its parent or from the run's spec.

    A practice run restarted at 0 starts with the library of its current configuration.
    """
    if spec.kind != "practice" or place.parent is None or place.from_step == 0:
        return spec.library
    # Not always the parent itself: one of its ancestors may hold the step before.
    before = place.from_step - 1
    held = next(s for s in line(db, place.parent) if s.first <= before < s.end)
    row = db.execute(
        "SELECT library_out FROM steps WHERE branch_id = ? AND step = ?", (held.branch_id, before)
    ).fetchone()
    return libraries.load(db, int(row[0]))


def renew_config(db: sqlite3.Connection, branch_id: int, spec: RunSpec) -> None:
    """Store the current configuration, which agrees with the branch's identity."""
    row = {
        "config_sha": put_text(db, spec.config_text, text_sha(spec.config_text)),
        "base_dir": folder_text(spec.base_dir),
        "k": spec.k,
        **_tested_on(spec),
    }
    changes = ", ".join(f"{name} = :{name}" for name in row)
    db.execute(
        f"UPDATE branches SET {changes} WHERE branch_id = :branch_id",
        row | {"branch_id": branch_id},
    )


def reuses(db: sqlite3.Connection, branch_id: int) -> tuple[int, ...]:
    """Return the branches whose calls may answer this branch's requests, newest first."""
    found, current = list[int](), _branch_row(db, branch_id)["rebinds"]
    while current is not None:
        found.append(current)
        current = _branch_row(db, current)["rebinds"]
    return tuple(found)
