"""The public Python API, as a script or a notebook uses it."""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import (
    ConfigError,
    DataError,
    GrpoPracticeError,
    LockedError,
    PausedError,
)
from grpo_practice.core.events import CallFinished, Event, RolloutFinished, RunFinished, RunStarted
from grpo_practice.main import run
from grpo_practice.sim.questions import questions
from grpo_practice.store.run_names import library_variant

PAGE = Path(__file__).parents[1] / "docs/python.md"
PEM = Path(__file__).parent / "contract/page.pem"
N = 6
SECRET = "sk-workspace-0123456789abcdef"


def config(exp_id: str = "toy", **practice: Any) -> dict[str, Any]:
    agent = {
        "agent": {"name": "solver", "instructions": "Put the answer into \\boxed{}."},
        "model": {"model_provider": {"model": "sim"}},
    }
    return {
        "exp_id": exp_id,
        "practice": {"epochs": 1, "batch_size": 3, "grpo_n": 3, **practice},
        "data": {"practice_dataset_name": "sums"},
        "evaluation": {"data": {"dataset": "test"}, "verify": "math", "agent": agent},
    }


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "x.db") as opened:
        samples = questions(2 * N, 7)
        opened.datasets.upload("sums", samples[:N])
        opened.datasets.upload("test", [(s.question, s.answer) for s in samples[N:]])
        yield opened


class Counter:
    """Counts the model calls that were paid for, and those that were found in the database."""

    def __init__(self, then: Callable[[Event], object] = lambda _: None) -> None:
        self.new = self.replayed = 0
        self._then = then

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self.replayed += event.replayed
            self.new += not event.replayed
        self._then(event)


@pytest.mark.long
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) > 5
    (tmp_path / "page.py").write_text("\n\n".join(blocks), "utf-8")
    command = [sys.executable, "-W", "error", "page.py"]
    # The page's agent makes a TLS context for each request: of one certificate, not of hundreds.
    env = {**os.environ, "SSL_CERT_FILE": str(PEM)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.splitlines()[0].split())
    assert 0 < before < after <= 1


def test_every_public_method_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    methods = {n for n in dir(Workspace) if not n.startswith("_")}
    assert not {n for n in methods if f".{n}(" not in page and f"`{n}`" not in page} - {"datasets"}


