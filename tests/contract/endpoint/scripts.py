"""Scripts with a name, for a fault server in a process of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from tests.contract.endpoint.actions import (
    Action,
    Asked,
    Script,
    always,
    cut,
    error,
    hang_up,
    html,
    ok,
    reset,
    simulated,
    stall,
    status,
)

SHARE = 0.1
"""Of requests that meet a fault, in `mixed`."""

FAULTS: tuple[Action, ...] = (
    error(429, "slow down", {"Retry-After-ms": "20"}, code="rate_limit_exceeded"),
    error(429, "slow down", code="rate_limit_exceeded"),
    error(500, "oops"),
    error(503, "overloaded"),
    cut(simulated(), after=40),
    reset(simulated(), after=40),
    hang_up(),
    status(200, b'{"choices": [{"message": {"role": "assis'),
    status(200, b"\xff\xfe\x00"),
    replace(ok(""), name="empty"),
    status(200, {"choices": []}),
    stall(),
)
"""What a bad day of a real endpoint is made of; each may be followed by a good answer."""


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


def mixed(seed: int) -> Script:
    """The simulated endpoint with a fault in one answer of ten, in an order given by the seed."""
    draw = Random(seed)

    def script(_: Asked) -> Action:
        return draw.choice(FAULTS) if draw.random() < SHARE else simulated()

    return script


SCRIPTS: Mapping[str, Callable[[int], Script]] = {
    "good": good,
    "down": down,
    "revoked": revoked,
    "captive": captive,
    "hanging": hanging,
    "echo": echo,
    "mixed": mixed,
}
