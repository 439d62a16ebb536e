"""A signal, when the database has had trouble before."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_practice.core.errors import StoppedError, StoreError
from grpo_practice.core.events import silent
from grpo_practice.run.session import Session
from grpo_practice.run.waiting import run_until_stopped
from grpo_practice.store import Store


def full(_: sqlite3.Connection, rows: Sequence[None]) -> Sequence[None]:
    raise sqlite3.OperationalError(f"database or disk is full: {len(rows)} rows")


def test_a_signal_ends_the_command_in_order_though_a_row_is_missed(tmp_path: Path) -> None:
    store, over = Store(tmp_path / "x.db"), list[str]()

    async def work() -> None:
        await store._writer.row_soon(full, None)
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            over.append("cancelled")

    with pytest.raises(StoppedError):
        run_until_stopped(Session(store, silent, "x"), work())
    assert over == ["cancelled"]
    with pytest.raises(StoreError, match="disk is full"):
        store.close()
