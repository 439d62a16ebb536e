"""Cost of calls: in one run, for its caps; in the whole database, for a forecast."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from grpo_practice.calls import Usage
from grpo_practice.stages import STAGES, Stage
from grpo_practice.store.bound_keys import Identity, agent_of, has_own_agent
from grpo_practice.store.branches import rows_on_line
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import usage_of

OF_RUN = """JOIN invocations USING (invocation_id) JOIN runs USING (run_id)
            WHERE (run_id = :run OR (:children AND parent_run_id = :run))"""
"""Rows of a run, with `children` of the runs it made too, over branches and invocations."""


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
    """Tokens of the calls that have some; cost of those that have one."""
    uncounted: int
    """Calls without tokens."""
    unpriced: Usage
    """Tokens of the calls without a cost."""
    most_tokens: int | None
    """Tokens in and out of the largest call."""
    most_out: int | None
    most_micro: int | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The requests of one stage that gave no usable answer."""

    stage: str
    tries: int
    maybe_paid: int
    """Tries of those that may have been billed."""


Likeness = Literal["run", "prompt", "model"]
"""Calls of the same run; of others under the same system prompt; of any, to the same model."""
ENOUGH = 3
"""Calls from which a spread can be told."""
STEPS, CALLS = 50, 1_000
"""Most steps, the newest ones, and most calls of them that stand for those to come.

Means over all calls would be no better, and a forecast would take the longer the more there are.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Calls of one stage to one model so far: how many, and means and spreads over them."""

    of: Likeness
    """Likeness to the calls that are asked about."""
    calls: int
    tokens_in: tuple[float, float]
    """Mean and standard deviation."""
    tokens_out: tuple[float, float]
    seconds: tuple[float, float]
    cached_share: float
    experiences: float
    """Mean size of the libraries that they were shown."""


