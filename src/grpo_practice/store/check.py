"""Integrity check of a database: the file, its references, and all values that runs rely on."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.stages import STAGES
from grpo_practice.core.text import brief
from grpo_practice.store import datasets, libraries, steps
from grpo_practice.store.db import explained, get_text, is_interrupted
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.rollouts import unpack
from grpo_practice.store.shape import LATER_LINKS, ancestor_faults, objects, schema_faults
from grpo_practice.store.table_graph import references, tables
from grpo_practice.store.typed_rows import CHECK_HINT

MOST = 20
"""Maximum number of reported problems of one kind."""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """Result of one check."""

    name: str
    looked_at: int
    """Number of objects checked."""
    wrong: list[str]
    """Problems, one sentence each, up to `MOST`."""
    notes: list[str]
    """Sentences about changes that are not damage, up to `MOST`."""


class Note(str):
    """Sentence about a change that a person may have made on purpose."""

    __slots__ = ()


_SIGNS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration,
    RecursionError, AssertionError,
)  # fmt: skip
"""Errors caused by values that this program would not have stored."""
Checker = Callable[[sqlite3.Connection], Iterator[str | None]]
"""Function that checks objects and yields None, a problem or a note for each."""


def damage_behind(path: Path, error: Exception) -> StoreError | None:
    """Return the error to report if damage to the database may have caused this error.

    Return None if the check finds no damage, because the error is then a defect of this program.
    """
    if not isinstance(error, _SIGNS):
        return None
    try:
        wrong = next((result.wrong for result in _results(path) if result.wrong), None)
    except StoreError:  # the file is missing or of another version, so it cannot be checked
        return None
    if wrong is None:
        return None
    return StoreError(f"the database {path} is damaged: {wrong[0]}", hint=CHECK_HINT)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Replace an error raised in the block with a StoreError if the database is damaged."""
    try:
        yield
    except _SIGNS as e:
        if damage := damage_behind(path, e):
            raise damage from e
        raise


def check(path: Path) -> list[TableCheck]:
    """Check a snapshot of the database without changing anything; see `open_to_look`.

    A foreign schema, or a branch that descends from itself, ends the check immediately, because the
    queries of the other checks might never end.
    """
    return list(_results(path))


def _results(path: Path) -> Iterator[TableCheck]:
    with explained(path), closing(open_to_look(path, whole=False)) as db:
        # One transaction, so that all checks see the same snapshot even while a run writes.
        db.execute("BEGIN")
        for name, checker in _checkers(path.resolve().parent).items():
            result = _result(db, name, checker)
            yield result
            if checker in (_schema, ancestor_faults) and result.wrong:
                break


def _result(db: sqlite3.Connection, name: str, checker: Checker) -> TableCheck:
    n, wrong, notes = 0, list[str](), list[str]()
    try:
        for said in checker(db):
            n += 1
            told = notes if isinstance(said, Note) else wrong
            if said is not None and len(told) < MOST:
                told.append(said)
    except (sqlite3.Error, StoreError, *_SIGNS) as e:
        if is_interrupted(e):
            raise
        # A damaged page ends this check, but not the others.
        wrong.append(f"cannot be checked completely: {e}")
    return TableCheck(name, n, wrong, notes)


def _pages(db: sqlite3.Connection) -> Iterator[str | None]:
    found = [row[0] for row in db.execute(f"PRAGMA integrity_check({MOST})")]
    yield from (None for _ in range(db.execute("PRAGMA page_count").fetchone()[0]))
    yield from (text for text in found if text != "ok")


