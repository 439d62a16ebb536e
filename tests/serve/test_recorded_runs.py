"""A recorded run: its name, its agent, its samples, its end."""

import asyncio
import sys
from pathlib import Path

import pytest

from grpo_practice.app.recorded_samples import stage_run
from grpo_practice.data.read import ReadResult
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.errors import ConfigError, DataError, FingerprintError, LockedError
from grpo_practice.store import Store
from grpo_practice.store.recorded_runs import Conversation, Traffic
from tests.serve.place import (
    PROMPT,
    agent_file,
    ask,
    rows,
    served,
    system,
    talks,
    traffic,
    upstream,
    user,
)
from tests.store.helpers import spec, upload

Q = user("1 + 1?")


def samples_of_run(store: Store, run: str, *, dedup: bool) -> ReadResult:
    with StagedSamples() as staged:
        found = stage_run(staged, store, run, dedup=dedup)
        return ReadResult(list(staged), found.notes, found.skipped)


async def test_stopped_and_started_again_it_goes_on_with_the_same_run(
    tmp_path: Path, store: Store
) -> None:
    async with upstream() as up:
        agent = agent_file(tmp_path, up.url)
        async with served(agent, store) as place:
            first = await ask(place, Q)
        async with served(agent, store) as place:
            second = await ask(place, Q, first, user("Sure?"))
            await ask(place, Q)
    assert traffic(store) == Traffic(3, 2, 0)
    messages = [system(PROMPT), Q, first, user("Sure?"), second]
    assert talks(store)[0] == Conversation(0, messages, 2)
    assert rows(store, "SELECT exit_code, ended_at IS NULL FROM invocations") == [(0, 0)] * 2


async def test_another_agent_is_refused_and_another_name_is_not(
    tmp_path: Path, store: Store
) -> None:
    async with upstream() as up:
        async with served(agent_file(tmp_path, up.url), store):
            pass
        other = agent_file(tmp_path, up.url, instructions="Something else.")
        with pytest.raises(FingerprintError, match="recorded with another agent") as e:
            async with served(other, store):
                pass
        assert [change.key for change in e.value.diff] == ["agent.agent.instructions"]
        async with served(other, store, "rec2") as place:
            await ask(place, Q)
        moved = agent_file(tmp_path, "http://127.0.0.1:9/v1")  # where it is asked is free
        async with served(moved, store):
            pass
    assert traffic(store, "rec2").requests == 1


async def test_a_name_of_another_kind_is_refused_both_ways(tmp_path: Path, store: Store) -> None:
    dataset, _ = upload(store)
    store.begin(spec(dataset, "played"))
    agent = agent_file(tmp_path, "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="played is a run of practice"):
        async with served(agent, store, "played"):
            pass
    with pytest.raises(ConfigError, match="cannot be the name of a run"):
        async with served(agent, store, "a/b"):
            pass
    async with served(agent, store, "rec"):
        pass
    with pytest.raises(ConfigError, match="rec is a recorded run: nothing is played in it"):
        store.begin(spec(dataset, "rec"))


async def test_two_processes_do_not_record_into_one_run(tmp_path: Path, store: Store) -> None:
    agent = agent_file(tmp_path, "http://127.0.0.1:9/v1")
    code = (
        "import sys, time; from pathlib import Path\n"
        "from grpo_practice.store.lock import RunLocks\n"
        "with RunLocks(Path(sys.argv[1])).hold('rec'): print(flush=True); time.sleep(60)"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(store.path), stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()
    try:
        with pytest.raises(LockedError):
            async with served(agent, store):
                pass
    finally:
        other.kill()
        await other.wait()


async def test_samples_of_a_run_are_its_conversations(tmp_path: Path, store: Store) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        first = await ask(place, system("Be kind."), Q)
        talk = [system("Be kind."), Q, first, user("Sure?")]
        second = await ask(place, *talk)
        await ask(place, user(" 1 +  1?"))
        await ask(place, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]})
    found = samples_of_run(store, "rec", dedup=False)
    assert [(s.question, s.answer, s.source) for s in found.samples] == [
        ("1 + 1?", None, "rec"),
        (" 1 +  1?", None, "rec"),
    ]
    assert found.samples[0].meta == {"conversation": [*talk, second], "response": "reply 2"}
    assert any("1 without a user's text left out" in note for note in found.notes)
    assert [s.question for s in samples_of_run(store, "rec", dedup=True).samples] == ["1 + 1?"]
    dataset, _ = upload(store)
    store.begin(spec(dataset, "played"))
    with pytest.raises(ConfigError, match="a run of practice"):
        samples_of_run(store, "played", dedup=False)
    async with served(agent_file(tmp_path, up.url), store, "empty"):
        pass
    with pytest.raises(DataError, match="there is no question in empty"):
        samples_of_run(store, "empty", dedup=False)


async def test_a_recorded_run_can_be_deleted(tmp_path: Path, store: Store) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        await ask(place, Q)
    assert store.delete_runs(["rec"]) == ["rec"]
    assert rows(store, "SELECT count(*) FROM calls") == [(0,)]
