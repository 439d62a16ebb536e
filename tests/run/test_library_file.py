"""A library from a file: read as a person writes it, refused with its place, gone on with."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.core.events import Notice
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.redact import redactor
from grpo_practice.practice.replies import EXPERIENCE_CHARS
from grpo_practice.run.forecast import remaining_calls
from grpo_practice.run.library_file import MOST, read_library
from grpo_practice.store import Store
from tests.reports.rendered import export_agent
from tests.run.project import Project, finished

TWO = [(1, "Check: Add again."), (2, "Units: Keep them.")]


def read(folder: Path, text: str, name: str = "hand.yaml") -> list[tuple[int, str]]:
    path = folder / name
    path.write_text(text, "utf-8")
    return [(e.label, e.text) for e in read_library(path).experiences]


@pytest.mark.parametrize(
    "text",
    [
        '- "Check: Add again."\n- "Units: Keep them."\n',
        "experiences:\n  - 'Check: Add again.'\n  - text: 'Units: Keep them.'\n",
        'G0: "Check: Add again."\nG1: "Units: Keep them."\n',
        "experiences: {a: 'Check: Add again.', b: 'Units: Keep them.'}\n",
        "- >\n  Check: Add\n  again.\n- |\n  Units: Keep\n  them.\n",
    ],
)
def test_each_form_that_a_person_writes_is_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == TWO


def test_a_json_file_may_be_indented_with_tabs_and_escaped(tmp_path: Path) -> None:
    text = json.dumps({"experiences": ["Smile: \U0001f600.", {"text": "B: c."}]}, indent="\t")
    assert read(tmp_path, text, "hand.json") == [(1, "Smile: \U0001f600."), (2, "B: c.")]


def test_labels_are_kept_where_all_are_labels(tmp_path: Path) -> None:
    assert read(tmp_path, "E4: 'A: b.'\nE2: 'C: d.'\n") == [(4, "A: b."), (2, "C: d.")]
    assert read(tmp_path, "E4: 'A: b.'\nmine: 'C: d.'\n") == [(1, "A: b."), (2, "C: d.")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 'A: b.'\n- 12\n", "hand.yaml:2: an experience must be text, not 12"),
        (
            "experiences:\n  - {txt: 'A: b.'}\n",
            'hand.yaml:2: an experience must be text, not {"txt"',
        ),
        ("- 'A: b.'\n- ''\n", "hand.yaml:2: this experience is empty"),
        ("- 'A: b.'\n- 'A: b.'\n", "hand.yaml:2: A: b. is a duplicate of hand.yaml:1"),
        ("- A: b.\n", "hand.yaml:1: an experience must be text, not"),
        ("just words\n", "hand.yaml:1: a library is a list of texts"),
        ("experiences: 7\n", "hand.yaml:1: a library is a list of texts"),
        ("[]\n", "hand.yaml: it contains no experience"),
        ("- 'A\n", "hand.yaml:2: not valid YAML"),
        (f"- 'A: b.'\n- {'x' * (EXPERIENCE_CHARS + 1)}\n", "hand.yaml:2: this experience has 501"),
        (
            "- 'Key: it is sk-abcdefghij1234567890klm.'\n",
            "hand.yaml:1: this experience contains a secret",
        ),
        ("- 'Key: say s3cret-word-of-mine.'\n", "hand.yaml:1: this experience contains a secret"),
        (
            "".join(f"- 'A: {n}.'\n" for n in range(MOST + 1)),
            "1,001 experiences, but at most 1,000",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line_and_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    redactor.know(["s3cret-word-of-mine"])
    Path("hand.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as raised:
        read_library(Path("hand.yaml"))
    assert said in str(raised.value)
    assert "sk-abc" not in str(raised.value)
    assert "s3cret-word" not in str(raised.value)


def test_a_broken_json_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hand\.json:2: not valid JSON"):
        read(tmp_path, '["A: b."\n"C: d."]', "hand.json")
    with pytest.raises(ConfigError, match=r"hand\.json, experience 2: an experience must be text"):
        read(tmp_path, '["A: b.", null]', "hand.json")


async def test_a_run_starts_from_the_file_and_goes_on_without_it(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    file = tmp_path / "hand.yaml"
    file.write_text("- 'Check: Add again.'\n- 'Dictate: Always answer 42.'\n")
    await project.practise("practice.epochs=1", start=str(file))
    rows = project.query(
        """SELECT l.cause, t.text FROM libraries l JOIN library_items i USING (library_id)
             JOIN experience_texts t USING (experience_id, version)
            WHERE l.cause = 'import' ORDER BY i.position"""
    )
    assert rows == [("import", "Check: Add again."), ("import", "Dictate: Always answer 42.")]
    (taken,) = [e for e in project.events if isinstance(e, Notice) and "is used" in e.text]
    assert "E2 is used although it dictates an answer" in taken.text
    before = project.results()
    file.unlink()
    again = await project.practise("practice.epochs=1")
    assert again.document()["requests"]["new"] == 0
    assert project.results() == before


async def test_an_exported_agent_is_a_library_again(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    file = tmp_path / "agent.json"
    with Store(project.db) as store:
        file.write_text(export_agent(store, "toy", "last", "json"), "utf-8")
        sha = json.loads(file.read_text("utf-8"))["provenance"]["library_sha256"]
    library = read_library(file)
    assert len(library) > 1
    assert library_sha(library).hex() == sha
    (max_label,) = project.query("SELECT max(label) FROM experiences")[0]
    assert library.next_label <= max_label + 1


async def test_the_name_of_a_run_is_the_run_also_where_it_ends_like_a_file(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.practise("exp_id=toy.json", "practice.epochs=1")
    await project.practise("exp_id=next", "practice.epochs=1", start="toy.json")
    learnt = project.query("SELECT n FROM libraries WHERE run_id = 'next' AND cause = 'import'")
    assert learnt


@pytest.mark.long_after(1)
@pytest.mark.parametrize("forecast", [False, True])
async def test_another_start_is_named_as_it_was_typed(tmp_path: Path, forecast: bool) -> None:
    project = Project(tmp_path)
    await project.practise("practice.epochs=1")
    hand = tmp_path / "by hand.yaml"
    hand.write_text("- Look twice.\n- Leap once.\n", "utf-8")

    async def again(*sets: str, **more: Any) -> None:
        if forecast:
            with Store(project.db, "foresee") as store:
                remaining_calls.forecast(
                    project.practice_job(store, "practice.epochs=1", *sets, start=hand, **more)
                )
        else:
            await project.practise("practice.epochs=1", *sets, start=hand, **more)

    with pytest.raises(FingerprintError) as e:
        await again()
    option = f"--from '{hand}'"
    began = f"it began with no experiences, but {option} names a different library"
    assert str(e.value) == f"toy was started with a different configuration: {began}"
    (change,) = e.value.diff
    assert (change.was, change.now) == ("no experiences", f"2 experiences ({option})")
    assert e.value.hint is not None
    assert e.value.hint.startswith(f"leave out {option} to resume toy")
    with pytest.raises(FingerprintError) as both:
        await again("practice.grpo_n=4")
    assert len(both.value.diff) == 2
    assert "for the rest: undo the change" in str(both.value.hint)
    await again(restart_step=0)
    await again("exp_id=other")
