"""Lists and objects that the cell of a table holds as text: in JSON, as Python or NumPy shows them.

A table made of parquet with pandas has `['a' 'b']` or `{'text': array(['a'], dtype=object)}` where
the parquet file has a list.
"""

import ast
import re
from typing import Any

from grpo_practice.canonical import clean_json
from grpo_practice.data.chat_format import unpacked

LONGEST = 1 << 16
"""Characters of a text that is tried as Python's notation; a longer one is no list of options."""
_TOKEN = re.compile(
    r"""(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d*)?|None|True|False)"""
    r"|(?P<array>array\(|,\s*dtype=\w+\s*\)|\))|(?P<space>\s+)|.",
    re.DOTALL,
)
_NO_ESCAPE = re.compile(r"\\[^\\'\"nrtxuU]")
"""A backslash that Python never shows so: LaTeX in a list that somebody wrote by hand."""


def from_cell(value: object) -> Any:
    """Parse the list or object that a text holds; return any other value as it is."""
    found = unpacked(value)
    if not isinstance(found, str) or not found.lstrip().startswith(("[", "{")):
        return found
    if len(found) > LONGEST or _NO_ESCAPE.search(found.replace("\\\\", "")):
        return value
    try:
        return clean_json(ast.literal_eval(_with_commas(found.strip())))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _with_commas(text: str) -> str:
    """Rewrite NumPy's arrays as lists: two values with nothing but space between are two."""
    made, after_value = list[str](), False
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "value":
            # Python joins 'a' 'b' into one text: without the comma, options would run together.
            made.append(f", {token[0]}" if after_value else token[0])
            after_value = True
        elif token.lastgroup == "space":
            made.append(token[0])
        else:
            made.append("" if token.lastgroup == "array" else token[0])
            after_value = False
    return "".join(made)
