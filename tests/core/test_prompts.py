"""What is wrong with a prompt of one's own is said before any call is paid."""

from itertools import takewhile
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.files import FOLDER, SLOTS, load_prompts
from tests.fakes import FENCES

LIBRARY = "\n".join(f"[E{i}] Units: write down every unit." for i in range(1, 21))
SAME: dict[str, object] = {
    "agent_objective": "Add.",
    "learning_objective": "Be exact.",
    "experiences": LIBRARY,
    "truth": True,
    "limit": 2,
    "instructions": "Solve it.",
    "words": 300,
}
"""What is equal for all calls of a step."""


@pytest.mark.parametrize(
    ("name", "was", "now", "said"),
    [
        ("compare", "attempt.rank", "attempt.rnk", "no attribute 'rnk'"),
        ("merge", "item.op", "item.operation", "no attribute 'operation'"),
        ("merge", "].stays", "].stay", "no attribute 'stay'"),
        ("propose", "lesson in lessons", "lesson, more in lessons", "too many values to unpack"),
        ("summarise", "question | fenced", "question.title.x | fenced", "no attribute 'title'"),
    ],
)
def test_a_prompt_that_cannot_be_filled_is_refused_when_it_is_read(
    tmp_path: Path, name: str, was: str, now: str, said: str
) -> None:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    assert was in text
    (tmp_path / f"{name}.md").write_text(text.replace(was, now), "utf-8")
    with pytest.raises(ConfigError, match=rf"{name}\.md cannot be filled: .*{said}"):
        load_prompts(tmp_path)


def test_the_shipped_prompts_can_be_filled_from_any_folder(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.md"):
        if path.stem in SLOTS:
            # Another text, since the shipped ones are not checked when they are loaded.
            (tmp_path / path.name).write_text(path.read_text("utf-8") + "\n", "utf-8")
    assert load_prompts(tmp_path).keys() == load_prompts().keys()


def rendered(stage: str, one: str) -> str:
    """The prompt of a stage about one task."""
    attempt = {"number": 1, "shown": "E1", "kind": "summary", "text": one, "reward": "1", "rank": 1}
    attempt["judgement"] = None
    values = SAME | {
        **dict.fromkeys(("question", "answer", "critique", "transcript", "reward"), one),
        "attempts": [attempt],
        "lessons": [one],
        "proposals": [(one, [{"id": "P1", "op": "ADD", "finding": None, "text": one}])],
        "votes": {},
        "size": {"now": 90, "most": 100},
        "disproved": ["Sums: guess."],
    }
    messages = load_prompts()[stage].render(FENCES, **{slot: values[slot] for slot in SLOTS[stage]})
    return "".join(str(message["content"]) for message in messages)


@pytest.mark.parametrize("stage", ["summarise", "compare", "propose", "merge"])
def test_what_is_equal_for_all_calls_of_a_step_stands_first(stage: str) -> None:
    """The provider may have it in its cache; what follows the first difference it reads anew."""
    pairs = zip(rendered(stage, "one"), rendered(stage, "another"), strict=False)
    equal = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    for text in ("Add.", "Be exact.", LIBRARY):
        assert text in equal
