"""How progress is told."""

import logging

import pytest

from grpo_practice.events import Event, Notice, tee


def test_a_sink_that_fails_harms_neither_the_others_nor_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: Event) -> None:
        raise ValueError("no screen")

    seen: list[Event] = []
    emit = tee(seen.append, broken, seen.append)
    with caplog.at_level(logging.DEBUG):
        emit(Notice("a"))
        emit(Notice("b"))
    assert seen == [Notice("a"), Notice("a"), Notice("b"), Notice("b")]
    assert "no screen" in caplog.text


def test_a_key_pressed_while_a_sink_runs_still_stops_the_run() -> None:
    def pressed(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tee(pressed)(Notice("a"))
