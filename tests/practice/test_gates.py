"""Every gate that is written is passed."""

import inspect
from typing import get_type_hints

from grpo_practice.practice import gates


def test_every_gate_is_named_in_gates() -> None:
    written = [
        function
        for function in vars(gates).values()
        if inspect.iscoroutinefunction(function)
        and list(get_type_hints(function).values()) == [gates.Merge, gates.Change, gates.Change]
    ]
    assert len(written) > 1
    assert set(written) == set(gates.GATES), "name it at its place in GATES"
