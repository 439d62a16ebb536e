"""The judge's preset for questions that are answered from web sites."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Sample
from grpo_practice.verify.judge import PRESETS
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier
from tests.verify.test_judge import Scripted

SAMPLE = Sample("Who opened it, and when?", "Ada, on 3 May")
TEXT = PRESETS["webwalker"].read_text("utf-8").strip()


async def test_the_presets_criteria_are_what_the_judge_reads() -> None:
    chat = Scripted("Both are named.\nGRADE: CORRECT")
    function = resolve("judge", {"preset": "webwalker"}, None, Path())
    verdict = await Verifier(function)(SAMPLE, "Ada, 3rd of May", chat)
    assert verdict.reward == 1.0
    (messages, _) = chat.asked[0]
    assert TEXT in messages[-1]["content"]


async def test_criteria_of_ones_own_come_after_the_presets() -> None:
    chat = Scripted("GRADE: INCORRECT")
    function = resolve("judge", {"preset": "webwalker", "criteria": "In French."}, None, Path())
    await Verifier(function)(SAMPLE, "Ada", chat)
    (messages, _) = chat.asked[0]
    assert f"{TEXT}\n\nIn French." in messages[-1]["content"]


def test_the_references_scoring_file_means_the_preset() -> None:
    named, preset, plain = (
        resolve(name, params, None, Path())
        for name, params in (
            ("webwalker.py:verify_func", {}),
            ("judge", {"preset": "webwalker"}),
            ("judge", {}),
        )
    )
    assert named.sha == preset.sha != plain.sha


def test_a_preset_is_known_by_its_text() -> None:
    spelt = resolve("judge", {"criteria": TEXT}, None, Path())
    assert resolve("judge", {"preset": "webwalker"}, None, Path()).sha == spelt.sha


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="no preset 'gaia'") as e:
        resolve("judge", {"preset": "gaia"}, None, Path())
    assert "webwalker" in (e.value.hint or "")
