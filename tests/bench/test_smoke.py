"""Every benchmark runs, in small; what it measures then means nothing."""

from importlib import import_module
from math import isfinite

import pytest
from bench.__main__ import NAMES, line
from bench.harness import ROOT


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_and_tells_its_rows(name: str) -> None:
    rows = import_module(f"bench.{name}").rows(1, tiny=True)
    assert rows
    for row in rows:
        assert all(isfinite(value) for value in row.values), row.name
        assert line(row).startswith(f"| {row.name} | {row.target} |")


def test_no_benchmark_is_forgotten() -> None:
    modules = {path.stem for path in (ROOT / "bench").glob("*.py")}
    with_rows = {
        name for name in modules if "\ndef rows(" in (ROOT / f"bench/{name}.py").read_text()
    }
    assert with_rows == set(NAMES)
