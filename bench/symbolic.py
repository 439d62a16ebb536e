"""An evaluation with `math` on a mix of answers, most of which need computer algebra to compare.

Eight of twenty questions have an integer for an answer, four a fraction or a decimal, three an
expression with roots and π, two a polynomial or an equation, two a set, an interval or a tuple,
one a matrix or a word. Half of the answers are right, most of them in another notation than the
gold. Every question is asked once, so that no comparison is made twice; asked eight times, as a
practice does, equal answers to one question are compared once.

Target: 150 rollouts/s, 9 ms of the driver's CPU for each.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness import (
    Row,
    Run,
    at_least,
    at_most,
    cli,
    endpoint,
    folder,
    run,
    stalls,
    write_config,
    write_tasks,
)
from grpo_practice.core.types import Verdict
from grpo_practice.verify.math import at_once

CONCURRENCY = 64
Pair = tuple[str, str, str]
"""A gold, a right answer and a wrong one."""


def _integer(draw: random.Random) -> Pair:
    value = draw.randint(-99, 9_999)
    spelt = draw.choice(("{}", "{}", "{:,}", r"{}\text{{ cm}}", "x = {}"))
    return str(value), spelt.format(value), spelt.format(value + draw.randint(1, 9))


def _number(draw: random.Random) -> Pair:
    below = draw.choice((2, 4, 5, 8, 7, 9, 12))
    above = draw.randint(1, 200)
    right = draw.choice((rf"\dfrac{{{2 * above}}}{{{2 * below}}}", f"{above}/{below}"))
    if below in (2, 4, 5, 8) and draw.random() < 0.5:
        right = f"{above / below:g}"
    gold = rf"\frac{{{above}}}{{{below}}}"
    return gold, right, rf"\frac{{{above + 1}}}{{{below}}}"


def _root(draw: random.Random) -> Pair:
    a, b, c = draw.randint(2, 9), draw.choice((2, 3, 5, 6, 7)), draw.randint(1, 9)
    return draw.choice(
        (
            (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}", rf"{a + 1}\sqrt{{{b}}}"),
            (rf"{a}\pi+{c}", rf"{c} + {a}π", rf"{a}\pi-{c}"),
            (
                rf"\frac{{{a}\pi}}{{{b}}}",
                rf"\frac{{{a}}}{{{b}}}\pi",
                rf"\frac{{{c}\pi}}{{{b + 4}}}",
            ),
            (rf"\frac{{\sqrt{{{b}}}}}{{{b}}}", rf"\frac{{1}}{{\sqrt{{{b}}}}}", rf"\sqrt{{{b}}}"),
        )
    )


def _polynomial(draw: random.Random) -> Pair:
    a, b = draw.randint(1, 9), draw.randint(1, 9)
    return draw.choice(
        (
            (f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})", f"(x+{a})(x+{b + 1})"),
            (f"{a}x^2+{b}", f"{b} + {a}x^{{2}}", f"{a}x^2-{b}"),
            (f"y={a}x+{b}", f"y = {b} + {a}x", f"y={a}x-{b}"),
        )
    )


def _several(draw: random.Random) -> Pair:
    a, b = draw.randint(-20, 0), draw.randint(1, 20)
    return draw.choice(
        (
            (rf"\{{{a},{b}\}}", rf"\{{{b}, {a}\}}", rf"\{{{a},{b + 1}\}}"),
            (f"[{a},{b})", rf"\left[{a}, {b}\right)", f"({a},{b})"),
            (
                rf"(-\infty,{a})\cup({b},\infty)",
                rf"({b},\infty)\cup(-\infty,{a})",
                rf"({b},\infty)",
            ),
            (f"({a},{b})", f"({a}, {b})", f"({b},{a})"),
        )
    )


def _other(draw: random.Random) -> Pair:
    a, b = draw.randint(0, 9), draw.randint(0, 9)
    begin, end = r"\begin{pmatrix}", r"\end{pmatrix}"
    row = rf"\begin{{bmatrix}}{a}\\{b}\end{{bmatrix}}"
    return draw.choice(
        (
            (rf"{begin}{a}\\{b}{end}", row, rf"{begin}{a}\\{b + 1}{end}"),
            ("Monday", r"\text{monday}", "Tuesday"),
        )
    )


_MIX: Sequence[tuple[int, Callable[[random.Random], Pair]]] = (
    (8, _integer),
    (4, _number),
    (3, _root),
    (2, _polynomial),
    (2, _several),
    (1, _other),
)


def mix(n: int) -> list[Pair]:
    """Make `n` questions of the mix, the same each time."""
    draw = random.Random(7)
    made = [make for count, make in _MIX for _ in range(count)]
    return [made[i % len(made)](draw) for i in range(n)]


def at_once_share(pairs: Sequence[Pair]) -> float:
    """Return the share of right and wrong answers that need no computer algebra."""
    said = [(gold, text) for gold, right, wrong in pairs for text in (right, wrong)]
    found = [at_once([gold], rf"\boxed{{{text}}}") for gold, text in said]
    return sum(isinstance(f, Verdict) for f in found) / len(found)


def evaluation(pairs: Sequence[Pair], *, pass_k: int = 1, **options: object) -> Run:
    """Run one evaluation of these questions with `math`."""
    with endpoint(size=300, **options) as url, folder() as here:
        write_tasks(Path(here) / "tasks.jsonl", len(pairs), pairs)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": "math", "concurrency": CONCURRENCY, "pass_k": pass_k}
        write_config(here / "c.yaml", url, evaluation=work)
        return run(here, "eval", "--config", "c.yaml")


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure rollouts a second of the mix, what each cost, and how many took the fast path."""
    n = 60 if tiny else 4_000
    pairs = mix(n)
    found = list[Row]()
    for name, k in (("each asked once", 1), ("each asked 8 times", 8)):
        asked = pairs[: n // k]
        done = [evaluation(asked, pass_k=k) for _ in range(runs)]
        rollouts = len(asked) * k
        rate = [rollouts / float(r.document["seconds"]) for r in done]
        cpu = [1000 * r.cpu_s / rollouts for r in done]
        workers = [1000 * r.children_cpu_s / rollouts for r in done]
        title = f"eval, symbolic mix, {name}"
        found += [
            Row(f"{title}: rollouts/s", "≥ 150", rate, at_least(150)),
            Row(f"{title}: CPU ms/rollout, driver", "≤ 9", cpu, at_most(9)),
            Row(f"{title}: CPU ms/rollout, its children", "", workers),
            Row(f"{title}: peak MB of the driver", "", [r.peak_mb for r in done]),
            Row(f"{title}: peak MB of the largest child", "", [r.children_peak_mb for r in done]),
            *stalls(title, done),
        ]
    share = at_once_share(pairs)
    return [*found, Row("symbolic mix: share that takes the fast path", "", [share])]
