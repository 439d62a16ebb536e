"""Where an answer stands in a text: what is stated counts, and not the number that comes last."""

from pathlib import Path

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.verify.answers import StatedAnswer, last_line, read_answer
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.stated import final_after, last_statement
from grpo_practice.verify.verifier import Verifier

MATH = resolve("math", {}, None, Path())

STATED = [
    ("So the final answer is 12. I checked it with 3 methods.", "12"),
    ("I tried 4 ways. The answer is 12. I hope that all 3 of you agree.", "12"),
    ("12 + 14 = 26 so the answer is 26 (see step 2).", "26"),
    ("The answer is not 12. It is 15.", "15"),
    ("If the answer is 12, then it is too small: 15.", "15"),
    ("The answer is 12 of the 30 apples.", "12"),
    ("The answer is 3 times 4, that is 12 apples.", "12"),
    ("My final answer: 1/2. Since 3 < 4.", "1/2"),
    ("The final answer is approximately 3.14, from step 2.", "3.14"),
    (r"**Final Answer:** The final answer is $\frac{1}{2}$. I hope it is correct.", "1/2"),
    ("Final answer: 12 apples (3 boxes of 4).", "12"),
    ("Therefore the answer is 7 because 3 + 4 = 7, see step 2.", "7"),
    ("Thus, the total is 45. Answer is 45 dollars and 2 bags.", "45"),
    ("The answer is $18. She spends $9 on eggs.", "18"),
    ("The answer is 5 + 7 = 12. Checked 2 times.", "12"),
    ("The final answer is (3, 4). It has 2 parts.", "(3,4)"),
    ("Answer:\n$$\\frac{3}{4}$$\nI used 2 rules.", "3/4"),
    ("Answer:\nFirst we add 3 and 4, then 5 more: 12", "12"),
    ("A: 2 of 3 are red, that is 66.5 grams", "66.5"),
    ("The answer is that Ann has 5 cats and 7 dogs, 12 in all.", "12"),
    ("The answer is 10 a.m. We leave at 9.", "10"),
]


@pytest.mark.parametrize(("response", "gold"), STATED)
async def test_what_is_stated_is_the_answer_whatever_number_follows(
    response: str, gold: str
) -> None:
    async with Verifier(MATH) as verify:
        verdict = await verify(Sample("q", gold), response, None)
    assert verdict.reward == 1, verdict


@pytest.mark.parametrize(
    ("gold", "response", "reward"),
    [
        ("4:30 p.m.", "It is 3 hours later.\n4:30 p.m.", 1),
        ("4:30 p.m.", "The 2 trains meet 3 hours later, at **4:30 PM**.", 1),
        ("4:30 p.m.", "It begins at 4:30 p.m. and ends at 5:30 p.m.", 0),
        ("4:30 p.m.", "It is 3 hours later.\n4:30 a.m.", 0),
        ("4:30", "It ends at 4:30 p.m.", 1),
        ("Canberra", "Its name has 3 letters a.\nCanberra", 1),
        ("Canberra", "Its name has 3 letters a.\n**canberra.**", 1),
        ("New York", "Which city is it?\nAnswer:\nNew York", 1),
        ("New York", "Which of the two is it?\nNew York", 1),
        ("New York", "Which of the two is it?\nNot New York", 0),
        ("Canberra", "Canberra\nhas 3 letters a", 0),
        ("Canberra", r"\boxed{Sydney}" + "\nCanberra", 0),
        ("Canberra", r"\boxed{Sydney" + "\nCanberra", 0),
        ("30", r"\boxed{12 +" + "\n30", 0),
        ("June 20", "She came 3 days later.\nJune 20", 1),
        ("x = 3", "There are 2 roots.\nx = 3", 1),
        ("2021-05-03", "It was on\n2021-05-03", 1),
        ("2021-05-03", r"\boxed{2013}", 0),
        ("2013", r"\boxed{2021-05-03}", 0),
        ("5/3/2021", r"\boxed{5/3/2021}", 1),
        ("13", "Of 14 we know.\n13 apples", 1),
        ("apples", "Of 14 we know.\n13 apples", 0),
    ],
)
async def test_a_last_line_that_is_the_gold_is_the_answer(
    gold: str, response: str, reward: float
) -> None:
    async with Verifier(MATH) as verify:
        verdict = await verify(Sample("q", gold), response, None)
    assert verdict.reward == reward, verdict


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (r"First \boxed{10,400}. After the refund, the final answer is $10,455$.", "$10,455$"),
        ("We guess \\boxed{7}.\n**Final answer: 12**", "12"),
        (r"\boxed{7} at first; the final answer is 12 apples.", "12"),
        (r"So \boxed{42}. The final answer is the sum of 3 numbers.", "42"),
        (r"So \boxed{42}. The final answer is a whole number, as step 3 asks.", "42"),
        (r"So \boxed{42}. The final answer is 6 times 7, that is what we have.", "42"),
        (r"We get \boxed{42} after 3 steps. The answer is checked in 2 ways.", "42"),
        (r"The final answer is 12. That is \boxed{42}.", "42"),
    ],
)
def test_a_final_answer_after_a_box_overrules_it_where_it_is_plainly_one(
    response: str, said: str
) -> None:
    found = read_answer(response)
    assert isinstance(found, StatedAnswer)
    assert found.text == said


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        (r"\boxed{1000,99}", "1000.99", 1),
        (r"\boxed{1.000,99}", "1000.99", 1),
        (r"\boxed{1.234.567,5}", "1234567.5", 1),
        (r"\boxed{-3,5}", "-3.5", 1),
        (r"\boxed{3,50}", "7/2", 1),
        (r"\boxed{€1000,99}", "1000.99", 1),
        (r"\boxed{1000,99 €}", "1000.99", 1),
        (r"\boxed{12,5 \text{ kg}}", "12.5", 1),
        ("Das macht 1000,99 zusammen.", "1000.99", 1),
        (r"\boxed{1000.99}", "1000,99", 1),
        (r"\boxed{1000,98}", "1000.99", 0),
        (r"\boxed{1,234}", "1234", 1),
        (r"\boxed{1,234}", "1.234", 0),
        (r"\boxed{3.5}", "3,5", 0),
        (r"\boxed{5,3}", "3,5", 1),
        (r"\boxed{(3,5)}", "(3,5)", 1),
        (r"\boxed{3,5}", "5", 0),
    ],
)
async def test_decimal_commas_are_read_where_they_are_no_lists(
    response: str, gold: str, reward: int
) -> None:
    async with Verifier(MATH) as verify:
        assert (await verify(Sample("q", gold), response, None)).reward == reward


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    "text",
    [
        "the answer is " * 70_000,
        "the answer is 5. " * 60_000,
        "final answer: $" * 60_000,
        "the answer is " + "$" * 1_000_000,
        "the answer is " + "1," * 500_000,
        "the answer is " + "(" * 1_000_000,
        "final answer is" + " " * 1_000_000,
        "*" * 1_000_000 + "final answer",
        "Answer:" + "\n" * 1_000_000,
        ". " * 500_000 + "answer is 5",
        "the answer is " + "x (" * 300_000,
        "1.000" + ".000" * 250_000 + ",5",
    ],
    ids=lambda text: str(text[:14]),
)
def test_hostile_statements_are_read_in_linear_time(text: str) -> None:
    text = text[:400_000] + text[-2:]
    read_answer(text)
    read_answer(r"\boxed{1}" + text)  # a moment; with the square of the length, hours
    last_statement(text)
    final_after(text, 0)
    last_line(text)
