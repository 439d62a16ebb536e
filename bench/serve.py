"""Time that `serve` adds to a request, beside asking its upstream directly: 64 at once.

Upstream, `serve` and the client each have a process of their own. Blocks of requests go straight
to the upstream and through `serve` in turn, so that both see the same machine.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext
from statistics import median, quantiles

import aiohttp

from bench.harness import Row, at_most, endpoint, environment, folder

CONCURRENCY = 64
LATENCY = "uniform:0.2,0.3"
"""Latency of the upstream, in seconds: 64 at once are 256 requests a second, without crowds."""
PROMPT = "Solve the task. " + "[E1] Look twice: a case that comes up again is another case. " * 100
QUESTION = "Question 1: find x. #answer 1# " + "There is more to it. " * 40


@contextmanager
def serving(url: str, here: Path, *more: str) -> Iterator[tuple[str, int]]:
    """Serve an agent that is asked at `url`; yield its address and its process."""
    provider = {"model": "bench", "base_url": url, "api_key": "bench-key-0123456789"}
    agent = {"model": {"model_provider": provider}, "agent": {"name": "b", "instructions": PROMPT}}
    (here / "a.yaml").write_text(json.dumps(agent), "utf-8")
    words = ["serve", "--agent", "a.yaml", "--port", "0", *more]
    command = [sys.executable, "-m", "grpo_practice", *words]
    with subprocess.Popen(
        command, cwd=here, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            at = next(word for word in said.split() if word.startswith("http:"))
            yield at.rstrip(","), process.pid
        finally:
            process.terminate()


def cpu_ms(pid: int) -> float:
    """Return the processor time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def block(session: aiohttp.ClientSession, url: str, n: int, *, stream: bool) -> list[float]:
    """Measure the milliseconds of each of `n` requests, 64 at once."""
    body = {"messages": [{"role": "user", "content": QUESTION}], "stream": stream}
    left, took = iter(range(n)), list[float]()

    async def work() -> None:
        for seed in left:
            raw = json.dumps(body | {"seed": seed}).encode()
            start = time.perf_counter()
            async with session.post(f"{url}/chat/completions", data=raw) as came:
                await came.read()
                assert came.status == 200
            took.append(1000 * (time.perf_counter() - start))

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return took


async def added(
    direct: str, served: str, requests: int, *, stream: bool, tls: SSLContext | None = None
) -> tuple[float, float]:
    """Measure the milliseconds that `served` adds: to the median, and to the 99th percentile."""
    took: dict[str, list[float]] = {direct: [], served: []}
    connector = aiohttp.TCPConnector(limit=0, ssl=tls or True)
    async with aiohttp.ClientSession(connector=connector) as session:
        for url in took:
            await block(session, url, 2 * CONCURRENCY, stream=stream)  # connections stand
        for _ in range(4):
            for url in took:
                took[url] += await block(session, url, requests // 4, stream=stream)
    p99 = {url: quantiles(ms, n=100)[98] for url, ms in took.items()}
    return median(took[served]) - median(took[direct]), p99[served] - p99[direct]


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure what `serve` adds, in one piece and streamed, and while it records."""
    requests, latency = (64, "0.01") if tiny else (2560, LATENCY)
    through_it = requests + 2 * CONCURRENCY
    found = list[Row]()
    for name, stream, more in (
        ("in one piece", False, ()),
        ("streamed", True, ()),
        ("in one piece, recorded", False, ("--record", "rec")),
    ):
        ms, cpu = list[tuple[float, float]](), list[float]()
        for _ in range(runs):
            with (
                endpoint(size=2048, latency=latency) as url,
                folder() as here,
                serving(url, here, *more) as (through, pid),
            ):
                before = cpu_ms(pid)
                ms.append(asyncio.run(added(url, through, requests, stream=stream)))
                cpu.append((cpu_ms(pid) - before) / through_it)
        medians, p99 = ([pair[i] for pair in ms] for i in (0, 1))
        found += [
            Row(f"serve, {name}: added to the median, ms", "≤ 10", medians, at_most(10)),
            Row(f"serve, {name}: added to p99, ms", "≤ 50", p99, at_most(50)),
            Row(f"serve, {name}: CPU ms/request", "", cpu),
        ]
    return found
