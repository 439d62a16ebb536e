"""Hard pairs of response and gold: what `math` says of each, and what a person would.

Where the two differ a note says why that is accepted.
"""

from typing import NamedTuple

from grpo_practice.core.types import Answer


class Pair(NamedTuple):
    """One row of the table."""

    response: str
    gold: Answer
    math: bool
    person: bool
    note: str = ""


PAIRS = [
    # which box
    Pair(r"So the answer is $\boxed{24}$.", "24", True, True),
    Pair(r"First \boxed{24}, but actually \boxed{25}", "25", True, True),
    Pair(r"First \boxed{24}, but actually \boxed{25}", "24", False, False),
    Pair(r"Put it in \boxed{}. It is \boxed{7}. As asked: \boxed{}", "7", True, True),
    Pair(r"\boxed{x = \boxed{5}}", "5", True, True),
    Pair(r"\fbox{12}", "12", True, True),
    Pair(r"\boxed {12}", "12", True, True),
    Pair(r"\\boxed{12}", "12", True, True),
    Pair(r"We get \boxed{42} after 3 steps, each of 14.", "42", True, True),
    Pair(r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt3}{2}", True, True),
    Pair(r"\boxed{42", "42", False, True, "a box that is not closed may be cut off: 42 of 421"),
    Pair(r"So \boxed{42}. That is, \boxed{4", "42", True, True),
    # no box
    Pair("The answer is 42.", "42", True, True),
    Pair("She makes 9 * 2 = $18.\nA: 18", "18", True, True),
    Pair("A robe costs $18 and a hat costs $20.", "20", True, True),
    Pair("It costs 5$ and then 6$", "6", True, True),
    Pair("Hence $x = 7$, as claimed.", "7", True, True),
    Pair(r"Therefore \[ x = \frac{3}{4}. \]", "0.75", True, True),
    Pair(r"The probability is \(\frac{3}{4}\).", "3/4", True, True),
    Pair("The final answer is (3, -4).", "(3,-4)", True, True),
    Pair("They meet at the point (3, 4).", "(3,4)", True, True),
    Pair("**Answer: 1/3**", r"\frac13", True, True),
    Pair("It is 2 1/2 hours.", "2.5", True, True),
    Pair("It is -5 degrees.", "-5", True, True),
    Pair("Steps: 1. add 2. stop\nAnswer: 12\n", "12", True, True),
    Pair("Answer: 5\n\nI checked it in 2 ways.", "5", True, True),
    Pair("I do not know.", "42", False, False),
    Pair("", "42", False, False),
    Pair(
        "There are 12 apples, 3 of which are red.",
        "12",
        False,
        True,
        "without a box or 'Answer:' the last number is read",
    ),
    # thinking
    Pair("<think>maybe 41</think>The answer is 42.", "42", True, True),
    Pair(r"<think>\boxed{41}</think>\boxed{42}", "42", True, True),
    Pair(r"\boxed{41} was a guess</think>So \boxed{42}", "42", True, True),
    Pair("<think>I believe it is 42", "42", False, False),
    Pair("<think>42</think>", "42", False, False),
    # spelling of numbers
    Pair(r"\boxed{1\,000}", "1000", True, True),
    Pair(r"\boxed{1,000}", "1000", True, True),
    Pair(r"\boxed{1{,}000{,}000}", "1000000", True, True),
    Pair(r"\boxed{1 000}", "1000", True, True),
    Pair("1,234", "1234", True, True),
    Pair(r"\boxed{25.}", "25", True, True),
    Pair(r"\boxed{25.0}", "25", True, True),
    Pair(r"\boxed{042}", "42", True, True),
    Pair(r"\boxed{42}", "042", True, True),
    Pair(r"\boxed{+42}", "42", True, True),
    Pair(r"\boxed{-0}", "0", True, True),
    Pair(r"\boxed{\u2212 5}".replace(r"\u2212 ", "\u2212"), "-5", True, True),
    Pair("\\boxed{\u0664\u0662}", "42", True, True),
    Pair("\\boxed{\uff14\uff12}", "42", True, True),
    Pair(r"\boxed{\$18.00}", "18", True, True),
    Pair(r"\boxed{€18}", "18", True, True),
    Pair(r"\boxed{1.5e3}", "1500", True, True),
    Pair(r"\boxed{1.5 \times 10^3}", "1500", True, True),
    Pair(r"\boxed{12345678901234567891}", "12345678901234567890", False, False),
    Pair(r"\boxed{½}", "0.5", True, True),
    Pair(r"\boxed{0.333}", "1/3", False, False),
    Pair(r"\boxed{42}", 42, True, True),
    Pair(r"\boxed{0.0000001}", 1e-07, True, True),
    Pair(r"\boxed{forty-two}", "42", False, True, "numbers in words are not read"),
    # units and percent
    Pair(r"\boxed{12 \text{ cm}}", "12", True, True),
    Pair(r"\boxed{12\,\mathrm{cm}^2}", "12", True, True),
    Pair(r"\boxed{12}", r"12\text{ square meters}", True, True),
    Pair(r"\boxed{12 dollars}", "12", True, True),
    Pair(r"\boxed{3 \text{ million}}", "3", False, False),
    Pair(r"\boxed{3 \text{ million dollars}}", "3000000", True, True),
    Pair("They sold 3 million.", "3,000,000", True, True),
    Pair("They sold 3 million.", "3", False, False),
    Pair(r"\boxed{90^\circ}", "90", True, True),
    Pair(r"\boxed{25\%}", "25", True, True),
    Pair(r"\boxed{25\%}", "0.25", True, True),
    Pair("That is 25 percent.", r"25\%", True, True),
    Pair(r"\boxed{12 \text{ m}}", r"12 \text{ cm}", True, False, "units are not compared"),
    # several values
    Pair(r"\boxed{3, 5}", "5,3", True, True),
    Pair(r"\boxed{\{3,5\}}", r"\{5, 3\}", True, True),
    Pair(r"\boxed{3} and \boxed{5}", "3,5", True, True),
    Pair(r"First \boxed{7}. No: \boxed{3} and \boxed{5}", "3,5", True, True),
    Pair(r"\boxed{3} and \boxed{6}", "3,5", False, False),
    Pair(r"\boxed{5}", "3,5", False, False),
    Pair(r"\boxed{3,5}", "5", False, False),
    Pair(r"\boxed{x=3 \text{ or } x=5}", "3,5", True, True),
    Pair(r"\boxed{\pm 2}", "2,-2", True, True),
    Pair(r"\boxed{(2,1)}", "(1,2)", False, False),
    Pair(r"\boxed{1,2}", "(1,2)", True, False, "math-verify takes a bare list for a tuple"),
    Pair(r"\boxed{10}", "10,10", True, False, "math-verify reads a list as a set"),
    # intervals, relations, expressions
    Pair(r"\boxed{[0, \infty)}", r"[0,\infty)", True, True),
    Pair(r"\boxed{[0, ∞)}", r"[0,\infty)", True, True),
    Pair(r"\boxed{(0, \infty)}", r"[0,\infty)", False, False),
    Pair(r"\boxed{(5,\infty)\cup(-\infty,3)}", r"(-\infty,3)\cup(5,\infty)", True, True),
    Pair(r"\boxed{[1,2]}", r"1 \le x \le 2", True, True),
    Pair(r"\boxed{x = 5}", "5", True, True),
    Pair(r"\boxed{x^2+2x+1}", "(x+1)^2", True, True),
    Pair(r"\boxed{sqrt(2)}", r"\sqrt{2}", True, True),
    Pair(r"\boxed{√2}", r"\sqrt{2}", True, True),
    Pair(r"\boxed{2π}", r"2\pi", True, True),
    Pair(r"\boxed{2*pi}", r"2\pi", True, True),
    Pair(r"\boxed{3.14}", r"\pi", False, False),
    Pair(r"\boxed{3+4i}", "4i+3", True, True),
    Pair(
        r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{bmatrix}1\\2\end{bmatrix}", True, True
    ),
    Pair(r"\boxed{2^{10}}", "1024", True, True),
    Pair(r"\boxed{5!}", "120", True, True),
    Pair(r"\boxed{\varnothing}", r"\emptyset", True, True),
    # text
    Pair(r"\boxed{\text{Monday}}", "monday", True, True),
    Pair(r"\boxed{Tuesday}", "Monday", False, False),
    Pair("Answer: no solution", "no solution", True, True),
    Pair(r"\boxed{\textbf{(B)}}", "B", True, True),
    Pair("A", "A", True, True),
    Pair("(B)", "A", False, False),
    Pair(r"\boxed{True}", "true", True, True),
    Pair(r"\boxed{CAB}", "ABC", False, False),
    # alternatives
    Pair(r"\boxed{1/2}", ["7", r"\frac{1}{2}"], True, True),
    Pair(r"\boxed{6}", ["7", "8"], False, False),
    # hostile
    Pair(r"\boxed{9^{9^{9^9}}}", "9", False, False),
    Pair(r"\boxed{10^10^10!}", "9", False, False),
    Pair(r"\boxed{(10^{10})!}", "9", False, False),
    Pair(r"\boxed{2**(10**10)}", "9", False, False),
    Pair(r"\boxed{" + "1+" * 1_500 + "1}", "1501", False, True, "longer than 2,000 characters"),
    Pair(r"\boxed{" + "(" * 400 + "1" + ")" * 400 + "}", "1", False, True, "nested too deep"),
    Pair(r"\boxed{" * 20_000, "1", False, False),
    Pair("{" * 1_000_000 + r"\boxed{8}", "8", True, True),
    Pair("9" * 5_000_000, "9", False, False),
    Pair("x " * 2_500_000 + r"\boxed{8}", "8", True, True),
    Pair("$" * 100_000 + " 8", "8", True, True),
    Pair("1,234," * 10_000, "9", False, False),
    Pair("((((1+1)*1)*1)" * 3_000 + " 8", "8", True, True),
    Pair("<think>" * 100_000, "8", False, False),
    Pair("<think></think>" * 100_000 + "8", "8", True, True),
    Pair("- " * 30_000 + "8", "8", True, True),
    Pair(r"\boxed{\int_0^{10^{9}} \lfloor x^{x} \rfloor dx}", "1", False, False),
    Pair(r"\boxed{\sum_{i=1}^{10^{9}} i^{i}}", "1", False, False),
]
