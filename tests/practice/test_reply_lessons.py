r"""Replies of a comparison as models write them, each with the lessons a person reads in it."""

# ruff: noqa: RUF001 (full-width signs are what models write)

from collections.abc import Sequence

import pytest

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.types import Experience, Library
from grpo_practice.practice.replies import read_lessons

LIBRARY = Library((Experience(3, "Units: check them."), Experience(7, "Sign: mind it.")), 9)
AB = "When a, do b."
TAGS = f"<lessons>\n<lesson>{AB}</lesson>\n</lessons>"
JSON = f'{{"lessons": [{{"lesson": "{AB}"}}]}}'
MISLED = [(AB, "E3", "misled")]


def read(text: str, finish: str | None = "stop") -> list[str | tuple[str, str, str]]:
    """The lessons: the text, with the experience and the finding where it is about one."""
    reply = Reply({"role": "assistant", "content": text}, finish=finish)
    found = read_lessons(reply, LIBRARY, limit=9)
    for lesson in found:
        assert lesson.experience is not None or lesson.finding is None
    return [(x.text, x.experience, str(x.finding)) if x.experience else x.text for x in found]


def error_of(text: str, finish: str | None) -> ReplyError | None:
    """Return the error that reading raises; None if the reply is read."""
    try:
        read(text, finish)
    except ReplyError as e:
        return e
    return None


def kind_of_error(text: str, finish: str) -> str | None:
    error = error_of(text, finish)
    return error.kind if error else None


def read_or_why(text: str, finish: str | None = "stop") -> object:
    """Return the lessons or, so that one test can list all misses, the error."""
    return error_of(text, finish) or read(text, finish)


