"""`data split`, `data sample`, `data stats`: datasets from datasets, and what is in one."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import isclose
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, existing_store
from grpo_practice.cli.terminal.formatting import count, print_json, say
from grpo_practice.cli.terminal.tables import facts, table
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.text import brief

if TYPE_CHECKING:
    from grpo_practice.data.stats import Lengths, Stats
    from grpo_practice.store import Store
    from grpo_practice.store.records import DatasetRow
    from grpo_practice.types import Sample

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `data list` says.")]
SeedOption = Annotated[int, typer.Option(help="Another one draws others.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="The names may hold other rows now.")
]
By = Literal["source", "level"]
PARTS = "train=0.8,test=0.2"
SHOWN = 10
"""Sources and levels that are named."""
TRIED = 200
"""Answers that a verify function is tried on, to name it in a next step."""
SHORT = 80
"""Characters of an answer that a right response holds as it stands; a longer one is prose."""


def check_name(name: str) -> None:
    """The name can be that of a dataset.

    Raises:
        ConfigError: It cannot.
    """
    from grpo_practice.config.schema import base

    base.check_name(name, "a dataset")


def document(row: "DatasetRow") -> dict[str, Any]:
    """A dataset, in a document."""
    return {
        "name": row.name,
        "revision": row.revision,
        "sha256": row.sha,
        "n": row.n,
        "origin": row.origin,
        "created_at": row.created_at,
    }


def suited(samples: "Iterable[Sample]") -> str:
    """The built-in function that most of the answers look made for; `judge` where there is none."""
    from collections import Counter

    from grpo_practice.data.stats import kind
    from grpo_practice.verify.answers import gold_texts

    golds = [gold for s in samples for gold in gold_texts(s.answer)]
    kinds = Counter(map(kind, golds))
    if not golds:
        return "judge"
    if 2 * kinds["choice letter"] > len(golds):
        return "choice"
    if 2 * kinds["text"] <= len(golds):
        return "math"
    return "contains" if 2 * sum(len(gold) <= SHORT for gold in golds) > len(golds) else "judge"


def usable(samples: "Sequence[Sample]", verify: str | None = None) -> str:
    """This function, or else the one that suits, where it can use every answer; else another.

    Many answers are not all tried: a few of them tell.
    """
    from pathlib import Path

    from grpo_practice.verify.answers import gold_texts
    from grpo_practice.verify.resolve import check_gold, resolve

    if not all(any(gold.strip() for gold in gold_texts(s.answer)) for s in samples):
        return "judge"  # the only one that needs no answer
    tried = samples[:: max(1, len(samples) // TRIED)]
    verify = verify or suited(tried)
    function = resolve(verify, {}, None, Path.cwd())
    return verify if all(check_gold(function, s) is None for s in tried) else "exact"


def split(
    name: NameArgument,
    into: Annotated[
        str, typer.Option(metavar="PART=SHARE,…", help="The parts; the shares add up to 1.")
    ] = PARTS,
    seed: SeedOption = 0,
    by: Annotated[By | None, typer.Option(help="Divide each source, or level, alike.")] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Questions stay in the part that has them; deal new ones out."),
    ] = False,
    replace: ReplaceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Divide a dataset into parts without a question in common.

    The parts are called NAME-train, NAME-test and so on. Questions that are the same but for case
    and spaces, or that share a cluster, go to the same part.

    Example: grpo-practice data split mine --into train=0.8,test=0.2
    """
    from grpo_practice.data.split import split as divide

    shares = {f"{name}-{part}": share for part, share in _shares(into).items()}
    for part in shares:
        check_name(part)
    from grpo_practice.store import datasets

    with existing_store(db) as store:
        row = store.read(datasets.get, name)
        samples = store.read(datasets.samples, row.id)
        parts = divide(
            samples,
            shares,
            seed=seed,
            stratum=lambda s: (by and getattr(s, by)) or "",
            kept=_held(store, shares) if keep else None,
        )
        origin = f"split of {name} (revision {row.revision}, seed {seed})"
        made = store.add_datasets(parts, origin=origin, replace=replace or keep)
    if json:
        print_json(
            {
                "schema": "grpo-practice.split/1",
                "dataset": document(row),
                "seed": seed,
                "by": by,
                "parts": [
                    {"dataset": document(part), "share": shares[part.name], "new": new}
                    for part, new in made
                ],
                "exit": 0,
            }
        )
        return
    held = "" if any(new for _, new in made) else ", as before"
    say(f"{name} (revision {row.revision}, {count(row.n, 'row')}) is divided{held}:", style="bold")
    headers, rows = _sizes([part for part, _ in made], parts, shares, by)
    table(headers, rows, right=headers[1:])
    say("  no question, but for case and spaces, and no cluster is in two of them")
    last = made[-1][0].name
    say(f"next: {PROGRAM} eval --model MODEL --dataset {last} --verify {usable(parts[last])}")


