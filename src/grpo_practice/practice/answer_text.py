r"""Determines how a text uses an answer: as a result, as a label for all questions, or in passing.

Texts and answers are split into words, numbers and operators, so that differences in case, quotes,
spaces, layout and the spelling of a number (7,919 and 7919, `\dfrac{3}{16}` and 3/16) are ignored.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from grpo_practice.core.text import CJK

T = TypeVar("T")
Key = tuple[str, ...]
"""An answer as its words, numbers and operators; case, quotes, spaces and layout are ignored."""

BEFORE = 120
"""Number of characters before an answer that are searched for phrases such as "the answer is"."""

_JOINED = rf"{CJK}\uac00-\ud7af"
"""Characters of scripts in which spaces do not separate all words: Korean joins particles to a
name.
"""
_SPELLED = str.maketrans(
    {"\u3002": ". "}
    | {"\u00b2": "^2", "\u00b3": "^3", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u00b0": ""}
    | {"\u2212": "-", "\u2013": "-", "\u2014": " - ", "\u221a": "\\sqrt ", "\u2044": "/"}
    | dict.fromkeys("\u2018\u2019", "'")
    | dict.fromkeys("\u201c\u201d", '"')
)
_EMPHASIS = re.compile(
    r"(?<![\w)\]}*])(\*{1,3}(?!\*)|_{1,3}(?!_))(?=\S)([^\n]{0,200}?\S)\1(?![\w(\[{*])"
)
"""Markdown emphasis around a word or a phrase; does not match `2*3`, `(a)*(b)` or `snake_case`."""
_FRACTION = re.compile(
    r"\\[dtc]?frac\s{0,9}(?:\{([^{}]*)\}|(\d))\s{0,9}(?:\{([^{}]*)\}|(\d))", re.IGNORECASE
)
_LAYOUT = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|displaystyle|left|right)"
    r"(?![A-Za-z])|\\[,;:!%$ ]|\^\{?\s{0,9}\\circ\}?"
)
_TOKEN = re.compile(
    rf"\d{{1,3}}(?:(?:,|\{{,\}})\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\w)\.\d+"
    rf"|\\[A-Za-z]+|[{_JOINED}]|[^\W\d{_JOINED}][^\W{_JOINED}]*|[-+*/^=<>:]"
)
_SAME = {"\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/", "\\fbox": "\\boxed"}
_UNSAID = frozenset(["the", "and", "or"])
"""Words that make no difference to an answer, whether present or not."""
_PARTS = re.compile(r"\s*(?:[,;|/&+\n\u3001\uff0c\uff1b]|\b(?:and|or)\b)\s*", re.IGNORECASE)

_QUOTED = r"[\s*_$\"'`(\[{\u3008\u300a\u300c\u300e\u3010]*"
_UNQUOTED = r"[\s*_$\"'`)\]}\u3009\u300b\u300d\u300f\u3011]*"
_STRICT = re.compile(
    r"(?:\b(?:answer|respuesta|réponse|antwort|risposta|resposta|ответ)"
    r"(?:\s+(?:is|was|equals|must be|will be|should be|es|est|ist|è|é)|\s*[:=-])"
    r"(?:\s+(?:always|simply|just|again|therefore|thus))?\s*[:=]?"
    r"|\bit\s+(?:always\s+)?equals|(?:答案|答え|正解|정답)(?:应该|應該|应当|應當|必须|必須|一定|就){0,2}"
    r"(?:是|为|為|は|은)?\s*:?"
    rf"|\\boxed\s*\{{)(?:\s+(?:the|an?)\b)?{_QUOTED}(?:\\boxed\s*\{{{_QUOTED})?$",
    re.IGNORECASE,
)
"""Text before an answer that reveals it, whichever question it answers."""
_CLAIM = re.compile(
    r"(?:\b(?:is|are|was|were|be|been|equals?|gives?|gave|giving|yields?|yielding|gets?|got|getting"
    r"|obtains?|returns?|produces?|becomes?|remains?|leaves?|leaving|makes?|making|totals?|has|have"
    r"|namely|called|named|picks?|chooses?|selects?|answer|answers|expects?|expected"
    r"|result|solution|value|recall|remember|means|comes to|turns out to|ends up|to|in|by|of)"
    r"|[=\u2192\u21d2]|\b(?:so|here|total|sum)\s*:|\\(?:to|implies|Rightarrow|rightarrow)|等于|等於|是|为|為)"
    r"(?:\s+(?:always|simply|just|exactly|only|precisely|the|an?|again|therefore|thus|hence|equal"
    r"|to|be|as|option|choice|number|value|letter|word|answer|result|name))*"
    rf"{_QUOTED}$",
    re.IGNORECASE,
)
"""Text with which a lesson from an answer's own question states the answer as the result."""
_LOOSE = re.compile(
    r"\b(?:in|by|of|to|than|from|at|over|under|above|below|between|and|mod|modulo|base|step|case|round)"
    rf"(?:\s+(?:the|an?))?{_QUOTED}$",
    re.IGNORECASE,
)
"""Text before a number that is part of the method: "divide by 2", "than 10"."""
_AFTER = re.compile(
    r"[\s*_$\"'`)\]}.,]*(?:is|was|are|were|as|being)\s+(?:(?:the|your|its|an?)\s+)?"
    r"(?:\w+\s+){0,2}?(?:answers?|results?|solutions?|correct|right)\b",
    re.IGNORECASE,
)
# Not conditions: 当然 (of course), 同时 (at the same time).
_CONDITION = re.compile(
    r"\b(?:when|whenever|if|where|unless|once|while|until|suppose|assume|let|such as|like|example"
    r"|e\.g)\b|当(?!然)|當(?!然)|如果|假如|要是|倘若|若|只要|除非|一旦|的话|的話|(?<!同)[时時](?:,|候)"
    r"|場合|とき|なら|れば|때|으?면\b",
    re.IGNORECASE,
)
# A point, comma or colon before a digit is part of a number.
_CLAUSE = re.compile(r"[;!?]|[.,:](?!\d)")
_SENTENCE = re.compile(r"[;!?]|\.(?!\d)")
# `_BEGINS` matches text before an answer that begins a sentence. `_STOPS` and `_ENDS` match text
# after an answer that ends a sentence or a clause.
_BEGINS = re.compile(r"(?:^|[.!?:;])[\s*_$\"'`(\[{]*$")
_STOPS = re.compile(rf"{_UNQUOTED}(?:[.;!?](?!\d)|$)")
_ENDS = re.compile(rf"{_UNQUOTED}(?:[.;,!?)](?!\d)|$)")

