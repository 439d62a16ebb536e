"""The backend `monty`: what its description says is so, and a crash harms one call alone."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from grpo_practice.tools import ToolError
from grpo_practice.tools.python.monty import MODULES, showing
from tests.tools.python.running import Living, children, opened, refusal, said, until


async def test_the_modules_of_the_description_are_there_and_the_rest_is_not() -> None:
    async with opened("monty") as tool:
        code = "\n".join(f"import {name}" for name in MODULES)
        assert await said(tool, f"{code}\n'ok'") == "'ok'"
        assert "math, random" in tool.description
        for name in ("numpy", "sympy", "socket", "subprocess"):
            assert "ModuleNotFoundError" in await said(tool, f"import {name}")
        for code in (
            "def g():\n    yield 1",
            "x = 1\ndel x",
            "class A: pass\nclass B(A): pass",
            "class A:\n    @property\n    def x(self): return 1",
        ):
            assert "does not yet support" in await said(tool, code)
        assert tool.runs_in.startswith("monty 1.")
        assert tool.version == "monty-1"


async def test_a_value_of_any_size_stays_in_the_worker() -> None:
    async with opened("monty") as tool:
        text = await said(tool, "list(range(300_000))")
    assert text.startswith("[0, 1, 2, ")
    assert text.endswith("299998, 299999]")
    assert "bytes left out" in text


def workers() -> list[Living]:
    return [process for process in children(os.getpid()) if "monty" in process.command]


async def test_a_worker_that_crashes_costs_one_call() -> None:
    async with opened("monty", at_once=1) as tool:
        call = asyncio.create_task(said(tool, "while True: pass"))
        await until(lambda: any(worker.cpu_ticks > 30 for worker in workers()))
        (worker,) = workers()
        os.kill(worker.number, signal.SIGKILL)
        with pytest.raises(ToolError, match="the interpreter crashed"):
            await call
        assert await said(tool, "1 + 1") == "2"


async def test_a_runtime_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MONTY_BIN", str(tmp_path / "none"))
    error = await refusal("monty")
    assert "the backend monty does not work here" in str(error)
    assert "bwrap needs Linux" in (error.hint or "")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1", "_ = (\n1\n)\nif _ is not None: print(repr(_))"),
        ("a = 1; a # x", "a = 1; _ = (\na\n)\nif _ is not None: print(repr(_))"),
        ("a = 1", "a = 1"),
        ("x = (", "x = ("),
        ("", ""),
    ],
)
def test_the_last_expression_is_printed_there(code: str, shown: str) -> None:
    assert showing(code)[0] == shown
