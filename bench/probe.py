"""Runs the command line with a probe on its event loop, and writes down what the process used.

    python -m bench.probe FILE.json eval --config …

Every `EVERY_S` a timer looks how late it is: that is a stall of the loop. The probe costs about
a thousandth of a core. CPU seconds and peak memory are the system's own figures for this process,
its children's apart; memory over time is sampled once a second.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

EVERY_S = 0.01
_late: list[float] = []
_rss_mb: list[float] = []
_next_look = 0.0


def _rss() -> float:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


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
    return {
        "wall_s": time.monotonic() - started,
        "cpu_s": own.ru_utime + own.ru_stime,
        "peak_mb": own.ru_maxrss / 1024,
        "rss_mb": _rss_mb,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "children_peak_mb": children.ru_maxrss / 1024,
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
    from grpo_practice.cli.main import main as cli

    try:
        cli()
    finally:
        Path(path).write_text(json.dumps(_report(started)), "utf-8")


if __name__ == "__main__":
    main()