_REPLY = r"\b(?:answer|reply|respond|say|output|guess|predict|return)(?:\s+(?:with|as|by))?"
_ANY = (
    r"(?:in|for|to|on|at|with)\s+(?:every|any|each|all)(?:\s+(?:of\s+)?(?:the|these))?\s+(?:single\s+)?"
    r"(?:questions?|problems?|cases?|tasks?|items?|inputs?|prompts?|pairs?|examples?|time)\b"
)
_ALWAYS = re.compile(
    rf"(?:\b(?:always|just|simply)\s+{_REPLY}|\banswers?\s+(?:is|are)\s+always"
    rf"|{_ANY}\W*(?:\w+\s+){{0,3}}?{_REPLY}|\banswer\s+{_ANY}\s+(?:is|must be|should be|will be))"
    rf"(?:\s+the)?{_QUOTED}$"
    r"|(?:(?:总是|總是|一律|始终|始終|永远|永遠|一直|每次都?|全部|统统|只|直接"
    r"|(?:所有|任何|每|无论|無論|不管|不论|不論)[^.;!?]{0,20}都)(?:要|应该|應該|应|應)?"
    r"(?:回答|作答|答|回复|回覆|输出|輸出|返回|选择|選擇|选|選|填写?|預測|预测|猜测?|判断|判斷|判定)"
    r"|答案(?:总是|總是|(?:总|總|永远|永遠|始终|始終|一律|全)都?(?:是|为|為)))(?:为|為|成|是)?"
    rf"\s*:?{_QUOTED}$",
    re.IGNORECASE,
)
"""Text before a label that presents the label as the answer to all questions."""
_ALWAYS_FIRST = re.compile(rf"(?:常に|いつも|必ず|항상|언제나|무조건){_QUOTED}$")
_ANSWERED = re.compile(
    rf"{_UNQUOTED}(?:と|を|で|이?라고|으?로)\s*(?:答え|回答|出力|選|대답|답|출력|선택)"
)
"""Text after a label, in languages whose verb comes last."""
_ANSWERS = re.compile(rf"{_REPLY}(?:\s+the)?{_QUOTED}$", re.IGNORECASE)
_WHATEVER = re.compile(
    rf"[\s*_$\"'`)\]}},]*(?:whatever|regardless|no matter|every time|{_ANY})", re.IGNORECASE
)


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class SearchedText:
    """A text that is searched for answers."""

    def __init__(self, text: str) -> None:
        self._text = _plain(text)
        self._tokens = _tokens(self._text)

    def runs(self, wanted: Mapping[Key, T]) -> Iterator[tuple[int, int, T]]:
        """Yield each wanted run of tokens as (index of the first, index after the last, value)."""
        firsts = dict[str, set[int]]()
        for key in wanted:
            firsts.setdefault(key[0], set()).add(len(key))
        texts = [token.text for token in self._tokens]
        for i, text in enumerate(texts):
            for n in sorted(firsts.get(text, ())):
                key = tuple(texts[i : i + n])
                if len(key) == n and key in wanted:
                    yield i, i + n, wanted[key]

    def goes_on(self, first: int, end: int) -> bool:
        """Return True if the run is part of a larger formula or word: `x^2`, `20-sided`."""
        return self._goes_on_before(first) or self._goes_on_after(end)

    def _goes_on_before(self, first: int) -> bool:
        if first == 0:
            return False
        before = self._tokens[first - 1].text
        if (before == "-" and not self._glued(first)) or before == ":":
            return first > 1 and _operand(self._tokens[first - 2].text)
        if before in "+-*/^":
            return True
        return self._glued(first) and before not in ("=", ":", "<", ">", "\\boxed")

    def _goes_on_after(self, end: int) -> bool:
        if end >= len(self._tokens):
            return False
        after = self._tokens[end].text
        if after in "+-*/^:":
            if end + 1 >= len(self._tokens):
                return False
            joined = self._glued(end) and self._glued(end + 1)
            return joined or (after != ":" and _operand(self._tokens[end + 1].text))
        return (self._glued(end) and after not in "=<>") or after.startswith("\\sqrt")

    def _glued(self, i: int) -> bool:
        """Return True if there are only braces between a token and the previous one."""
        gap = self._text[self._tokens[i - 1].end : self._tokens[i].start]
        return not gap.strip("{}")

    def as_answer(self, first: int) -> bool:
        """Return True if the text marks the run as an answer: "the answer is …", a box."""
        return bool(_STRICT.search(self._before(first)))

    def states(self, first: int, end: int) -> bool:
        """Return True if a lesson from the answer's own question states it as the result."""
        if self.as_answer(first) or self._name(first, end):
            return True
        if _AFTER.match(self._text, self._tokens[end - 1].end):
            return True
        before = self._before(first)
        key = tuple(token.text for token in self._tokens[first:end])
        behind = self._tokens[end - 1].end
        if not numeric(key):
            alone = bool(_BEGINS.search(before) and _ENDS.match(self._text, behind))
            return alone or bool(_CLAIM.search(before) and not self.conditional(first, clause=True))
        if _LOOSE.search(before) or self.conditional(first, clause=True):
            return False
        if len(key) == len(key[0]) == 1 and end < len(self._tokens):
            # A digit may count the next word: "there are 2 cases".
            following = self._tokens[end]
            if self._text[behind : following.start].isspace() and following.text.isalpha():
                return False
        return bool(_CLAIM.search(before) or _STOPS.match(self._text, behind))

    def _name(self, first: int, end: int) -> bool:
        """Return True if the run is a name: a capitalised word that does not begin a sentence."""
        start = self._tokens[first].start
        word = self._text[start : self._tokens[end - 1].end]
        capital = word[0].isupper() and len(word) > 2 and not self._text.isupper()
        return capital and not _BEGINS.search(self._text[max(0, start - BEFORE) : start])

    def conditional(self, first: int, *, clause: bool = False) -> bool:
        """Return True if the sentence, or with `clause` only the clause, contains a condition."""
        before, ends = self._before(first), _CLAUSE if clause else _SENTENCE
        begin = max((match.end() for match in ends.finditer(before)), default=0)
        return bool(_CONDITION.search(before, begin))

    def dictates(self, first: int, end: int) -> bool:
        """Return True if the text tells the reader to answer any question with these tokens."""
        if self.conditional(first):
            return False
        before, behind = self._before(first), self._tokens[end - 1].end
        if _ALWAYS.search(before) and _ENDS.match(self._text, behind):
            return True
        if _ALWAYS_FIRST.search(before) and _ANSWERED.match(self._text, behind):
            return True
        return bool(_ANSWERS.search(before) and _WHATEVER.match(self._text, behind))

    def _before(self, first: int) -> str:
        start = self._tokens[first].start
        return self._text[max(0, start - BEFORE) : start]


