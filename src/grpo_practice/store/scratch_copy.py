"""A store to try things out in: a copy that nobody sees and that is gone afterwards."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from grpo_practice.store.db import explained
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.store import Store


@contextmanager
def rehearsal(path: Path) -> Iterator[Store]:
    """Open a store with everything the database holds; what is written to it is lost.

    The database itself is only read, and need not exist. The original's name stands in all
    messages.

    Raises:
        StoreError: It cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="grpo-practice-") as folder:
        copy = Path(folder) / "rehearsal.db"
        with explained(path):
            if path.exists():
                with closing(open_to_look(path)) as source, closing(sqlite3.connect(copy)) as made:
                    # Nobody reads it after a crash: to wait for the disk would take far longer.
                    made.execute("PRAGMA synchronous = OFF")
                    made.execute("PRAGMA journal_mode = OFF")
                    source.backup(made)
        with Store(copy, scratch_of=path) as store:
            yield store
