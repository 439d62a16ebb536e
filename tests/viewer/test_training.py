"""Report and viewer of a run that trains weights, which has no calls and no library."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from grpo_practice import Workspace
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.types import PlannedStep
from grpo_practice.reports.training import TrainedParts, UpdateRow
from grpo_practice.store.records import StepRow
from grpo_practice.viewer.training import HEIGHT, MOST, Course, stretches
from tests.contract.hostile_texts import HOSTILE
from tests.contract.viewer.viewing import Page, crawl, is_well_made, viewing
from tests.train.stored import RUN, training_database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return training_database(tmp_path)


def test_the_report_tells_how_training_went(database: Path) -> None:
    saved = Workspace(database).report(RUN)
    page = Page(saved.text)
    assert saved.answers == [
        "Not measured yet: no evaluation compares the trained weights with their base model."
    ]
    assert f"grpo-practice eval --run {RUN} --arms base,trained" in page.text
    assert "an adapter of rank 16 by dapo, 4 questions a step, 4 rollouts each" in page.text
    assert "Mean reward: 0.312 first, 0.562 last." in page.text
    assert "Share of groups that are not informative: 0.75 first, 0.5 last." in page.text
    assert "Loss: 0.5 first, 0 last." in page.text
    assert "t.db.train/toy.train/b1/step-000001" in page.text
    assert "Calls by stage" not in page.text
    assert "ValueError: no idea" in page.text
    inside = [link for link in page.links if link.startswith("#")]
    assert {link[1:] for link in inside} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_a_report_has_the_best_and_worst_attempts_of_what_taught_last(database: Path) -> None:
    text = Page(Workspace(database).report(RUN).text).text
    places = re.findall(r"Step (\d), question (\d)", text)
    assert places == [("2", "3"), ("2", "4"), ("1", "3"), ("1", "4"), ("0", "3")]
    assert "group: training moves the weights towards the best and away from the worst." in text


def test_markdown_has_the_steps_and_the_checkpoints(database: Path) -> None:
    text = Workspace(database).report(RUN, format="md").text
    assert "| step 1 | 0.467 | 50.0 % | 0.25 | 0.002 | 1.5 | 1.5 | 12.5 % |" in text
    assert re.search(r"\| step 1 \| - \| 17 bytes \| \w{8} \| t.db.train/toy.train/b1/step-", text)
    assert "| question | visit 1 | visit 2 | visit 3 | change |" in text
    assert "## Cost" not in text
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE steps SET status = 'planned'")
        db.execute("DELETE FROM checkpoints")
    assert "## Training" not in Workspace(database).report(RUN, format="md").text


def test_the_latest_training_is_reported_where_nothing_was_practised(database: Path) -> None:
    assert Workspace(database).report().runs == [RUN]


def test_trained_weights_and_their_base_are_compared_where_both_were_asked(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_practice.viewer import story

    workspace = Workspace(database)
    kept = workspace.report(RUN).text
    asked = list[tuple[str, tuple[str, ...]]]()

    def compared(store: object, exp_id: str, arms: tuple[str, ...]) -> None:
        asked.append((exp_id, arms))

    monkeypatch.setattr(story, "compare_stored", compared)
    assert Page(workspace.report(RUN).text).headings == Page(kept).headings
    assert asked == [("toy", ("base", "trained"))]


@pytest.mark.long
async def test_every_page_of_a_training_run_is_well_made(database: Path) -> None:
    async with viewing(database) as viewer:
        seen = await crawl(viewer)
        for page in seen.values():
            is_well_made(page)
        paths = {"/", "/run", "/step", "/group", "/rollout", "/rollouts", "/questions", "/text"}
        assert {urlsplit(url).path for url in seen} >= paths - {"/text"}
        run = await viewer.page("/run", run=RUN)
        assert "Experiences" not in run.text.partition("Search this run")[0].partition("Steps")[2]
        assert "672 tokens." in run.text
        step = await viewer.page("/step", run=RUN, step=1)
        assert "Weight updates" in step.text
        assert "t.db.train/toy.train/b1/step-000001, sha256" in step.text
        taught = await viewer.page("/step", run=RUN, step=1, status="scored")
        assert re.findall(r"group\s(\d)", taught.text) == ["2", "3"]
        rollout = await viewer.page("/rollout", run=RUN, step=1, slot=3, attempt=3)
        for text in ("How many legs have 4 cats?", "Count.", "163", "ValueError: no idea"):
            assert text in rollout.text


async def test_runs_of_training_are_listed_by_their_kind(database: Path) -> None:
    async with viewing(database) as viewer:
        assert RUN in (await viewer.page("/", kind="train")).text
        assert RUN not in (await viewer.page("/", kind="practice")).text


@pytest.fixture
def hostile(database: Path) -> Path:
    text = f"train: {{model: {HOSTILE!r}}}".replace("\x00", "").replace("\x1b", "")
    with closing(sqlite3.connect(database)) as db, db:
        for sql in (
            "UPDATE samples SET question = :text || sample_id, answer = json_quote(:text)",
            "UPDATE rollout_bodies SET response = :text || :text",
            "UPDATE rollouts SET head = :text, error = :text WHERE attempt = 2",
            "UPDATE checkpoints SET path = :text || :text",
            "UPDATE verdicts SET extracted = :text, critique = :text",
            "UPDATE groups SET reason = :text || :text",
            "UPDATE invocations SET command = :text || :text",
        ):
            assert db.execute(sql, {"text": HOSTILE}).rowcount, sql
        db.execute("UPDATE updates SET loss = 9e999, entropy = -9e999, learning_rate = 1e308")
        db.execute("UPDATE updates SET grad_norm = 9e999, seconds = 9e999 WHERE step = 1")
        db.execute("INSERT INTO texts VALUES (?, ?)", (text_sha(text), text))
        db.execute("UPDATE branches SET config_sha = ?", (text_sha(text),))
    return database


@pytest.mark.long
async def test_what_somebody_else_stored_is_text_and_acts_as_nothing(hostile: Path) -> None:
    texts = [Workspace(hostile).report(RUN).text]
    markdown = Workspace(hostile).report(RUN, format="md").text
    assert not re.search(r"(?<!\\)<script", markdown)
    async with viewing(hostile) as viewer:
        seen = await crawl(viewer)
        for page in seen.values():
            is_well_made(page)
        assert sum("<script>alert(1)</script>" in page.text for page in seen.values()) > 20
        texts += [page.text for page in seen.values()]
    page = Page(texts[0])
    assert not page.tags & {"script", "img", "iframe"}
    assert "onerror" not in {name for name, _ in page.attributes}
    assert not set("".join(texts)) & {"\u202e", "\x00", "\x1b"}


def rows(n: int) -> list[StepRow]:
    """Return closed steps."""
    return [
        StepRow(
            branch_id=1,
            plan=PlannedStep(step, 0, step, ((1, 4),)),
            status="closed",
            library_in=None,
            library_out=None,
            played_by=None,
            stats={"mean_reward": step / n, "informative": 1, "seconds": 1.0},
        )
        for step in range(n)
    ]


def updates(n: int) -> Iterator[UpdateRow]:
    for step in range(n):
        yield UpdateRow(step, 0, -step / n, 1e-5, 1.0, None, None, None, None, 0.5, 10, 1.0)


def trained(n: int, selection: dict[int, float]) -> TrainedParts:
    return TrainedParts("m", "ab", {}, [*updates(n)], [], selection)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 22, MOST, MOST + 1, 1_234])
def test_a_long_run_is_as_wide_as_a_short_one(n: int) -> None:
    course = Course(rows(n), trained(n, {n - 1: 0.75} if n else {}))
    found = course.stretches
    assert len(found) <= MOST
    assert [step for one in found for step in range(one.first, one.last + 1)] == [*range(n)]
    assert (course.tokens, course.seconds) == (10 * n, float(n))
    if not n:
        assert course.charts == []
        return
    for chart in course.charts:
        dots = [*chart.ends, *chart.marks, *(dot for pair in chart.line for dot in pair)]
        assert all(0 <= dot.x <= 100 and 0 <= dot.y <= HEIGHT for dot in dots)
        assert 1 <= len(chart.ticks) <= 8
        assert chart.ticks[0].text == "0"
        assert all(b.x - a.x > 100 / 12 for a, b in pairwise(chart.ticks))
    reward, _, loss = course.charts
    assert len(reward.marks) == 1
    assert (len(loss.line), len(loss.ends)) == ((len(found) - 1), (1 if n == 1 else 0))
    assert ("Each mark is the mean" in course.sentence) == (n > MOST)


def test_the_scale_of_a_loss_is_its_own() -> None:
    chart = Course(rows(2), trained(2, {})).charts[2]
    ((begin, end),) = chart.line
    assert begin.y < end.y
    assert sorted(label for _, label in chart.lines) == ["-0.25", "-0.5", "0"]


def test_steps_taken_together_are_their_mean() -> None:
    (one,) = stretches(rows(4), trained(4, {1: 0.25, 2: 0.5}), 1)
    assert (one.name, one.reward, one.loss) == ("steps 0 to 3", 0.375, -0.375)
    assert (one.tokens, one.seconds, one.informative, one.groups) == (40, 4.0, 4, 4)
    assert one.selection == 0.5


async def test_answers_of_training_are_found_and_sorted(database: Path) -> None:
    async with viewing(database) as viewer:
        found = await viewer.page("/search", run=RUN, q="163")
        assert re.findall(r"step\s(\d), group\s3, attempt\s4", found.text) == ["0", "1", "2"]
        page = await viewer.page("/rollouts", run=RUN, sort="reward")
        lowest = re.findall(r"step\s(\d), group\s(\d), attempt\s(\d)", page.text)
        assert lowest[:2] == [("1", "3", "4"), ("0", "1", "1")]  # first the one without a reward
