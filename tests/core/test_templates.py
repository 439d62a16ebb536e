"""A template of a stranger's runs nothing, shows nothing but its slots, and ends."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts import TemplateFault
from grpo_practice.core.prompts.files import (
    DIVIDER,
    FOLDER,
    SLOTS,
    compile_prompt,
    load_prompts,
    prompts_from,
)
from grpo_practice.core.stages import STAGES
from tests.fakes import FENCES
from tests.hostile_templates import EXPLODES, GROWS, RUNS, SHOWS


def why_refused(text: str, **values: object) -> str:
    """Return why a template is refused when it is compiled or filled; "" if it is not."""
    slots = [name for name in values if name in text] if values else ["error"]
    try:
        prompt = compile_prompt("x", text, slots, where="x.md")
    except ConfigError as e:
        return f"{e} ({e.hint})"
    try:
        if values:
            prompt.render(FENCES, **values)
    except TemplateFault as e:
        return f"not filled: {e}"
    return ""


def misses(templates: dict[str, str], why: str, **values: object) -> dict[str, str]:
    """Return the templates that are not refused for this reason (a regex)."""
    found = {name: why_refused(text, **values) for name, text in templates.items()}
    return {name: said for name, said in found.items() if not re.search(why, said)}


def test_a_template_that_runs_python_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"  # a file that only a template could make
    templates = {
        name: "{{ error }}\n" + text.replace("@@", str(marker)) for name, text in RUNS.items()
    }
    why = r"x\.md: not a valid prompt template: line 2: .* is not allowed in a prompt"
    assert misses(templates, why) == {}
    assert misses(templates, r"a prompt may have {{ slot }}") == {}
    assert not marker.exists()


def test_a_template_that_shows_what_is_no_value_is_refused() -> None:
    rows = ["a"]
    assert misses(SHOWS, r"x\.md|not filled", error="ab", rows=rows) == {}
    assert rows == ["a"]


@pytest.mark.long
def test_a_template_that_explodes_is_refused() -> None:
    assert misses(EXPLODES, r"x\.md: not a valid prompt template: ") == {}


NAMED = [
    ("{{ error * 2 }}", "`*`"),
    ("{{ error ** 2 }}", "`**`"),
    ("{{ error + error }}", "`+`"),
    ("{{ error - 1 }}", "`-`"),
    ("{{ error / 1 }}", "`/`"),
    ("{{ error // 1 }}", "`//`"),
    ("{{ error % 1 }}", "`%`"),
    ("{{ error ~ error }}", "`~`"),
    ("{{ -1 }}", "`-`"),
    ("{{ error() }}", "a call"),
    ("{{ error[1:] }}", "a slice"),
    ("{{ error, error }}", "a tuple outside `in`"),
    ("{{ [error] }}", "a list outside `in`"),
    ("{{ error in [error] }}", "a list of anything but constants"),
    ("{{ {} }}", "a mapping"),
    ("{% set a = 1 %}{{ error }}", "`set`"),
    ("{% with %}{{ error }}{% endwith %}", "`with`"),
    ("{% block a %}{{ error }}{% endblock %}", "`block`"),
    ("{% include 'a' %}{{ error }}", "`include`"),
    ("{{ error._a }}", "the field `_a`"),
    ("{{ error['_a'] }}", "the key `_a`"),
    ("{{ ('a').b }}{{ error }}", "a field, an item or a loop of anything but a slot"),
    ("{% for x in 'ab' %}{{ error }}{% endfor %}", "a field, an item or a loop of anything but"),
    ("{% for _x in error %}{% endfor %}", "the name `_x` for an item"),
    ("{% for self in error %}{% endfor %}", "the name `self` for an item"),
    ("{{ error|attr('x') }}", "the filter `attr`"),
    ("{{ error is even }}", "the test `even`"),
    ("{{ error == 1e300 }}", "so large a number"),
    ("{% if error %}" * 60 + "{% endif %}" * 60, "it is nested too deeply"),
    ("{% for x in error %}" * 6 + "{% endfor %}" * 6, "more than 5 loops inside each other"),
]


def test_what_is_not_on_the_list_is_named() -> None:
    found = {text: why_refused(text) for text, _ in NAMED}
    assert {text: found[text] for text, what in NAMED if f"line 1: {what}" not in found[text]} == {}


@pytest.mark.long
def test_what_a_template_makes_of_long_values_is_bounded() -> None:
    assert (
        misses(GROWS, r"not filled: .*(produces more than|too much work)", error='a"\\' * 1_000)
        == {}
    )


def test_comparisons_of_long_values_cost_work() -> None:
    comparisons = ["'q' in error", "error == error", "error != 'q'"]
    templates = {text: f"{{% if {text} %}}{{% endif %}}" * 60 for text in comparisons}
    assert misses(templates, "not filled: .*too much work", error="a" * 1_000_000) == {}


def test_long_values_are_shown_whole() -> None:
    long = "word " * 1_000_000
    (message,) = compile_prompt("x", "{{ error|fenced }}", ["error"], where="").render(
        FENCES, error=long
    )
    assert long in message["content"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_fault_names_its_line_also_in_the_second_part(newline: str) -> None:
    text = f"Be brief.\n{DIVIDER}\n{{{{ error }}}}\n{{{{ error() }}}}".replace("\n", newline)
    with pytest.raises(ConfigError, match=r"x\.md: not a valid prompt template: line 6: a call "):
        compile_prompt("x", text, ["error"], where="x.md")
    filled = compile_prompt("x", text.replace("error()", "error.no"), ["error"], where="x.md")
    with pytest.raises(TemplateFault, match=r"line 6: 'str object' has no attribute 'no'"):
        filled.render(FENCES, error="e")


USUAL: list[tuple[str, str]] = [
    ("{{ error }}", "e<1>"),
    ("{{ error | fenced('why') | length }}", str(len(FENCES.around("e<1>", "why")))),
    ("{{ error|fenced(label='why') }}", FENCES.around("e<1>", "why")),
    ("{{ error|upper|lower|trim }}", "e<1>"),
    ("{{ error|tojson }}", r'"e\u003c1\u003e"'),
    ("{{ error|replace('e', 'E') }}", "E<1>"),
    ("{{ none|default('n', true) }}{{ (row.no)|default('m') }}", "nm"),
    ("{{ rows|join(', ') }}", "a, b"),
    ("{% for x in rows %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "1a,2b"),
    ("{% for x in rows if x != 'a' %}{{ loop.length }}{{ x }}{% endfor %}", "1b"),
    ("{% for k in row %}{{ k }}={{ row[k] }}{% endfor %}", "id=7"),
    ("{% for a, b in pairs %}{{ a }}{{ b }}{% else %}none{% endfor %}", "12"),
    ("{% for x in empty %}{{ x }}{% else %}none{% endfor %}", "none"),
    ("{{ row.id }}{{ row['id'] }}{{ rows[0] }}{{ rows[-1] }}{{ pairs[0][1] }}", "77ab2"),
    ("{% if error == 'x' %}1{% elif 'e' in error and row.id > 6 %}2{% else %}3{% endif %}", "2"),
    ("{% if row.id in (7, 8) %}in{% endif %}{% if error not in ['a'] %}out{% endif %}", "inout"),
    ("{% if error is string and error is not none and row.no is undefined %}yes{% endif %}", "yes"),
    ("{{ 'one' if rows|length == 1 else 'more' }}", "more"),
    ("{% raw %}{{ error() }}{% endraw %}{# a note #}", "{{ error() }}"),
    ("a\n{%- if error %} b {%- endif -%}\n c", "a bc"),
    ("{{ error or 'none' }}{{ empty or 'none' }}{{ (error or '')|upper }}", "e<1>noneE<1>"),
    (r"\boxed{x} {a} %s ${b} 100 %", r"\boxed{x} {a} %s ${b} 100 %"),
]
VALUES: dict[str, Any] = {
    "error": "e<1>",
    "row": {"id": 7},
    "rows": ["a", "b"],
    "pairs": [(1, 2)],
    "empty": [],
}


def filled(text: str, values: dict[str, Any]) -> list[str]:
    """Return the texts of the messages that our own templates make."""
    prompt = compile_prompt("x", text, plain_slots(text), where="")
    return [str(message["content"]) for message in prompt.render(FENCES, **values)]


def test_the_usual_forms_work() -> None:
    assert {text: filled(text, VALUES) for text, _ in USUAL} == {t: [s] for t, s in USUAL}


def plain(text: str) -> jinja2.Environment:
    """Jinja as it is, with our filter."""
    env = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    env.filters["fenced"] = FENCES.around
    return env


def plain_slots(text: str) -> set[str]:
    return set(jinja2.meta.find_undeclared_variables(plain(text).parse(text)))


def own_prompts() -> Iterator[tuple[str, str, str]]:
    """Folder, name and text of the shipped prompts."""
    for path in FOLDER.glob("*.md"):
        yield path.parent.name, path.stem, path.read_text("utf-8")


LONG = "Line one of it.\n\n  {{ 7*7 }} {% raw %} \\boxed{1} <b> & 'q' \"\n"
FILLED: dict[str, Any] = {
    **dict.fromkeys([slot for stage in STAGES.values() for slot in stage.slots], LONG),
    **dict.fromkeys(
        ["error", "criteria", "response", "trajectory", "url", "query", "page", "label"], LONG
    ),
    "cut": "1,000 tokens or so",
    "attempts": [
        dict.fromkeys(["shown", "kind", "text", "summary", "reward", "judgement"], LONG)
        | {"number": n, "rank": n}
        for n in (1, 2)
    ],
    "truth": True,
    "limit": 2,
    "lessons": [LONG, "another"],
    "proposals": [
        ("E1", [{"id": "P1", "op": "UPDATE", "finding": "too_narrow", "text": LONG}]),
        ("E2", []),
        ("new", [{"id": "P2", "op": "DELETE", "finding": None, "text": None}]),
    ],
    "votes": {
        name: {"supporting": "2", "opposing": "0", "change": change, "asked": "3", "stays": stays}
        for name, change, stays in [("E1", "+0.10", True), ("E2", None, False)]
    },
    "size": {"now": 90, "most": 100},
}
BARE = (
    FILLED
    | dict.fromkeys(["answer", "critique", "reward", "criteria", "size"])
    | {
        "truth": False,
        "experiences": "",
        "agent_objective": None,
        "cut": "",
    }
)


def filled_by_jinja(text: str, values: dict[str, Any]) -> list[str]:
    """Return the texts of the messages as Jinja without our bounds makes them."""
    system, divider, user = text.partition(DIVIDER)
    parts = [system, user] if divider else [text]
    texts = [plain(part).from_string(part).render(values).strip() for part in parts]
    return [part for part in texts if part]


@pytest.mark.parametrize("values", [FILLED, BARE], ids=["all", "little"])
def test_prompts_in_use_render_as_jinja_renders_them(values: dict[str, Any]) -> None:
    prompts = {f"{origin}/{name}": text for origin, name, text in own_prompts()}
    assert len(prompts) >= len(SLOTS)
    assert {name: filled(text, values) for name, text in prompts.items()} == {
        name: filled_by_jinja(text, values) for name, text in prompts.items()
    }


TOKENS = [
    *"abc(){}[]%#.|,~+-*/<>=!'\"\\\n :_0é\ud800",
    "{{",
    "}}",
    "{%",
    "%}",
    "error",
    "loop",
    " if ",
]
TOKENS += [" for ", " in ", "endfor", "endif", "else", "not ", "is ", "none", "fenced", "__class__"]


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map("".join))
def test_any_text_is_a_prompt_or_a_config_error(text: str) -> None:
    try:
        prompt = compile_prompt("x", text, ["error"], where="x.md")
    except ConfigError:
        return
    with suppress(TemplateFault):
        prompt.render(FENCES, error="e")


def test_prompts_of_a_run_that_cannot_be_used_name_the_run_and_the_way_out() -> None:
    texts = {name: prompt.text for name, prompt in load_prompts().items()}
    assert prompts_from(texts, "toy").keys() == SLOTS.keys()
    for bad, said in [
        ("{{ error }}\n{{ error.format() }}", "line 2: a call is not allowed"),
        ("{{ error.no }}", "cannot be filled: line 1: 'str object' has no attribute 'no'"),
        ("{{ error }}{{ os }}", "unknown slot os"),
    ]:
        with pytest.raises(ConfigError, match=said) as e:
            prompts_from(texts | {"reask": bad}, "toy")
        assert str(e.value).startswith("the prompt 'reask' stored with run toy")
        assert "--restart-step 0" in (e.value.hint or "")
