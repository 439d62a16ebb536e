"""Runs the benchmarks and prints the table: `python -m bench [NAME …] [--runs 5] [--tiny]`.

Each NAME is a module of this folder with `rows(runs, tiny=…)`; all of them without a name. The
results lie in `bench/results/NAME.json`.
"""

import argparse
from importlib import import_module

from bench.harness import Row, machine, save

NAMES = (
    "throughput",
    "apis",
    "in_flight",
    "own_agents",
    "proxy_tls",
    "practice",
    "symbolic",
    "startup",
    "learning",
    "teaching",
    "choosing",
    "recorded",
    "batches",
    "hostile",
    "growth",
    "big_store",
    "many_questions",
    "after_kill",
    "serve",
    "fences",
    "lint",
    "tracing",
    "see",
    "proof",
)


def line(row: Row) -> str:
    """Return the row as Markdown: what, target, median, spread, whether it is reached."""
    low, high = min(row.values), max(row.values)
    spread = f"{low:.4g} to {high:.4g}" if len(row.values) > 1 else ""
    return f"| {row.name} | {row.target} | {row.median:.4g} | {spread} | {row.verdict} |"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--runs", type=int, default=5, help="of each, the median is told")
    parser.add_argument(
        "--tiny", action="store_true", help="does everything run? times mean nothing"
    )
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    runs = 1 if given.tiny else given.runs
    print(f"{machine()}; {'a tiny run' if given.tiny else f'{runs} runs'} of each\n")
    print("| what | target | median | spread | reached |\n|---|---|---|---|---|")
    for name in given.names or NAMES:
        rows = import_module(f"bench.{name}").rows(runs, tiny=given.tiny)
        if not given.tiny:
            save(name, rows)
        for row in rows:
            print(line(row), flush=True)
            for key, note in row.notes.items():
                print(f"|   {key} |  | {note} |  |  |", flush=True)


if __name__ == "__main__":
    main()
