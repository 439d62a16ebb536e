"""Texts and values as hostile as they come, each kind often enough to be met in sixty tries."""

from typing import Any

from hypothesis import strategies as st

HARD = [
    "", " ", "\n", "yes", "no", "null", "~", "true", "1e3", "010", "0x10", "12:30", "2024-01-01",
    ".inf", "1_000", "-", "- a", "a: b", "#", "!!int 1", "&a", "*a", "<<", "%s", "{x}", "{{ 7*7 }}",
    "${", "$${x}", "${oc.env:HOME}", r"\${", r"\boxed{$x$}", "'", '"', "''", "\t", "a\r\nb", "\r",
    " lead", "trail ", "two  spaces", "\x00", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e",
    "\ufeff", "\ufffe", "\U0001f600", "e\u0301", "[/INST]", "</script>", "```", "---", "...",
    "=1+1",
]  # fmt: skip
"""What YAML, CSV, Markdown, terminals and templates would like to take for something else."""

PLAIN = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.sampled_from(HARD),
    st.text(PLAIN),
    st.lists(st.sampled_from(HARD) | st.text(PLAIN, max_size=3), max_size=4).map("".join),
)
"""Any text without a lone surrogate."""

BROKEN = st.lists(
    st.sampled_from(["\ud800", "\udfff", "\ud83d\ude00", "\x00"]) | st.characters(), max_size=5
).map("".join)
"""Also texts with lone surrogates, which no file and no wire can carry."""

INTS = st.integers() | st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**40])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INTS | FLOATS | TEXTS


def nested(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON values over these scalars and keys."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


JSON = nested(SCALARS, TEXTS)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=4)
