"""Every column of the schema is either translated by a copy of rows, or holds no id."""

import sqlite3
from contextlib import closing

from grpo_practice.store.migrate import make_tables
from grpo_practice.store.table_graph import NOT_COPIED, TRANSLATED, Table, tables

PLAIN = {
    "texts": "body sha256",
    "samples": "answer cluster level meta question sha256 source",
    "datasets": "created_at n name origin sha256",
    "dataset_rows": "position",
    "runs": "arm_change created_at kind note parent_step purpose simulated tags",
    "verifiers": "name sha256 spec",
    "branches": "agent_sha base_dir cause created_at fence_key from_step k library_sha model"
    " prompt_sha prompts seed test_dataset test_k test_limit weights_sha",
    "invocations": "command exit_code host pid reason started_at version",
    "steps": "batch closed_at epoch stats status step sums unanswered",
    "groups": "informative mean_reward parts planned played reason scored slot status step"
    " teachable unanswered",
    "rollouts": "attempt cost_micro error finished_at head left_out model_ms outcome reason seed"
    " slot step strikes tokens_cached tokens_in tokens_out tokens_reasoning tool_calls turns",
    "rollout_bodies": "response messages",
    "verdicts": "critique error extracted reason reward",
    "calls": "answered_by attempt cost_micro created_at finish name nth price request_hash role"
    " seconds seeded slot stage step tokens_cached tokens_in tokens_out tokens_reasoning tries turn"
    " waited_s",
    "call_bodies": "codec reply request",
    "failures": "attempt broken created_at http_status kind maybe_paid message slot stage step"
    " tries",
    "libraries": "cause created_at n next_label sha256 step",
    "experiences": "label",
    "experience_texts": "text version",
    "library_items": "position version",
    "lessons": "ordinal slot step text",
    "operations": "disproved domains finding op ordinal reason rule slot source status step text",
    "updates": "clip_high clip_low entropy grad_norm inner kl learning_rate loss seconds step"
    " tokens uniform_share",
    "checkpoints": "bytes made_at sha256 step",
}
"""Table → columns without ids of rows and without names of runs; texts are named by their hash."""
NEW = (
    "a column is new: if it holds an id or the name of a run, declare it with REFERENCES or"
    " translate it in store/table_graph.py: TRANSLATED; otherwise add it to PLAIN in this test"
)


def found() -> dict[str, Table]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_tables(db)
        return tables(db)


def test_every_column_is_translated_or_known_to_hold_no_id() -> None:
    for name, table in found().items():
        if name not in NOT_COPIED:
            translated = {c for t, c in TRANSLATED if t == name}
            left = {*table.columns} - {*table.ids} - translated
            assert left == {*PLAIN.get(name, "").split()}, (name, NEW)


def test_every_row_leads_to_a_run_or_is_shared() -> None:
    known = found()
    keys = {table.key: table for table in known.values() if table.key}
    for table in known.values():
        if table.name in NOT_COPIED:
            continue
        assert table.owner or table.key, f"{table.name}: no column leads to a run"
        for key in table.ids.values():
            assert key in keys
        if table.owner:
            above = keys[table.ids[table.owner]]
            assert above.owner in ("run_id", "branch_id", None), table.name


def test_translated_columns_exist() -> None:
    known = found()
    assert all(column in known[table].columns for table, column in TRANSLATED)
    assert {*NOT_COPIED} < {*known}
