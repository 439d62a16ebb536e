"""Importing this reads and compares one formula of each kind, so that every later one is quick.

The process that all workers are copies of imports it: what math-verify learns from its first
formulas (0.7 s of work) each worker then knows, also the one that replaces a killed one.
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

# A worker that knows less is only slower; one that cannot import this says so when it starts.
with suppress(Exception):
    from grpo_practice.verify import symbolic

    for gold, said in _KINDS:
        symbolic.matches(gold, said, [said])
