import sys

import pytest

from grpo_practice.verify.answers import StatedAnswer, gold_texts, read_answer
from grpo_practice.verify.math import too_costly
from grpo_practice.verify.notation import notation
from tests.verify.hard_answers import PAIRS

ONLY_FULL = "x^{2}+3x+2"


def texts() -> list[str]:
    said = [read_answer(p.response[-200:]) for p in PAIRS]
    written = [s.text for s in said if isinstance(s, StatedAnswer)]
    written += [gold for p in PAIRS for gold in gold_texts(p.gold)]
    written += [
        r"\int_0^1 x^2 dx",
        r"\lim_{x \to 0} \frac{\sin x}{x}",
        r"2 \cdot 3^{n-1} \pm \sqrt{x}",
    ]
    written += [r"x^2+y^2=1", r"\{x \in \mathbb{R} : x > 2\}", r"|x-3| \le 2", r"\binom{5}{2}"]
    return list(dict.fromkeys(t for t in map(notation, written) if t and too_costly(t) is None))


@pytest.mark.long
def test_the_quick_reader_gives_the_same_tree_as_the_full_one_or_an_error() -> None:
    import sympy
    from latex2sympy2_extended import latex2sympy2
    from math_verify.parser import LatexExtractionConfig, normalize_latex

    from grpo_practice.verify import symbolic

    config = LatexExtractionConfig().normalization_config
    for text in texts():
        latex = normalize_latex(text, config)
        try:
            quick = symbolic._Quick(None, True, False).parse(latex)
        except Exception:  # noqa: BLE001 - the reader raises Exception itself
            continue
        full = latex2sympy2.latex2sympy(
            latex, is_real=True, convert_degrees=False, normalization_config=None
        )
        assert sympy.srepr(quick) == sympy.srepr(full), text


def test_what_the_quick_reader_cannot_read_is_read_the_full_way() -> None:
    from grpo_practice.verify import symbolic

    with pytest.raises(Exception, match="expected"):
        symbolic._Quick(None, True, False).parse(ONLY_FULL)
    assert symbolic.readable(ONLY_FULL)


def test_math_verify_uses_it() -> None:
    from grpo_practice.verify import symbolic

    assert sys.modules["math_verify.parser"].latex2sympy is symbolic._latex2sympy


def test_warming_reads_every_kind() -> None:
    from grpo_practice.verify import symbolic, warmup

    assert all(symbolic.readable(text) for kind in warmup._KINDS for text in kind)