TAGGED: list[tuple[str, str, Sequence[object]]] = [
    ("as asked for", TAGS, [AB]),
    ("on one line", f"<lessons><lesson>{AB}</lesson></lessons>", [AB]),
    ("two", f"<lessons><lesson>{AB}</lesson><lesson>c</lesson></lessons>", [AB, "c"]),
    ("none", "It was luck.\n<lessons></lessons>", []),
    ("none, on two lines", "<lessons>\n</lessons>", []),
    ("none, alone", "<lessons/>", []),
    ("none, in a word", "<lessons>None.</lessons>", []),
    ("none, in words", "<lessons>\n(no new lessons)\n</lessons>", []),
    ("fenced", f"```\n{TAGS}\n```", [AB]),
    ("fenced as xml", f"Here it is:\n\n```xml\n{TAGS}\n```\nI hope this helps!", [AB]),
    ("prose around", f"Attempt 2 looked twice.\n\n{TAGS}\n\nThat is all.", [AB]),
    ("bold", f"**Lessons**\n**{TAGS}**", [AB]),
    ("upper case", f"<LESSONS><Lesson>{AB}</LESSON></Lessons>", [AB]),
    ("spaces in tags", f"< lessons >\n< lesson >{AB}< / lesson >\n</ lessons >", [AB]),
    ("full-width tags", "＜lessons＞＜lesson＞先看单位。＜／lesson＞＜／lessons＞", ["先看单位。"]),
    ("draft first", f"<lessons><lesson>draft</lesson></lessons> No:\n{TAGS}", [AB]),
    ("tags named in prose", f"I end with <lessons>, each in <lesson>.\n{TAGS}", [AB]),
    ("no lesson after a draft", f"{TAGS}\nNo, it was luck.\n<lessons></lessons>", []),
    ("thinking", f"<think><lessons><lesson>x</lesson></lessons></think>{TAGS}", [AB]),
    ("thinking begun in the prompt", f"<lessons><lesson>x</lesson></lessons></think>{TAGS}", [AB]),
    ("thinking by another name", f"<thinking>{JSON}</thinking>{TAGS}", [AB]),
    ("thinking that holds all drafts", f"<thinking>{TAGS}</thinking>{JSON}", [AB]),
    ("thinking in brackets", f"[THINK]<lessons></lessons>[/THINK]\n{TAGS}", [AB]),
    ("thinking in triangles", f"◁think▷{TAGS.replace('b', 'c')}◁/think▷{TAGS}", [AB]),
    (
        "channels",
        f"<|channel|>analysis<|message|>{JSON}?<|end|><|channel|>final<|message|>{TAGS}",
        [AB],
    ),
    ("thinking never closed, answer at the end", f"<think>Hm. So:\n{TAGS}\n", [AB]),
    ("double quotes", f'<lesson experience="E3" finding="misled">{AB}</lesson>', MISLED),
    ("single quotes", f"<lesson experience='E3' finding='misled'>{AB}</lesson>", MISLED),
    ("no quotes", f"<lesson experience=E3 finding=misled>{AB}</lesson>", MISLED),
    ("typographic quotes", f"<lesson experience=“E3” finding=“misled”>{AB}</lesson>", MISLED),
    ("the other order", f'<lesson finding="misled" experience="E3">{AB}</lesson>', MISLED),
    ("spaces at =", f'<lesson experience = "E3"  finding = "misled" >{AB}</lesson>', MISLED),
    ("lines between", f'<lesson\n  experience="E3"\n  finding="misled">\n{AB}\n</lesson>', MISLED),
    ("capitals", f'<lesson Experience="e3" Finding="MISLED">{AB}</lesson>', MISLED),
    ("id in brackets", f'<lesson experience="[E3]" finding="misled">{AB}</lesson>', MISLED),
    ("id with a dot", f'<lesson experience="E3." finding="misled">{AB}</lesson>', MISLED),
    ("id with a zero", f'<lesson experience="E03" finding="misled">{AB}</lesson>', MISLED),
    ("id as a number", f'<lesson experience="3" finding="misled">{AB}</lesson>', MISLED),
    ("id full-width", f'<lesson experience="Ｅ３" finding="misled">{AB}</lesson>', MISLED),
    ("id of the form", f'<lesson experience="E99" finding="misled">{AB}</lesson>', [AB]),
    ("id none", f'<lesson experience="none" finding="">{AB}</lesson>', [AB]),
    ("too narrow", f'<lesson experience="E7" finding="too narrow">{AB}</lesson>',
     [(AB, "E7", "too_narrow")]),
    ("too-narrow", f'<lesson experience="E7" finding="Too-Narrow">{AB}</lesson>',
     [(AB, "E7", "too_narrow")]),
    ("confirms", f'<lesson experience="E7" finding="confirms">{AB}</lesson>',
     [(AB, "E7", "confirmed")]),
    ("confirmed without a text", '<lesson experience="E7" finding="confirmed"/>',
     [("Sign: mind it.", "E7", "confirmed")]),
    ("confirms what is not there, without a text",
     f'<lesson>{AB}</lesson><lesson experience="E9" finding="confirmed"/>', [AB]),
    ("only confirms what is not there", '<lesson experience="E9" finding="confirmed"/>', []),
    ("confirms what is not there, with a text",
     f'<lesson experience="E9" finding="confirmed">{AB}</lesson>', [AB]),
    ("no finding", f'<lesson experience="E7">{AB}</lesson>', [(AB, "E7", "None")]),
    ("not confirmed", f'<lesson experience="E7" finding="not confirmed">{AB}</lesson>',
     [(AB, "E7", "None")]),
    ("an empty one among others", f"<lesson>{AB}</lesson><lesson></lesson><lesson>None.</lesson>",
     [AB]),
    ("the id as operations have it", f'<lesson id="E7" finding="helped">{AB}</lesson>',
     [(AB, "E7", "confirmed")]),
    ("a finding about nothing", f'<lesson finding="misled">{AB}</lesson>', [AB]),
    ("no wrapper", f"So: <lesson>{AB}</lesson>\n<lesson>c</lesson>", [AB, "c"]),
    ("wrapper not opened", f"<lesson>{AB}</lesson>\n</lessons>", [AB]),
    ("wrapper not closed", f"<lessons><lesson>{AB}</lesson>", [AB]),
    ("items not closed", f"<lessons>\n<lesson>{AB}\n<lesson>c\n</lessons>", [AB, "c"]),
    ("elements inside", f"<lesson><experience>E3</experience><finding>misled</finding>\n"
     f"<text>{AB}</text></lesson>", MISLED),
    ("CDATA", r"<lesson><![CDATA[Use \frac{a}{b} & a < b.]]></lesson>",
     [r"Use \frac{a}{b} & a < b."]),
    ("LaTeX", r"<lesson>Use $\frac{1}{2}ab\sin C$, \theta \times \nu \leq \(x\).</lesson>",
     [r"Use $\frac{1}{2}ab\sin C$, \theta \times \nu \leq \(x\)."]),
    ("less and greater", "<lesson>When x < 3 and y > 2 (x<y), look.</lesson>",
     ["When x < 3 and y > 2 (x<y), look."]),
    ("entities", "<lesson>When x &lt; 3 &amp;&amp; y &#62; 2, look.</lesson>",
     ["When x < 3 && y > 2, look."]),
    ("entities once", "<lesson>Write &amp;lt; for it.</lesson>", ["Write &lt; for it."]),
    ("entities that are the topic", "<lesson>Write &lt; for each < outside of tags.</lesson>",
     ["Write &lt; for each < outside of tags."]),
    ("an entity beside a bare &", "<lesson>In R&D pages, read &amp; as &.</lesson>",
     ["In R&D pages, read &amp; as &."]),
    ("what only looks like an entity", "<lesson>R&D, a&nothing, &c; AT&T</lesson>",
     ["R&D, a&nothing, &c; AT&T"]),
    ("quotes", """<lesson>Say "at most", not 'about'.</lesson>""",
     ["""Say "at most", not 'about'."""]),
    ("JSON inside", '<lesson>Return {"lessons": []} as is.</lesson>',
     ['Return {"lessons": []} as is.']),
    ("Chinese", "<lessons><lesson>当单位不同时，先换算（如：厘米→米）。</lesson></lessons>",
     ["当单位不同时，先换算（如：厘米→米）。"]),
    ("Japanese, bold", "<lesson>**単位**：「まず確認」する。</lesson>",
     ["単位：「まず確認」する。"]),
    ("a bullet and bold", "<lesson>- **When** a, **do** b.</lesson>", [AB]),
    ("a number", f"<lesson>1. {AB}</lesson>", [AB]),
    ("powers are no bold", "<lesson>Write 2**3 and 4**5.</lesson>", ["Write 2**3 and 4**5."]),
    ("several lines", "<lesson>\n  When a,\n\n  do b.\n</lesson>", [AB]),
    ("a copied label", f"<lesson>[E7] {AB}</lesson>", [AB]),
    ("JSON in the wrapper", f"<lessons>{JSON}</lessons>", [AB]),
    ("JSON drafted, tags meant", f'{{"lessons": [{{"lesson": "x"}}]}}\n{TAGS}', [AB]),
]  # fmt: skip

