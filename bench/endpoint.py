"""An OpenAI-compatible endpoint that costs as little as Python allows, in a process of its own.

    python -m bench.endpoint [--port 0] [--latency lognormal:0.3,0.8,5] [--size 2048]

The program prints its port, and answers until it is ended. The answers are made for these
benchmarks: a question carries its answer (`#answer 42#`), a teacher's stage is known by
the headings of its prompt, and replies are padded to `--size` bytes. `GET /stats` counts.
"""

import argparse
import asyncio
import json
import re
import resource
import time
from typing import Any

from typing_extensions import override

from bench.draws import Draws, Latency
from grpo_practice.core.stages import STAGES

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RESPONSES = re.compile(rb"POST [^ ]*/responses ")
_SEED = re.compile(rb'"seed": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')
_ANSWER = re.compile(rb"#answer (.*?)#")
_WRONG = re.compile(rb"#wrong (.*?)#")
_PROPOSAL = re.compile(rb"\\n(P\d+) (?:ADD|UPDATE|DELETE)")
_ENTRIES = re.compile(rb"\[E(\d+)\]")
_HEADINGS = tuple(
    (json.dumps(spec.heading)[1:-1].encode(), stage)
    for stage, spec in STAGES.items()
    if spec.role == "teacher"
)
FILL = "First we look at what is given, then at what is asked, and write down what connects them. "
PAUSE_S = 0.4
LIBRARY = 20
"""Experiences after which no more are proposed."""
HOSTILE = r"\sum_{i=1}^{10^{9}} i^{i}"


class Speaker:
    """Says what a model would, as briefly as it can be found out."""

    def __init__(self, draws: Draws, size: int, reasoning: int = 0) -> None:
        self.draws = draws
        self._reasoning = reasoning
        self._fill = (FILL * (size // len(FILL) + 1))[:size]
        self.counts: dict[str, int] = {}
        self.burst_at = self._last = 0.0
        """When the first request came after `PAUSE_S` without any, and the last one."""

    def reply(self, body: bytes, *, chat: bool = True) -> tuple[float, bytes]:
        """Return the seconds it takes, and the whole HTTP answer, of one API or the other."""
        found = _SEED.search(body)
        seed = int(found[1]) if found else 0
        stage = next((stage for heading, stage in _HEADINGS if heading in body), "play")
        self.counts[stage] = self.counts.get(stage, 0) + 1
        now = time.time()
        if now - self._last > PAUSE_S:
            self.burst_at = now
        self._last = now
        text = json.dumps(self._say(stage, body, seed))
        if _STREAM.search(body):
            return self.draws.latency_s(seed), streamed(text)
        if not chat:
            return self.draws.latency_s(seed), answer(self._response(text, len(body) // 4))
        told = (
            '{"id":"b","object":"chat.completion","created":0,"model":"bench","choices":[{"index":0,'
            f'"finish_reason":"stop","message":{{"role":"assistant","content":{text}}}}}],'
            f'"usage":{{"prompt_tokens":{len(body) // 4},"completion_tokens":{len(text) // 4}}}}}'
        ).encode()
        return self.draws.latency_s(seed), answer(told)

    def _response(self, text: str, tokens: int) -> bytes:
        """Return that text as a response, after reasoning that only its server can read."""
        thought = ""
        if self._reasoning:
            kept = "A" * self._reasoning
            thought = f'{{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"{kept}"}},'
        return (
            '{"id":"b","object":"response","status":"completed","model":"bench","output":['
            f'{thought}{{"id":"msg","type":"message","role":"assistant","status":"completed",'
            f'"content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}],'
            f'"usage":{{"input_tokens":{tokens},"output_tokens":{len(text) // 4}}}}}'
        ).encode()

    def stats(self) -> dict[str, float]:
        """Return requests by stage, their total, and when the latest burst began (Unix seconds)."""
        asked = sum(self.counts.values())
        return {**self.counts, "asked": asked, "burst_at": self.burst_at}

    def _say(self, stage: str, body: bytes, seed: int) -> str:
        match stage:
            case "play":
                return self._played(body, seed)
            case "summarise":
                return self._fill or "It was done."
            case "compare":
                said: Any = {"lessons": [{"lesson": f"When case {seed} arises, look twice."}]}
            case "propose":
                entries = len(_ENTRIES.findall(body))
                text = f"Case {seed}: when it arises, look twice."
                add = [{"op": "ADD", "text": text}] if entries < LIBRARY else [{"op": "NONE"}]
                said = {"operations": add}
            case "merge":
                first = [name.decode() for name in dict.fromkeys(_PROPOSAL.findall(body))][:4]
                said = {
                    "operations": [
                        {"op": "ADD", "text": f"Lesson {seed} {p}: look twice.", "from": [p]}
                        for p in first
                    ]
                }
            case "direct":
                said = {"operations": [{"op": "ADD", "text": f"Case {seed}: look twice."}]}
            case _:
                raise NotImplementedError(f"bench.endpoint does not speak at {stage!r}")
        return json.dumps(said)

    def _played(self, body: bytes, seed: int) -> str:
        right, hostile = self.draws.fate(seed)
        gold, wrong = _ANSWER.search(body), _WRONG.search(body)
        said = "1" if gold is None else json.loads(b'"%s"' % gold[1])
        if not right:
            said = "-7919" if wrong is None else json.loads(b'"%s"' % wrong[1])
        if hostile:
            said = HOSTILE
            self.counts["hostile"] = self.counts.get("hostile", 0) + 1
        return f"{self._fill}\nThe answer is \\boxed{{{said}}}."


def answer(content: bytes) -> bytes:
    """Return the HTTP answer with that JSON."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content


def streamed(text: str) -> bytes:
    """Return the HTTP answer with that text (as JSON) as a stream of few events."""
    piece = '{"index":0,"delta":{"content":%s},"finish_reason":null}'
    end = '{"index":0,"delta":{},"finish_reason":"stop"}'
    events = "".join(f'data: {{"choices":[{choice}]}}\n\n' for choice in (piece % text, end))
    content = f"{events}data: [DONE]\n\n".encode()
    return answer(content).replace(b"application/json", b"text/event-stream", 1)


class Connection(asyncio.Protocol):
    """One connection; requests on it come one after another."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        length = _LENGTH.search(head)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < whole:
            return
        body = bytes(self._buffer[end + 4 : whole])
        del self._buffer[:whole]
        if head.startswith(b"GET"):
            self._write(answer(json.dumps(self._speaker.stats()).encode()))
            return
        seconds, told = self._speaker.reply(body, chat=not _RESPONSES.match(head))
        if seconds > 0:
            asyncio.get_running_loop().call_later(seconds, self._write, told)
        else:
            self._write(told)

    def _write(self, told: bytes) -> None:
        if self._transport is not None:
            self._transport.write(told)


async def serve(port: int, speaker: Speaker) -> None:
    """Answer on that port until cancelled; 0 takes any free one, which is printed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(speaker), "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", default="0", help=Latency.__doc__)
    parser.add_argument("--size", type=int, default=0, help="bytes of filler in a reply")
    parser.add_argument("--reasoning", type=int, default=0, help="bytes of it in a response")
    parser.add_argument("--right", type=float, default=0.5)
    parser.add_argument("--hostile", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    draws = Draws(given.seed, Latency.read(given.latency), given.right, given.hostile)
    asyncio.run(serve(given.port, Speaker(draws, given.size, given.reasoning)))


if __name__ == "__main__":
    main()
