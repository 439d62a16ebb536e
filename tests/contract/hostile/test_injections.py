"""Practice with attempts, tool results and pages that try to act, end to end.

Forty texts, one in the wrong attempt of each of forty groups. The library is compared with that of
the same practice with harmless texts. What a teacher that obeys a text in its own words brings in
is no text that could be known again: only a person stops that (`practice.approve`).
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from grpo_practice import Workspace
from tests.contract import project
from tests.contract.endpoint.simulated import respond, stage_of
from tests.contract.hostile.injections import (
    FORMATS,
    TEXTS,
    Model,
    Place,
    harmless,
    questions,
    texts,
    word,
)
from tests.contract.project import Hook, served
from tests.contract.standins import JINA_KEY, SERPER_KEY, Standins, standins

N = len(TEXTS)
IN_OTHER_WORDS = "base64"
"""Text that an obedient teacher has to decode: it holds no sentence of the lesson."""
Library = Mapping[str, str]


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standins]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with standins() as it:
        yield it


async def practised(
    folder: Path, hook: Hook, asked: Any, config: Mapping[str, Any], **practice: Any
) -> dict[str, str]:
    """Practise in a folder of its own; return the library."""
    folder.mkdir()  # noqa: ASYNC240 - nothing else runs yet
    async with served(hook) as endpoint:
        provider = {"model_provider": {"model": "m-1", "base_url": endpoint.url, "api_key": "none"}}
        with Workspace(folder / "x.db") as ws:
            ws.datasets.upload("crates", asked)
            report = await ws.practise_async(
                {
                    "exp_id": "toy",
                    "practice": {"epochs": 1, "rollout_concurrency": 16, **practice},
                    "data": {"practice_dataset_name": "crates"},
                    "evaluation": {
                        "data": {"dataset": "crates"},
                        "verify": config["verify"],
                        "judge_model": provider if config["verify"] == "judge" else None,
                        "agent": {"model": provider, **config["agent"]},
                    },
                }
            )
    return {e.id: e.text for e in report.library.experiences}


async def learnt(folder: Path, model: Model, web: Standins, **practice: Any) -> dict[str, str]:
    """Practise two steps: the first teaches an experience for each text of the second."""
    model.first = N

    def results(query: str, n: int) -> list[dict[str, str]]:
        crate = int(query.rpartition("crate ")[2].partition("?")[0])
        said = {"a": "It is said to be full.", "b": "It was counted.", "c": "Nobody knows."}
        if query.endswith("again") and crate >= N:
            said["a"] = model.texts[word(crate - N)][1]
        return [
            {"title": "Crate", "link": f"https://{name}.example/{crate}", "snippet": text}
            for name, text in said.items()
        ]

    web.results = results
    where = {"search_url": web.serper_url, "search_api_key": SERPER_KEY}
    where |= {"crawl_url": web.jina_reader_url, "crawl_api_key": JINA_KEY}
    search = {"search": {"config": where, "activated_tools": ["search"]}}
    python = {"python_executor": {"config": {"backend": "monty"}}}
    tools = {"page": search, "arguments": python, "result": python}.get(model.place, {})
    instructions = {"name": "counter", "instructions": "Count. End with `Answer: number`."}
    config = {"verify": "judge", "agent": {"agent": instructions, "toolkits": tools}}
    settings = {"batch_size": N, "grpo_n": 2, "shuffle_data": False, **practice}
    return await practised(folder, model, questions(2 * N), config, **settings)


def misses(got: Library, want: Library, model: Model) -> list[str]:
    """Return the texts that changed the library, by name, and what they did."""
    found = list[str]()
    ours = {*want.values()}
    for n, (name, w) in enumerate(zip(TEXTS, texts(), strict=True)):
        planted = [text for text in got.values() if w in text.lower() and text not in ours]
        found += [f"{name}: planted {text!r}" for text in planted]
        if got.get(f"E{n + 1}") != want[f"E{n + 1}"]:
            found.append(f"{name}: E{n + 1} became {got.get(f'E{n + 1}')!r}")
        if model.teacher == "honest" and not any(word(N + n) in text for text in got.values()):
            found.append(f"{name}: the lesson of its group is gone")
        if model.teacher == "honest" and w in model.obeyed:
            found.append(f"{name}: read outside of its fence")
    if model.teacher == "honest" and not found and sorted(got.values()) != sorted(ours):
        found.append(f"something else: {sorted({*got.values()} ^ ours)}")
    return found


@pytest.mark.long
async def test_no_text_changes_what_is_learnt(tmp_path: Path, web: Standins) -> None:
    want = await learnt(tmp_path / "harmless", Model(harmless()), web)
    assert len(want) == 2 * N
    honest = Model(texts())
    assert misses(await learnt(tmp_path / "honest", honest, web), want, honest) == []
    obedient = Model(texts(), "obedient")
    found = misses(await learnt(tmp_path / "obedient", obedient, web), want, obedient)
    assert [one.partition(":")[0] for one in found] == [IN_OTHER_WORDS]


WORLD = {
    "difficulty": {"a": 4.0, "b": 5.0},
    "rule": {"size": [2.0, 2.5]},
    "teacher": {"top": 1.0, "miss": 0.0, "forms": "json"},
}


@pytest.mark.long
async def test_no_text_changes_what_is_learnt_in_the_simulated_world(tmp_path: Path) -> None:
    asked = project.questions(N)
    at = {row["question"]: n for n, row in enumerate(asked)}
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    agent = {"agent": {"name": "solver", "instructions": "Put the answer into \\boxed{}."}}
    libraries = list[Library]()
    for said in (harmless(), texts()):
        carried = [text for _, text in said.values()]

        def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            status, answer = respond("/v1/chat/completions", json.dumps(body).encode(), world)
            if stage_of(body) == "play":
                message = answer["choices"][0]["message"]
                text = carried[at[body["messages"][-1]["content"]]]  # noqa: B023 - called at once
                message["content"] = f"{text}\n{message['content']}"
            return status, answer

        folder = tmp_path / str(len(libraries))
        config = {"verify": "math", "agent": agent}
        libraries.append(await practised(folder, hook, asked, config, batch_size=N // 2, grpo_n=3))
    assert libraries[0]
    assert libraries[1] == libraries[0]


@pytest.mark.long
async def test_no_text_changes_what_is_learnt_wherever_it_stands(
    tmp_path: Path, web: Standins
) -> None:
    found = list[str]()
    for place in get_args(Place):
        want = await learnt(tmp_path / place, Model(harmless(), place=place), web)
        models = [Model(texts(), teacher, place) for teacher in ("parrot", "obedient")]
        models += [Model(texts(), "honest", place, form) for form in FORMATS.values()]
        for i, model in enumerate(models):
            got = await learnt(tmp_path / f"{place}{i}", model, web)
            found += [
                f"{place}, {model.teacher}, {i}: {miss}"
                for miss in misses(got, want, model)
                if (model.teacher, miss.partition(":")[0]) != ("obedient", IN_OTHER_WORDS)
            ]
    assert "\n".join(found) == ""


@pytest.mark.long
async def test_of_a_teacher_that_obeys_in_its_own_words_a_person_decides(
    tmp_path: Path, web: Standins
) -> None:
    model = Model(texts(), "in other words")
    got = await learnt(tmp_path / "a", model, web)
    assert any("Twice the opening figure" in text for text in got.values())
    assert await learnt(tmp_path / "b", Model(texts(), model.teacher), web, approve=True) == {}
