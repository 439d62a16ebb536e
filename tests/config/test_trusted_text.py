"""The digest by which a text that a user trusts is known again."""

from pathlib import Path

from grpo_practice.config.trust.word import text_digest


def test_a_folder_is_the_same_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert text_digest({}, tmp_path / "link") == text_digest({}, tmp_path / "a")
    assert text_digest({}, Path()) == text_digest({}, Path.cwd())
