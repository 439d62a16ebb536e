"""Scripts with a name, for a fault server in a process of its own."""

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.contract.endpoint.actions import (
    Action,
    Script,
    always,
    changed,
    completion,
    cut,
    error,
    followed,
    hang_up,
    html,
    late,
    ok,
    raw,
    reset,
    simulated,
    stall,
    status,
    wrong_length,
)

MIB = 2**20


def _bomb() -> bytes:
    """Return 260 KB of gzip that unpack to 256 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + block * 256


GZIP = {"Content-Encoding": "gzip"}
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
STALE = ok({"role": "assistant", "content": "An answer to another request: \\boxed{0}"})


def faults(good: Action) -> Mapping[str, tuple[Action, ...]]:
    """Return what a bad day of a real endpoint is made of: the variants of each kind, by its name.

    A kind that harms no answer gives the good one.
    """

    def long(key: str) -> Action:
        text = "So many words. " * (MIB // 15)
        return changed(good, lambda _, said: said | {key: text + said.get(key, "")})

    unnamed: Mapping[str, tuple[Action, ...]] = {
        "429": (
            error(429, "slow down", {"Retry-After-ms": "20"}, code="rate_limit_exceeded"),
            error(429, "slow down", code="rate_limit_exceeded"),
        ),
        "5xx": (error(500, "oops"), error(502, "bad gateway"), error(503, "overloaded")),
        "cut": (cut(good, after=40), hang_up()),
        "reset": (reset(good, after=40),),
        "garbage": (
            status(200, b'{"choices": [{"message": {"role": "assis'),
            status(200, b"\xff\xfe\x00"),
            raw(b"\x16\x03\x01 garbage\r\n\r\n"),
        ),
        "gzip bomb": (status(200, _bomb(), GZIP),),
        "broken gzip": (
            status(200, gzip.compress(b"{" * 10_000)[:-9], GZIP),
            status(200, completion("not packed at all"), GZIP),
        ),
        "null": (
            status(200, b"null"),
            status(200, {"choices": [{"message": None, "finish_reason": "stop"}]}),
        ),
        "no choices": (status(200, {"choices": []}), status(200, {"id": "c-1"})),
        "error in 200": (status(200, {"error": {"code": 502, "message": "bad gateway"}}),),
        "stale second reply": (followed(good, STALE), followed(good, STALE, after_s=0.001)),
        "1 MB": (long("content"), long("reasoning_content")),
        "wrong length": (wrong_length(good, 20), wrong_length(good, -20)),
        "broken chunks": (raw(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"), raw(CHUNKED + b'5\r\n{"c')),
        "html": (html(),),
        "slow": (late(0.3, good), stall()),
        "empty": (changed(good, lambda _, said: said | {"content": ""}),),
        "duplicated": (followed(good, good), followed(good, good, after_s=0.001)),
    }
    return {k: tuple(replace(a, name=k) for a in v) for k, v in unnamed.items()}


FAULTS = faults(simulated())
ANSWERED = ("ok", "stale second reply", "1 MB", "slow", "empty", "duplicated")
"""Kinds whose first reply is whole: if all of it was sent in time, it was paid and is kept."""


def good(_seed: int) -> Script:
    return always(simulated())


def down(_seed: int) -> Script:
    return always(error(503, "overloaded"))


def revoked(_seed: int) -> Script:
    """The key works for five requests and then no longer."""
    return lambda asked: simulated() if asked.n <= 5 else error(401, "invalid API key")


def captive(_seed: int) -> Script:
    return always(html())


def hanging(_seed: int) -> Script:
    return always(stall())


def echo(_seed: int) -> Script:
    """The endpoint repeats the request's headers in its answer."""
    return lambda asked: ok(f"you sent {dict(asked.headers)} \\boxed{{1}}")


SCRIPTS: Mapping[str, Callable[[int], Script]] = {
    "good": good,
    "down": down,
    "revoked": revoked,
    "captive": captive,
    "hanging": hanging,
    "echo": echo,
}
