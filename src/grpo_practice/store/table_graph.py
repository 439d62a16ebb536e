"""Tables of the schema with the ids in their rows, for copies of rows into another database.

Keys and references are read from the schema, so a new table or reference needs no change here.
Columns with ids or names in another form are listed.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpo_practice.store.migrate import our_tables
from grpo_practice.store.trained_steps import ENDING

SHARED = ("texts", "samples", "datasets", "verifiers")
"""Tables whose rows belong to no run: runs with equal content share a row."""


NOT_COPIED = {
    "call_sums": "triggers on `calls` fill it",
    "address_salt": "each file has its own",
    **dict.fromkeys(("batches", "batch_calls"), "only one file waits for them"),
}
"""Tables whose rows are not copied, each with the reason."""
_SAME_SALT = "(SELECT salt FROM main.address_salt) = (SELECT salt FROM src.address_salt)"
_ORIGIN = """s.identity ->> '$."train.origin"'"""
TRANSLATED: Mapping[tuple[str, str], str] = {
    ("runs", "exp_id"): "(SELECT new FROM temp.new_exp_id WHERE old = s.exp_id)",
    # `L6 "E3 edited"` names a library.
    ("runs", "arm"): """coalesce((SELECT 'L' || m.new || substr(s.arm, length(m.old) + 2)
        FROM temp.new_library_id m WHERE s.arm || ' ' GLOB 'L' || m.old || ' *'), s.arm)""",
    # No process works on the copy.
    ("runs", "status"): "iif(s.status = 'running', 'stopped', s.status)",
    ("runs", "imported"): """iif(:imported,
        (SELECT max(new) FROM (SELECT new FROM temp.new_invocation_id UNION ALL SELECT 0)),
        s.imported * 0)""",
    ("invocations", "ended_at"): "coalesce(s.ended_at, s.started_at)",
    ("invocations", "student_at"): f"iif({_SAME_SALT}, s.student_at, NULL)",
    ("invocations", "judge_at"): f"iif({_SAME_SALT}, s.judge_at, NULL)",
    ("steps", "plan"): """(SELECT json_group_array(json_array(new, attempts)) FROM
        (SELECT m.new, j.value ->> 1 AS attempts FROM json_each(s.plan) j
           JOIN temp.new_sample_id m ON m.old = j.value ->> 0 ORDER BY j.key))""",
    ("operations", "from_ops"): """(SELECT json_group_array(new) FROM
        (SELECT m.new FROM json_each(s.from_ops) j
           JOIN temp.new_op_id m ON m.old = j.value ORDER BY j.key))""",
    # The origin names a run: `EXP/tune/3 after step 5 (HASH)`.
    ("branches", "identity"): f"""iif({_ORIGIN} IS NULL, s.identity,
        json_set(s.identity, '$."train.origin"', coalesce(
          (SELECT m.new || substr({_ORIGIN}, length(m.old) + 1) FROM temp.new_run_id m
            WHERE instr({_ORIGIN}, m.old || ' after step ') = 1), {_ORIGIN})))""",
    # Made anew, since a foreign path could name the weights of another run.
    ("checkpoints", "path"): f""":folder || '{ENDING}/' || (SELECT replace(r.new, '/', '.') || '/b'
        || m.new FROM temp.new_branch_id m JOIN src.branches b ON b.branch_id = m.old
          JOIN temp.new_run_id r ON r.old = b.run_id WHERE m.old = s.branch_id)
        || printf('/step-%06d', s.step)""",
    # If the name belongs to other rows, it keeps its meaning, and the copied rows are hidden.
    ("datasets", "revision"): """coalesce((SELECT max(d.revision) FROM main.datasets d
        WHERE d.name = s.name) + (SELECT count(*) FROM src.datasets d JOIN temp.new_dataset_id m
          ON m.old = d.dataset_id WHERE m.fresh AND d.name = s.name AND d.revision <= s.revision),
        s.revision)""",
    ("datasets", "hidden_at"): """coalesce(s.hidden_at, iif(EXISTS (SELECT 1 FROM main.datasets d
        WHERE d.name = s.name AND d.hidden_at IS NULL), :now, NULL))""",
}
"""(table, column) → SQL of the value in the copy; `s` is the row of the source."""
LOCAL = (
    *(("runs", name) for name in ("imported", "arm", "arm_change", "tags", "note")),
    *(("invocations", name) for name in ("student_at", "judge_at")),
)
"""Columns that may differ between two copies of a run."""
RESPACED = (("steps", "plan"), ("operations", "from_ops"), ("branches", "identity"))
"""Translated columns whose spaces differ from those that Python writes."""


ALSO_USED: Mapping[str, Sequence[str]] = {
    "samples": [
        """SELECT j.value ->> 0 FROM src.steps s JOIN temp.new_branch_id o ON o.old = s.branch_id,
             json_each(s.plan) j"""
    ],
    # A run that goes on needs its test questions, although it may not have asked them yet.
    "datasets": [
        """SELECT d.dataset_id FROM src.branches s JOIN temp.new_branch_id o ON o.old = s.branch_id
             JOIN src.datasets d ON d.hidden_at IS NULL AND d.name IN
               (s.test_dataset, s.identity ->> '$."practice.select_dataset"',
                s.identity ->> '$."data.dataset"')"""
    ],
    "texts": [
        """SELECT t.sha256 FROM src.branches s JOIN temp.new_branch_id o ON o.old = s.branch_id,
             json_each(s.prompts) j JOIN src.texts t ON lower(hex(t.sha256)) = j.value"""
    ],
}
"""Shared table → queries of the ids that are not in a column of their own."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the ids in its rows."""

    name: str
    columns: tuple[str, ...]
    key: str | None
    """Column whose value names a row for other tables; None if nothing refers to its rows."""
    ids: Mapping[str, str]
    """Column → the key of the row that its value names; includes the table's own key."""
    owner: str | None
    """Column that leads to the run or the shared row that a row belongs to; None if shared."""


