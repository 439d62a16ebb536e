"""Do the verdicts of a comparison keep what they promise? Simulated, by the functions in use.

Each figure is a share of so many seeds, with its Clopper-Pearson interval; it reaches its target
when the whole interval does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from bench.drift import DRIFT, outcomes
from bench.effect_proof import effect_rows
from bench.harness import Row, share
from grpo_practice.core.stats import Question
from grpo_practice.core.stats.paired import (
    FIRST,
    Look,
    Tested,
    beats,
    difference,
    holm,
    paired_t,
    verdicts,
)
from grpo_practice.core.stats.power import Noise, power_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEEDS, AT_ONCE = 100_000, 3_000_000
"""Seeds of a cell, and most numbers that are drawn at once."""
LEVEL = 0.05
SPREAD = 1.2
"""How alike questions are: most are nearly always or nearly never answered, as is usual."""
EVEN = 0.13
"""Standard deviation of an even effect."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of comparison that has no difference on average."""

    n: int
    k_a: int
    k_b: int
    effect: str
    """How the difference varies from question to question: `none`, `even` (13 points standard
    deviation) or `skewed` (30 points up for one question in ten, 3.3 down for the others)."""
    mean: float
    families: int = 1
    """Questions in a family; they share their difficulty and their effect."""

    def draw(self, rng: np.random.Generator, seeds: int, *, gain: float = 0) -> Floats:
        """Draw differences, of which the mean is `gain * (1 - mean)`. Shape: [seeds, n]."""
        p, b = self.chances(rng, (seeds, self.n // self.families))
        b = b + gain * (1 - b)
        p, b = (x.repeat(self.families, axis=1) for x in (p, b))
        return rng.binomial(self.k_b, b) / self.k_b - rng.binomial(self.k_a, p) / self.k_a

    def chances(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Draw the chances of a right answer in the two arms: of one mean, all in [0, 1].

        To cut effects off where a chance leaves [0, 1] would shrink them: of 13 points at a mean of
        0.92, 6 would be left.
        """
        if self.effect == "skewed":
            return self._skewed(rng, shape)
        p = _u_shaped(rng, self.mean, shape)
        if self.effect == "none":
            return p, p
        # Both arms are drawn alike around p, the closer the larger `held` is.
        held = 2 * self.mean * (1 - self.mean) * SPREAD / (SPREAD + 1) / EVEN**2 - 1
        around = np.clip(p, 1e-6, 1 - 1e-6) * held
        return rng.beta(around, held - around), rng.beta(around, held - around)

    def _skewed(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Draw questions: one in ten has room for 30 points more, the others for 3.3 less."""
        up, down, share = 0.3, 0.3 / 9, 0.1
        rest = (self.mean - share * (1 - up) / 2) / (1 - share)
        helped = rng.random(shape) < share
        easy = down + (1 - down) * _u_shaped(rng, (rest - down) / (1 - down), shape)
        p = np.where(helped, (1 - up) * _u_shaped(rng, 0.5, shape), easy)
        return p, np.clip(np.where(helped, p + up, p - down), 0, 1)

    @property
    def cluster(self) -> Ints:
        """Number of each question's family. Shape: [n]."""
        return np.arange(self.n) // self.families


def _u_shaped(rng: np.random.Generator, mean: float, shape: tuple[int, int]) -> Floats:
    return rng.beta(SPREAD * mean, SPREAD * (1 - mean), shape)


CELLS = [
    *(
        Cell(n, *k, effect, mean)
        for n, k, effect, mean in product(
            (30, 100, 300),
            ((1, 1), (5, 5), (32, 32), (32, 4)),
            ("none", "even", "skewed"),
            (0.5, 0.92),
        )
    ),
    *(Cell(100, 5, 5, effect, 0.5, families=5) for effect in ("none", "even", "skewed")),
]


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Return a row for each promise. `runs` is not used: one run has as many seeds as it needs."""
    seeds = 300 if tiny else SEEDS
    return [
        *_false_positives(seeds),
        *_coverage(seeds),
        _four_contrasts(seeds),
        *_beyond(seeds),
        _failing_arm(100 if tiny else 10_000),
        *_repeated(100 if tiny else 20_000),
        *(_power(n, seeds) for n in (15, 30, 100, 300)),
        *(_best(mean, sd, points, 500 if tiny else 20_000) for mean, sd, points in GAINS),
        *effect_rows(tiny=tiny),
        *_drift(2 if tiny else 200),
    ]


def _drift(seeds: int) -> list[Row]:
    """Return how often an endpoint that gets better by itself makes a false verdict."""
    targets = {"in turn": (50.0, 100.0), "together": (0.0, 9.0)}
    return [
        share(
            f"drift {DRIFT:g} per 1,000 requests, arms {order}: false verdicts",
            sum(outcome.false for outcome in found),
            len(found),
            targets[order],
        )
        for order, found in outcomes(seeds).items()
    ]


def _tested(cell: Cell, seeds: int, gain: float = 0) -> Iterator[Tested]:
    """Yield the tests of so many seeds, some at a time."""
    rng = np.random.default_rng([cell.n, cell.k_a, cell.k_b, int(100 * cell.mean), cell.families])
    while seeds > 0:
        part = min(seeds, max(AT_ONCE // cell.n, 1))
        yield paired_t(cell.draw(rng, part, gain=gain), cell.cluster)
        seeds -= part


def _false_positives(seeds: int) -> list[Row]:
    found, disagree = list[tuple[Cell, int]](), 0
    for cell in CELLS:
        rejected = 0
        for tested in _tested(cell, seeds):
            rejected += int((tested.p < LEVEL).sum())
            outside = (tested.low > 0) | (tested.high < 0)
            disagree += int(((tested.p < LEVEL) != outside).sum())
        found.append((cell, rejected))
    large = [(cell, hits) for cell, hits in found if cell.n >= 100 and min(cell.k_a, cell.k_b) > 1]
    return [
        *_ends("false positives, each cell", found, seeds, (0, 6.0)),
        *_ends("false positives, n ≥ 100 and k ≥ 4", large, seeds, (4.4, 5.6)),
        Row("p and interval disagree", "0", [disagree], lambda n: n == 0),
    ]


def _beyond(seeds: int) -> list[Row]:
    """Return how often a verdict is false where docs/proof.md says not to believe it."""
    # The arms of a skewed cell change places: the other one helps most questions a little, and
    # harms one in ten a lot.
    cell, better, unnamed = Cell(30, 32, 32, "skewed", 0.92), 0, 0
    for tested in _tested(cell, seeds):
        better += int(((tested.p < FIRST) & (tested.mean < 0)).sum())
    families = Cell(100, 5, 5, "even", 0.5, families=5)
    rng, left = np.random.default_rng(6), seeds
    while left > 0:
        part = min(left, AT_ONCE // families.n)
        d = families.draw(rng, part)
        unnamed += int((paired_t(d, np.arange(families.n)).p < FIRST).sum())
        left -= part
    return [
        share("30 questions, mean .92, one in ten harmed: false `better`", better, seeds, (0, 10)),
        share("100 questions in families of 5 that are not named: false", unnamed, seeds, (0, 16)),
    ]


def _coverage(seeds: int) -> list[Row]:
    gain, found = 0.1, list[tuple[Cell, int]]()
    for cell in CELLS:
        true, covered = gain * (1 - cell.mean), 0
        for tested in _tested(cell, seeds, gain):
            covered += int(((tested.low <= true) & (true <= tested.high)).sum())
        found.append((cell, covered))
    large = [(cell, hits) for cell, hits in found if cell.n >= 100]
    small = [(cell, hits) for cell, hits in found if cell.n < 100]
    return [
        *_ends("coverage of the difference, n ≥ 100", large, seeds, (93.5, 96.5)),
        *_ends("coverage of the difference, n = 30", small, seeds, (92, 100)),
    ]


def _four_contrasts(seeds: int) -> Row:
    """Four arms with one baseline, none of them different: any verdict is a false one."""
    rng, n, k, false = np.random.default_rng(4), 100, 5, 0
    done = 0
    while done < seeds:
        part = min(seeds - done, AT_ONCE // (5 * n))
        p = rng.beta(0.6, 0.6, (part, n))
        base, *arms = (rng.binomial(k, p) / k for _ in range(5))
        ps = np.stack([paired_t(arm - base, np.arange(n)).p for arm in arms], axis=1)
        false += sum(min(holm(of)) < LEVEL for of in ps.tolist())
        done += part
    return share("four null contrasts with one baseline: any false", false, seeds, (0, 5.6))


def _failing_arm(seeds: int) -> Row:
    """One arm loses a tenth of its wrong answers, so that its score looks better than it is."""
    rng, n, k, false, unmended = np.random.default_rng(5), 100, 5, 0, 0
    for _ in range(seeds):
        p = rng.beta(0.6, 0.6, n)
        a, b = rng.binomial(k, p), rng.binomial(k, p)
        lost = rng.binomial(k - b, 0.1)
        found = difference(_arm(a, k), _arm(b, k, lost))
        assert found is not None
        false += verdicts([found])[0] in ("better", "worse")
        unmended += found.p < LEVEL
    row = share("an arm fails on 10 % of its wrong answers: false", false, seeds, (0, 5))
    row.notes["without the bounds, %"] = round(100 * unmended / seeds, 2)
    return row


def _repeated(worlds: int) -> list[Row]:
    """Return how often a person who compares until there is a verdict ends with a false one."""
    ways: dict[str, tuple[int, Callable[[Floats, np.random.Generator], Iterator[_Arms]]]] = {
        "8 looks at growing k": (8, _growing),
        "6 edits against one baseline": (6, _edited),
    }
    found = list[Row]()
    for name, (most, arms_of) in ways.items():
        rng, false, alone, so_far = np.random.default_rng(most), 0, 0, 0
        for _ in range(worlds):
            arms = islice(arms_of(rng.beta(0.6, 0.6, 100), rng), most)
            shown = [pair for a, b in arms if (pair := difference(a, b)) is not None]
            # One at a time, as they are printed.
            said = [verdicts([pair], [Look(n)]) for n, pair in enumerate(shown, 1)]
            false += ["better"] in said or ["worse"] in said
            alone += any(pair.p < LEVEL for pair in shown)
            so_far += any(n * pair.p < LEVEL for n, pair in enumerate(shown, 1))
        row = share(f"{name}, none of any effect: one verdict or more", false, worlds, (0, 5))
        row.notes["each at 5 %, as if it were alone, %"] = round(100 * alone / worlds, 2)
        row.notes["p times the number so far, %"] = round(100 * so_far / worlds, 2)
        found.append(row)
    return found


_Arms = tuple[list[Question], list[Question]]


def _growing(p: Floats, rng: np.random.Generator) -> Iterator[_Arms]:
    """Yield two arms of one agent: 2 rollouts for each question, then 4, 6, …."""
    a, b, k = np.zeros_like(p, np.int64), np.zeros_like(p, np.int64), 0
    while True:
        a, b, k = a + rng.binomial(2, p), b + rng.binomial(2, p), k + 2
        yield _arm(a, k), _arm(b, k)


def _edited(p: Floats, rng: np.random.Generator) -> Iterator[_Arms]:
    """Yield one baseline, each time with another arm of the same agent."""
    baseline = _arm(rng.binomial(5, p), 5)
    while True:
        yield baseline, _arm(rng.binomial(5, p), 5)


def _arm(right: Ints, k: int, lost: Ints | None = None) -> list[Question]:
    gone = np.zeros_like(right) if lost is None else lost
    return [
        Question(str(i), n=int(k - g), c=int(c), total=float(c), total_sq=float(c), planned=k)
        for i, (c, g) in enumerate(zip(right, gone, strict=True))
    ]


def _power(n: int, seeds: int) -> Row:
    """How often a difference is found, less how often that was promised."""
    k, omega, rng, found = 4, 0.1, np.random.default_rng(n), 0
    low, high = 0.2, 0.7
    # p uniform in [low, high]: the mean of p (1 - p) is known, and no effect leaves [0, 1].
    spread, middle = (high - low) ** 2 / 12, (low + high) / 2
    sigma2_a = middle - middle**2 - spread
    noise = Noise(omega**2, sigma2_a, sigma2_a)
    gain = 2.8 * noise.se(n, k, k)
    middle_b = middle + gain
    noise = Noise(omega**2, sigma2_a, middle_b - middle_b**2 - spread - omega**2)
    done = 0
    while done < seeds:
        part = min(seeds - done, max(AT_ONCE // n, 1))
        p = rng.uniform(low, high, (part, n))
        b = p + gain + omega * rng.choice([-1.0, 1.0], (part, n))
        inside = np.clip(b, 0, 1)
        d = rng.binomial(k, inside) / k - rng.binomial(k, p) / k
        found += int((paired_t(d, np.arange(n)).p < FIRST).sum())
        done += part
    promised = 100 * power_of(noise, gain, n, k, k)
    row = share(f"real less promised power, n = {n}", found, seeds, (promised - 3, promised + 3))
    row.notes["promised, %"] = round(promised, 2)
    return row


GAINS = ((0.5, 2.0, 3.8), (1.0, 1.0, 5.9), (0.0, 2.0, 1.9), (2.0, 3.0, 12.3), (-0.5, 2.0, 0.6))
"""Mean and SD of what a step gains, in points, and where six steps end with `--step best`."""


def _best(mean: float, sd: float, target: float, seeds: int) -> Row:
    """Where `--step best` ends: six steps in three epochs, 1,200 rollouts to choose by."""
    rng = np.random.default_rng([10 + int(10 * mean), int(10 * sd)])
    steps = rng.normal(mean, sd, (seeds, 6)).cumsum(axis=1)
    libraries = np.column_stack([np.zeros(seeds), steps[:, 1::2]])
    # 75 questions, 4 rollouts each, for each of four libraries: 2.6 points with 100 questions.
    se = 2.6 * math.sqrt(100 / 75)
    scores = libraries + rng.normal(0, se / math.sqrt(2), libraries.shape)
    top = scores.argmax(axis=1)
    lead = scores.max(axis=1) - scores[:, -1]
    taken = [
        int(t) if beats(lead_, se) else -1 for t, lead_ in zip(top, lead.tolist(), strict=True)
    ]
    ends = libraries[np.arange(seeds), taken]
    row = Row(
        f"`best`: six steps of {mean:+g} ± {sd:g} points end at",
        f"{target:g} ± 0.15",
        [float(ends.mean())],
        lambda found: abs(found - target) <= 0.15,
    )
    row.notes["seeds, standard error"] = f"{seeds:,}, {ends.std() / math.sqrt(seeds):.3f}"
    row.notes["the last one always; the highest"] = (
        f"{libraries[:, -1].mean():.2f}; {libraries[np.arange(seeds), top].mean():.2f}"
    )
    return row


def _ends(
    name: str, found: list[tuple[Cell, int]], seeds: int, target: tuple[float, float]
) -> list[Row]:
    """Return the rows of the cells with the smallest and the largest share."""
    (low, few), (high, many) = (pick(found, key=lambda one: one[1]) for pick in (min, max))
    made = []
    for end, cell, hits in (("lowest", low, few), ("highest", high, many)):
        row = share(f"{name}: the {end} of {len(found)}", hits, seeds, target)
        row.notes["cell"] = f"n {cell.n}, k {cell.k_a} v {cell.k_b}, effect {cell.effect}, mean "
        row.notes["cell"] += f"{cell.mean}" + (
            f", families of {cell.families}" * (cell.families > 1)
        )
        made.append(row)
    least, most = target
    beyond = sum(not least <= 100 * hits / seeds <= most for _, hits in found)
    made[-1].notes["cells outside the target"] = f"{beyond} of {len(found)}"
    return made