def key_of(text: str) -> Key:
    """Return the answer as a key; empty if the answer contains no word, number or operator."""
    tokens = [t for t in (token.text for token in _tokens(_plain(text))) if t != "\\boxed"]
    return tuple(tokens)


def parts_of(text: str) -> list[Key]:
    """Return each answer in a list of labels or names; for other text, the single answer."""
    whole, pieces = key_of(text), _PARTS.split(" ".join(text.split()))
    if len(pieces) == 1 or numeric(whole):
        return [whole]
    return [key for piece in pieces if (key := key_of(piece))] or [whole]


def _plain(text: str) -> str:
    """Normalise the spelling of a text, but not its case."""
    if text.isascii() and text.isalnum():
        return text
    # Remove emphasis first: once other signs of multiplication become `*`, they look like
    # emphasis.
    if "*" in text or "_" in text:
        for _ in range(2):  # nested, as in **_both_**
            text = _EMPHASIS.sub(r"\2", text)
    text = unicodedata.normalize("NFKC", text.translate(_SPELLED)).translate(_SPELLED)
    if "\\" in text:
        for _ in range(3):  # nested fractions; deeper ones stay as they are
            text = _FRACTION.sub(r"\1\2/\3\4", text)
        text = _LAYOUT.sub("", text).replace("**", "^")
    return text


