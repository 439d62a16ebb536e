"""Cost of calls: of one run for its caps, of the whole database for a forecast."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from grpo_practice.core.calls import Usage
from grpo_practice.core.stages import STAGES, Stage
from grpo_practice.store.branches import sums_on_line
from grpo_practice.store.identity import Identity, agent_of, has_own_agent
from grpo_practice.store.queries.pace import pace
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import usage_of

OF_RUN = """JOIN invocations USING (invocation_id) JOIN runs USING (run_id)
            WHERE (run_id = :run OR (:children AND parent_run_id = :run))"""
"""Rows of a run, and with `:children` of the runs it made, on all branches and invocations."""


TOKENS = ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning")
"""Columns of calls, and fields of `Usage`, that count tokens."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The answered calls of one stage to one model at one host."""

    stage: str
    name: str
    answered_by: str
    """`model@host`."""
    tries: int
    usage: Usage
    """Tokens of calls with a token count; cost of calls with a known cost."""
    uncounted: int
    """Calls without a token count."""
    unpriced: Usage
    """Tokens of the calls without a cost."""
    most_tokens: int | None
    """Input and output tokens of the largest call."""
    most_out: int | None
    most_micro: int | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The requests in one stage that got no usable answer."""

    stage: str
    tries: int
    maybe_paid: int
    """Tries that may have been billed."""


Likeness = Literal["run", "prompt", "model"]
"""Similarity of calls: in the same run, with the same system prompt, or only to the same model."""
ENOUGH = 3
"""Minimum number of calls for estimating a spread."""
STEPS, CALLS = 50, 1_000
"""Maximum number of steps, newest first, and of their calls, that represent future calls.

