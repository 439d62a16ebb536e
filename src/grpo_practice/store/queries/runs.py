"""Queries about runs for people: lists, look-ups, costs."""

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import folder_of, nearest
from grpo_practice.store import branches
from grpo_practice.store.db import get_text
from grpo_practice.store.records import Branch, RunRow

SHOWN = 5
"""Maximum number of runs that a message names."""
_SELECT = """
SELECT r.run_id AS name, r.exp_id, r.kind, r.purpose, r.parent_run_id AS parent_run, r.parent_step,
       r.head_branch, r.status, r.simulated, r.created_at, r.imported NOTNULL AS imported,
       r.arm, r.arm_change, r.tags, r.note,
       (SELECT count(*) FROM v_steps s WHERE s.run_id = r.run_id) AS steps,
       (SELECT count(*) FROM v_steps s WHERE s.run_id = r.run_id
           AND s.status IN ('closed', 'merge_failed')) AS steps_closed,
       (SELECT count(*) FROM branches b WHERE b.run_id = r.run_id) AS branches
  FROM runs r
"""


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The configuration of a run's newest branch."""

    run: str
    text: str
    base_dir: str
    exp_id: str
    imported: bool


@dataclass(frozen=True, slots=True)
class StageCost:
    """Cost of the calls of one stage, over all branches of a run."""

    stage: str
    name: str
    calls: int
    tokens_in: int | None
    tokens_cached: int | None
    """Cached part of `tokens_in`; None if no reply reports it."""
    tokens_out: int | None
    uncounted: int
    """Calls without a token count, which the sums do not include."""
    usd: float | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The dataset that a run plays, and the agent and the model that answer."""

    dataset: str | None
    agent: str | None
    model: str | None
    """Model; None for an agent whose configuration names no model."""


def asked(db: sqlite3.Connection) -> dict[str, Asked]:
    """Return run → dataset, agent and model of its newest branch, for runs that have a dataset."""
    rows = db.execute(
        """SELECT r.run_id, d.name, b.model,
                  coalesce(b.identity ->> '$."agent.agent.name"',
                           b.identity ->> '$."evaluation.agent.agent.name"') FROM runs r
             JOIN branches b ON b.branch_id = r.head_branch
             JOIN datasets d ON d.dataset_id = b.dataset_id"""
    )
    return {run: Asked(dataset, agent, model) for run, dataset, model, agent in rows}


def all_runs(db: sqlite3.Connection) -> list[RunRow]:
    """Return all runs, oldest first."""
    return [_run(row) for row in db.execute(f"{_SELECT} ORDER BY r.rowid")]


def find(db: sqlite3.Connection, name: str) -> RunRow | None:
    """Return the run of that name, or None."""
    row = db.execute(f"{_SELECT} WHERE r.run_id = ?", (name,)).fetchone()
    return _run(row) if row else None


def get(db: sqlite3.Connection, name: str) -> RunRow:
    """Return the run of exactly that name; raise ConfigError with a hint that names other runs."""
    run = find(db, name)
    if run is None:
        library = int(name[1:]) if re.fullmatch(r"L[0-9]{1,18}", name) else 0
        if db.execute("SELECT 1 FROM libraries WHERE library_id = ?", (library,)).fetchone():
            hint = f"grpo-practice experiences list --run {name}"
            raise ConfigError(f"{name} is a library, not a run", hint=hint)
        hint = _others(name, [run for run, _ in _newest(db)])
        raise ConfigError(f"there is no run {name!r}", hint=hint)
    return run


def named(db: sqlite3.Connection, text: str) -> RunRow:
    """Return the run that a person names by its name, its `exp_id` or the beginning of its name.

    If all runs that begin so lie below the run whose last part the text begins, as `demo/eval`
    below `demo`, it stands for that run.

    Raises:
        ConfigError: The text stands for no run, or for several.
    """
    if (run := find(db, text)) is not None or not text:
        return run or get(db, text)
    known = _newest(db)
    found = dict(pair for pair in known if pair[1] == text)
    found = found or dict(pair for pair in known if pair[0].startswith(text))
    top = min(found, key=len, default=text)
    below = all(name == top or name.startswith(f"{top}/") for name in found)
    if len(found) > 1 and (not below or "/" in top[len(text) :]):
        hint = f"name one of them: {_listed(list(found))}"
        raise ConfigError(f"{text!r} stands for {len(found)} runs", hint=hint)
    return get(db, top)


def begins_name(db: sqlite3.Connection, text: str) -> bool:
    """Return whether the name of a run begins with the text."""
    return any(name.startswith(text) for name, _ in _newest(db))


def _newest(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return name and experiment of each run, newest first."""
    return [tuple(row) for row in db.execute("SELECT run_id, exp_id FROM runs ORDER BY rowid DESC")]


