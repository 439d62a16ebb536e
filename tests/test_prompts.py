"""What is wrong with a prompt of one's own is said before any call is paid."""

from pathlib import Path

import pytest

from grpo_practice.errors import ConfigError
from grpo_practice.prompts import FOLDER, load_prompts


@pytest.mark.parametrize(
    ("name", "was", "now", "said"),
    [
        ("compare", "attempt.rank", "attempt.rnk", "no attribute 'rnk'"),
        ("merge", "item.op", "item.operation", "no attribute 'operation'"),
        ("merge", "target, items in", "target, items, more in", "not enough values to unpack"),
        ("propose", "lesson in lessons", "lesson, more in lessons", "too many values to unpack"),
        ("summarise", "question | fenced", "question.title().x | fenced", "no attribute 'x'"),
    ],
)
def test_a_prompt_that_cannot_be_filled_is_refused_when_it_is_read(
    tmp_path: Path, name: str, was: str, now: str, said: str
) -> None:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    assert was in text
    (tmp_path / f"{name}.md").write_text(text.replace(was, now), "utf-8")
    with pytest.raises(ConfigError, match=rf"{name}\.md: it cannot be filled: .*{said}"):
        load_prompts(tmp_path)


def test_the_shipped_prompts_can_be_filled_from_any_folder(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.md"):
        if path.stem != "judge":
            (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
    assert load_prompts(tmp_path).keys() == load_prompts().keys()
