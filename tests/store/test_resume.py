"""Every way a command can meet a run that is there already."""

from dataclasses import replace

import pytest

from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.store import identity
from grpo_practice.store.identity import diff
from grpo_practice.store.resume import (
    Begin,
    Head,
    Rebind,
    Restart,
    Resume,
    ResumeDecision,
    resume_decision,
)

SAME = {"a": 1}


def head(
    cause: str = "start",
    from_step: int = 0,
    recorded: int = 3,
    own_closed: int = 3,
    finished: bool = False,
) -> Head:
    return Head(cause, from_step, SAME, recorded, own_closed, finished)


@pytest.mark.parametrize(
    ("now", "restart", "again", "expected"),
    [
        pytest.param(None, None, False, Begin, id="a new run starts"),
        pytest.param(None, 0, False, Begin, id="restart at 0 of nothing starts"),
        pytest.param(head(), None, False, Resume, id="the same command continues"),
        pytest.param(head(finished=True), None, False, Resume, id="also when all is done"),
        pytest.param(head(), 1, False, Restart, id="restart in the middle"),
        pytest.param(head(), 0, False, Restart, id="restart at 0 is all afresh"),
        pytest.param(head(), 3, False, Resume, id="N = recorded is a plain resume"),
        pytest.param(
            head("restart", 1, 2, 1), 1, False, Resume, id="the same restart under way goes on"
        ),
        pytest.param(
            head("restart", 1, 2, 1), 1, True, Restart, id="--again starts another restart"
        ),
        pytest.param(
            head("restart", 1, 3, 2, finished=True), 1, False, Resume, id="a finished one is kept"
        ),
        pytest.param(
            head("restart", 1, 3, 2, finished=True), 1, True, Restart, id="--again repeats it"
        ),
        pytest.param(
            head("restart", 1, 3, 2, finished=True), 2, False, Restart, id="at a later step"
        ),
        pytest.param(
            head("restart", 0, 3, 3, finished=True), 0, False, Restart, id="0 repeats the run"
        ),
        pytest.param(
            head("restart", 0, 0, 0), 0, False, Resume, id="a restart at 0 under way goes on"
        ),
        pytest.param(head(recorded=0, own_closed=0), 0, False, Restart, id="0 is always afresh"),
    ],
)
def test_decision(
    now: Head | None, restart: int | None, again: bool, expected: type[ResumeDecision]
) -> None:
    assert isinstance(resume_decision("r", now, SAME, restart_step=restart, again=again), expected)


def test_a_changed_configuration_is_refused_with_each_key() -> None:
    with pytest.raises(FingerprintError) as e:
        resume_decision("r", head(), {"a": 2, "b": None}, restart_step=None)
    assert [(c.key, c.was, c.now) for c in e.value.diff] == [("a", 1, 2)]
    assert e.value.hint is not None
    assert "--restart-step" in e.value.hint


def test_the_way_out_names_the_step_to_go_on_from() -> None:
    def hint(now: Head, *, whole: bool = False) -> str:
        with pytest.raises(FingerprintError) as e:
            resume_decision("r", now, {"a": 2}, restart_step=None, whole=whole)
        return str(e.value.hint)

    assert "--restart-step 3 to keep the steps before it" in hint(head())
    assert "--restart-step N to play from step N" in hint(head(finished=True))
    assert "--restart-step 0 to ask all questions again" in hint(head(), whole=True)


def test_what_the_user_did_not_change_is_undone_by_setting_it() -> None:
    def hint(was: int, now: int, **more: int) -> str:
        bound = SAME | {"practice.teacher_context": was}
        with pytest.raises(FingerprintError) as e:
            later = SAME | {"practice.teacher_context": now} | more
            resume_decision("r", replace(head(), identity=bound), later, restart_step=None)
        return str(e.value.hint)

    assert hint(8192, 16_384).startswith(
        "undo the change (set practice.teacher_context: 8192), give the run another exp_id, or"
    )
    assert "teacher_context" not in hint(8192, 8192, a=2)


@pytest.mark.parametrize(
    ("was", "now", "shown"),
    [
        (
            {"agent.function": "a.py:f"},
            {"agent.function": "a.py:f"},
            ("a.py", "a.py, which has changed"),
        ),
        ({"agent.function": "a.py:f"}, {"agent.function": "b.py:f"}, ("a.py", "b.py")),
        ({"evaluation.agent.command": ["sh", "a"]}, {}, ("a file of sh a", None)),
    ],
)
def test_a_changed_program_is_named_and_not_its_hash(
    was: dict[str, str], now: dict[str, str], shown: tuple[str, str | None]
) -> None:
    changes = diff({**was, "agent.sha256": "12"}, {**now, "agent.sha256": "34"})
    assert ChangedKey("agent.sha256", *shown) in changes


def test_before_any_step_is_closed_the_configuration_may_change() -> None:
    now = head(recorded=0, own_closed=0)
    assert isinstance(resume_decision("r", now, {"a": 2}, restart_step=None), Rebind)
    restarted = head("restart", 2, 2, 0)
    assert isinstance(resume_decision("r", restarted, {"a": 2}, restart_step=None), Rebind)


def test_an_edited_verify_function_scores_an_evaluation_again() -> None:
    now = {"verify.sha256": "34"}
    bound = replace(head(), identity={"verify.sha256": "12"})
    assert isinstance(resume_decision("r", bound, now, restart_step=None, whole=True), Rebind)
    restarted = replace(bound, from_step=1, cause="restart")
    for refused, whole in ((bound, False), (restarted, True)):
        with pytest.raises(FingerprintError):
            resume_decision("r", refused, now, restart_step=None, whole=whole)


def test_a_restart_may_change_the_configuration() -> None:
    assert resume_decision("r", head(), {"a": 2}, restart_step=2) == Restart(2)
    assert resume_decision("r", head("restart", 2, 3, 1), {"a": 2}, restart_step=2) == Restart(2)


@pytest.mark.parametrize(("now", "n"), [(head(), 4), (None, 1), (head(), -1)])
def test_a_restart_beyond_what_is_recorded_is_refused(now: Head | None, n: int) -> None:
    with pytest.raises(ConfigError, match="recorded"):
        resume_decision("r", now, SAME, restart_step=n)


def test_a_finished_run_of_another_method_is_only_read() -> None:
    bound = SAME | {"practice.method": 1}
    now = SAME | {"practice.method": 2}
    done = replace(head(finished=True), identity=bound)
    assert resume_decision("r", done, now, restart_step=None) == Resume()
    for other, wanted in ((replace(done, finished=False), now), (done, now | {"a": 2})):
        with pytest.raises(FingerprintError) as refused:
            resume_decision("r", other, wanted, restart_step=None)
        assert "undo the change" not in (refused.value.hint or "")
        shown = ChangedKey("practice.method", identity._METHODS[1], identity._METHODS[2])
        assert shown in refused.value.diff
