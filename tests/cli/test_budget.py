"""A forecast on a narrow terminal."""

import pytest

from tests.cli.conftest import Gp
from tests.contract.test_budget import toy

__all__ = ["toy"]


def test_a_forecast_fits_80_columns(toy: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("grpo_practice.cli.terminal.consoles.out.width", 80)
    priced = ("--set", "evaluation.prices={sim: {input: 300, output: 900}}")
    evaluated = ("--set", "practice.do_eval=true", "--set", "practice.grpo_n=90")
    said = toy("practice", "-c", "c.yaml", "--dry-run", *priced, *evaluated)
    lines = said.out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    rows = [line.split("  ")[0] for line in lines[2:8]]
    assert rows == ["play", "summarise", "compare", "propose", "merge", "eval play"]
    assert all(line.endswith("assumption") for line in lines[2:8])
    shown = next(line for line in lines if "new experiences" in line)
    assert "up to 29 experiences; the upper ends assume 40 tokens for" in shown