Means over all calls would be no better, and a forecast would take longer with every call.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Earlier calls of one stage to one model: their number, means and spreads."""

    of: Likeness
    """Similarity to the requested calls."""
    calls: int
    tokens_in: tuple[float, float]
    """Mean and standard deviation."""
    tokens_out: tuple[float, float]
    seconds: tuple[float, float]
    at_once: float
    """Mean number of requests that were in flight at the server, these calls among them."""
    cached_share: float
    experiences: float
    """Mean size of the libraries in their prompts."""


@dataclass(frozen=True, slots=True)
class Piloted:
    """Work done by a pilot."""

    questions: int
    rollouts: int
    reward: float | None
    """Mean reward of the scored rollouts; None if no rollout is scored."""
    usage: Usage
    """Tokens and cost of the answered calls; a value is None if any of the calls does not report
    it.
    """


def spent(db: sqlite3.Connection, run: str) -> list[Spent]:
    """Return the answered calls of a run and of the runs it made."""
    sums = ", ".join(f"sum(CASE WHEN counted THEN {c} END) AS {c}" for c in TOKENS)
    unpriced = ", ".join(
        f"sum(CASE WHEN counted AND NOT priced THEN {c} END) AS unpriced_{c}" for c in TOKENS
    )
    rows = db.execute(
        f"""SELECT stage, name, answered_by, sum(tries) AS tries, {sums},
              sum(cost_micro) AS cost_micro, sum((NOT counted) * calls) AS uncounted, {unpriced},
              max(most_tokens) AS most_tokens, max(most_out) AS most_out,
              max(most_micro) AS most_micro
             FROM call_sums {OF_RUN} GROUP BY 1, 2, 3""",
        {"run": run, "children": True},
    )
    return [
        Spent(
            usage=usage_of(row),
            unpriced=Usage(**{c: row[f"unpriced_{c}"] for c in TOKENS}),
            **{f.name: row[f.name] for f in fields(Spent) if f.name not in ("usage", "unpriced")},
        )
        for row in rows
    ]


def lost(db: sqlite3.Connection, run: str) -> list[Lost]:
    """Return the requests that got no usable answer, in a run and in the runs that it made."""
    rows = db.execute(
        f"""SELECT stage, sum(tries) AS tries, sum(tries * maybe_paid) AS maybe_paid
             FROM failures {OF_RUN} GROUP BY stage""",
        {"run": run, "children": True},
    )
    return [Lost(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class ToCome:
    """Future calls, to be estimated from earlier ones."""

    stage: Stage
    name: str
    """Model that the calls are sent to."""
    run: str
    part: str
    """`practice` or `evaluation`."""
    system: bytes
    """sha256 of the system prompt in use."""
    player: Identity | None = None
    """Identity of the agent that plays; None for calls that do not depend on the agent."""


def figures(db: sqlite3.Connection, calls: ToCome) -> Figures | None:
    """Return figures of the newest calls of this stage to this model, or None without any call.

    If there are enough, only calls in this part of the run count; otherwise calls with this system
    prompt, and otherwise all calls in the database, whose prompts may have other lengths. Calls
    made before the agent was changed do not count as calls of the run, nor, for a program that
    writes its own requests, as calls with this system prompt.
    """
    among: dict[Likeness, str] = {
        "run": """runs.kind = :kind
                  AND (runs.run_id = :run OR :kind = 'eval' AND runs.parent_run_id = :run)""",
        # All rollouts of a step have one prompt, except in runs that measure experiences.
        "prompt": """:system = (SELECT system_sha FROM rollouts r WHERE r.branch_id = s.branch_id
                       AND r.step = s.step AND system_sha NOT NULL LIMIT 1)""",
        "model": "TRUE",
    }
    if STAGES[calls.stage].per not in ("rollout", "attempt"):
        del among["prompt"]  # a teacher's request shows several attempts, under its own prompt
    kind = "practice" if calls.part == "practice" else "eval"
    asked: dict[str, object] = {"stage": calls.stage, "name": calls.name, "kind": kind}
    asked |= {"run": calls.run, "system": calls.system}
    if calls.player is not None:
        asked["alike"] = json.dumps(_branches_with(db, calls.player))
        alike = "s.branch_id IN (SELECT value FROM json_each(:alike))"
        among["run"] += f" AND {alike}"
        among["prompt"] += f" AND {alike}" if has_own_agent(calls.player) else ""
    found: Figures | None = None
    for of, which in among.items():
        found = _figures(db, of, which, asked) or found
        if found and found.calls >= ENOUGH:
            break
    return found


def _figures(
    db: sqlite3.Connection, of: Likeness, which: str, asked: dict[str, object]
) -> Figures | None:
    # The seconds of a reply in a batch are unknown, and stored as 0.
    columns = {c: c for c in ("tokens_in", "tokens_out")} | {"seconds": "nullif(seconds, 0)"}
    parts = ", ".join(
        f"coalesce(avg({sql}), 0) AS {c}_mean, coalesce(avg({sql} * {c} * 1.0), 0) AS {c}_squared"
        for c, sql in columns.items()
    )
    row = db.execute(
        f"""WITH newest AS (
              SELECT s.branch_id, s.step, coalesce(libraries.n, 0) AS held
                FROM call_sums s JOIN branches USING (branch_id)
                JOIN runs ON runs.run_id = branches.run_id
                LEFT JOIN steps ON steps.branch_id = s.branch_id AND steps.step = s.step
                LEFT JOIN libraries
                  ON libraries.library_id = coalesce(steps.library_in, branches.library_id)
               WHERE s.stage = :stage AND s.name = :name AND s.counted AND ({which})
               GROUP BY 1, 2 ORDER BY max(s.invocation_id) DESC, s.step DESC LIMIT {STEPS})
            SELECT count(*) AS calls, {parts}, min(call_id) AS first, max(call_id) AS last,
              coalesce(sum(tokens_cached), 0) * 1.0 / sum(tokens_in) AS cached_share,
              avg(held) AS experiences
             FROM (SELECT * FROM newest CROSS JOIN calls USING (branch_id, step)
                    WHERE stage = :stage AND name = :name AND tokens_in IS NOT NULL
                      AND tokens_out IS NOT NULL LIMIT {CALLS})""",
        asked,
    ).fetchone()
    if not row["calls"]:
        return None
    means = {c: row[f"{c}_mean"] for c in columns}
    server = pace(db, str(asked["name"]), row["first"], row["last"])
    # Rounding may make the difference slightly negative.
    spreads = {c: max(row[f"{c}_squared"] - means[c] ** 2, 0.0) ** 0.5 for c in columns}
    return Figures(
        of=of,
        calls=row["calls"],
        tokens_in=(means["tokens_in"], spreads["tokens_in"]),
        tokens_out=(means["tokens_out"], spreads["tokens_out"]),
        seconds=(means["seconds"], spreads["seconds"]),
        at_once=server.at_once if server else 1.0,
        cached_share=row["cached_share"] or 0.0,
        experiences=row["experiences"],
    )


def newest_ids(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the IDs of the newest rollout and the newest call; 0 if there is none yet."""
    row = db.execute(
        """SELECT coalesce((SELECT max(rollout_id) FROM rollouts), 0),
             coalesce((SELECT max(call_id) FROM calls), 0)"""
    ).fetchone()
    return int(row[0]), int(row[1])


