"""Golds in the forms in which datasets have them, with another spelling and a near miss of each."""

from typing import NamedTuple


class RealGold(NamedTuple):
    """One row of the table."""

    form: str
    gold: str
    also: str
    """Spelling that is right, too."""
    not_: str
    """Answer that is wrong."""
    how: str = "mathematics"
    """`mathematics`, `text` (only spellings alike are right), or why it is refused."""


REAL_GOLDS = [
    RealGold("interval", r"[-2, 5)", r"\left[-2,5\right)", r"[-2, 5]"),
    RealGold("interval", r"(-\infty, 0) \cup [1, \infty)", r"(-\infty,0)\cup[1,+\infty)", "[1, 2]"),
    RealGold("interval", r"\left(\frac{1}{e}, 1\right]", r"(\frac{1}{\mathrm e}, 1]", "[0, 1]"),
    RealGold("set builder", r"\{x | -2 \leq x < 1\}", "[-2, 1)", "(-2, 1)"),
    RealGold("set builder", r"\{x \mid x > 3\}", r"(3, \infty)", r"[3, \infty)"),
    RealGold("set builder", r"\{x:x\le 4\}", r"x \leqslant 4", "x < 4"),
    RealGold("set builder", r"\{x \mid x=2k, k \in \mathbb{Z}\}", r"\{x|x=2k,k\in\mathbb{Z}\}",
             r"\{x|x=3k,k\in\mathbb{Z}\}", "text"),
    RealGold("set", r"\{1, 2, 3\}", r"\{3,2,1\}", r"\{1,2\}"),
    RealGold("set", r"\{a, b\}", r"\{b, a\}", r"\{a, c\}"),
    RealGold("set", r"\varnothing", r"\emptyset", "0"),
    RealGold("set", r"\{ \}", r"\{\}", r"\{0\}", "text"),
    RealGold("order", "m > n > p", "m>n>p", "m > p > n"),
    RealGold("order", r"a < b \le c", r"a<b\leq c", r"a<c\le b"),
    RealGold("order", r"x + 2 \cdot c", r"x+2c", "x+2"),
    RealGold("solutions", r"x = \frac12, x = -3", r"x=-3, x=\frac{1}{2}", "x=3, x=1/2"),
    RealGold("solutions", "x=2, y=5", "x = 2, y = 5", "x=5, y=2"),
    RealGold("solutions", r"x = 1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}", r"1 + \sqrt{2}"),
    RealGold("complex", r"4-\mathrm i", "4-i", "4+i"),
    RealGold("complex", r"\mathrm{e}^{2}", "e^2", "2e"),
    RealGold("constant", r"1 - \frac{1}{\mathrm e}", "1-1/e", "1-e"),
    RealGold("unit", r"12 \text{ cm}^2", "12", "13"),
    RealGold("unit", "3.5 kg", r"3.5\text{ kg}", "35 kg"),
    RealGold("unit", r"9.8\ \mathrm{m/s^2}", r"9.8\ \mathrm{m/s^2}", r"8.9\ \mathrm{m/s^2}"),
    RealGold("unit", r"45^\circ", "45°", "54°"),
    RealGold("percent", "37.5%", r"37.5\%", "38%"),
    RealGold("percent", "150 percent", "150%", "105%"),
    RealGold("money", "$1,250.50", "1250.5", "1250"),
    RealGold("money", "€ 99", "99", "98"),
    RealGold("money", "$3 million", "3,000,000", "3"),
    RealGold("time", "4:30 p.m.", "4:30 PM", "4:30 a.m.", "text"),
    RealGold("time", "16:05", "16:05", "16:50"),
    RealGold("time", "2 h 15 min", "2 h 15 min", "2 h 50 min"),
    RealGold("date", "March 3, 1875", "march 3, 1875", "March 4, 1875"),
    RealGold("chemistry", r"\mathrm{H_2SO_4}", r"H_{2}SO_{4}", r"H_2SO_3"),
    RealGold("chemistry", r"\ce{2H2 + O2 -> 2H2O}", r"\ce{2H2+O2->2H2O}", r"\ce{H2+O2->H2O}",
             "text"),
    RealGold("matrix", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
             r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
             r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"),
    RealGold("vector", r"\left(1, -2, \frac{1}{2}\right)", "(1,-2,0.5)", "(1,-2,2)"),
    RealGold("vector", r"\vec{i} + 2\vec{j}", r"\vec{i}+2\vec{j}", r"2\vec{i}+\vec{j}"),
    RealGold("last factor", "x+2c", "2c+x", "x+2"),
    RealGold("ratio", "3:4:5", "3 : 4 : 5", "3:5:4", "text"),
    RealGold("fraction", "-3./4", "-0.75", "-4/3"),
    RealGold("mixed", "2 1/3", r"\frac{7}{3}", "2"),
    RealGold("program", "np.sqrt(2)/2", r"\frac{\sqrt 2}{2}", r"\sqrt{2}"),
    RealGold("program", "np.arctan(3/4)", r"\arctan\frac{3}{4}", r"\arctan(4/3)"),
    RealGold("equation", "y = 2x - 7", "y=2x-7", "y=2x+7"),
    RealGold("equation", r"\frac{x^2}{9}+\frac{y^2}{4}=1", r"\frac{x^{2}}{9} + \frac{y^{2}}{4} = 1",
             r"\frac{x^2}{4}+\frac{y^2}{9}=1"),
    RealGold("circled", "①③", r"\textcircled{1}\textcircled{3}", "①②", "text"),
    RealGold("label", r"\text{(B)}", "(B)", "(C)"),
    RealGold("label", r"E_{1}, E_{2}", "E_1,E_2", "E_1, E_3", "text"),
    RealGold("words", r"\text{No solution}", "no solution.", "One solution", "text"),
    RealGold("words", "the left side is above the right side",
             "The left side is above the right side.", "the right side is above the left side",
             "text"),
    RealGold("words", "Yes", r"\textbf{yes}", "No", "text"),
    RealGold("words", "若a增大,则b减小", "若a增大\uff0c则b减小", "若a增大,则b增大", "text"),
    RealGold("sentence", "It is a circle of radius $r$ around the origin.",
             "It is a circle of radius r around the origin", "It is a line.", "text"),
    RealGold("sentence", "True, since the sum of two even numbers is even.",
             "true, since the sum of two even numbers is even",
             "False, since the sum of two even numbers is even.", "text"),
    RealGold("tower", "9^9^9^9", "9**9**9**9", "9^9", "text"),
    RealGold("empty", "$$", "0", "1", "it is empty"),
    RealGold("cut off", r"\frac{1}{", r"\frac{1}{2}", "1", "it cannot be read as mathematics"),
    RealGold("a solution, not an answer", "a" * 2_001, "a", "b", "it is longer than 2,000"),
]  # fmt: skip
"""The table; the answers of a test set that no row is like are worth one."""
