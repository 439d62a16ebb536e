"""Deletion of runs and of the runs that they made."""

import json
import sqlite3
from collections.abc import Sequence
from shlex import join

from grpo_practice.core.errors import ConfigError


def doomed(
    db: sqlite3.Connection, runs: Sequence[str], *, with_dependants: bool = False
) -> list[str]:
    """Return the names of all runs to delete: the given runs, and the runs that they made.

    With `with_dependants`, also return any runs that use one of their libraries.

    Raises:
        ConfigError: Another run uses one of their libraries, and `with_dependants` is False.
    """
    at = (json.dumps(runs),)
    every = [row[0] for row in db.execute(_DOWN.format(more=_DEPENDANTS), at)]
    gone = [row[0] for row in db.execute(_DOWN.format(more=""), at)]
    if with_dependants or len(gone) == len(every):
        return every
    users = [run for run in every if run not in gone]
    raise ConfigError(
        f"{', '.join(runs)} cannot be deleted: {', '.join(users)} "
        f"{'uses' if len(users) == 1 else 'use'} a library that would be deleted",
        hint=f"to delete all of them: grpo-practice runs delete {join(runs)} --with-dependants",
    )


# UNION, not UNION ALL, so that a run that is reached in two ways is visited once, and a cycle ends.
_DOWN = """WITH RECURSIVE down(run_id) AS (
    SELECT value FROM json_each(?)
    UNION SELECT r.run_id FROM runs r JOIN down d ON r.parent_run_id = d.run_id {more})
  SELECT run_id FROM down"""
_DEPENDANTS = """
    UNION SELECT l.run_id FROM down d JOIN libraries p ON p.run_id = d.run_id
      JOIN libraries l ON l.parent_id = p.library_id
    UNION SELECT b.run_id FROM down d JOIN libraries p ON p.run_id = d.run_id
      JOIN branches b ON b.library_id = p.library_id"""


def delete(db: sqlite3.Connection, gone: Sequence[str]) -> None:
    """Delete the runs, named by `doomed`, with everything that was paid for.

    Answers that a remaining run uses are kept: they are reassigned to a run that made the same
    requests, and the calls made to re-score a run stay with the run whose rollouts were scored.
    """
    names = "SELECT value FROM json_each(:gone)"
    branches = f"(SELECT branch_id FROM branches WHERE run_id IN ({names}))"
    libraries = f"(SELECT library_id FROM libraries WHERE run_id IN ({names}))"
    # Runs and branches refer to each other, so no order of deletions keeps every key valid.
    db.execute("PRAGMA defer_foreign_keys = ON")
    for statement in _DELETES:
        text = statement.format(names=names, branches=branches, libraries=libraries)
        db.execute(text, {"gone": json.dumps(gone)})


_DELETES = (
    "DELETE FROM verdicts WHERE rollout_id IN"
    " (SELECT rollout_id FROM rollouts WHERE branch_id IN {branches})",
    "DELETE FROM rollout_bodies WHERE rollout_id IN"
    " (SELECT rollout_id FROM rollouts WHERE branch_id IN {branches})",
    "DELETE FROM rollouts WHERE branch_id IN {branches}",
    "DELETE FROM groups WHERE branch_id IN {branches}",
    "DELETE FROM lessons WHERE branch_id IN {branches}",
    "DELETE FROM library_items WHERE library_id IN {libraries}",
    "DELETE FROM experience_texts WHERE experience_id IN"
    " (SELECT experience_id FROM experiences WHERE run_id IN ({names}))",
    "DELETE FROM operations WHERE branch_id IN {branches}",
    "DELETE FROM experiences WHERE run_id IN ({names})",
    "DELETE FROM updates WHERE branch_id IN {branches}",
    "DELETE FROM checkpoints WHERE branch_id IN {branches}",
    "DELETE FROM steps WHERE branch_id IN {branches}",
    # If a remaining branch reuses the answers of a deleted one, reassign the deleted branch to that
    # branch's run, as if a changed configuration had replaced it.
    """WITH RECURSIVE lent(branch_id, heir) AS (
         SELECT rebinds, branch_id FROM branches
          WHERE rebinds IN {branches} AND branch_id NOT IN {branches}
         UNION SELECT b.rebinds, l.heir FROM lent l JOIN branches b USING (branch_id)
          WHERE b.rebinds IS NOT NULL),
       first(branch_id, heir) AS (SELECT branch_id, min(heir) FROM lent GROUP BY 1)
       UPDATE branches SET parent_id = NULL, library_id = NULL, tip_library = NULL,
         run_id = (SELECT h.run_id FROM first JOIN branches h ON h.branch_id = first.heir
                    WHERE first.branch_id = branches.branch_id)
        WHERE branch_id IN (SELECT branch_id FROM first) AND run_id IN ({names})""",
    "DELETE FROM call_bodies WHERE call_id IN"
    " (SELECT call_id FROM calls WHERE branch_id IN {branches})",
    "DELETE FROM calls WHERE branch_id IN {branches}",
    "DELETE FROM failures WHERE branch_id IN {branches}",
    "DELETE FROM batch_calls WHERE branch_id IN {branches}",
    "DELETE FROM batches WHERE batch_id NOT IN (SELECT batch_id FROM batch_calls)",
    # The remaining calls and failures belong to runs that are kept. Reassign their invocations to
    # these runs, without a branch, so that they do not count as a run's last command.
    """UPDATE invocations SET branch_id = NULL, run_id = (
         SELECT b.run_id FROM (SELECT branch_id, invocation_id FROM calls
             UNION ALL SELECT branch_id, invocation_id FROM failures) paid
           JOIN branches b USING (branch_id) WHERE paid.invocation_id = invocations.invocation_id)
       WHERE run_id IN ({names}) AND (
         invocation_id IN (SELECT invocation_id FROM calls)
         OR invocation_id IN (SELECT invocation_id FROM failures))""",
    "DELETE FROM invocations WHERE run_id IN ({names})",
    "DELETE FROM libraries WHERE run_id IN ({names})",
    "DELETE FROM branches WHERE run_id IN ({names})",
    "DELETE FROM runs WHERE run_id IN ({names})",
)
