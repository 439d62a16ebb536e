"""Parts of a dataset that have no question in common, and samples of it.

The part that a question goes to depends on the seed and on the texts alone, not on the order of the
rows.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isclose

from grpo_practice.errors import ConfigError, DataError
from grpo_practice.types import Sample

Key = tuple[str, str]
"""A question, or a cluster: what must not be in two parts."""


def folded(question: str) -> str:
    """Fold case and spaces of a question."""
    return " ".join(question.casefold().split())


def split(
    samples: Sequence[Sample],
    shares: Mapping[str, float],
    *,
    seed: int,
    stratum: Callable[[Sample], str] = lambda _: "",
    kept: Mapping[str, Sequence[Sample]] | None = None,
) -> dict[str, list[Sample]]:
    """Divide samples into parts, in their order; each sample is in exactly one.

    Samples that ask the same (case and spaces folded) or share a cluster form a family, which is
    never divided. Families are dealt out one by one, in an order that the seed fixes, each to the
    part that lacks most of its share, so that sizes come out as asked to within a family.

    Args:
        samples: All of them.
        shares: Of each part; they sum to 1.
        seed: Another one is another split.
        stratum: Families of one stratum (that of their first sample) are dealt out together, so
            that each stratum is divided in these shares too.
        kept: What earlier parts hold: such questions, and their clusters, stay where they are.

    Raises:
        DataError: A family belongs to two earlier parts, or a part comes out empty.
    """
    families = _families(samples)

    def order(family: Sequence[int]) -> tuple[str, bytes]:
        # The least text, not the first row: who goes where must not depend on the rows' order.
        least = min(folded(samples[i].question) for i in family)
        return stratum(samples[family[0]]), _hash(seed, least)

    held = dict.fromkeys(shares, 0)
    part_of: dict[int, str] = {}
    places = {key: part for part, old in (kept or {}).items() for s in old for key in _keys(s)}
    new = []
    for family in families:
        part = _place(samples, family, places)
        if part is None:
            new.append(family)
            continue
        held[part] += len(family)
        part_of |= dict.fromkeys(family, part)
    dealt = sum(held.values())
    for family in sorted(new, key=order):
        dealt += len(family)
        part = max(shares, key=lambda name: shares[name] * dealt - held[name])
        held[part] += len(family)
        part_of |= dict.fromkeys(family, part)
    for name, n in held.items():
        if n == 0:
            raise DataError(
                f"nothing is left for {name!r}: there are too few questions",
                hint="ask for fewer parts, or upload more questions first",
            )
    return {name: [s for i, s in enumerate(samples) if part_of[i] == name] for name in shares}


def shares_of(into: str | Mapping[str, float]) -> dict[str, float]:
    """Read the shares of parts, `PART=SHARE,…`; above 0 each, and 1 in sum.

    Raises:
        ConfigError: They are not.
    """
    if isinstance(into, Mapping):
        into = ",".join(f"{part}={share}" for part, share in into.items())
    shares: dict[str, float] = {}
    for pair in into.split(","):
        part, _, number = (word.strip() for word in pair.partition("="))
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if not (part and 0 < share < 1) or part in shares:
            raise ConfigError(
                f"--into {into}: {pair!r} is not a part and its share, above 0 and below 1",
                hint="for example --into train=0.8,test=0.2",
            )
        shares[part] = share
    if not isclose(sum(shares.values()), 1, abs_tol=1e-6):
        raise ConfigError(
            f"--into {into}: the shares add up to {sum(shares.values()):g}, not to 1",
            hint="give what is to be left over a name too",
        )
    return shares


def _keys(sample: Sample) -> list[Key]:
    keys = [("question", folded(sample.question))]
    return keys if sample.cluster is None else [*keys, ("cluster", sample.cluster)]


def _families(samples: Sequence[Sample]) -> list[list[int]]:
    """Return the positions of each family's samples, in order."""
    leader = list(range(len(samples)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    first: dict[Key, int] = {}
    for i, sample in enumerate(samples):
        for key in _keys(sample):
            a, b = sorted((find(first.setdefault(key, i)), find(i)))
            leader[b] = a
    families: dict[int, list[int]] = {}
    for i in range(len(samples)):
        families.setdefault(find(i), []).append(i)
    return list(families.values())


def _place(
    samples: Sequence[Sample], family: Sequence[int], places: Mapping[Key, str]
) -> str | None:
    found = {places[key] for i in family for key in _keys(samples[i]) if key in places}
    if len(found) > 1:
        one, other, *_ = sorted(found)
        raise DataError(
            f"row {family[0] + 1} and those like it are in {one!r} and in {other!r} already",
            hint="split afresh with --replace, or name other parts",
        )
    return next(iter(found), None)


def _hash(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}|{text}".encode()).digest()


def draw(samples: Sequence[Sample], n: int, *, seed: int) -> list[Sample]:
    """Draw `n` of the samples, in their order; more of them, with the same seed, include these.

    Raises:
        DataError: There are not so many.
    """
    if n > len(samples):
        are = "is" if len(samples) == 1 else "are"
        raise DataError(f"{n} rows are asked for, but there {are} {len(samples)}")
    seen = Counter[str]()
    lots = []
    for i, sample in enumerate(samples):
        lots.append((_hash(seed, f"{sample.sha}|{seen[sample.sha]}"), i))
        seen[sample.sha] += 1
    return [samples[i] for i in sorted(i for _, i in sorted(lots)[:n])]