def _shares(into: str) -> dict[str, float]:
    """`train=0.8,test=0.2`, read."""
    shares: dict[str, float] = {}
    for pair in into.split(","):
        part, equals, number = (word.strip() for word in pair.partition("="))
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if not (part and equals and 0 < share < 1) or part in shares:
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


def _held(store: "Store", names: Iterable[str]) -> "dict[str, list[Sample]]":
    from grpo_practice.store import datasets

    found = {name: store.read(datasets.find, name) for name in names}
    return {
        name: store.read(datasets.samples, row.id) for name, row in found.items() if row is not None
    }


def _sizes(
    made: "list[DatasetRow]",
    parts: "dict[str, list[Sample]]",
    shares: dict[str, float],
    by: By | None,
) -> tuple[list[str], list[list[str]]]:
    """The table of parts: rows, their share, and the rows of each stratum."""
    total = sum(row.n for row in made)
    strata = sorted({_label(s, by) for part in parts.values() for s in part}) if by else []
    shown = strata[:SHOWN]
    rows = [
        [
            f"{row.name} (revision {row.revision})",
            str(row.n),
            f"{100 * row.n / total:.1f} %",
            f"{100 * shares[row.name]:g} %",
            *(str(sum(_label(s, by) == name for s in parts[row.name])) for name in shown),
        ]
        for row in made
    ]
    return ["dataset", "rows", "share", "asked", *(brief(name, 20) for name in shown)], rows


def _label(sample: "Sample", by: By | None) -> str:
    return (getattr(sample, by) if by else None) or "(none)"


