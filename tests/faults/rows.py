"""The table of faults and bad input that the program answers for, row by row.

A test of row 45 of section 1 is called `test_1_45_…`, wherever it is. `python -m tests.faults.rows`
prints each row with its tests.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

Row = tuple[int, int]
"""Section and number."""

TESTS = Path(__file__).parents[1]

FAULTS: Mapping[int, str] = {
    1: "429 with Retry-After in seconds",
    2: "429 with Retry-After-ms",
    3: "429 with a date",
    4: "429 with nonsense in Retry-After",
    5: "429 with a wait of a day",
    6: "429 with x-ratelimit-reset headers",
    7: "429 because the quota is gone",
    8: "402 payment required",
    9: "100 refusals with 429 at once",
    10: "5xx twice, then an answer",
    11: "503 for ever",
    12: "401 on the first call",
    13: "401 in the middle",
    14: "403 by moderation",
    15: "404 for the model",
    16: "408, 409 and 425",
    17: "x-should-retry",
    18: "no such host, connection refused",
    19: "connecting hangs",
    21: "reset in the body",
    22: "a body that drips for ever",
    24: "a certificate nobody knows",
    25: "a proxy that refuses",
    27: "a thousand cancelled requests",
    28: "fewer connections than rollouts",
    30: "a page instead of an answer",
    31: "a body that is not JSON",
    32: "an error inside a 200",
    33: "no choices, no message",
    34: "no content",
    35: "thinking took all tokens",
    37: "think blocks, closed and not",
    38: "a refusal",
    39: "an answer cut by a filter",
    40: "longer than the model's context",
    41: "a setting that is not taken",
    42: "no usage, or nonsense",
    43: "cached and reasoning tokens",
    45: "lone surrogate, NUL, ten megabytes",
    46: "a stream that breaks",
    48: "tool arguments that are not JSON",
    49: "unknown tools and lost ids",
    51: "an endless loop of tools",
    52: "huge output of a tool",
    53: "search and reading services refuse",
    54: "a verify function raises or lies",
    55: "a verify function ends its process",
    56: "a verify function hangs",
    58: "the judge is down",
    59: "verdicts that are none",
    60: "a distiller talks nonsense",
    61: "kill -9 at any time",
    62: "Ctrl-C, SIGTERM, SIGHUP, closed pipe",
    63: "disk full, locked, broken database",
    64: "resumed with another configuration",
}

INPUT: Mapping[int, str] = {
    1: "YAML that runs code",
    2: "YAML that contains itself",
    3: "YAML with doubled keys",
    4: "YAML that coerces values",
    5: "an unknown key",
    6: "environment variables in YAML",
    7: "names that are paths",
    8: "names that are SQL",
    9: "an output file that exists",
    10: "a broken line of JSONL",
    11: "byte-order marks and other encodings",
    15: "a lone surrogate in a question",
    17: "CSV of every kind",
    19: "parquet",
    20: "pickles and dataset scripts",
    21: "empty questions, odd answers",
    23: "the same dataset name again",
    24: "template syntax in a question",
    25: "the fences of a prompt",
    26: "an answer that grades itself",
    27: "a judge template without slots",
    28: "a text that asks to be learnt",
    29: "a page with tags of a prompt",
    30: "URLs that are no web pages",
    31: "URLs into the own network",
    32: "redirects into the own network",
    33: "pages without end",
    35: "terminal codes in answers",
    36: "markup in an HTML report",
    37: "formulas in a CSV report",
    38: "structure in a Markdown export",
    40: "names of an exported skill",
    41: "verify paths that are not files",
    42: "an .env that should not count",
}

TITLES: Mapping[Row, str] = {(1, n): t for n, t in FAULTS.items()} | {
    (2, n): t for n, t in INPUT.items()
}

LEFT_OUT: Mapping[Row, str] = {
    (2, 36): "there is no HTML report yet",
    (2, 37): "no report is written as CSV yet",
    (2, 40): "no skill is exported yet",
}


_FUNCTION = re.compile(r"^ *(async )?def (?P<name>test_\w+)", re.MULTILINE)
_NAME = re.compile(r"test_(?P<rows>[12]_\d+(?:_and_[12]_\d+)*)_.")


def rows_of(name: str) -> list[Row]:
    """The rows that a test function's name carries: `test_1_54_and_1_55_…` has two."""
    found = _NAME.match(name)
    parts = found["rows"].split("_and_") if found else []
    return [(int(section), int(n)) for section, _, n in (part.partition("_") for part in parts)]


def found_by_row(folder: Path = TESTS) -> dict[Row, list[str]]:
    """Every test function in the files that pytest collects, under the rows its name carries."""
    found = defaultdict[Row, list[str]](list)
    for path in sorted(folder.rglob("test_*.py")):
        for function in _FUNCTION.finditer(path.read_text("utf-8")):
            for row in rows_of(function["name"]):
                found[row].append(f"{path.relative_to(folder)}::{function['name']}")
    return dict(found)


def report(tested: Mapping[Row, list[str]]) -> str:
    """The table, for people."""
    lines = []
    for row, title in TITLES.items():
        names = tested.get(row, [])
        count = f"{len(names)} test{'' if len(names) == 1 else 's'}"
        state = count if names else LEFT_OUT.get(row, "NOT TESTED")
        lines.append(f"{row[0]}.{row[1]:02}  {title:<42}{state}")
        lines += [f"        {name}" for name in names]
    ours = TITLES.keys() - LEFT_OUT.keys()
    lines.append(f"{len(ours & tested.keys())} of the {len(ours)} rows that concern us are tested")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(report(found_by_row()) + "\n")
