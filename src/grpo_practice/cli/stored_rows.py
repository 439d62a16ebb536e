"""What `data upload` and `data download` say of the rows that they have stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.cli.datasets import document, suited, usable
from grpo_practice.cli.options import PROGRAM
from grpo_practice.cli.terminal.formatting import count, print_json, say

if TYPE_CHECKING:
    from grpo_practice.store.records import DatasetRow
    from grpo_practice.types import Sample

SHOWN = 5
"""Unusable answers that are named."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rows under a name, and what was found in them."""

    row: "DatasetRow"
    new: bool
    """False where the name held the same before."""
    samples: "Sequence[Sample]"
    notes: Sequence[str]
    skipped: int

    def tell(
        self, verify: str | None, *, schema: str, json: bool, origin: str | None = None
    ) -> None:
        """Say it, with what the verify function (None: the one that fits) thinks of the answers."""
        from grpo_practice.verify.resolve import check_gold, resolve

        verify = verify or suited(self.samples)
        function = resolve(verify, {}, None, Path.cwd())
        numbered = enumerate(self.samples, 1)
        why = {n: reason for n, s in numbered if (reason := check_gold(function, s))}
        if json:
            unusable = [{"row": n, "reason": reason} for n, reason in why.items()]
            print_json(
                {
                    "schema": schema,
                    "dataset": document(self.row),
                    "new": self.new,
                    "notes": list(self.notes),
                    "skipped": self.skipped,
                    "verify": {"name": verify, "unusable": unusable},
                    "exit": 0,
                }
            )
            return
        name, revision = self.row.name, self.row.revision
        before = "" if self.new else ", as before"
        say(f"{name} (revision {revision}) holds {count(self.row.n, 'row')}{before}", style="bold")
        for text in (*([f"from {origin}"] if origin else []), *self.notes):
            say(f"  {text}")
        say(f"  {_golds(why, self.row.n, verify)}")
        verify = usable([self.samples[n - 1] for n in why], verify) if why else verify
        say(f"next: {PROGRAM} eval --model MODEL --dataset {name} --verify {verify}")


def _golds(why: Mapping[int, str], rows: int, verify: str) -> str:
    """What the verify function thinks of the answers, in a sentence."""
    if not why:
        return f"verify {verify} can use every answer"
    named = "; ".join(f"row {n}: {reason}" for n, reason in list(why.items())[:SHOWN])
    more = f"; and {len(why) - SHOWN} more" if len(why) > SHOWN else ""
    return (
        f"verify {verify} cannot use {len(why)} of {count(rows, 'answer')}: {named}{more}"
        " (another function may: --verify NAME)"
    )