def test_importing_the_package_brings_nothing_heavy() -> None:
    code = (
        "import sys; from grpo_practice import Workspace; Workspace('x.db');"
        "print([m for m in ('pydantic','yaml','jinja2','sqlite3','aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_error_that_nobody_catches_ends_with_its_hint_once(tmp_path: Path) -> None:
    code = "from grpo_practice import Workspace; Workspace('x.db').runs()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last, hint = done.stderr.splitlines()[-2:]
    assert last.endswith("ConfigError: there is no database x.db yet")
    assert hint.startswith("hint: name another with --db, or start with: grpo-practice init")
    assert done.stderr.count("hint: ") == 1


def test_what_it_returns_is_what_the_command_prints(
    ws: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    ws.evaluate(config())
    ws.practise(config())
    assert capsys.readouterr() == ("", ""), "the API prints nothing"

    def printed(*words: str) -> Any:
        assert run([*words, "--json", "--db", str(ws.path)]) == 0
        return json.loads(capsys.readouterr().out)

    def plain(document: dict[str, Any]) -> Any:
        return json.loads(json.dumps(document))

    assert printed("runs", "list") == plain(ws.runs().document())
    shown, stored = printed("runs", "show", "toy"), plain(ws.run("toy").document())
    assert shown.pop("next").replace(f" --db {ws.path}", "") == stored.pop("next")
    assert shown == stored
    libraries = ("experiences", "list", "--quarantined")
    assert printed(*libraries) == plain(ws.experiences(quarantined=True).document())
    first = ws.experiences().library.experiences[0].id
    assert printed("experiences", "show", first) == plain(ws.experience(first).document())
    asked = printed("practice", "--dry-run")
    assert asked == plain(ws.forecast_practice().document())
    again = printed("eval", "--model", "sim", "--dataset", "test", "--verify", "math")
    here = plain(ws.evaluate(model="sim", dataset="test", verify="math").document())
    for changing in ("seconds", "requests"):
        again.pop(changing)
        here.pop(changing)
    assert again == here


async def test_a_blocking_call_works_where_a_loop_is_running(ws: Workspace) -> None:
    inside = ws.evaluate(config())  # as in a notebook's cell
    outside = await ws.evaluate_async(config())
    assert inside.score == outside.score
    assert outside.requests.new == 0


async def test_the_twins_do_the_same(ws: Workspace) -> None:
    one = await ws.practise_async(config("one"))
    other = await asyncio.to_thread(ws.practise, config("other"))
    texts = [[e.text for e in r.library.experiences] for r in (one, other)]
    assert texts[0] == texts[1]


def test_an_exception_in_on_event_ends_no_run(ws: Workspace) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    assert ws.evaluate(config(), on_event=broken).score.questions_scored == N
    ws.evaluate(on_event=broken)  # whose first event is a notice, before a run is open


async def test_a_cancelled_run_goes_on_and_pays_nothing_twice(ws: Workspace) -> None:
    """A task that is cancelled amid a step is a run that stopped; the rest is asked later."""
    undisturbed = Counter()
    await ws.practise_async(config("whole"), on_event=undisturbed)

    ended = 0

    def stop(event: Event) -> None:
        nonlocal ended
        ended += isinstance(event, RolloutFinished)
        if ended == 4:
            task.cancel()

    first = Counter(stop)
    task = asyncio.create_task(ws.practise_async(config("cut"), on_event=first))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {r.name: r.status for r in ws.runs().runs}["cut"] == "stopped"
    paid = sum(cost.calls for cost in ws.run("cut").costs)
    assert paid >= 4

    second = Counter()
    await ws.practise_async(config("cut"), on_event=second)
    assert paid + second.new == undisturbed.new
    assert [c.calls for c in ws.run("cut").costs] == [c.calls for c in ws.run("whole").costs]


async def test_two_workspaces_on_one_file_work_on_two_runs_and_not_on_one(ws: Workspace) -> None:
    other = Workspace(ws.path)
    begun = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, RunStarted):
            begun.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(ws.practise_async(config("one"), on_event=on_event))
        await begun.wait()
        with pytest.raises(LockedError):
            await other.practise_async(config("one"))
        await other.practise_async(config("two"))  # closes its database while the first one works
    calls = [[c.calls for c in ws.run(name).costs] for name in ("one", "two")]
    assert calls[0] == calls[1]


def test_a_python_function_scores_and_another_text_is_another_judge(ws: Workspace) -> None:
    def right(sample: Any) -> dict[str, float]:
        return {"reward": 1.0}

    def wrong(sample: Any) -> dict[str, float]:
        return {"reward": 0.0}

    assert ws.evaluate(config(), verify=right).score.mean == 1.0
    assert ws.evaluate(config(), verify=wrong).score.mean == 0.0


def test_a_secret_of_the_environment_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREIGN_API_KEY", SECRET)
    with Workspace(tmp_path / "x.db") as ws, pytest.raises(DataError, match="contains a secret"):
        ws.datasets.upload("test", [(f"Is {SECRET} long?", "yes")])


def test_a_cap_pauses_and_the_same_call_goes_on(ws: Workspace) -> None:
    with pytest.raises(PausedError) as paused:
        ws.evaluate(config(), max_requests=2)
    assert f"{ws!r}.evaluate(config, max_requests=12)" in str(paused.value.hint)
    counter = Counter()
    assert ws.evaluate(config(), on_event=counter).score.questions_scored == N
    assert counter.new == N - 2


def test_a_pilot_that_did_its_part_ends_without_an_error(ws: Workspace) -> None:
    ended = list[RunFinished]()

    def on_event(event: Event) -> None:
        if isinstance(event, RunFinished):
            ended.append(event)

    ws.forecast_evaluation(config(), pilot=1, on_event=on_event)
    ws.forecast_practice(config(), pilot=1, on_event=on_event)
    assert [(end.run, end.error) for end in ended] == [("toy/eval", None), ("toy", None)]


@pytest.mark.parametrize(
    ("option", "least"),
    [("limit", 1), ("restart_step", 0), ("max_tokens", 0), ("max_requests", 0), ("pilot", 1)],
)
def test_a_number_below_what_can_be_is_refused(ws: Workspace, option: str, least: int) -> None:
    with pytest.raises(ConfigError, match=f"{option} {least - 1}: .* {least} or more"):
        ws.forecast_evaluation(config(), **{"pilot": 1, option: least - 1})  # type: ignore[arg-type]
    assert not ws.runs().runs


def test_a_library_of_another_database_is_not_taken_for_one_of_this(ws: Workspace) -> None:
    ws.practise(config())
    learnt = ws.experiences("toy").library
    assert learnt.experiences
    with Workspace(ws.path.with_name("other.db")) as other:
        samples = questions(2 * N, 7)
        other.datasets.upload("sums", samples[:N])
        other.datasets.upload("test", samples[N:])
        other.practise(config(seed=5))  # libraries of the same numbers, and other words
        other.practise(config("second"), start=learnt)
        theirs = other.evaluate(config(), library=learnt)
        assert theirs.run == f"toy/eval/{library_variant(learnt)}"
        assert theirs.library == learnt
    with closing(sqlite3.connect(other.path)) as db:
        imported = db.execute(
            "SELECT parent_id FROM libraries WHERE run_id = 'second' AND cause = 'import'"
        )
        assert imported.fetchall() == [(None,)]
    assert ws.evaluate(config(), library=learnt).library == learnt


def test_rollouts_are_read_as_they_are_asked_for(ws: Workspace) -> None:
    ws.practise(config())
    found = ws.rollouts("toy")
    first = next(found)
    assert first.question
    assert [m["role"] for m in first.transcript] == ["system", "user", "assistant"]
    found.close()  # type: ignore[attr-defined]
    assert len([*ws.rollouts("toy")]) == N * 3
    assert {r.step for r in ws.rollouts("toy", step=1)} == {1}


def test_errors_are_the_projects_own(ws: Workspace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no database"):
        Workspace(tmp_path / "none.db").runs()
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(GrpoPracticeError, match="no run"):
        ws.run("nowhere")
    with pytest.raises(GrpoPracticeError):
        ws.evaluate(config(), dataset="nothing")
    assert str(signature(Workspace.evaluate)).endswith("-> 'EvalReport'")
    with pytest.raises(ConfigError, match="epochs '2': should be a whole number"):
        ws.practise(config(), epochs="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"practise\(\) got .* 'epochz'"):
        ws.practise(config(), epochz=2)  # type: ignore[call-arg]
    ws.close()
    with pytest.raises(ConfigError, match="is closed"):
        ws.runs()


def test_a_forecast_without_a_pilot_writes_nothing(ws: Workspace) -> None:
    before = ws.path.read_bytes()
    assert ws.forecast_practice(config()).total.calls.low > 0
    assert ws.path.read_bytes() == before
    assert not ws.runs().runs


INTERRUPTED = """
import asyncio, json, os, signal, sys
from grpo_practice import Workspace
from grpo_practice.serve.serving import Served
from grpo_practice.core.events import RolloutFinished

ended = 0

def interrupt(event):
    global ended
    if isinstance(event, RolloutFinished) and (ended := ended + 1) == 3:
        os.kill(os.getpid(), signal.SIGINT)

async def cell():
    ws = Workspace(sys.argv[1])
    try:
        ws.evaluate(json.loads(sys.argv[2]), on_event=interrupt)
    except KeyboardInterrupt:
        print(*(run.status for run in ws.runs().runs))

asyncio.new_event_loop().run_until_complete(cell())  # as a notebook's kernel runs a cell
"""


@pytest.mark.long
def test_an_interrupt_in_a_notebook_stops_the_run_in_its_thread(ws: Workspace) -> None:
    one = config()
    one["evaluation"] |= {"pass_k": 20, "concurrency": 1}
    command = [sys.executable, "-c", INTERRUPTED, str(ws.path), json.dumps(one)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "stopped\n", done.stderr
    counter = Counter()
    ws.evaluate(one, on_event=counter)
    assert 3 <= N * 20 - counter.new < N * 20
