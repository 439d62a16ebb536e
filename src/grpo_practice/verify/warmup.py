"""Importing this module compares one formula of each kind, so that later comparisons are fast.

The module is imported by the process that all workers are forked from. Each worker, even one that
replaces a killed worker, then inherits the state that math-verify builds with its first formulas
(0.7 s of work).
"""

from contextlib import suppress

_KINDS = (
    (r"\frac{1}{2}", "0.51"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"2\pi+1", r"\frac{\pi}{3}"),
    ("x^2+2x+1", "(x+1)^2"),
    ("y=2x+1", "y=1+3x"),
    (r"\{1,2\}", r"\{2,3\}"),
    ("(1,2)", "[1,3)"),
    (r"(-\infty,3)\cup(5,\infty)", r"x<3"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\3\end{bmatrix}"),
    (r"25\%", "x=12"),
)

# Without the warm-up a worker is only slower; missing packages are reported when it starts.
with suppress(Exception):
    from grpo_practice.verify import symbolic

    for gold, said in _KINDS:
        symbolic.matches(gold, said, [said])
