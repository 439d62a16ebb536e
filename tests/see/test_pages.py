import re
from importlib.resources import files

import jinja2
import pytest

from grpo_practice.reports.base import number
from grpo_practice.see import pages

TEMPLATES = sorted(
    (files("grpo_practice.see") / "templates").iterdir(), key=lambda template: template.name
)


def test_nothing_stored_is_let_through_unescaped() -> None:
    for template in TEMPLATES:
        if template.name.endswith(".html"):
            text = template.read_text("utf-8")
            assert "|safe" not in text.replace(" ", ""), template.name
            assert "autoescape" not in text, template.name
            assert re.findall(r"(\w+)\s*\|\s*sheet", text) in ([], ["style"]), template.name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (number(None), "-"),
        (number(0.6125), "0.613"),
        (pages.points(-0.031), "\u22123.1"),
        (pages.points(0.081), "+8.1"),
        (pages.share(0.5), "50.0 %"),
        (pages.usd(None), "unknown"),
        (pages.usd(0.0), "$0.00"),
        (pages.usd(0.00012), "$0.000120"),
        (pages.usd(1234.5), "$1,234.50"),
        (pages.tokens(12_345), "12.3k"),
        (pages.seconds(190.4), "3 min 10 s"),
        (pages.seconds(7_500), "2 h 5 min"),
        (pages.when("2026-11-22T14:03:59.123+00:00"), "2026-11-22 14:03 UTC"),
        (pages.when(None), "-"),
        (pages.line("a\nb\u202ec"), "a b\\u202ec"),
        (pages.body("x" * 10, 4), "xxxx … [6 more characters]"),
        (pages.body("a\x00\x1b[31mb"), "a\\x00\\x1b[31mb"),
    ],
)
def test_values_as_people_read_them(value: str, shown: str) -> None:
    assert value == shown


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    environment = pages._environment()
    assert environment.from_string("{{ a }}").render(a="<b>&") == "&lt;b&gt;&amp;"
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ a }}").render()
