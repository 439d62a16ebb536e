"""`Workspace` with the methods of every slice; only this file and `main.py` import slices."""

from grpo_practice.effects.workspace import Effects
from grpo_practice.export.workspace import Exports
from grpo_practice.serve.workspace import Serving
from grpo_practice.tracing.workspace import Traces
from grpo_practice.train.workspace import Training
from grpo_practice.viewer.workspace import Pages


class Workspace(Effects, Exports, Serving, Traces, Training, Pages):
    """A database and all operations on it; also a context manager, sync or async.

    Each call opens the file and closes it again, so a workspace can be kept indefinitely and shared
    by threads, event loops and processes.

    Args:
        path: SQLite file; created by the first call that writes.
        command: Command to record for runs; None records the method that was called.
        signals: Whether SIGINT, SIGTERM and SIGHUP stop a blocking call in an orderly way, so that
            it raises StoppedError. Works only in the main thread of a program; otherwise, Ctrl-C
            raises KeyboardInterrupt.
    """
