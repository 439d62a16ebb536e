"""Runs the command line with a probe on its event loop, and writes down what the process used.

    python -m bench.probe FILE.json eval --config …

Every `EVERY_S` a timer looks how late it is: that is a stall of the loop. The probe costs about
a thousandth of a core. CPU seconds and peak memory are the system's own figures for this process,
its children's apart (those of workers are read from /proc); memory over time is sampled once a
second.
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

EVERY_S = 0.01
_late: list[float] = []
_rss_mb: list[float] = []
_children_mb = [0.0]
_next_look = 0.0


def _rss(pid: int | str = "self", field: str = "VmRSS:") -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    except OSError:  # it has ended
        pass
    return 0.0


def _family(pid: int) -> list[int]:
    """Return its children, and theirs."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(word) for task in tasks for word in task.read_text("utf-8").split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *_family(child))]


def _cpu_s(pid: int) -> float:
    """Return what the process used, and those of its children that ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in told[11:15]) / os.sysconf("SC_CLK_TCK")


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Look how late the timer is, again and again."""
    due = loop.time() + EVERY_S

    def look() -> None:
        nonlocal due
        global _next_look
        now = loop.time()
        _late.append(now - due)
        if now >= _next_look:
            _next_look = now + 1.0
            _rss_mb.append(_rss())
            _children_mb.extend(_rss(pid, "VmHWM:") for pid in _family(os.getpid()))
        due = loop.time() + EVERY_S
        loop.call_at(due, look)

    loop.call_at(due, look)


_run_forever = asyncio.BaseEventLoop.run_forever


def _probed(self: asyncio.BaseEventLoop) -> None:
    if not getattr(self, "_probed", False):
        self._probed = True  # type: ignore[attr-defined]
        _watch(self)
    _run_forever(self)


def _report(started: float) -> dict[str, Any]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    late = sorted(_late) or [0.0]
    living_s = sum(_cpu_s(pid) for pid in _family(os.getpid()))
    return {
        "wall_s": time.monotonic() - started,
        "cpu_s": own.ru_utime + own.ru_stime,
        "peak_mb": own.ru_maxrss / 1024,
        "rss_mb": _rss_mb,
        "children_cpu_s": children.ru_utime + children.ru_stime + living_s,
        "children_peak_mb": max(children.ru_maxrss / 1024, *_children_mb),
        "stall_p999_ms": 1000 * late[min(len(late) - 1, int(0.999 * len(late)))],
        "stall_max_ms": 1000 * late[-1],
        "stall_samples": len(_late),
    }


def main() -> None:
    """Run the command; its exit code is ours."""
    path, *command = sys.argv[1:]
    started = time.monotonic()
    asyncio.BaseEventLoop.run_forever = _probed  # type: ignore[method-assign]
    sys.argv = ["grpo-practice", *command]
    from grpo_practice.main import main as cli

    try:
        cli()
    finally:
        Path(path).write_text(json.dumps(_report(started)), "utf-8")


if __name__ == "__main__":
    main()
