"""Removal of a run and of the runs it made."""

import sqlite3
from shlex import quote

from grpo_practice.errors import ConfigError


def delete(db: sqlite3.Connection, run: str) -> list[str]:
    """Delete the run and the runs it made, with everything paid for; return their names.

    Calls of a re-judgement about another run's rollouts stay with that run.

    Raises:
        ConfigError: Another run, which stays, has rollouts or a library of it.
    """
    gone = [
        row[0]
        for row in db.execute(
            """WITH RECURSIVE down(run_id) AS (SELECT :run UNION
                 SELECT r.run_id FROM runs r JOIN down d ON r.parent_run_id = d.run_id)
               SELECT run_id FROM down""",
            {"run": run},
        )
    ]
    names = ",".join("?" * len(gone))
    branches = f"(SELECT branch_id FROM branches WHERE run_id IN ({names}))"
    libraries = f"(SELECT library_id FROM libraries WHERE run_id IN ({names}))"
    users = db.execute(
        f"""SELECT run_id FROM libraries WHERE run_id NOT IN ({names}) AND parent_id IN {libraries}
             UNION SELECT run_id FROM branches
             WHERE run_id NOT IN ({names}) AND library_id IN {libraries}""",
        gone * 4,
    ).fetchall()
    if users:
        raise ConfigError(
            f"{run} cannot be deleted: {', '.join(u[0] for u in users)} "
            f"{'has' if len(users) == 1 else 'have'} its library",
            hint=f"delete that first: grpo-practice runs delete {quote(users[0][0])}",
        )
    lent = db.execute(
        f"""SELECT DISTINCT run_id FROM branches WHERE run_id NOT IN ({names})
             AND rebinds IN {branches}""",
        (*gone, *gone),
    ).fetchall()
    if lent:
        raise ConfigError(
            f"{run} cannot be deleted: {', '.join(u[0] for u in lent)} asked the same, and has its"
            " answers from it",
            hint="delete that run first",
        )
    # Runs and branches refer to each other: no order of deletions satisfies each key at each step.
    db.execute("PRAGMA defer_foreign_keys = ON")
    for statement in _DELETES:
        db.execute(statement.format(names=names, branches=branches, libraries=libraries), gone)
    return gone


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
    "DELETE FROM call_bodies WHERE call_id IN"
    " (SELECT call_id FROM calls WHERE branch_id IN {branches})",
    "DELETE FROM calls WHERE branch_id IN {branches}",
    "DELETE FROM failures WHERE branch_id IN {branches}",
    # What is left of calls and failures was made for another run's rollouts, which stays: it was
    # paid for, and the run it was made for keeps it.
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
