"""Evaluations found by their agent, their dataset and their purpose."""

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from grpo_practice.store.records import EFFECT, AgentRecord, Branch


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation in its current state."""

    run: str
    exp_id: str
    branch_id: int
    """Newest branch of the run."""
    dataset: str
    """Name of the evaluation's dataset."""
    origin: str
    """File or source of that dataset."""
    library_sha: bytes | None
    """Hash of the library that the agent uses; None without a library."""


_SELECT = """SELECT r.run_id AS run, r.exp_id, b.branch_id, d.name AS dataset, d.origin,
       b.library_sha
  FROM runs r JOIN branches b ON b.branch_id = r.head_branch JOIN datasets d USING (dataset_id)
  LEFT JOIN libraries l ON l.library_id = b.library_id
 WHERE r.kind = 'eval'"""
_SAME_AGENT = "b.prompt_sha = :prompt AND b.agent_sha = :agent AND b.weights_sha IS :weights"


def of_agent(
    db: sqlite3.Connection,
    branch: Branch,
    prompt: bytes,
    *,
    exp_id: str,
    purpose: Literal["test", "select"] = "test",
) -> list[Evaluation]:
    """Return the evaluations of a branch's agent with this system prompt and the same scoring.

    Evaluations that meet these conditions come first, in order of importance: in the experiment
    `exp_id`, with the branch's seed, with the library separate from the instructions. Ties are
    sorted by age: oldest first in the experiment, newest first in other experiments.
    """
    # A condition sorts as 0 if it is false, so evaluations that differ in nothing are first.
    return _found(
        db,
        f"""{_SAME_AGENT} AND r.purpose = :purpose AND b.verifier_id = :verifier
            ORDER BY r.exp_id <> :exp_id, b.seed IS NOT :seed, coalesce(l.n, 0) = 0,
                     CASE WHEN r.exp_id = :exp_id THEN r.rowid ELSE -r.rowid END""",
        **_agent(branch.agent, prompt),
        purpose=purpose,
        verifier=branch.verifier_id,
        exp_id=exp_id,
        seed=branch.agent.seed,
    )


def lenders(
    db: sqlite3.Connection, run: str, agent: AgentRecord, dataset_sha: str, batch_size: int
) -> list[Evaluation]:
    """Return other evaluations of the same agent on the same questions with the same seeds.

    Evaluations with rollouts come first, and newer ones before older ones. An evaluation without
    rollouts may still have answers, because a request in flight when a cap is reached is only
    stored as a call.
    """
    return _found(
        db,
        f"""{_SAME_AGENT} AND r.purpose IN ('test', 'select') AND r.run_id <> :run
            AND d.sha256 = :dataset AND b.seed IS :seed
            AND json_extract(b.identity, '$.batch_size') IS :batch_size
            ORDER BY EXISTS (SELECT 1 FROM rollouts o WHERE o.branch_id = b.branch_id) DESC,
                     r.rowid DESC""",
        **_agent(agent, agent.prompt_sha),
        run=run,
        dataset=bytes.fromhex(dataset_sha),
        seed=agent.seed,
        batch_size=batch_size,
    )


def selections(db: sqlite3.Connection, run: str) -> list[Evaluation]:
    """Return the evaluations by which a practice run chooses among its libraries, oldest first."""
    return _found(db, "r.purpose = 'select' AND r.parent_run_id = :run ORDER BY r.rowid", run=run)


def selections_of_weights(db: sqlite3.Connection, run: str) -> list[tuple[int, bytes, int]]:
    """Return the evaluations by which a training run chooses among its weights.

    Each is (step after which the weights were saved, hash of the weights, branch of the
    evaluation).
    """
    rows = db.execute(
        """SELECT r.parent_step, b.weights_sha, b.branch_id FROM runs r
             JOIN branches b ON b.branch_id = r.head_branch
            WHERE r.parent_run_id = ? AND r.purpose = 'select' AND b.weights_sha NOTNULL
              AND r.parent_step NOTNULL""",
        (run,),
    )
    return [(step, sha, branch_id) for step, sha, branch_id in rows]


def of_weights(
    db: sqlite3.Connection, exp_id: str, weights: bytes, library: bytes | None
) -> list[Evaluation]:
    """Return the evaluations of weights with a library at an endpoint, oldest first."""
    return _found(
        db,
        """r.purpose = 'test' AND r.exp_id = :exp_id AND r.parent_run_id IS NULL
           AND b.weights_sha = :weights AND b.library_sha IS :library ORDER BY r.rowid""",
        exp_id=exp_id,
        weights=weights,
        library=library,
    )


def first_without_library(db: sqlite3.Connection, exp_id: str) -> str | None:
    """Return the experiment's first evaluation of an agent without a library, or None."""
    found = _found(
        db,
        """r.purpose = 'test' AND r.exp_id = :exp_id AND r.parent_run_id IS NULL
           AND b.library_sha IS NULL ORDER BY r.rowid LIMIT 1""",
        exp_id=exp_id,
    )
    return found[0].run if found else None


def measurement_of(db: sqlite3.Connection, exp_id: str, library: bytes) -> str | None:
    """Return the newest run that measures the experiences of a library, or None."""
    found = _found(
        db,
        """r.purpose = :effect AND r.exp_id = :exp_id AND b.library_sha = :library
           ORDER BY r.rowid DESC LIMIT 1""",
        effect=EFFECT,
        exp_id=exp_id,
        library=library,
    )
    return found[0].run if found else None


def _agent(agent: AgentRecord, prompt: bytes | None) -> dict[str, Any]:
    return {"prompt": prompt, "agent": agent.agent_sha, "weights": agent.weights_sha}


def _found(db: sqlite3.Connection, where: str, **values: Any) -> list[Evaluation]:
    return [Evaluation(**row) for row in db.execute(f"{_SELECT} AND {where}", values)]