def _schema(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that tables, views, indexes and triggers are as this program makes them."""
    return schema_faults(objects(db))


def _references(db: sqlite3.Connection) -> Iterator[str | None]:
    tables = [r[0] for r in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    yield from (None for _ in tables)
    for table, row, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to a missing row of {parent}"
    if db.execute("SELECT count(*) FROM address_salt").fetchone()[0] != 1:
        yield "address_salt does not have exactly one row"
    stray = """SELECT 'operation ' || op_id || ' belongs to no group' FROM operations o
         WHERE slot <> -1 AND NOT EXISTS (SELECT 1 FROM groups g
           WHERE (g.branch_id, g.step, g.slot) = (o.branch_id, o.step, o.slot))
         UNION ALL SELECT 'operation ' || op_id || ' was merged from a missing operation'
          FROM operations, json_each(from_ops) WHERE value NOT IN (SELECT op_id FROM operations)"""
    yield from (wrong for (wrong,) in db.execute(stray))


_ACROSS = (
    *("runs.parent_run_id", "branches.library_id", "branches.rebinds", "steps.played_by"),
    *("libraries.parent_id", "experiences.origin_id"),
    *("calls.invocation_id", "failures.invocation_id"),
)
"""Columns that may name a row of another run; `delete_run` knows them."""


def _runs_apart(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that runs name no rows of each other that would keep a run from being deleted."""
    for column, key, sql in references(tables(db), "main"):
        if column not in _ACROSS:
            text = f"SELECT run, other FROM ({sql}) WHERE run <> other"
            if key == "library_id":  # a run also uses the library that it began with
                text += """ AND NOT EXISTS (SELECT 1 FROM branches b
                    WHERE b.run_id = run AND b.library_id = id)"""
            found = db.execute(f"{text} LIMIT 1").fetchone()
            yield f"{column} of run {found[0]} belongs to run {found[1]}" if found else None


def _circles(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that no run, operation, experience, call or step refers to itself through others."""
    yield from ancestor_faults(db, LATER_LINKS)
    above = dict[str, str](db.execute("SELECT run_id, parent_run_id FROM runs").fetchall())
    for run in above:
        seen, at = set[str](), run
        while at in above and at not in seen:
            seen.add(at)
            at = above[at]
        yield f"run {run} descends from itself" if at in seen else None


def _texts(db: sqlite3.Connection) -> Iterator[str | None]:
    for sha, body in db.execute("SELECT sha256, body FROM texts"):
        yield None if text_sha(body) == sha else f"text {sha.hex()[:8]} does not match its hash"


def _datasets(db: sqlite3.Connection) -> Iterator[str | None]:
    for row in db.execute("SELECT dataset_id, name, n FROM datasets"):
        n = sum(1 for _ in datasets.each(db, row["dataset_id"]))
        wrong = f"dataset {row['name']} has {n} of its {row['n']} samples"
        yield None if n == row["n"] else wrong


def _runs(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that each run has one line of branches that holds each of its steps once."""
    rows = db.execute(
        """SELECT r.run_id, b.run_id AS held, (SELECT count(*) FROM v_line l
               WHERE l.run_id = r.run_id AND l.to_step = 1 << 30) AS heads,
             (SELECT count(*) - count(DISTINCT step) FROM v_steps s WHERE s.run_id = r.run_id)
               AS twice FROM runs r LEFT JOIN branches b ON b.branch_id = r.head_branch"""
    )
    for r in rows:
        if r["held"] != r["run_id"] or r["heads"] != 1:
            yield f"run {r['run_id']} has no head, or more than one"
        else:
            yield f"run {r['run_id']} has {r['twice']} duplicate steps" if r["twice"] else None


def _prompts(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that unfinished runs can use their prompts, and that all prompts are templates."""
    from grpo_practice.core.prompts.files import SLOTS, prompts_from, template_fault  # and Jinja

    rows = db.execute(
        """SELECT b.run_id, b.prompts, r.head_branch = b.branch_id AND EXISTS
             (SELECT 1 FROM v_steps s WHERE s.run_id = b.run_id AND s.closed_at IS NULL) AS needed
             FROM branches b JOIN runs r USING (run_id) WHERE r.kind = 'practice'"""
    )
    for row in rows:
        hashes = {name: bytes.fromhex(sha) for name, sha in json.loads(row["prompts"]).items()}
        texts = {name: get_text(db, sha) for name, sha in hashes.items() if name in SLOTS}
        wrong = list[str | None]()
        for name, text in texts.items():
            if fault := template_fault(text):
                wrong.append(f"the prompt {name!r} stored with run {row['run_id']}: {fault}")
        if row["needed"] and not wrong:
            try:
                prompts_from(texts, row["run_id"])
            except ConfigError as e:
                wrong.append(str(e))
        yield from wrong or [None]


def _closed_steps(
    db: sqlite3.Connection, *, kind: str, product: str, exists: str
) -> Iterator[str | None]:
    """Check that each closed step of these runs has its product, its groups and every rollout."""
    rows = db.execute(
        f"""SELECT b.run_id, s.*, EXISTS (SELECT 1 FROM {exists}) AS there,
             (SELECT count(*) FROM groups g WHERE g.branch_id = s.branch_id AND g.step = s.step)
               AS groups,
             (SELECT count(*) FROM rollouts r WHERE r.branch_id = s.branch_id AND r.step = s.step)
               AS rollouts
             FROM steps s JOIN branches b USING (branch_id) JOIN runs USING (run_id)
            WHERE runs.kind = ? AND s.status IN ('closed', 'merge_failed')""",
        (kind,),
    )
    for row in rows:
        step = steps.row_of(row)
        counts = {"groups": step.groups, "rollouts": step.rollouts}
        wrong = [f"{row[name]} of {n} {name}" for name, n in counts.items() if row[name] != n]
        wrong += [] if row["there"] else [f"no {product}"]
        wrong += [] if row["stats"] else ["no statistics"]
        where = f"step {row['step']} of {row['run_id']} is closed with "
        yield where + ", ".join(wrong) if wrong else None


def _checkpoints(db: sqlite3.Connection, *, folder: Path) -> Iterator[str | None]:
    """Check that each checkpoint's folder exists; a person may have deleted it to free space."""
    rows = db.execute(
        """SELECT run_id, step, path FROM checkpoints JOIN branches USING (branch_id)
            ORDER BY branch_id, step"""
    )
    for run, step, path in rows:
        there = False
        with suppress(OSError, ValueError):  # for a name that no file can have
            there = (folder / path).is_dir()
        yield (
            None
            if there
            else Note(f"the checkpoint of step {step} of {run} is missing: {brief(path, 200)}")
        )


def _libraries(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that each library has its original content, and results from its step's operations."""
    for row in db.execute("SELECT * FROM libraries"):
        library = libraries.load(db, row["library_id"])
        name = f"library L{row['library_id']}"
        if len(library) != row["n"] or library_sha(library) != row["sha256"]:
            yield f"{name} has changed since it was created"
        elif row["cause"] in ("merge", "prune", "approve", "edit") and not _follows(db, row):
            made_by = "behind it" if row["step"] is None else f"of step {row['step']}"
            yield f"{name} is not the result of the operations {made_by}"
        else:
            yield None


def _follows(db: sqlite3.Connection, library: sqlite3.Row) -> bool:
    """Return True if the applied operations turn the parent's items into the library's."""
    made = {eid: version for _, eid, version in libraries.items(db, library["parent_id"])}
    operations = db.execute(
        """SELECT o.op, o.target_id, o.result_id, t.version FROM operations o
             LEFT JOIN experience_texts t ON t.op_id = o.op_id
            WHERE o.branch_id = :branch_id AND o.step IS :step AND o.status = 'applied'
              AND CASE WHEN o.source = 'human' OR o.step IS NULL THEN o.library_id = :library_id
                    ELSE :cause <> 'approve' END
            ORDER BY o.op_id""",
        {name: library[name] for name in ("branch_id", "step", "library_id", "cause")},
    )
    for op in operations:
        if op["op"] == "DELETE":
            made.pop(op["target_id"], None)
        else:
            made[op["result_id"]] = op["version"]
    held = libraries.items(db, library["library_id"])
    return list(made.items()) == [(eid, version) for _, eid, version in held]


def _calls(db: sqlite3.Connection) -> Iterator[str | None]:
    rows = db.execute(
        """SELECT call_id, stage, request, reply, codec FROM calls
             LEFT JOIN call_bodies USING (call_id)"""
    )
    for row in rows:
        wrong = None if row["reply"] is not None else f"call {row['call_id']} has no body"
        if row["stage"] not in STAGES:
            wrong = f"call {row['call_id']} has an unknown stage: {brief(row['stage'], 40)}"
        try:
            for body in (row["request"], row["reply"]) if wrong is None else ():
                unpack(body, row["codec"])
        except StoreError as e:
            wrong = f"call {row['call_id']}: {e}"
        yield wrong


def _rollouts(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that each rollout has its response, and verdicts with either a reward or an error."""
    rows = db.execute(
        """SELECT 'rollout ' || r.rollout_id || CASE WHEN b.rollout_id IS NULL
               THEN ' has no response' WHEN EXISTS (SELECT 1 FROM verdicts v
                 WHERE v.rollout_id = r.rollout_id AND ((v.reward IS NULL) = (v.error IS NULL)
                   OR v.reward < 0 OR v.reward > 1)) THEN ' has an invalid verdict' END
             FROM rollouts r LEFT JOIN rollout_bodies b USING (rollout_id)"""
    )
    yield from (wrong for (wrong,) in rows)


def _sums(db: sqlite3.Connection) -> Iterator[str | None]:
    """Check that the stored totals, which pages read instead of the rows, agree with the rows."""
    known = "sum(tokens_in), sum(tokens_cached), sum(tokens_out), sum(cost_micro)"
    each = (
        f"SELECT branch_id, step, stage, count(*), sum(tries), {known} FROM calls GROUP BY 1, 2, 3"
    )
    kept = each.replace("count(*)", "sum(calls)").replace("FROM calls", "FROM call_sums")
    differ = f"SELECT * FROM ({each} EXCEPT {kept}) UNION SELECT * FROM ({kept} EXCEPT {each})"
    wrong = {(row[0], row[1]) for row in db.execute(differ)}
    rows = db.execute(
        """SELECT branch_id, step, run_id, sums ->> '$.rollouts' AS summed,
             (SELECT count(*) FROM rollouts r WHERE r.branch_id = s.branch_id AND r.step = s.step)
               AS rollouts
             FROM steps s JOIN branches USING (branch_id)"""
    )
    for row in rows:
        where = f"step {row['step']} of {row['run_id']} has sums that do not match its"
        if row["summed"] not in (None, row["rollouts"]):
            yield f"{where} rollouts"
        else:
            yield f"{where} calls" if (row["branch_id"], row["step"]) in wrong else None


def _checkers(folder: Path) -> dict[str, Checker]:
    """Return all checks of a database in this folder, by name."""
    # Imported here, because each command that reads imports this module.
    from grpo_practice.store.stored_values import label_faults, number_faults, value_faults

    return {
        "schema": _schema,
        "ancestors of branches and libraries": ancestor_faults,
        "pages of the file": _pages,
        "references between tables": _references,
        "times and JSON": value_faults,
        "ids and counts": number_faults,
        "labels and identities of runs": label_faults,
        "references in a circle": _circles,
        "references between runs": _runs_apart,
        "texts": _texts,
        "datasets": _datasets,
        "runs": _runs,
        "prompts of runs": _prompts,
        "closed steps of practice": partial(
            _closed_steps,
            kind="practice",
            product="library",
            exists="libraries l WHERE l.library_id = s.library_out",
        ),
        "closed steps of training": partial(
            _closed_steps,
            kind="train",
            product="update",
            exists="updates u WHERE u.branch_id = s.branch_id AND u.step = s.step",
        ),
        "libraries": _libraries,
        "calls": _calls,
        "rollouts": _rollouts,
        "sums": _sums,
        "checkpoints": partial(_checkpoints, folder=folder),
    }