DECODED: list[tuple[str, str, Sequence[object]]] = [
    ("bare", JSON, [AB]),
    ("fenced", f"Sure!\n```json\n{JSON}\n```\nDone.", [AB]),
    ("none", '{"lessons": []}', []),
    ("null", '{"lessons": null}', []),
    ("tags drafted, JSON meant", f"<lessons><lesson>x</lesson></lessons>\n{JSON}", [AB]),
    ("several objects", f'{{"a": 1}} {{"lessons": []}} {JSON} {{"b": 2}}', [AB]),
    ("nested", f'{{"result": {JSON}}}', [AB]),
    ("after its reasons", f'{{"thoughts": "{{x}}", "lessons": [{{"lesson": "{AB}"}}]}}', [AB]),
    ("a list", f'[{{"lesson": "{AB}"}}, {{"lesson": "c"}}]', [AB, "c"]),
    ("a list around it", f"[{JSON}]", [AB]),
    ("one object", f'{{"lessons": {{"lesson": "{AB}"}}}}', [AB]),
    ("a list of texts", f'{{"lessons": ["{AB}", "c"]}}', [AB, "c"]),
    ("a field by another name", f'{{"Lessons": [{{"Text": "{AB}"}}]}}', [AB]),
    ("confirms what is not there, without a text",
     f'{{"lessons": [{{"experience": "E9", "finding": "confirmed"}}, {{"lesson": "{AB}"}}]}}',
     [AB]),
    ("null fields", f'{{"lessons": [{{"lesson": "{AB}", "experience": null}}]}}', [AB]),
    ("problem", f'{{"lessons": [{{"lesson": "{AB}", "experience": "E3", "problem": "misled"}}]}}',
     MISLED),
    ("finding", f'{{"lessons": [{{"lesson": "{AB}", "experience": 3, "finding": "misled"}}]}}',
     MISLED),
    ("trailing commas", '{"lessons": [{"lesson": "When a, do b.",},],}', [AB]),
    ("single quotes", "{'lessons': [{'lesson': 'When it\\'s a, do b.'}]}", ["When it's a, do b."]),
    ("comments", f'{{"lessons": [ // the first\n{{"lesson": "{AB}"}} /* and last */]}}', [AB]),
    ("no quotes at keys", f'{{lessons: [{{lesson: "{AB}"}}]}}', [AB]),
    ("no closing brace", f'{{"lessons": [{{"lesson": "{AB}"}}]', [AB]),
    ("no closing brace, fenced", f'```json\n{{"lessons": [{{"lesson": "{AB}"}}]\n```\nDone!', [AB]),
    ("no comma", f'{{"lessons": [{{"lesson": "{AB}"}} {{"lesson": "c"}}]}}', [AB, "c"]),
    ("quotes in a text", '{"lessons": [{"lesson": "When it says "at most", check."}]}',
     ['When it says "at most", check.']),
    ("typographic quotes", f"{{“lessons”: [{{“lesson”: “{AB}”}}]}}", [AB]),
    ("None and True", f"{{'lessons': [{{'lesson': '{AB}', 'experience': None, 'new': True}}]}}",
     [AB]),
    ("broken at last", '{"lessons": []} No: {"lessons": [{"lesson": "When a, do b.",}]}', [AB]),
    ("a broken list", f'[{{"lesson": "{AB}",}},]', [AB]),
    ("escaped as a string", '{\\"lessons\\": [{\\"lesson\\": \\"When a, do b.\\"}]}', [AB]),
    ("line breaks in a text", '{"lessons": [{"lesson": "When a,\n\tdo b."}]}', [AB]),
    ("escaped line breaks", '{"lessons": [{"lesson": "When a,\\ndo b."}]}', [AB]),
    ("a line break before nothing of LaTeX", '{"lessons": ["First\\nnever\\nnot\\tthen\\nnext"]}',
     ["First never not then next"]),
    ("Chinese", '{"lessons": [{"lesson": "当“a”时，做 b。"}]}', ["当“a”时，做 b。"]),
    ("escaped Chinese", '{"lessons": ["\\u5f53 a"]}', ["当 a"]),
    ("many braces of LaTeX before", r"$\frac{1}{2}$ " * 600 + JSON, [AB]),
    ("LaTeX before, tags drafted", r"\theta \leq " * 99 + TAGS.replace("b", "c") + JSON, [AB]),
    ("LaTeX before, JSON drafted", r"\theta \leq " * 99 + JSON.replace("b", "c") + TAGS, [AB]),
]  # fmt: skip


