"""The language of the source: what a docstring begins with."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src/grpo_practice"
FILES = sorted(ROOT.rglob("*.py"))
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())
"""Verbs that a function's docstring may begin with; a new one is added to the file."""
OPENERS = re.compile(r"(?:^|[.!?]\s+|\n\s*\n\s*)(Of|Its?|Whose|What|Where|Them|Who)\b")

REWORDED = {
    "what": r"\b[Ww]hat\b(?! (?:if|happens|kind))",
    "where for if": r"\b[Ww]here (?:there|it|they|one|this|that|a|no|nothing|something)\b",
    "none for no": r"\bnone\b(?=[.,;:)]|$)",
    "the one(s) that": r"\b(?:[Tt]hose|the ones?) (?:that|which|who|of)\b",
    "is said/told": r"\b(?:is|are|was|were|be) (?:said|told)\b",
}
"""Constructions that a native technical writer would reword, as regular expressions."""
SHARE = 0.02
"""Highest share of docstrings with any one of them."""


def functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and docstring of each function that is no property: fields begin with a noun."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
            text = ast.get_docstring(node)
            if text and not marks & {"property", "cached_property"}:
                yield node.lineno, text


@cache
def texts(source: str) -> list[tuple[int, str]]:
    """Return line and text of every docstring, those below fields and constants included."""
    values = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    return [
        (value.lineno, value.value)
        for value in values
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    ]


def no_verb(source: str) -> list[str]:
    """Return the docstrings of functions that begin with no verb, with their lines."""
    return [
        f"{line}: {text.splitlines()[0]}"
        for line, text in functions(ast.parse(source))
        if (found := re.match(r"\W*(\w+)", text)) is None or found[1].lower() not in VERBS
    ]


def vague(source: str) -> list[str]:
    """Return the sentences that begin with a word that names nothing, with their lines."""
    return [
        f"{line}: {' '.join(text[m.start(1) : m.start(1) + 60].split())}"
        for line, text in texts(source)
        for m in OPENERS.finditer(text)
    ]


def found(look: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return what is found in each file, of those in which anything is."""
    looked = {str(path.relative_to(ROOT)): look(path.read_text("utf-8")) for path in FILES}
    return {name: lines for name, lines in looked.items() if lines}


def test_docstrings_speak_plainly() -> None:
    assert found(no_verb) == {}, (
        "a function's docstring begins with a verb: Return, Raise, Insert …"
    )
    assert found(vague) == {}, "name the thing that a sentence is about"


def test_what_is_not_plain_is_seen() -> None:
    assert no_verb('def f():\n    """The reward."""') == ["1: The reward."]
    assert not no_verb('def f():\n    """Return the reward."""')
    assert not no_verb('@property\ndef f():\n    """The reward."""')
    assert vague('"""Counts. Of all of them."""') == ["1: Of all of them."]
    assert not vague('"""Counts of all of them. Items."""')


def reworded(found: list[str]) -> dict[str, list[str]]:
    """Return the docstrings with each construction that more than SHARE of them have."""
    hits = {
        name: [text for text in found if re.search(pattern, " ".join(text.split()))]
        for name, pattern in REWORDED.items()
    }
    return {name: texts for name, texts in hits.items() if len(texts) > SHARE * len(found)}


def test_few_docstrings_have_a_construction_to_reword() -> None:
    sources = [path.read_text("utf-8") for path in FILES]
    assert reworded([text for source in sources for _, text in texts(source)]) == {}


def test_a_construction_that_is_common_is_seen() -> None:
    assert reworded(["Return what is left.", "Return the rest."]) == {
        "what": ["Return what is left."]
    }
    assert reworded(["Return those that failed."]).keys() == {"the one(s) that"}
    assert reworded([*["Return it."] * 99, "Return none."]) == {}