def tables(db: sqlite3.Connection) -> dict[str, Table]:
    """Return all tables of this program, in the order of their creation."""
    columns, foreign = dict[str, dict[str, int]](), dict[str, dict[str, str]]()
    found = db.execute(
        """SELECT t.name AS of_table, c.name AS of_column, c.pk FROM main.sqlite_schema t,
             pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.rowid, c.cid"""
    ).fetchall()
    for table, column, pk in found:
        if table in our_tables():
            columns.setdefault(table, {})[column] = pk
    for table in columns:
        rows = db.execute(
            """SELECT "from" AS of_column, "table" AS of_table FROM pragma_foreign_key_list(?)
                GROUP BY id HAVING count(*) = 1""",
            (table,),
        )
        foreign[table] = dict(map(tuple, rows))
    in_key = {table: [c for c, pk in of.items() if pk] for table, of in columns.items()}
    keys = {t: of[0] for t, of in in_key.items() if len(of) == 1 and of[0] not in foreign[t]}
    return {t: _table(t, columns[t], foreign[t], keys) for t in columns}


def _table(
    name: str, columns: Mapping[str, int], foreign: Mapping[str, str], keys: Mapping[str, str]
) -> Table:
    # An id that is part of a longer key, or not declared as a reference, is known by its name.
    integers = {key for table, key in keys.items() if table != "texts"}
    ids = {c: c for c in columns if c in integers} | {c: keys[to] for c, to in foreign.items()}
    first = next((c for c, pk in columns.items() if pk == 1 and c in ids), None)
    owner = next((c for c in ("run_id", "branch_id") if c in ids), first)
    key = keys.get(name)
    return Table(name, tuple(columns), key, ids, None if name in SHARED else owner)


def by_key(found: Mapping[str, Table]) -> dict[str, Table]:
    """Return key → its table, without that of texts."""
    return {table.key: table for table in found.values() if table.key and table.name != "texts"}


def owned(found: Mapping[str, Table]) -> list[Table]:
    """Return the tables that are copied and whose rows belong to runs."""
    of_key = by_key(found)
    tables = [table for table in found.values() if table.name not in NOT_COPIED]
    return [table for table in tables if table.owner and of_key[table.ids[table.owner]].owner]


def references(found: Mapping[str, Table], schema: str) -> Iterator[tuple[str, str, str]]:
    """Yield `table.column`, key and SQL for each column of a run that names rows of any run.

    The SQL returns `run`, `other` and `id`: the run of a row, that of the named row, and its id.
    """
    of_key = by_key(found)

    def run(table: Table, row: str) -> str:
        if table.owner == "run_id":
            return f"{row}.run_id"
        above, inner = of_key[table.ids[str(table.owner)]], f"{row}_"
        return (
            f"(SELECT {run(above, inner)} FROM {schema}.{above.name} {inner}"
            f" WHERE {inner}.{above.key} = {row}.{table.owner})"
        )

    for table in owned(found):
        for column, key in table.ids.items():
            to = of_key.get(key)
            if to is not None and to.owner and column not in (table.key, table.owner):
                sql = f"""SELECT {run(table, "s")} AS run, {run(to, "t")} AS other, t.{key} AS id
                  FROM {schema}.{table.name} s JOIN {schema}.{to.name} t ON t.{key} = s.{column}"""
                yield f"{table.name}.{column}", key, sql