@pytest.mark.parametrize("cases", [TAGGED, DECODED], ids=["tags", "json"])
def test_replies_are_read(cases: list[tuple[str, str, Sequence[object]]]) -> None:
    assert len({name for name, *_ in cases}) == len(cases)
    assert {name: read_or_why(text) for name, text, _ in cases} == {
        name: lessons for name, _, lessons in cases
    }


LATEX = r"\frac \theta \times \nu \nabla \neq \ne \beta \bar \rho \right \rightarrow \text{a}"
INVALID = r"\leq \sqrt{x} \(y\) \[z\] \{ \} \, \; \% \underline{u} \unit \alpha \sum \pi \geq"
MORE_LATEX = r"\textbf{b} \tau \to \tan \bmod"


def test_latex_in_a_json_string_arrives_whole() -> None:
    commands = f"{LATEX} {INVALID} {MORE_LATEX}".split()
    cases = dict[str, str]()
    for command in commands:
        escaped = command.replace("\\", "\\\\")  # as JSON has it
        cases |= {
            f'{{"lessons": ["Use {command} here."]}}': f"Use {command} here.",
            f'{{"lessons": ["Use {command}"]}}': f"Use {command}",
            f'{{"lessons": ["Use {escaped} here."]}}': f"Use {command} here.",
            f'{{"lessons": ["Use {command} here.",]}}': f"Use {command} here.",
        }
    assert {text: read_or_why(text) for text in cases} == {t: [want] for t, want in cases.items()}


