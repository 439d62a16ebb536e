"""Copies runs, with everything that they need, from one database file into another.

Every id is translated: rows get new ids after those that are in use. Rows that several runs share,
such as questions, are recognised by their hash and stored once.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from grpo_practice.core.errors import ConfigError
from grpo_practice.store.content_hashes import check_hashes
from grpo_practice.store.db import connect, explained, insert_all, now, prepare, transaction
from grpo_practice.store.run_names import renamed
from grpo_practice.store.table_graph import (
    ALSO_USED,
    LOCAL,
    NOT_COPIED,
    RESPACED,
    TRANSLATED,
    Table,
    by_key,
    owned,
    references,
    tables,
)


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of a transfer."""

    added: Mapping[str, str]
    """Name in the source → name of the copy."""
    known: Mapping[str, str]
    """Name in the source → name of a run with the same content, which was here before."""
    hidden: Sequence[str] = ()
    """Names of datasets that belong to other rows here, so that only the copied runs use them."""


class NameClashError(ConfigError):
    """Experiments whose names belong to other runs."""

    def __init__(self, free: Mapping[str, str], *, hint: str | None = None) -> None:
        """`free`: each experiment, with a name that is not in use."""
        self.free = free
        others = (
            "is the name of another run, or of another state of it,"
            if len(free) == 1
            else "are names of other runs, or of other states of them,"
        )
        text = f"{', '.join(free)} {others} in this database; nothing was imported"
        super().__init__(text, hint=hint)


def transfer(
    db: sqlite3.Connection,
    source: Path,
    wanted: Sequence[str] = (),
    *,
    names: Mapping[str, str] | None = None,
    folder: str,
    imported: bool,
) -> Moved:
    """Copy runs from a file into this database, in the caller's transaction.

    Args:
        db: The database that receives the runs.
        source: A file with the same schema, which nobody else uses.
        wanted: Runs to copy, with those that they made and those that they need; () for all.
        names: Experiment → its name in the copy, if that differs.
        folder: File name of the receiving database, for the paths of checkpoints.
        imported: Whether the runs may come from other people.

    Raises:
        NameClashError: Names of experiments belong to other runs.
        StoreError: A hash in the source is wrong.
    """
    if not any(row[1] == "src" for row in db.execute("PRAGMA database_list").fetchall()):
        db.execute("ATTACH ? AS src", (str(source),))
    # Runs and branches refer to each other, so no order of insertions keeps every key valid.
    db.execute("PRAGMA defer_foreign_keys = ON")
    if not imported:
        db.execute("UPDATE main.address_salt SET salt = (SELECT salt FROM src.address_salt)")
    return _Transfer(db, {"folder": folder, "imported": imported}).move(wanted, names or {})


def write_runs(source: Path, target: Path, wanted: Sequence[str], *, folder: str) -> Moved:
    """Copy runs into an empty file, which becomes a database without a log; see `transfer`."""
    prepare(target)
    with explained(target), closing(connect(target)) as db:
        with transaction(db):
            moved = transfer(db, source, wanted, folder=folder, imported=False)
        db.execute("DETACH src")
        db.execute("PRAGMA journal_mode = DELETE")
    return moved