def sample(
    name: NameArgument,
    n: Annotated[int, typer.Option("-n", min=1, help="How many rows.")],
    new: Annotated[str, typer.Option("--name", metavar="NEW", help="What the sample is called.")],
    seed: SeedOption = 0,
    replace: ReplaceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Draw some rows of a dataset, as a dataset.

    With the same seed, a larger sample holds the smaller one.

    Example: grpo-practice data sample mine -n 100 --name mine-100
    """
    from grpo_practice.data.split import draw

    check_name(new)
    if new == name:
        raise ConfigError(f"--name {new} is the dataset itself", hint=f"--name {name}-{n}")
    from grpo_practice.store import datasets

    with existing_store(db) as store:
        row = store.read(datasets.get, name)
        drawn = draw(store.read(datasets.samples, row.id), n, seed=seed)
        origin = f"sample of {name} (revision {row.revision}, seed {seed})"
        made, fresh = store.add_dataset(new, drawn, origin=origin, replace=replace)
    if json:
        print_json(
            {
                "schema": "grpo-practice.sample/1",
                "dataset": document(made),
                "of": document(row),
                "seed": seed,
                "new": fresh,
                "exit": 0,
            }
        )
        return
    held = "" if fresh else ", as before"
    of = f"of the {row.n} of {name} (seed {seed}){held}"
    say(f"{new} (revision {made.revision}) holds {count(made.n, 'row')} {of}", style="bold")
    say(f"next: {PROGRAM} eval --model MODEL --dataset {new} --verify {usable(drawn)}")


def stats(name: NameArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """Count lengths, kinds of answers and repeated questions.

    Example: grpo-practice data stats mine
    """
    from grpo_practice.data.stats import stats as counted
    from grpo_practice.store import datasets

    with existing_store(db) as store:
        row = store.read(datasets.get, name)
        samples = store.read(datasets.samples, row.id)
    if not samples:
        raise DataError(f"dataset {name!r} has no rows")
    found, unusable = counted(samples), _unusable(samples)
    if json:
        print_json(
            {
                "schema": "grpo-practice.stats/1",
                "dataset": document(row),
                "stats": asdict(found),
                "verify": {verify: {"unusable": n} for verify, n in unusable.items()},
                "exit": 0,
            }
        )
        return
    say(f"{name} (revision {row.revision}): {count(row.n, 'row')}", style="bold")
    table(
        ["length", "shortest", "median", "95 %", "longest"],
        [
            _lengths("question, characters", found.question_chars),
            _lengths("question, tokens (about)", found.question_tokens),
            *([_lengths("answer, characters", found.answer_chars)] if found.answer_chars else []),
        ],
        right=["shortest", "median", "95 %", "longest"],
    )
    facts(_facts(found, unusable))
    if found.repeated_folded and _divisible(samples):
        say("  data split keeps repeated questions together")
        say(f"next: {PROGRAM} data split {name}")
    else:
        best = next(v for v in (suited(samples), "exact", "judge") if not unusable[v])
        say(f"next: {PROGRAM} eval --model MODEL --dataset {name} --verify {best}")


def _divisible(samples: "list[Sample]") -> bool:
    """Whether `data split` as it is usually asked for leaves no part empty."""
    from grpo_practice.data.split import split as divide

    try:
        divide(samples, _shares(PARTS), seed=0)
    except DataError:
        return False
    return True


def _unusable(samples: "list[Sample]") -> dict[str, int]:
    """Rows whose answers a built-in function cannot use, for those that need no parameters."""
    from pathlib import Path

    from grpo_practice.verify.builtin import BUILT_INS
    from grpo_practice.verify.resolve import check_gold, resolve

    functions = {
        name: resolve(name, {}, None, Path.cwd())
        for name, built_in in BUILT_INS.items()
        if not any(param.required for param in built_in.params.values())
    }
    return {
        name: sum(check_gold(function, s) is not None for s in samples)
        for name, function in functions.items()
    }


def _lengths(what: str, found: "Lengths") -> list[str]:
    numbers = (found.shortest, found.median, found.p95, found.longest)
    return [what, *(f"{n:,}" for n in numbers)]


def _facts(found: "Stats", unusable: dict[str, int]) -> list[tuple[str, str]]:
    usable = [name for name, n in unusable.items() if n == 0]
    some = [f"{name} all but {n}" for name, n in unusable.items() if 0 < n < found.rows]
    # fmt: off
    return [
        ("answers", _named(found.answers)),
        ("questions", f"{found.questions:,} different{_repeats(found)}"),
        ("contradicted", f"{count(found.contradicted, 'question')} with different answers"
         if found.contradicted else ""),
        ("sources", _named(found.sources)),
        ("levels", _named(found.levels)),
        ("clusters", str(found.clusters) if found.clusters else ""),
        ("verify", "; ".join(
            [f"{', '.join(usable)} can use every answer" if usable else "", *some]).strip("; ")),
    ]
    # fmt: on


def _repeats(found: "Stats") -> str:
    if not found.repeated_folded:
        return ""
    rows = count(found.repeated_folded, "row")
    only = found.repeated_folded - found.repeated
    but = f" ({only} but for case and spaces)" if only else ""
    verb = "repeats" if found.repeated_folded == 1 else "repeat"
    return f"; {rows} {verb} an earlier one{but}"


def _named(counts: dict[str, int]) -> str:
    shown = ", ".join(f"{n:,} {brief(name, 40)}" for name, n in list(counts.items())[:SHOWN])
    return shown + (f", and {len(counts) - SHOWN} more" if len(counts) > SHOWN else "")
