"""Formulas of stored texts as MathML; whatever is no known formula stays as it is written."""

import re

import pytest

from grpo_practice.sim.experience_texts import flaw, text, truism
from grpo_practice.sim.questions import LORE
from grpo_practice.sim.world import EffectKind, World
from grpo_practice.viewer.mathml import with_formulas
from grpo_practice.viewer.pages import experience, name


def bare(latex: str) -> str:
    """The MathML without its rows."""
    return re.sub("</?mrow>", "", with_formulas(latex))


@pytest.mark.parametrize(
    ("latex", "made"),
    [
        (r"$\frac{a}{2}$", "<mfrac><mi>a</mi><mn>2</mn></mfrac>"),
        ("$a_k$", "<msub><mi>a</mi><mi>k</mi></msub>"),
        ("$x_1^2$", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        ("$x^2_1$", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        (r"\(\sqrt{x} \leq \alpha\)", "<msqrt><mi>x</mi></msqrt><mo>\u2264</mo><mi>\u03b1</mi>"),
        (r"$\bar{y}$", "<mover><mi>y</mi><mo>\u00af</mo></mover>"),
        (r"$a<\text{b & c}$", "<mi>a</mi><mo>&lt;</mo><mtext>b &amp; c</mtext>"),
    ],
)
def test_formulas_become_mathml(latex: str, made: str) -> None:
    assert bare(f"If {latex}, stop.") == f"If <math>{made}</math>, stop."


@pytest.mark.parametrize(
    "plain",
    ["$5 or $6", "a $ b", r"$\foo{x}$", "$a^$", "$x^{2$", "$a}b$", "$" + "{" * 99 + "$", "$x^1^2$"],
)
def test_other_texts_stay_as_they_are(plain: str) -> None:
    assert with_formulas(plain) == plain


def test_no_text_becomes_markup() -> None:
    hostile = r"<b>$<i>$</b> \(\text{<script>}\) $\foo<u>$"
    assert set(re.findall("<(/?[a-z]+)", with_formulas(hostile))) <= {
        *("math", "/math", "mrow", "/mrow", "mi", "/mi", "mo", "/mo", "mtext", "/mtext")
    }


@pytest.mark.parametrize("topic", LORE)
@pytest.mark.parametrize(("kind", "said"), [("help", ""), ("harm", "wrong"), ("null", "empty")])
def test_wrong_and_empty_texts_of_the_simulation_say_so(
    topic: str, kind: EffectKind, said: str
) -> None:
    world = World()
    for nth in (0, 1):
        told = text(world, world.key(topic, kind, nth))
        assert flaw(told).partition(" ")[0] == said
        assert ("on purpose" in experience(told)) == bool(said)
        assert not flaw(told.partition(" (#")[0]), "only the simulation's own texts are named"


def test_a_truism_is_empty() -> None:
    assert flaw(truism(0)).startswith("empty on purpose")


def test_a_name_breaks_after_a_slash_only() -> None:
    assert name("a/eval/L0f<") == "a/<wbr>eval/<wbr>L0f&lt;"
