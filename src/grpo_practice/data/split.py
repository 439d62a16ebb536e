"""Parts of a dataset that have no question in common, and samples of it.

The part that a question goes to depends on the seed and on the texts alone, not on the order of the
rows.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import isclose
from typing import TYPE_CHECKING

from grpo_practice.data.distinct import folded
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.types import Sample, Samples

if TYPE_CHECKING:  # slow to import
    import numpy as np
    from numpy.typing import NDArray

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the samples, in their order."""

    samples: Samples
    chosen: bytes
    """1 for each sample that is in the part, else 0. Index = position."""

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
    import numpy as np

    keys = _keys(samples)
    family = _families(keys)
    names = list(shares)
    part_of = _kept_parts(keys, family, kept or {}, names)
    sizes = np.bincount(family, minlength=len(family))
    held = [int(sizes[part_of == part].sum()) for part in range(len(names))]
    dealt = sum(held)
    for first in _order(samples, family, seed, stratum):
        if part_of[first] != NOWHERE:
            continue
        size = int(sizes[first])
        dealt += size
        part = max(range(len(names)), key=lambda n: shares[names[n]] * dealt - held[n])
        held[part] += size
        part_of[first] = part
    for name, n in zip(names, held, strict=True):
        if n == 0:
            raise DataError(
                f"nothing is left for {name!r}: there are too few questions",
                hint="ask for fewer parts, or upload more questions first",
            )
    return {
        name: Part(samples, (part_of[family] == part).tobytes()) for part, name in enumerate(names)
    }


def shares_of(into: str | Mapping[str, float]) -> dict[str, float]:
    """Read the shares of parts, `PART=SHARE,…`; raise ConfigError unless above 0, and 1 in sum."""
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


@dataclass(frozen=True, slots=True)
class _Keys:
    """Texts that must not be in two parts, as hashes: they may be more than the memory holds."""

    questions: "NDArray[np.int64]"
    """Index = position."""
    clusters: "NDArray[np.int64]"
    clustered: "NDArray[np.int64]"
    """Position of the sample in each of `clusters`."""


def _keys(samples: Samples) -> _Keys:
    import numpy as np

    questions, clusters, clustered = array("q"), array("q"), array("q")
    for position, sample in enumerate(samples):
        questions.append(hash(folded(sample.question)))
        if sample.cluster is not None:
            clusters.append(hash(sample.cluster))
            clustered.append(position)
    return _Keys(np.array(questions), np.array(clusters), np.array(clustered))


def _families(keys: _Keys) -> "NDArray[np.int64]":
    """Return the position of the first sample of each sample's family."""
    import numpy as np

    leader = np.arange(len(keys.questions))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    places = np.arange(len(keys.questions))
    for found, positions in ((keys.questions, places), (keys.clusters, keys.clustered)):
        order = np.argsort(found, kind="stable")
        again = np.flatnonzero(found[order][1:] == found[order][:-1])
        for one, other in zip(positions[order[again]], positions[order[again + 1]], strict=True):
            a, b = sorted((find(one), find(other)))
            leader[b] = a
    while (leader != leader[leader]).any():
        leader = leader[leader]
    return leader


def _kept_parts(
    keys: _Keys, family: "NDArray[np.int64]", kept: Mapping[str, Samples], names: Sequence[str]
) -> "NDArray[np.int64]":
    """Return the part (index in `names`) that holds each family, at its first sample's position."""
    import numpy as np

    of_question = np.full(len(family), NOWHERE)
    of_cluster = of_question.copy()
    for name, samples in kept.items():
        old, part = _keys(samples), names.index(name)
        of_question[np.isin(keys.questions, old.questions)] = part
        of_cluster[keys.clustered[np.isin(keys.clusters, old.clusters)]] = part
    of_family = np.full(len(family), NOWHERE)
    for parts in (of_question, of_cluster):
        there = parts != NOWHERE
        of_family[family[there]] = parts[there]
    for parts in (of_question, of_cluster):
        torn = family[(parts != NOWHERE) & (parts != of_family[family])]
        if len(torn):
            row = int(torn.min())
            mine = [*of_question[family == row], *of_cluster[family == row]]
            one, other, *_ = sorted({names[part] for part in mine if part != NOWHERE})
            raise DataError(
                f"row {row + 1} and those like it are in {one!r} and in {other!r} already",
                hint="split afresh with --replace, or name other parts",
            )
    return of_family


def _order(
    samples: Samples, family: "NDArray[np.int64]", seed: int, stratum: Callable[[Sample], str]
) -> "NDArray[np.int64]":
    """Return the first sample's position of each family, in the order of dealing out."""
    import numpy as np

    left = np.bincount(family)
    lots, strata = np.zeros(len(family), "S32"), np.zeros(len(family), np.int64)
    codes, least = dict[str, int](), dict[int, str]()
    for position, (sample, first) in enumerate(zip(samples, family.tolist(), strict=True)):
        if position == first:
            strata[first] = codes.setdefault(stratum(sample), len(codes))
        # The least text, not the first row: who goes where must not depend on the rows' order.
        text = folded(sample.question)
        least[first] = min(text, least.get(first, text))
        left[first] -= 1
        if not left[first]:
            lots[first] = _hash(seed, least.pop(first))
    rank = np.argsort([codes[text] for text in sorted(codes)])
    firsts = np.flatnonzero(family == np.arange(len(family)))
    return firsts[np.lexsort((lots[firsts], rank[strata[firsts]]))]


def _hash(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}|{text}".encode()).digest()


def draw(hashes: Iterable[str], n: int, *, seed: int) -> bytes:
    """Draw `n` samples, given the hash of each; more of them, with the same seed, include these.

    Returns:
        1 for each sample that is drawn, else 0. Index = position.

    Raises:
        DataError: There are not so many.
    """
    import numpy as np

    seen, lots = Counter[int](), bytearray()
    for sha in hashes:
        lots += _hash(seed, f"{sha}|{seen[hash(sha)]}")
        seen[hash(sha)] += 1
    there = len(lots) // 32
    if n > there:
        are = "is" if there == 1 else "are"
        raise DataError(f"{n} rows are asked for, but there {are} {there}")
    drawn = np.zeros(there, np.bool_)
    drawn[np.argsort(np.frombuffer(lots, "S32"))[:n]] = True
    return drawn.tobytes()
