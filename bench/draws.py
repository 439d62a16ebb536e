"""Draws of the benchmark endpoint for a request: how long it takes, and whether it is right.

Everything follows from the seed of the endpoint and the `seed` in the request alone, so that
whoever knows a request's address knows its latency: `ideal` computes the same times.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of seconds.

    Spelt `0`, `1.5`, `uniform:LOW,HIGH` or `lognormal:MEDIAN,SIGMA,CAP`.
    """

    kind: str
    args: tuple[float, ...]

    @classmethod
    def read(cls, text: str) -> "Latency":
        """Parse a distribution.

        Raises:
            ValueError: It is none.
        """
        kind, _, numbers = text.partition(":")
        if not numbers:
            return cls("fixed", (float(kind),))
        args = tuple(float(number) for number in numbers.split(","))
        if (kind, len(args)) not in (("uniform", 2), ("lognormal", 3)):
            raise ValueError(f"{text!r} is no latency: {cls.__doc__}")
        return cls(kind, args)

    def seconds(self, draw: random.Random) -> float:
        """Draw one number."""
        if self.kind == "fixed":
            return self.args[0]
        if self.kind == "uniform":
            return draw.uniform(*self.args)
        median, sigma, cap = self.args
        return min(cap, median * draw.lognormvariate(0.0, sigma))


@dataclass(frozen=True, slots=True)
class Draws:
    """All draws of an endpoint, from one seed."""

    seed: int
    latency: Latency
    right: float = 0.5
    """The share of attempts that give the right answer."""
    hostile: float = 0.0
    """The share of attempts whose answer takes a verifier all the time it has."""

    def latency_s(self, request_seed: int) -> float:
        """Draw the seconds until the reply to the request with that `seed`."""
        if self.latency.kind == "fixed":
            return self.latency.args[0]
        return self.latency.seconds(random.Random(self.seed << 32 | request_seed))

    def fate(self, request_seed: int) -> tuple[bool, bool]:
        """Draw whether the answer is right, and whether it is hostile."""
        draw = random.Random(~self.seed << 32 | request_seed)
        return draw.random() < self.right, draw.random() < self.hostile
