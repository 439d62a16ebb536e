"""Keeps the file beside the database up while pages are shown: in a thread, a part at a time."""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

from grpo_practice.errors import StoreError
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.sidecar import Progress, Sidecar, path_of

PAUSE_S = 3.0
"""Seconds between two looks for what is new."""
STEPS = 20
"""Steps that are taken in at once: pages are read between two such parts."""


class SecondFile:
    """Thread that makes the file and keeps it up, until it is closed."""

    def __init__(self, database: Path, notice: Callable[[str], None]) -> None:
        self._database, self._notice = database, notice
        self._ended, self.made = Event(), Event()
        self._thread = Thread(target=self._work, name="second file", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the part that is under way."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            sidecar = Sidecar(self._database)
        except (OSError, sqlite3.Error) as e:
            self._notice(
                f"{path_of(self._database)} cannot be made ({e}): lists are sorted and"
                " searched in parts only"
            )
            return
        with closing(sidecar):
            wait_s = 0.0
            while not self._ended.wait(wait_s):
                wait_s = PAUSE_S
                # On a disk that is full, say: it is tried again later.
                with suppress(OSError, sqlite3.Error, StoreError):
                    if self._take_in(sidecar).complete:
                        self.made.set()
                    else:
                        wait_s = 0.0

    def _take_in(self, sidecar: Sidecar) -> Progress:
        # Opened for each part: a database that another one takes the place of is found again.
        with closing(open_to_look(self._database)) as db:
            return sidecar.refresh(db, steps=STEPS)
