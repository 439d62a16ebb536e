"""Small runs for the store's tests."""

from pathlib import Path
from typing import Any

from grpo_practice.core.types import Library, PlannedStep, Sample
from grpo_practice.store import Store, datasets
from grpo_practice.store.records import Purpose, RunKind, RunSpec, VerifierRecord
from grpo_practice.store.store import Planner

VERIFIER = VerifierRecord(b"j" * 32, "exact", {"name": "exact"})
PURPOSES: dict[RunKind, Purpose] = {"practice": "practice", "eval": "test", "train": "train"}
ONE: dict[str, Any] = {"a": 1}


def upload(store: Store, n: int = 4, name: str = "d") -> tuple[int, list[int]]:
    """A dataset of n questions: its id and its sample ids."""
    samples = [Sample(f"q{i}?", str(i)) for i in range(n)]
    row, _ = store.add_dataset(name, samples, origin="test", replace=False)
    return row.id, [s.id for s in store.read(datasets.samples, row.id)]


def spec(
    dataset_id: int,
    name: str = "r",
    identity: dict[str, Any] | None = None,
    library: Library | None = None,
    kind: Any = "practice",
) -> RunSpec:
    return RunSpec(
        name=name,
        exp_id=name,
        kind=kind,
        identity=identity or ONE,
        config_text="exp_id: r\n",
        base_dir=Path("/"),
        dataset_id=dataset_id,
        verifier=VERIFIER,
        purpose=PURPOSES[kind],
        k=2,
        prompts={"merge": "m"},
        library=library or Library(),
    )


def plans(ids: list[int], steps: int, attempts: int = 2) -> list[PlannedStep]:
    return [PlannedStep(n, 0, n, ((ids[n % len(ids)], attempts),)) for n in range(steps)]


def planned(steps: list[PlannedStep]) -> Planner:
    """A planner that wants these steps, whatever there is."""
    return lambda branch, rows: steps