@dataclass(frozen=True, slots=True)
class Piloted:
    """Work of a pilot."""

    questions: int
    rollouts: int
    reward: float | None
    """Mean of those that have one; None without any."""
    usage: Usage
    """Tokens and cost of the answered calls; None where one of them does not say."""


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
    """Return the requests of a run, and of the runs it made, without a usable answer."""
    rows = db.execute(
        f"""SELECT stage, sum(tries) AS tries, sum(tries * maybe_paid) AS maybe_paid
             FROM failures {OF_RUN} GROUP BY stage""",
        {"run": run, "children": True},
    )
    return [Lost(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class ToCome:
    """Calls that are to come, for which earlier ones stand."""

    stage: Stage
    name: str
    """Model that is asked."""
    run: str
    part: str
    """`practice` or `evaluation`."""
    system: bytes
    """sha256 of the system prompt that is followed."""
    player: Identity | None = None
    """Identity of the agent that plays; None for calls that are the same for all agents."""


def figures(db: sqlite3.Connection, calls: ToCome) -> Figures | None:
    """Return what the newest calls of this stage to this model took; None without any.

    Calls of this part of the run count alone where there are enough, else those that follow this
    system prompt, else all of the database: prompts of other runs may be of another length. Calls
    of an agent that was changed since are not this run's, nor, where a program decides what is
    asked, of the same prompt.
    """
    among: dict[Likeness, str] = {
        "run": """runs.kind = :kind
                  AND (runs.run_id = :run OR :kind = 'eval' AND runs.parent_run_id = :run)""",
        # All rollouts of a step follow one prompt, but for those that measure experiences.
        "prompt": """:system = (SELECT system_sha FROM rollouts r WHERE r.branch_id = s.branch_id
                       AND r.step = s.step AND system_sha NOT NULL LIMIT 1)""",
        "model": "TRUE",
    }
    if STAGES[calls.stage].per not in ("rollout", "attempt"):
        del among["prompt"]  # a teacher's request shows several attempts, and follows its own one
    kind = "practice" if calls.part == "practice" else "eval"
    asked: dict[str, object] = {"stage": calls.stage, "name": calls.name, "kind": kind}
    asked |= {"run": calls.run, "system": calls.system}
    if calls.player is not None:
        asked["alike"] = json.dumps(_played_by(db, calls.player))
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
    columns = ("tokens_in", "tokens_out", "seconds")
    parts = ", ".join(f"avg({c}) AS {c}_mean, avg({c} * {c} * 1.0) AS {c}_squared" for c in columns)
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
            SELECT count(*) AS calls, {parts},
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
    spreads = {c: max(row[f"{c}_squared"] - means[c] ** 2, 0.0) ** 0.5 for c in columns}
    return Figures(
        of=of,
        calls=row["calls"],
        tokens_in=(means["tokens_in"], spreads["tokens_in"]),
        tokens_out=(means["tokens_out"], spreads["tokens_out"]),
        seconds=(means["seconds"], spreads["seconds"]),
        cached_share=row["cached_share"] or 0.0,
        experiences=row["experiences"],
    )


def newest_ids(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the ids of the newest rollout and the newest call; 0 where there is none."""
    row = db.execute(
        """SELECT coalesce((SELECT max(rollout_id) FROM rollouts), 0),
             coalesce((SELECT max(call_id) FROM calls), 0)"""
    ).fetchone()
    return int(row[0]), int(row[1])


def work_since(db: sqlite3.Connection, names: Sequence[str], mark: tuple[int, int]) -> Piloted:
    """Return what these runs did after these ids were the newest."""
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
    """Count the groups of a line's closed steps: those that could be compared, those that taught.

    Groups are informative or not: that is decided when a step is closed (`practice.informative`),
    and only read here.
    """
    counts = rows_on_line(
        db,
        branch,
        """SELECT count(*), coalesce(sum(informative), 0) FROM groups
            WHERE branch_id = ? AND step >= ? AND step < ? AND status <> 'too_few'""",
    )
    groups, taught = zip(*counts, strict=True)
    return sum(groups), sum(taught)


def summarised(db: sqlite3.Connection, branch_id: int) -> tuple[int, int]:
    """Count a branch's groups: how many were compared, and how many of these summarised."""
    row = db.execute(
        """SELECT count(*), coalesce(sum(summaries), 0) FROM (
             SELECT max(stage = 'summarise') AS summaries, max(stage = 'compare') AS compared
               FROM calls WHERE branch_id = ? AND stage IN ('summarise', 'compare')
              GROUP BY step, slot) WHERE compared""",
        (branch_id,),
    ).fetchone()
    return int(row[0]), int(row[1])


def turns(db: sqlite3.Connection, identity: Identity) -> tuple[int, float, float]:
    """Return how many rollouts of this identity's agent were counted, mean and spread of turns.

    The newest ones are counted; those that an error ended are left out.
    """
    n, mean, squares = db.execute(
        f"""SELECT count(*), coalesce(avg(turns), 0.0), coalesce(avg(turns * turns), 0.0)
             FROM (SELECT turns FROM rollouts
                    WHERE branch_id IN (SELECT value FROM json_each(?)) AND outcome <> 'error'
                      AND turns > 0 ORDER BY branch_id DESC, step DESC LIMIT {CALLS})""",
        (json.dumps(_played_by(db, identity)),),
    ).fetchone()
    return n, mean, max(squares - mean**2, 0.0) ** 0.5


def _played_by(db: sqlite3.Connection, identity: Identity) -> list[int]:
    """Return the branches of all runs whose agent is this identity's."""
    wanted = agent_of(json.loads(json.dumps(dict(identity))))
    found = db.execute("SELECT branch_id, identity FROM branches").fetchall()
    return [row[0] for row in found if agent_of(json.loads(row[1])) == wanted]


def calls_at(
    db: sqlite3.Connection, branches: Sequence[int], steps: Sequence[int]
) -> dict[str, int]:
    """Return stage → how many calls these branches hold of these steps."""
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
