"""Time that TLS adds to a request at a rollout's address: 64 at once, beside the same in clear.

Both addresses are served by one process, the client is another. Blocks of requests go to one and
the other in turn, so that both see the same machine. A reply takes 0.2 to 0.3 s.
"""

import asyncio
import random
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.certificates import certificate

from bench.harness import Row, at_most, environment, folder
from bench.serve import CONCURRENCY, added
from grpo_practice.core.calls import Reply
from grpo_practice.core.text import LOOPBACK
from grpo_practice.rollout.chat_server.proxy import Guest, Listening, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest
from grpo_practice.rollout.chat_server.tls import server_context

LATENCY_S = (0.2, 0.3)


async def serve(here: Path) -> None:
    """Serve both addresses until the process ends; print them."""

    async def ask(request: ChatRequest) -> Reply:
        await asyncio.sleep(random.Random(str(request.settings)).uniform(*LATENCY_S))
        return Reply({"role": "assistant", "content": "x" * 2048})

    made = certificate(here, LOOPBACK)
    tls = server_context(made.cert, made.key, LOOPBACK)
    clear, encrypted = Proxy(), Proxy(Listening(tls=tls))
    async with clear.served(), encrypted.served():
        with clear.address(Guest("m", ask)) as one, encrypted.address(Guest("m", ask)) as other:
            print(one.base_url, other.base_url, made.authority, flush=True)
            await asyncio.Event().wait()


@contextmanager
def serving(here: Path) -> Iterator[list[str]]:
    """Serve in a process of its own; yield both addresses and the authority's file."""
    command = [sys.executable, "-m", "bench.proxy_tls", str(here)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()
        finally:
            process.kill()


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure what TLS adds."""
    ms = list[tuple[float, float]]()
    for _ in range(runs):
        with folder() as here, serving(here) as (clear, encrypted, authority):
            tls = ssl.create_default_context(cafile=authority)
            requests = CONCURRENCY if tiny else 2560
            ms.append(asyncio.run(added(clear, encrypted, requests, stream=False, tls=tls)))
    medians, p99 = ([pair[i] for pair in ms] for i in (0, 1))
    return [
        Row("proxy with TLS: added to the median, ms", "", medians),
        Row("proxy with TLS: added to p99, ms", "≤ 10", p99, at_most(10)),
    ]


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
