"""Check of hashes and names by which rows are found, for rows that come from another database."""

import json
import sqlite3
from collections.abc import Iterator

from grpo_practice.core.errors import StoreError
from grpo_practice.core.hashing import digest, list_digest
from grpo_practice.data.staged_samples import sample_of

_FRESH = "SELECT s.* FROM src.{0} s JOIN temp.new_{1} m ON m.old = s.{1} WHERE m.fresh"


def check_hashes(db: sqlite3.Connection) -> None:
    """Raise StoreError if a row to be copied has the hash or the name of something else.

    Later, a run with that content, or of that experiment, would use the row.
    """
    for wrong in _wrong(db):
        raise StoreError(f"{wrong}, so the file was not made by this program")


def _wrong(db: sqlite3.Connection) -> Iterator[str]:
    for row in db.execute(_FRESH.format("runs", "run_id")).fetchall():
        if not f"{row['run_id']}/".startswith(f"{row['exp_id']}/"):
            yield f"run {row['run_id']} does not have the name of its experiment {row['exp_id']}"
    for row in db.execute(_FRESH.format("samples", "sample_id")):
        if sample_of(row).sha != row["sha256"].hex():
            yield f"sample {row['sample_id']} does not match its hash"
    for row in db.execute(_FRESH.format("verifiers", "verifier_id")).fetchall():
        spec = json.loads(row["spec"])
        function = {k: v for k, v in spec.items() if k not in ("model", "model_settings")}
        if digest({"function": digest(function).hex(), "spec": spec}) != row["sha256"]:
            yield f"verify function {row['name']} does not match its hash"
    for row in db.execute(_FRESH.format("datasets", "dataset_id")).fetchall():
        hashes = db.execute(
            """SELECT s.sha256 FROM src.dataset_rows r JOIN src.samples s USING (sample_id)
                WHERE r.dataset_id = ? ORDER BY r.position""",
            (row["dataset_id"],),
        )
        if list_digest(sha.hex() for (sha,) in hashes) != row["sha256"]:
            yield f"dataset {row['name']} does not match its hash"
