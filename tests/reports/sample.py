"""An agent to export."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from grpo_practice.core.stats import Question, score
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.exported_agent import ExportedAgent, Measured, Provenance

LIBRARY = Library(
    (
        Experience(1, "Check: Recompute the sum."),
        Experience(4, "Ünits: Keep."),
    ),
    5,
    7,
)
SCORE = score([Question("a", 4, 2, 2.0, 2.0, 4), Question("b", 3, 3, 3.0, 3.0, 4)], 4)
AGENT = ExportedAgent(
    name="solver",
    instructions="Solve it.\n\nFinish with \\boxed{{…}}.",
    library=LIBRARY,
    model="model-a",
    model_settings={"temperature": 0.3, "extra_args": {"timeout": 3000}},
    toolkits={},
    max_turns=50,
    provenance=Provenance("m", 1, 3, simulated=False, after=Measured("m/eval/L1", "test", SCORE)),
)

HOSTILE = st.one_of(
    st.text(max_size=60),
    st.text("ab \n\t`#-:|>'\"\\${}[]!&*%@,?", max_size=60),
    st.text("a \n\r\0\x1b\x7f\x85\x9b\xa0\u2028\u2029\u202e\ufeff\u3000😀", max_size=30),
    st.builds(
        lambda word, n, end: word * n + end, st.text(max_size=8), st.integers(0, 99), st.text()
    ),
)
"""Texts that upset formats: their own marks, breaks, controls, and lines without end."""


def agent(**changes: Any) -> ExportedAgent:
    return replace(AGENT, **changes)
