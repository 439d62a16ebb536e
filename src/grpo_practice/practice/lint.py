r"""Refuses text that must not become an experience because it gives orders instead of teaching.

An experience is part of the instructions of every later rollout, and it was written by a model that
read answers, web pages and tool results. Text that addresses a model, or that a program would
interpret as more than words, is therefore quarantined with the reason, for a person to review; so
is text that reveals an answer (`practice/answer_guard.py`). Template syntax needs no rule (`{{` is
ordinary LaTeX), because an experience is never rendered as a template.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from grpo_practice.core.types import Operation, Quarantine, QuarantineRule

GivesAway = Callable[[Operation], Quarantine | None]
"""Returns why the text of an operation reveals an answer; None if it does not."""

_TAGS = (
    "a|b|br|button|code|div|em|embed|form|h[1-6]|head|html|i|iframe|img|input|li|link|meta|object|"
    "p|pre|s|script|span|strong|style|svg|table|textarea|u|video"
)
_ROLES = "system|assistant|user|human|developer|tool|function|instructions?|prompt|context"
_DOMAINS = (
    "com|org|net|edu|gov|info|biz|xyz|io|ai|co|dev|app|me|ly|gg|tv|sh|site|online|cloud|link|click|"
    "de|uk|fr|ru|cn|jp|br|nl|eu|us|ca|au|ch"
)
_NOT = r"(?<!not )(?<!never )(?<!cannot )(?<!n't )"
"""Excludes text that follows a negation, such as "never ignore the instructions of the task"."""
_WHICH = (
    "all|any|every|the|these|those|your|my|its|of|previous|prior|above|earlier|preceding|other|and|"
    "system|developer|user|original|initial|safety|hidden"
)
_ORDERS = "instructions?|directives?|guidelines?|guardrails?|rubrics?|prompts?"
_SHOW = (
    "reveal|leak|disclose|expose|exfiltrate|print|show|output|repeat|display|share|send|tell|"
    "give|return|include|quote|recite|write|append|attach"
)
_ANSWERS = "answers?|responses?|solutions?|submissions?|outputs?"
_FOLLOW = (
    r"\b(?:do not|don't|never|stop|refuse to|(?:need|must|should) not|no need to)\s+"
    r"(?:follow|obey|comply with|adhere to|listen to|heed|stick to|abide by)(?:ing)?"
)
_VALUE = r"[\"'$(`*]*(?:\\boxed\{)?(?:[-+]?\d[\d.,/]*|[a-e]|yes|no|true|false)(?!\w|'\w)[\"'$)`*}]*"
"""An answer that consists only of a number, a letter or a word."""
_REPLY = rf"\b(?:answer|reply|respond|say|output|guess|give|return|submit)(?:\s+with)?\s+{_VALUE}"
_ALL = (
    r"(?:(?:in|for|to|on|at|with) (?:every|any|each|all)(?: (?:the|of the|these|single))? "
    r"(?:problem|question|case|task|item|prompt|input|request|exercise|situation)s?\b)"
)
_ALWAYS = rf"(?:{_ALL}|(?:whatever|regardless|always|everywhere|every time|each time|no matter)\b)"
_PLAINLY = (
    r"(?:^|[.!?;:])(?:(?!\b(?:when|if|where|unless|once|whenever|not|never|cannot)\b|n't)[^.!?;:])*"
)
"""The beginning of a sentence up to this point, provided that it states no condition."""

_RULES: Sequence[tuple[QuarantineRule, str, Sequence[str]]] = (
    (
        "web_address",
        "it contains a web address",
        (
            r"[a-z][a-z0-9+.-]*://|\bwww\.\w|\b(?:javascript|vbscript|mailto):\S|\bdata:\w+/\w",
            rf"\b[\w-]+\.(?:com|org)\b|\b[\w-]+\.(?:{_DOMAINS})(?::\d+)?/|\b[\w.+-]+@[\w-]+\.\w",
            r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d|/)",
        ),
    ),
    (
        "role_mark",
        "it contains a role marker of a conversation",
        (
            rf"<\|[^\s|<>]{{4,}}\|>|\[/?inst\]|<</?sys>>|\[/?(?:{_ROLES})\]|[\"']role[\"']\s*:",
            r"(?:^[\s-]*|[.!?;:\"'`|>\]]\s*)[*_#\s]*"
            r"(?:system|assistant|user|human|developer)(?: message| prompt)?[*_`\"']*\s*:",
            rf"(?:#{{2,}}\s*|(?:^|\s)#\s+)(?:{_ROLES}|response|input)\b",
        ),
    ),
    ("code_fence", "it contains a code fence", ("```|~~~",)),
    (
        "markup",
        "it contains markup",
        (
            rf"</\s*[a-z]|<\s*(?:{_ROLES})\s*/?>|<(?:{_ROLES})\s+[\w-]+\s*=",
            rf"(?<!\w)<(?:{_TAGS})(?:\s+[\w-]+\s*=[^<>]*|\s*/?)>|(?<!\w)<[a-z][\w-]{{2,}}\s*/?>",
            r"<!--|<!\[cdata|<!doctype|<\?(?:xml|php)|<%|\{%|\$\{[\w.]+:",
        ),
    ),
    (
        "sets_aside_instructions",
        "it tells the reader to ignore instructions",
        (
            rf"{_NOT}\b(?:ignore|disregard|forget|override|bypass|neglect|discard|overrule|drop)\b"
            rf"(?:\s+(?:{_WHICH}))*\s+(?:{_ORDERS})\b",
            rf"{_NOT}\b(?:ignore|disregard|forget|override|discard)\s+(?:(?:all|any|the|of)\s+)*"
            r"(?:(?:previous|prior|above|earlier|preceding|other|your)\s+)+"
            r"(?:rules?|experiences?|messages?|context|text|training|orders|lessons?|advice)\b",
            rf"{_NOT}\b(?:ignore|disregard|forget)\s+(?:everything|anything|all|what)\s+"
            r"(?:\w+\s+){0,2}?(?:above|before|previously|earlier|so far|you (?:were|have))\b",
            r"\b(?:do not|don't|never|stop)\s+(?:follow|obey|comply with)(?:ing)?\s+(?:\w+\s+)?"
            rf"(?:(?:your|previous|prior|above|earlier|system|developer)\s+)+(?:{_ORDERS}|rules)\b",
            rf"{_FOLLOW}(?:\s+(?:{_WHICH}))*\s+rubrics?\b(?!'s)",
            rf"{_FOLLOW}\s+(?:{_WHICH})(?:\s+(?:{_WHICH}))*\s+(?:{_ORDERS})\s*(?:$|[.!,;:]"
            r"|(?:above|below|here|given|any ?more|any longer|(?:that |which )?you|(?:of|in|from)"
            r" (?:the |your )?(?:system|user|developer|task|operator|prompt))\b)",
            rf"{_NOT}\b(?:(?:pay|give) (?:no|little) (?:attention|heed|regard) to|take no notice of"
            r"|turn a blind eye to)"
            rf"(?:\s+(?:{_WHICH}))*\s+(?:(?:{_ORDERS})\b(?!'s)|what you (?:were|have|are)\b)",
            r"\b(?:do not|don't|never|stop) pay(?:ing)? (?:any )?(?:attention|heed|regard) to"
            rf"(?:\s+(?:{_WHICH}))*\s+(?:(?:{_ORDERS})\b(?!'s)|what you (?:were|have|are)\b)",
            r"\bnew (?:system )?instructions?\s*:|\byou are now (?:a|an|in|free|no longer)\b",
            r"\b(?:do anything now|jailbreak\w*|developer mode|pretend (?:to be|that you are))\b",
        ),
    ),
    (
        "asks_for_secrets",
        "it asks for secrets",
        (
            rf"{_NOT}\b(?:{_SHOW})\b(?:\s+[\w'-]+){{0,5}}?\s+(?:system (?:prompt|message|text)"
            r"|(?:hidden|secret|initial|original|your|developer) (?:system )?"
            r"(?:prompts?|instructions?)|api[ _-]?keys?|passwords?|credentials?|secrets"
            r"|access tokens?|secret keys?|environment variables?)\b",
            rf"{_NOT}\b(?:reveal|leak|disclose|expose|exfiltrate)\b(?:\s+[\w'-]+){{0,4}}?\s+"
            r"(?:prompts?|(?:your|all|any|private) keys?|instructions|tokens)\b",
        ),
    ),
    (
        "talks_to_grader",
        "it addresses the grader",
        (
            r"\b(?:grade|verdict|score|rating)\s*[:=]\s*[*\"'`\[(]*"
            r"(?:in)?(?:correct|pass\b|full marks|perfect|a\+)|\[\[(?:in)?correct\]\]",
            r"\b(?:grade|verdict|rating)\s*[:=]\s*(?:100|10/10|1\.0)\b",
            r"\b(?:tell|convince|persuade|instruct|order|trick|flatter|remind)\s+(?:the|any|every)\s+"
            r"(?:judge|grader|evaluator|verifier|examiner|reviewer)\b",
            r"\b(?:mark|grade|rate|score|accept|judge|count)\s+(?:this|the|my|your|every|any|all)\s+"
            rf"(?:{_ANSWERS})\s+(?:as\s+)?(?:correct|right|true|valid|full|perfect)\b",
        ),
    ),
    (
        "dictates_answer",
        "it dictates an answer",
        (
            r"\b(?:always|just|simply|only)\s+(?:answer|reply|respond|say|output|guess)(?:\s+with)?"
            r"\s*[:,]?\s*[\"'$(`*]*(?:\\boxed\{)?(?:[-+]?\d[\d.,/]*|[a-e]|yes|no|true|false)"
            r"(?=[\"'$)`*}]*\s*(?:$|[.!,;]|whatever\b|regardless\b|no matter\b"
            r"|(?:to|for|in) (?:all|any|every)\b))",
            rf"{_NOT}{_REPLY}\s*,?\s*{_ALWAYS}",
            rf"{_ALL}[,:]?(?:\s+(?:you|must|should|always|just|simply|only|please))*\s+{_REPLY}"
            r"\s*(?:$|[.!,;])",
            rf"\banswer {_ALL} (?:is|must be|should be|will be)\s+(?:always\s+)?{_VALUE}"
            r"\s*(?:$|[.!,;])",
            rf"{_PLAINLY}\b(?:give|state|report|submit|return|write|output|enter|use|put)\s+{_VALUE}"
            r"\s+(?:as|for)\s+(?:(?:the|your|a|every|any|each)\s+)?(?:final\s+)?answers?\b",
            r"\b(?:add|append|save|write|store|put|insert)\b[^.]{0,40}\b(?:to|in|into)\s+"
            r"(?:your (?:experiences?|instructions|library|memory|(?:system )?prompt)"
            r"|the (?:experiences|library of experiences|system prompt))\b",
        ),
    ),
)
_SHOUTED = re.compile(
    r"\b(?:[Oo]utput|[Ss]ay|[Aa]nswer|[Rr]eply|[Rr]espond|[Ww]rite|[Pp]rint|[Rr]eturn)\s+"
    r"(?:with\s+)?[\"'*`(\u201c]*(?:IN)?CORRECT\b"
)
_NAME = re.compile(r"[^.!?:\uff1a]{1,60}(?:: |\uff1a)")
"""The name of an experience, before its sentences."""
_SENTENCES = re.compile(r"(?<=[^\s.]{3}[.!?] )(?=[^\W\d_a-z])|(?<=[\u3002\uff01\uff1f])")
"""Positions between two sentences; `e.g. Paris` has no such position."""
_TWO_SCRIPTS = re.compile(r"[a-z][\u0400-\u04ff]|[\u0400-\u04ff][a-z]")
_QUOTES = {ord(quote): "'" for quote in "\u2018\u2019"} | {ord(q): '"' for q in "\u201c\u201d"}
_BLANK = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")
"""Letters and marks that are displayed as blank."""


@cache  # compiling takes 30 ms, and most commands check no text
def _patterns() -> list[tuple[Quarantine, re.Pattern[str]]]:
    return [(Quarantine(rule, said), re.compile("|".join(found))) for rule, said, found in _RULES]


def why_not(text: str) -> Quarantine | None:
    """Return why a text is suspicious; None if it is not suspicious."""
    # Check the original text: split() below removes some hidden characters, such as U+2028.
    hidden = [f"U+{ord(c):04X}" for i, c in enumerate(text) if _hidden(text, i)]
    if hidden:
        seen = ", ".join(dict.fromkeys(hidden))
        return Quarantine("hidden_characters", f"it contains invisible characters: {seen}")
    plain = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    shown = " ".join(plain.casefold().split())
    for why, pattern in _patterns():
        if pattern.search(shown):
            return why
    # Needs the original case: "answer CORRECT" is meant for a grader, "answer correct" need not
    # be.
    if _SHOUTED.search(text):
        return Quarantine("talks_to_grader", "it addresses the grader")
    if _TWO_SCRIPTS.search(shown):
        return Quarantine("mixed_scripts", "it mixes Latin and Cyrillic letters in one word")
    return None


def quarantine(operations: Iterable[Operation], gives_away: GivesAway) -> tuple[Operation, ...]:
    """Refuse the operations whose text must not be kept; return all operations in order.

    A text that reveals an answer is kept without the sentences that reveal it.
    """

    def fault(op: Operation) -> Quarantine | None:
        return (why_not(op.text) or gives_away(op)) if op.text and op.refused is None else None

    checked = list[Operation]()
    for op in operations:
        why, rest = fault(op), op
        if why and why.rule == "gives_answer_away":
            rest = _without_answer(op, gives_away)
        # Check the shortened text again, because the rest may break another rule.
        checked.append(op.set_aside(why) if why and (not rest.text or fault(rest)) else rest)
    return tuple(checked)


def _without_answer(op: Operation, gives_away: GivesAway) -> Operation:
    """Remove the sentences that reveal an answer; the text becomes '' if all of them reveal one."""
    text = op.text or ""
    name = found[0] if (found := _NAME.match(text)) else ""
    sentences = [one for one in _SENTENCES.split(text[len(name) :]) if one.strip()]
    kept = [one for one in sentences if not gives_away(replace(op, text=name + one))]
    return replace(op, text=name + "".join(kept).strip() if kept else "")


def _hidden(text: str, i: int) -> bool:
    """Return True for a character that is invisible or changes how other characters are displayed.

    Joiners are part of the spelling of Persian, Indian languages and emoji, so a joiner between two
    non-Latin characters is allowed, and so is one variation selector after such a character.
    """
    char, before, after = text[i], text[i - 1 : i], text[i + 1 : i + 2]
    if char in "\u200c\u200d":
        return not (before > "\u02ff" and after > "\u02ff")
    if "\ufe00" <= char <= "\ufe0f":
        return not (before > "\u02ff" and not "\ufe00" <= before <= "\ufe0f")
    if "\U000e0000" <= char <= "\U000e0fff" or char in _BLANK:
        return True
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")