def _others(name: str, known: Sequence[str]) -> str:
    """Return a hint with names that are similar, contain the name or begin alike, or with any."""
    alike = [[one for one in known if one.startswith(name[:n])] for n in range(len(name), 1, -1)]
    begin = next(filter(None, alike), [])
    if near := nearest(name, known):
        return near
    if within := [one for one in known if name and name in one]:
        return f"runs with {name!r} in their names: {_listed(within)}"
    return f"runs that begin alike: {_listed(begin)}" if begin else f"runs: {_listed(known)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(sorted(names)[:SHOWN]) or "none yet") + more


def newest_branch(db: sqlite3.Connection, name: str) -> Branch | None:
    """Return the branch on which a run continues; None if there is no such run or branch."""
    run = find(db, name)
    return None if run is None or run.head_branch is None else branches.load(db, run.head_branch)


def matching(db: sqlite3.Connection, names: Iterable[str]) -> list[str]:
    """Return the runs that match these names and globs, each once.

    Raises:
        ConfigError: A name or glob matches no run.
    """
    found, known = dict[str, None](), [run.name for run in all_runs(db)]
    for name in names:
        # The name of a run may itself contain characters of a glob.
        some = [name] if name in known else [run for run in known if fnmatchcase(run, name)]
        found.update(dict.fromkeys(some or [get(db, name).name]))
    return list(found)


def latest(db: sqlite3.Connection, kinds: Sequence[str], *, to_play: bool = False) -> RunRow | None:
    """Return the run with the newest command, among the runs that a person started.

    Commands typed before the import of a run do not count. With `to_play`, leave out imported runs
    without another command: nobody has said here that their settings may be used.
    """
    marks = ",".join("?" * len(kinds))
    newest = """(SELECT max(invocation_id) FROM invocations i WHERE i.run_id = r.run_id
                  AND i.invocation_id > coalesce(r.imported, 0))"""
    named = f"AND (r.imported IS NULL OR {newest} NOTNULL)" if to_play else ""
    row = db.execute(
        f"""{_SELECT} WHERE r.kind IN ({marks}) AND r.parent_run_id IS NULL
               AND r.purpose NOT IN ('select', 'effect') {named}
             ORDER BY {newest} DESC, r.rowid DESC LIMIT 1""",
        tuple(kinds),
    ).fetchone()
    return _run(row) if row else None


def config(db: sqlite3.Connection, run: str) -> StoredConfig | None:
    """Return the stored configuration of a run's newest branch."""
    row = db.execute(
        """SELECT b.config_sha, b.base_dir, r.exp_id, r.imported NOTNULL AS imported
             FROM runs r JOIN branches b ON b.branch_id = r.head_branch WHERE r.run_id = ?""",
        (run,),
    ).fetchone()
    if row is None:
        return None
    return StoredConfig(
        run=run,
        text=get_text(db, row["config_sha"]),
        base_dir=str(folder_of(row["base_dir"])),
        exp_id=row["exp_id"],
        imported=bool(row["imported"]),
    )


def costs(db: sqlite3.Connection, run: str) -> list[StageCost]:
    """Return the cost of calls by stage and model, over all branches, including old ones."""
    rows = db.execute(
        """SELECT stage, name, sum(calls) AS calls, sum(tokens_in) AS tokens_in,
                  -- a tool is no request
                  sum(CASE WHEN tries > 0 THEN tokens_cached END) AS tokens_cached,
                  sum(tokens_out) AS tokens_out, sum((NOT counted) * calls) AS uncounted,
                  sum(cost_micro) / 1e6 AS usd, sum((NOT priced) * calls) AS unpriced
             FROM call_sums JOIN invocations USING (invocation_id)
            WHERE run_id = ? GROUP BY stage, name ORDER BY min(step), stage""",
        (run,),
    )
    return [StageCost(**row) for row in rows]


def last_command(db: sqlite3.Connection, run: str) -> str:
    """Return the run's last command, without options that limit it or repeat steps.

    Commands typed before an import name files and runs of another database, so for an imported run
    without a later command, return the one that resumes it by name.
    """
    row = db.execute(
        """SELECT command FROM invocations i JOIN runs r USING (run_id)
            WHERE run_id = ? AND branch_id IS NOT NULL AND invocation_id > coalesce(imported, 0)
            ORDER BY invocation_id DESC LIMIT 1""",
        (run,),
    ).fetchone()
    if row is None:
        found = find(db, run)
        by_name = _BY_NAME.get(found.kind, "") if found and found.imported else ""
        return by_name and f"{by_name} {quote(run)}"
    return _PARTLY.sub("", row[0])


_BY_NAME = {"practice": "grpo-practice practice --exp-id", "eval": "grpo-practice eval --run"}


_PARTLY = re.compile(r" --again\b| --(?:pilot|limit|restart-step)[ =]\d+")


def _run(row: sqlite3.Row) -> RunRow:
    flags = {name: bool(row[name]) for name in ("simulated", "imported")}
    return RunRow(**{**row, **flags, "tags": tuple(row["tags"].split())})