def _tokens(text: str) -> list[_Token]:
    found = [_Token(_spelled(m[0]), m.start(), m.end()) for m in _TOKEN.finditer(text)]
    joined = {
        i
        for i, ((a, _, end), (b, start, _)) in enumerate(pairwise(found))
        if b == "-" and len(a) > 1 and a[0].isalpha() and end == start
    }
    return [
        token
        for i, token in enumerate(found)
        if token.text not in _UNSAID and not (i - 1 in joined and _hyphen(found, i))
    ] or found


def _hyphen(found: Sequence[_Token], i: int) -> bool:
    """Return True if a word directly follows the hyphen, just as one directly precedes it."""
    if i + 1 >= len(found):
        return False
    behind = found[i + 1]
    return behind.start == found[i].end and len(behind.text) > 1 and behind.text[0].isalpha()


def _spelled(token: str) -> str:
    """Normalise the spelling of a token: 7,919 becomes 7919, .50 becomes 0.5."""
    if token[0].isdigit() or (token[0] == "." and len(token) > 1):
        whole, _, part = token.replace("{,}", "").replace(",", "").partition(".")
        part = part.rstrip("0")
        return (whole.lstrip("0") or "0") + (f".{part}" if part else "")
    return _SAME.get(token, token.casefold())


def numeric(key: Key) -> bool:
    """Return True if the answer contains a digit."""
    return any(c.isdigit() for token in key for c in token)


def significant(key: Key) -> str:
    """Return the significant digits of all numbers in the key: 18 for 1800, 5 for 0.05."""
    numbers = (token for token in key if token[0].isdigit())
    return "".join(
        n.replace(".", "").strip("0") if "." not in n or n.startswith("0") else n.replace(".", "")
        for n in numbers
    )


def _operand(token: str) -> bool:
    return token[0].isdigit() or len(token) == 1 or token.startswith("\\")
