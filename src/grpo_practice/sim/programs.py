"""Programs that the simulated student runs with a Python tool: the sum of its way."""

from collections.abc import Mapping

from grpo_practice.sim.questions import TOPICS, Question

_SUMS: Mapping[str, tuple[str, str, str]] = {
    "percent": ("100 * (b - a) // a", "100 * (b - a) // b", "b - a"),
    "remainder": ("a % d", "a // d", "d - a % d"),
    "perimeter": ("2 * (a + b)", "a + b", "a * b"),
    "rate": ("p * n * k // (m * h)", "p * k // h", "p * n // m"),
    "sequence": ("a + (n - 1) * d", "a + n * d", "n * d"),
    "average": ("k * (n + 1) - m * n", "2 * k - m", "(m + k) // 2"),
    "posts": ("s // d + 1", "s // d", "s // d - 1"),
    "legs": ("(f - 2 * h) // 2", "h - (f - 2 * h) // 2", "f // 4"),
    "speed": ("2 * u * v // (u + v)", "(u + v) // 2", "abs(u - v)"),
    "discount": (
        "p * (100 - a) * (100 - b) // 10000",
        "p * (100 - a - b) // 100",
        "p * (a + b) // 100",
    ),
}
"""By topic: how its answer is computed, and its two slips, in the order of `Topic.slips`."""


def program(question: Question, answer: int | str) -> str:
    """Write a program that prints the answer, the question's own or one of its slips."""
    numbers = dict(question.numbers)
    if question.topic not in _SUMS:
        return f"print({str(answer)!r})"
    nth = (question.answer, *question.slips).index(answer)
    expression = _SUMS[question.topic][nth]
    if nth and int(TOPICS[question.topic].slips[nth - 1](**numbers)) != answer:
        expression += " + 1"  # a slip that comes to the right answer is none
    given = "".join(f"{name} = {value}\n" for name, value in numbers.items())
    return f"{given}print({expression})"
