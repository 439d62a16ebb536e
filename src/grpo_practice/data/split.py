"""Split a dataset into parts that share no questions, and draw random subsets.

The assignment of a question depends only on the seed and the texts, not on the order of the rows.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import compress
from math import isclose

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.text import folded
from grpo_practice.core.types import Sample, Samples


@dataclass(frozen=True, slots=True)
class Part:
    """A subset of the samples, in their original order."""

    samples: Samples
    chosen: bytes
    """1 for each sample in the part, otherwise 0. Index = position."""

    def __len__(self) -> int:
        return sum(self.chosen)

    def __iter__(self) -> Iterator[Sample]:
        return compress(self.samples, self.chosen)


def split(
    samples: Samples,
    shares: Mapping[str, float],
    *,
    seed: int,
    stratum: Callable[[Sample], str] = lambda _: "",
    kept: Mapping[str, Samples] | None = None,
) -> dict[str, Part]:
    """Split samples into disjoint parts that cover all samples and keep their order.

    Samples with the same question (ignoring case and whitespace) or the same cluster form a family,
    which is never split. Families are assigned one by one, in an order determined by the seed, each
    to the part that is furthest below its share. The sizes therefore match the shares to within one
    family.

    Args:
        samples: All samples.
        shares: Share of each part; they sum to 1.
        seed: Seed; another seed gives another split.
        stratum: Function that assigns a stratum; a family has the stratum of its first sample.
            Each stratum is split in the same shares.
        kept: Samples of earlier parts; their questions and clusters stay in their parts.

    Raises:
        DataError: A family belongs to two earlier parts, or a part would be empty.
    """
    family = _families(samples)
    part_of = _kept_parts(samples, family, kept or {})
    sizes = Counter(family)
    held = dict.fromkeys(shares, 0)
    for first, name in part_of.items():
        held[name] += sizes[first]
    # Kept families count: new ones go where the old ones leave a part below its share.
    dealt = sum(held.values())
    for first in _order(samples, family, seed, stratum):
        if first in part_of:
            continue
        dealt += sizes[first]
        name = max(shares, key=lambda part: shares[part] * dealt - held[part])
        held[name] += sizes[first]
        part_of[first] = name
    for name, n in held.items():
        if n == 0:
            raise DataError(
                f"nothing is left for {name!r}: there are too few questions",
                hint="ask for fewer parts, or upload more questions first",
            )
    return {
        name: Part(samples, bytes(part_of[first] == name for first in family)) for name in shares
    }


def shares_of(into: str | Mapping[str, float]) -> dict[str, float]:
    """Parse shares, `PART=SHARE,…`; raise ConfigError unless each is positive and the sum is 1."""
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
                f"--into {into}: {pair!r} is not PART=SHARE with a share above 0 and below 1",
                hint="for example --into train=0.8,test=0.2",
            )
        shares[part] = share
    if not isclose(sum(shares.values()), 1, abs_tol=1e-6):
        raise ConfigError(
            f"--into {into}: the shares add up to {sum(shares.values()):g}, not to 1",
            hint="name a part for the remainder, too",
        )
    return shares


def _keys(sample: Sample) -> list[int]:
    """Return the keys that no two parts may share: hashes of the question and the cluster."""
    # Hashes, since a million questions as text would take hundreds of megabytes.
    keys = [hash(("question", folded(sample.question)))]
    return keys if sample.cluster is None else [*keys, hash(("cluster", sample.cluster))]


def _families(samples: Samples) -> list[int]:
    """Return, for each sample, the position of the first sample in its family."""
    leader, holder = list[int](), dict[int, int]()

    def find(position: int) -> int:
        while leader[position] != position:
            leader[position] = leader[leader[position]]
            position = leader[position]
        return position

    for position, sample in enumerate(samples):
        leader.append(position)
        for key in _keys(sample):
            one, other = find(holder.setdefault(key, position)), find(position)
            leader[max(one, other)] = min(one, other)
    return [find(position) for position in range(len(leader))]


def _kept_parts(
    samples: Samples, family: Sequence[int], kept: Mapping[str, Samples]
) -> dict[int, str]:
    """Return the part that already contains each family, by the position of its first sample."""
    if not kept:
        return {}
    part_with = {key: name for name, held in kept.items() for row in held for key in _keys(row)}
    part_of = dict[int, str]()
    for sample, first in zip(samples, family, strict=True):
        for part in (part_with[key] for key in _keys(sample) if key in part_with):
            if part_of.setdefault(first, part) != part:
                one, other = sorted((part, part_of[first]))
                raise DataError(
                    f"row {first + 1} and rows like it are already in both {one!r} and {other!r}",
                    hint="split again with --replace, or name other parts",
                )
    return part_of


def _order(
    samples: Samples, family: Sequence[int], seed: int, stratum: Callable[[Sample], str]
) -> list[int]:
    """Return the position of each family's first sample, in the order of assignment."""
    lots, strata = dict[int, bytes](), dict[int, str]()
    for sample, first in zip(samples, family, strict=True):
        strata.setdefault(first, stratum(sample))
        # Use the minimum, not the first, because the result must not depend on the order of the
        # rows.
        lot = _hash(seed, folded(sample.question))
        lots[first] = min(lot, lots.get(first, lot))
    return sorted(lots, key=lambda first: (strata[first], lots[first]))


def _hash(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}|{text}".encode()).digest()


def draw(hashes: Iterable[str], n: int, *, seed: int) -> bytes:
    """Draw `n` samples, given the hash of each; a larger draw with the same seed includes these.

    Returns:
        1 for each drawn sample, otherwise 0. Index = position.

    Raises:
        DataError: There are fewer than `n` samples.
    """
    # Count equal samples, which need different lots. Keys are ints, since a million texts of
    # 64 characters would take 100 MB more.
    seen = Counter[int]()

    def lots() -> Iterator[tuple[bytes, int]]:
        for position, sha in enumerate(hashes):
            yield _hash(seed, f"{sha}|{seen[hash(sha)]}"), position
            seen[hash(sha)] += 1

    drawn = {position for _, position in nsmallest(n, lots())}
    there = seen.total()
    if n > there:
        are = "is" if there == 1 else "are"
        raise DataError(f"{n} rows are requested, but there {are} only {there}")
    return bytes(position in drawn for position in range(there))