class _Transfer:
    """A transfer from the attached file `src`."""

    def __init__(self, db: sqlite3.Connection, values: Mapping[str, object]) -> None:
        self.db, self.tables, self.values = db, tables(db), {"now": now(), **values}
        self.of_key = by_key(self.tables)
        self.owned = owned(self.tables)
        self.exp_ids = self._pairs("SELECT run_id, exp_id FROM src.runs ORDER BY rowid")

    def move(self, wanted: Sequence[str], names: Mapping[str, str]) -> Moved:
        """Copy the runs, or raise; see `transfer`."""
        chosen = self._chosen(wanted)
        known = self._known(chosen, self._candidates(chosen, names), names)
        targets = self._experiments(chosen, known, names)
        self._check_names(chosen, known, targets)
        if self.values["imported"]:
            check_hashes(self.db)
        hidden = self._all(
            """SELECT DISTINCT s.name FROM src.datasets s JOIN temp.new_dataset_id m
                 ON m.old = s.dataset_id WHERE m.fresh AND s.hidden_at IS NULL AND EXISTS
                 (SELECT 1 FROM main.datasets d WHERE d.name = s.name AND d.hidden_at IS NULL)"""
        )
        for table in self.tables.values():
            if table.name not in NOT_COPIED:
                self._copy(table)
        added = self._pairs("SELECT old, new FROM temp.new_run_id WHERE fresh ORDER BY rowid")
        return Moved(added, known, [name for (name,) in hidden])

    def _all(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.db.execute(sql, self.values | values)]

    def _pairs(self, sql: str) -> dict[str, str]:
        return dict(self._all(sql))

    # Which runs

    def _chosen(self, wanted: Sequence[str]) -> list[str]:
        """Return the runs with those that they made, and all that these depend on, oldest first."""
        needs = self._needs()
        more = {
            run
            for (run,) in self._all(
                """WITH RECURSIVE down(run_id) AS (
                     SELECT value FROM json_each(:wanted) UNION SELECT r.run_id FROM src.runs r
                       JOIN down d ON d.run_id IN (r.parent_run_id, r.exp_id))
                   SELECT run_id FROM down
                    UNION SELECT run_id FROM src.runs WHERE :wanted = '[]'""",
                wanted=json.dumps(wanted),
            )
        }
        found = set[str]()
        while more:
            found |= more
            more = {other for run in more for other in needs.get(run, ())} - found
        return [run for run in self.exp_ids if run in found]

    def _needs(self) -> dict[str, set[str]]:
        """Return run → the runs that its rows refer to."""
        needs = dict[str, set[str]]()
        for _, _, sql in references(self.tables, "src"):
            for run, other in self._all(f"SELECT DISTINCT run, other FROM ({sql})"):
                needs.setdefault(run, set()).add(other)
        return needs

    # What is here already

    def _candidates(self, chosen: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
        """Return the runs that are here under some name, judged by beginning and secret.

        A run's secret is random, so copies of one run are recognised even if they were renamed.
        """
        rows = self._all(
            """WITH first AS (SELECT run_id, fence_key, min(branch_id) FROM src.branches
                 GROUP BY run_id), here AS (SELECT run_id, fence_key, min(branch_id)
                 FROM main.branches GROUP BY run_id)
               SELECT s.run_id, s.exp_id, m.run_id AS here, m.exp_id AS exp_here
                 FROM src.runs s JOIN first f ON f.run_id = s.run_id
                 JOIN here h ON h.fence_key = f.fence_key JOIN main.runs m ON m.run_id = h.run_id
                WHERE (s.kind, s.purpose, s.created_at) = (m.kind, m.purpose, m.created_at)
                  AND substr(s.run_id, length(s.exp_id) + 1)
                    = substr(m.run_id, length(m.exp_id) + 1) ORDER BY m.rowid"""
        )
        known = dict[str, str]()
        for run, exp_id, here, exp_here in rows:
            # With another name, a second copy is wanted.
            if run in chosen and exp_here == names.get(exp_id, exp_here):
                known[run] = here if exp_here == exp_id else known.get(run, here)
        return known

    def _known(
        self, chosen: Sequence[str], known: Mapping[str, str], names: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the candidates whose every row is here, and fill the tables of ids for them."""
        known = dict(known)
        while True:
            self._map(chosen, known, self._experiments(chosen, known, names))
            # A run that refers to a changed run has changed, too, so compare again.
            if not (changed := [run for run in known if self._differs(run, known[run])]):
                return known
            known = {run: here for run, here in known.items() if run not in changed}

    def _experiments(
        self, chosen: Sequence[str], known: Mapping[str, str], names: Mapping[str, str]
    ) -> dict[str, str]:
        """Return experiment → its name here: that of its known runs, the given one, or its own."""
        exp_ids, here = self.exp_ids, self._pairs("SELECT run_id, exp_id FROM main.runs")
        wanted = {exp_ids[run]: names.get(exp_ids[run], exp_ids[run]) for run in chosen}
        return wanted | {exp_ids[run]: here[known[run]] for run in chosen if run in known}

    def _differs(self, run: str, here: str) -> bool:
        """Return whether a row of the run, translated, is not a row of the run that is here."""
        for table in self.owned:
            columns = [c for c in table.columns if (table.name, c) not in LOCAL]
            names = [self._plain(table.name, c) for c in columns]
            ours = [self._plain(table.name, c, self._value(table, c)) for c in columns]
            found = self._all(
                f"""SELECT EXISTS (SELECT {", ".join(ours)} FROM src.{table.name} s
                      WHERE {self._within(table, "src", ":run")} EXCEPT
                    SELECT {", ".join(names)} FROM main.{table.name} s
                      WHERE {self._within(table, "main", ":here")})""",
                run=run,
                here=here,
            )
            if found[0][0]:
                return True
        return False

    def _plain(self, table: str, column: str, value: str = "") -> str:
        value = value or f"s.{column}"
        return f"json({value})" if (table, column) in RESPACED else value

    def _within(self, table: Table, schema: str, run: str) -> str:
        """Return the condition on a row `s` to belong to a run; a list of ids can use an index."""
        if table.owner == "run_id":
            return f"s.run_id = {run}"
        above = self.of_key[table.ids[str(table.owner)]]
        return (
            f"s.{table.owner} IN (SELECT s.{above.key} FROM {schema}.{above.name} s"
            f" WHERE {self._within(above, schema, run)})"
        )

    def _check_names(
        self, chosen: Sequence[str], known: Mapping[str, str], targets: Mapping[str, str]
    ) -> None:
        fresh = {self.exp_ids[run] for run in chosen if run not in known}
        joined = {self.exp_ids[run] for run in known}
        here = self._pairs("SELECT run_id, exp_id FROM main.runs")
        # `math/eval` is a run of the experiment `math`, whatever a file of a stranger says.
        taken = {exp_id.partition("/")[0] for exp_id in here.values()}
        clashes = {exp for exp in fresh - joined if targets[exp].partition("/")[0] in taken}
        for run, new in self._all("SELECT old, new FROM temp.new_run_id WHERE fresh"):
            clashes |= {self.exp_ids[run]} if new in here else set()
        if clashes:
            taken |= {*targets.values()}
            numbered = {exp: (f"{exp}-{n}" for n in count(2)) for exp in sorted(clashes)}
            raise NameClashError(
                {e: next(n for n in of if n not in taken) for e, of in numbered.items()}
            )

    # New ids

    def _map(
        self, chosen: Sequence[str], known: Mapping[str, str], targets: Mapping[str, str]
    ) -> None:
        """Fill the tables `temp.new_KEY`: the id of each row in the source and in the copy.

        Ids are counted on from the largest one here, so that no id of a stranger is used.
        """
        for key in [*self.of_key, "exp_id"]:
            kind = "TEXT" if key in ("run_id", "exp_id") else "INTEGER"
            self.db.execute(f"DROP TABLE IF EXISTS temp.new_{key}")
            self.db.execute(
                f"CREATE TEMP TABLE new_{key} (old {kind} PRIMARY KEY, new {kind}, fresh)"
            )
        self._put("exp_id", [(exp_id, new, False) for exp_id, new in targets.items()])
        self._put("run_id", [(run, known[run], False) for run in chosen if run in known])
        fresh = [(run, self.exp_ids[run]) for run in chosen if run not in known]
        self._put("run_id", [(run, renamed(run, exp, targets[exp]), True) for run, exp in fresh])
        for table in self.owned:
            if table.key and table.name != "runs":
                self._map_owned(table, f"new_{table.ids[str(table.owner)]}")
        for name in ("verifiers", "datasets", "samples"):
            self._map_shared(self.tables[name])

    def _put(self, key: str, rows: Sequence[tuple[str, str, bool]]) -> None:
        found = [{"old": old, "new": new, "fresh": fresh} for old, new, fresh in rows]
        insert_all(self.db, f"temp.new_{key}", found)

    def _map_owned(self, table: Table, owners: str) -> None:
        key, owner, name = table.key, table.owner, table.name
        # The rows of a run that is here already have the same order there, and newer rows follow.
        self.db.execute(
            f"""INSERT INTO temp.new_{key} SELECT a.id, b.id, 0 FROM
                  (SELECT s.{key} AS id, o.new AS owner,
                       row_number() OVER (PARTITION BY o.new ORDER BY s.{key}) AS n
                     FROM src.{name} s JOIN temp.{owners} o ON o.old = s.{owner}
                    WHERE NOT o.fresh) a
                  JOIN (SELECT m.{key} AS id, m.{owner} AS owner,
                       row_number() OVER (PARTITION BY m.{owner} ORDER BY m.{key}) AS n
                     FROM main.{name} m
                    WHERE m.{owner} IN (SELECT new FROM temp.{owners} WHERE NOT fresh)) b
                  USING (owner, n)"""
        )
        self.db.execute(
            f"""INSERT INTO temp.new_{key} SELECT s.{key}, row_number() OVER (ORDER BY s.{key})
                    + (SELECT coalesce(max({key}), 0) FROM main.{name}), 1
                  FROM src.{name} s JOIN temp.{owners} o ON o.old = s.{owner} WHERE o.fresh"""
        )

    def _map_shared(self, table: Table) -> None:
        key, name = table.key, table.name
        used = f"SELECT id FROM ({self._used(table)})"
        same = f"m.sha256 = s.sha256{' AND m.name = s.name' if name == 'datasets' else ''}"
        order = "ORDER BY m.hidden_at NOTNULL, m.revision DESC" if name == "datasets" else ""
        found = f"(SELECT m.{key} FROM main.{name} m WHERE {same} {order} LIMIT 1)"
        self.db.execute(
            f"""INSERT INTO temp.new_{key} SELECT s.{key}, {found}, 0 FROM src.{name} s
                 WHERE s.{key} IN ({used})"""
        )
        self.db.execute(
            f"""UPDATE temp.new_{key} SET fresh = 1, new = n FROM (SELECT old AS o,
                    row_number() OVER (ORDER BY old)
                    + (SELECT coalesce(max({key}), 0) FROM main.{name}) AS n
                  FROM temp.new_{key} WHERE new IS NULL) WHERE old = o"""
        )

    def _used(self, table: Table) -> str:
        """Return SQL of the ids of shared rows that the chosen runs use."""
        used = list[str]()
        for user in self.tables.values():
            if user.name in NOT_COPIED:
                continue
            of = f"src.{user.name} s"
            if user.owner:
                of += f" JOIN temp.new_{user.ids[user.owner]} o ON o.old = s.{user.owner}"
            elif user.key in self.of_key:
                of += f" JOIN temp.new_{user.key} o ON o.old = s.{user.key}"
            used += [
                f"SELECT s.{column} AS id FROM {of}"
                for column, key in user.ids.items()
                if key == table.key and user is not table
            ]
        return " UNION ".join([*used, *ALSO_USED.get(table.name, ())])

    # Copying

    def _copy(self, table: Table) -> None:
        values = ", ".join(self._value(table, column) for column in table.columns)
        if table.name == "texts":
            texts = self._used(table)
            where = f"""WHERE s.sha256 IN ({texts}) AND NOT EXISTS
                (SELECT 1 FROM main.texts m WHERE m.sha256 = s.sha256)"""
        else:
            by = table.owner or table.key
            where = f"JOIN temp.new_{table.ids.get(str(by), by)} o ON o.old = s.{by} WHERE o.fresh"
            where += " ORDER BY o.rowid"
        self.db.execute(
            f"""INSERT INTO main.{table.name} ({", ".join(table.columns)})
                SELECT {values} FROM src.{table.name} s {where}""",
            self.values,
        )

    def _value(self, table: Table, column: str) -> str:
        """Return SQL of a column's value in the copy."""
        key = table.ids.get(column) or (column if column == table.key else None)
        new = f"(SELECT new FROM temp.new_{key} WHERE old = s.{column})"
        return TRANSLATED.get((table.name, column)) or (
            new if key in self.of_key else f"s.{column}"
        )