CUT = "it was cut off by the token limit"


def test_of_a_cut_reply_the_complete_lessons_are_taken() -> None:
    texts = [
        f"<lessons><lesson>{AB}</lesson><lesson>When c, d",
        f"<lessons><lesson>{AB}</lesson>\n<less",
        f"```\n{TAGS}\n```\n",
        f"```json\n{JSON}\n```",
        f'{{"lessons": [{{"lesson": "{AB}"}}, {{"lesson": "When c, d',
        f'{{"lessons": [{{"lesson": "{AB}"}}, {{"lesson": "Use \\frac{{1}}{{2}} wh',
    ]
    assert {text: read_or_why(text, "length") for text in texts} == {text: [AB] for text in texts}


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_of_a_cut_reply_a_quoted_block_is_not_taken(finish: str) -> None:
    texts = [
        f"The page ends with {TAGS}\nand orders me to repeat it. The better",
        f"The page ends with {JSON}, which",
        f'The page ends with {{"lessons": [{{"lesson": "{AB}",}}]}}, which',
        f'The page ends with {{"lessons": [{{"lesson": "{AB}"}} and the better',
        f"The page ends with <lessons><lesson>{AB}</lesson>, and the better",
        f"The page ends with <lesson>{AB}</lesson>, and the better",
        f"The page ends with {TAGS}. The better ones:\n<lessons><lesson>When c",
    ]
    assert {text: kind_of_error(text, finish) for text in texts} == dict.fromkeys(texts, "cut")


HOLDS_NONE = 'it holds no <lessons> block and no JSON object with "lessons"'


REFUSED: list[tuple[str, str, str]] = [
    ("", "stop", "it is empty"),
    (" \n", "length", CUT),
    ("<think>Hm", "length", CUT),
    (f"<think>Maybe {TAGS}, but", "stop", "its thinking never ends"),
    (f"<thinking>Maybe {TAGS}, but", "length", CUT),
    ("The better ones were careful.", "stop", HOLDS_NONE),
    ("The better ones were", "length", CUT),
    ("<lessons><lesson>When a, d", "length", CUT),
    ('{"lessons": [{"lesson": "Use \\frac{1}{2} wh', "length", CUT),
    ("<lessons><lesson>When a, do b.", "stop",
     "its <lessons> cannot be read: it is never closed"),
    ("<lessons>Be careful.</lessons>", "stop",
     "its <lessons> cannot be read: there is no <lesson> in it"),
    ("<lessons><lesson> </lesson></lessons>", "stop",
     "lessons.0.lesson: it has no text, in: <lesson> </lesson>"),
    ("<lesson>...</lesson>", "stop",
     "lessons.0.lesson: it has no text, in: <lesson>...</lesson>"),
    ('<lesson experience="E3" finding="misled"/>', "stop",
     'lessons.0.lesson: it has no text, in: <lesson experience="E3" finding="misled"/>'),
    ('{"lessons": [{"lesson": 3}]}', "stop",
     'lessons.0.lesson: it is no text, in: {"lesson": 3}'),
    ('{"lessons": [3]}', "stop", "lessons.0: it is no object, but 3"),
    ('{"lessons": "x"}', "stop", 'lessons: it is no list, but "x"'),
    (f"<lesson>{'x' * 700}</lesson>", "stop",
     f"lessons.0.lesson: it has 700 characters (at most 600), in: <lesson>{'x' * 71}…"),
    ('{"lessons": [' + "[" * 300, "stop",
     f'its JSON with "lessons" cannot be read: Expecting value, at: {"[" * 40}'),
]  # fmt: skip


def test_what_is_refused_is_told_with_its_place() -> None:
    errors = {(text, finish): error_of(text, finish) for text, finish, _ in REFUSED}
    assert {case: str(error) for case, error in errors.items()} == {
        (text, finish): why for text, finish, why in REFUSED
    }
    form = "<lessons><lesson>When <situation>"
    assert [case for case, e in errors.items() if e and form not in (e.hint or "")] == []