def work_since(db: sqlite3.Connection, names: Sequence[str], mark: tuple[int, int]) -> Piloted:
    """Return the work of these runs since these IDs were the newest."""
    rollout, call = mark
    questions, rollouts, reward = db.execute(
        """SELECT count(DISTINCT sample_id), count(*), avg(reward)
             FROM v_rollouts
            WHERE run_id IN (SELECT value FROM json_each(?)) AND rollout_id > ?""",
        (json.dumps(list(names)), rollout),
    ).fetchone()
    sums = ", ".join(
        f"CASE WHEN count({c}) = count(*) THEN coalesce(sum({c}), 0) END AS {c}"
        for c in (*TOKENS, "cost_micro")
    )
    row = db.execute(
        f"""SELECT {sums} FROM calls JOIN invocations USING (invocation_id)
              JOIN runs USING (run_id), json_each(:names) AS named
             WHERE (run_id = named.value OR parent_run_id = named.value) AND call_id > :call""",
        {"names": json.dumps(list(names)), "call": call},
    ).fetchone()
    return Piloted(questions, rollouts, reward, usage_of(row))


def informative(db: sqlite3.Connection, branch: Branch) -> tuple[int, int]:
    """Count the groups in a line's closed steps that could be compared, and those that taught.

    Closing a step decides whether its groups are informative (`rollout.groups.informative`). The
    counts only read that decision.
    """
    groups, taught = sums_on_line(
        db,
        branch,
        """SELECT count(*), coalesce(sum(informative), 0) FROM groups
            WHERE branch_id = ? AND step >= ? AND step < ? AND status <> 'too_few'""",
    )
    return groups, taught


def summarised(db: sqlite3.Connection, branch_id: int) -> tuple[int, int]:
    """Count a branch's compared groups, and the summarised groups among them."""
    row = db.execute(
        """SELECT count(*), coalesce(sum(summaries), 0) FROM (
             SELECT max(stage = 'summarise') AS summaries, max(stage = 'compare') AS compared
               FROM calls WHERE branch_id = ? AND stage IN ('summarise', 'compare')
              GROUP BY step, slot) WHERE compared""",
        (branch_id,),
    ).fetchone()
    return int(row[0]), int(row[1])


def turns(db: sqlite3.Connection, identity: Identity) -> tuple[int, float, float]:
    """Return the number of rollouts of this agent, and the mean and spread of their turns.

    Only the newest rollouts count, except for rollouts that ended in an error.
    """
    n, mean, squares = db.execute(
        f"""SELECT count(*), coalesce(avg(turns), 0.0), coalesce(avg(turns * turns), 0.0)
             FROM (SELECT turns FROM rollouts
                    WHERE branch_id IN (SELECT value FROM json_each(?)) AND outcome <> 'error'
                      AND turns > 0 ORDER BY branch_id DESC, step DESC LIMIT {CALLS})""",
        (json.dumps(_branches_with(db, identity)),),
    ).fetchone()
    return n, mean, max(squares - mean**2, 0.0) ** 0.5


def _branches_with(db: sqlite3.Connection, identity: Identity) -> list[int]:
    """Return the branches of all runs with this identity's agent."""
    # Through JSON, because stored identities have lists in place of tuples.
    wanted = agent_of(json.loads(json.dumps(dict(identity))))
    found = db.execute("SELECT branch_id, identity FROM branches").fetchall()
    return [row[0] for row in found if agent_of(json.loads(row[1])) == wanted]


def calls_at(
    db: sqlite3.Connection, branches: Sequence[int], steps: Sequence[int]
) -> dict[str, int]:
    """Return stage → number of calls on these branches in these steps."""
    marks = ",".join("?" * len(branches))
    counts = dict[str, int]()
    for step in steps:
        for stage, n in db.execute(
            f"SELECT stage, count(*) FROM calls WHERE branch_id IN ({marks}) AND step = ?"
            " GROUP BY stage",
            (*branches, step),
        ):
            counts[stage] = counts.get(stage, 0) + n
    return counts
