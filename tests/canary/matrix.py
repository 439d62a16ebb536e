"""Every command under every echo, and the search for keys in what is left.

`python -m tests.canary.matrix` prints the table: a row for each echo, a column for each group of
commands, and in each cell how many keys were found. It has to be 0 everywhere.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.canary import keys
from tests.canary.echoes import ECHOES
from tests.canary.place import Place
from tests.contract.endpoint.actions import simulated
from tests.contract.endpoint.server import serving

LOOKS = (
    ["runs", "list"],
    ["runs", "list", "--json"],
    ["runs", "show", "toy"],
    ["runs", "show", "toy/eval", "--json"],
    ["runs", "diagnose", "toy"],
    ["runs", "trace", "toy"],
    ["runs", "compare", "toy/eval", "toy", "--show", "2"],
    ["rollouts", "list", "toy", "--failed"],
    ["rollouts", "list", "toy/eval", "--json"],
    ["rollouts", "show", "toy:0", "--full"],
    ["rollouts", "show", "toy/eval", "--question", "1", "--json"],
    ["experiences", "list"],
    ["experiences", "show", "E1"],
    ["experiences", "effect", "--dataset", "train", "--dry-run"],
    ["experiences", "prune", "--run", "toy"],
    ["experiences", "diff", "toy:0", "toy"],
    ["experiences", "remove", "E1", "--json"],
    ["experiences", "edit", "E1", "--text", "Units: name them first."],
    ["experiences", "approve", "--all"],
    ["experiences", "reject", "--all", "--json"],
    ["data", "list"],
    ["data", "show", "train"],
    ["data", "export", "train"],
    ["config", "show"],
    ["config", "show", "--config", "c.yaml"],
    ["config", "show", "--config", "c.yaml", "--json"],
    ["config", "validate", "--config", "c.yaml"],
    ["trust"],
    ["db", "check"],
    ["db", "backup", "copy.db"],
    ["db", "backup", "copy.db", "--force", "--json"],
    ["export-agent", "--run", "toy"],
    ["export-agent", "--run", "toy", "--json"],
    ["export-agent", "--run", "toy", "-o", "a.yaml"],
    ["export-agent", "--run", "toy", "-o", "a.md"],
    ["export-agent", "--run", "toy", "-o", "a.json"],
    ["export-agent", "--run", "toy", "-o", "a.py"],
    ["export-agent", "--run", "toy", "-o", "AGENTS.md"],
    ["export-agent", "--run", "toy", "--format", "skill", "-o", "toy-skill"],
    ["runs", "export", "toy"],
    ["export-data", "toy", "--format", "sft"],
    ["export-data", "toy", "--format", "dpo", "-o", "pairs.jsonl", "--json"],
    ["runs", "export", "toy", "-o", "rows.csv", "--json"],
    ["report", "toy", "toy/eval"],
    ["report", "toy", "-o", "-", "--format", "md"],
    ["report", "toy", "-o", "r.md", "--json"],
    ["config", "validate", "--agent", "a.yaml"],
    ["config", "show", "--agent", "a.yaml", "--json"],
    ["experiences", "show", "H999"],
)
"""What is looked at after a run."""

WRONG = (
    ["eval", "--config", "broken.yaml"],
    ["eval", "--config", "wrong.yaml", "--json"],
    ["config", "validate", "--config", "broken.yaml"],
    ["trust", "--host", keys.PASTED],
    ["trust", "--host", f"http://u:{keys.PASTED}@[::1", "--key", "UTU_LLM_API_KEY"],
    ["config", "show", "--config", "wrong.yaml"],
    ["eval", "--config", keys.PASTED],
    ["--debug", "eval", "--config", "c.yaml", "--set", f"exp_id={keys.STUDENT}"],
    ["eval", "--config", "c.yaml", "--set", f"pass_k={keys.PASTED}"],
    ["eval", "--config", "c.yaml", "--set", keys.PASTED],
    ["eval", "--config", "c.yaml", "--set", f"agent.model.model_provider.api={keys.PASTED}"],
    ["eval", "--config", "c.yaml", "--base-url", keys.PASTED],
    ["eval", "--config", "c.yaml", "--base-url", f"ftp://u:{keys.PASTED}@h", "--json"],
    ["eval", "--config", "c.yaml", "--model", keys.STUDENT],
    ["eval", "--config", "c.yaml", "--pass-k", keys.STUDENT],
    ["eval", "--config", "c.yaml", f"--{keys.STUDENT}"],
    ["eval", "--config", "c.yaml", "--verify", f"{keys.UNUSED}.py:f"],
    ["practice", "--config", "c.yaml", "--dataset", keys.PASTED, "--db", "other.db"],
    ["practice", "--config", "c.yaml", "--set", f"practice.agent_objective=use {keys.DOTENV}"],
    ["practice", "--config", "c.yaml", "--set", f"practice.prompts_dir={keys.PASTED}"],
    ["train", "--config", "c.yaml", "--set", f"train.model={keys.PASTED}"],
    ["train", "tune", "--trials", "2", "--config", "c.yaml", "--model", keys.DOTENV],
    ["train", "tune", "--population", "2", "--config", "c.yaml", "--model", keys.DOTENV],
    [
        *("eval", "--config", "c.yaml", "--set"),
        f"agent.model.model_settings.extra_body={{key: {keys.STUDENT}}}",
    ],
    ["eval", "--config", "c.yaml", "--verify", "leaky.py:f"],
    ["eval", "--config", "c.yaml", "--set", "verify={name: judge, template: leaky.md}"],
    ["runs", "list", "--db", f"no/{keys.STUDENT}/x.db"],
    ["--debug", "runs", "show", keys.STUDENT],
    ["rollouts", "list", keys.STUDENT],
    ["data", "upload", f"{keys.STUDENT}.jsonl", "--name", "x"],
    ["data", "upload", "train.jsonl", "--name", keys.STUDENT],
    ["data", "upload", "key.jsonl", "--name", "x"],
    ["data", "upload", "train.jsonl", "--name", "x", "--map", f"question={keys.STUDENT}"],
    [keys.STUDENT],
)
"""A key where none belongs."""

CRITIQUE = "toy/eval/verify=score.py:critique"
SCORED = ("critique", "raises", "prints", "wrong", "cut", "leaves", "asks")
"""The verify functions of `score.py`."""


def runs(place: Place) -> None:
    """Practise and evaluate, whatever comes of it, then look at it."""
    place.type("data", "upload", "train.jsonl", "--name", "train")
    for words in (
        ["practice", "--config", "c.yaml"],
        ["--debug", "practice", "--config", "c.yaml", "--json"],
        ["--debug", "eval", "--config", "c.yaml", "--show"],
        ["eval", "--json"],
        ["doctor", "--config", "c.yaml"],
    ):
        place.type(*words)
    for words in LOOKS:
        place.type(*words)


def judged(place: Place) -> None:
    """The judge is asked, in a run, again, and by `verify`."""
    place.type("eval", "--config", "c.yaml", "--verify", "judge")
    place.type("--debug", "eval", "--config", "c.yaml", "--verify", "score.py:asks", "--json")
    place.type("verify", "judge", "--answer", "24", "--response", "it is 24")
    place.type("--debug", "doctor", "--config", "c.yaml", "--json")
    place.type("runs", "show", "toy/eval/verify=judge")


def scored(place: Place) -> None:
    """Verify functions that tell the environment, in a run and by themselves."""
    for name in SCORED:
        function = f"score.py:{name}"
        place.type("--debug", "eval", "--config", "c.yaml", "--verify", function, "--show")
        place.type("verify", function, "--answer", "24", "--response", "it is 24", "--json")
        place.type("runs", "show", f"toy/eval/verify={function}")
    for words in (
        ["data", "upload", "train.jsonl", "--name", "train"],
        ["practice", "--config", "c.yaml", "--set", "evaluation.verify=score.py:critique"],
        [
            "eval",
            "--rejudge",
            "--verify",
            "score.py:raises",
            "--run",
            "toy/eval/verify=score.py:cut",
        ],
        ["doctor", "--config", "c.yaml", "--set", "evaluation.verify=score.py:prints"],
        *LOOKS,
    ):
        place.type(*words)


def mistyped(place: Place) -> None:
    """Commands with a key where none belongs, and commands that need no run."""
    for words in (["init", "new"], ["skill"], ["demo", "--keep", "kept"], ["doctor"], *WRONG):
        place.type(*words)


GROUPS: Mapping[str, Callable[[Place], None]] = {"runs": runs, "judge": judged}


def cell(folder: Path, echo: str, group: str) -> Place:
    """A place where a group of commands was typed against an endpoint that echoes so."""
    with serving(ECHOES[echo]) as server:
        place = Place(folder, server.url)
        GROUPS[group](place)
    place.finish()
    return place


def plain(folder: Path, commands: Callable[[Place], None]) -> Place:
    """The same against an endpoint that works."""
    with serving(lambda _: simulated()) as server:
        place = Place(folder, server.url)
        commands(place)
    place.finish()
    return place


def main() -> int:
    """Print the table; 1 when a key was found."""
    places: list[Place] = []
    print(f"{'echo':22} {'commands':9} {'typed':>6} {'places':>7} {'KiB':>7} hits")  # noqa: T201
    with tempfile.TemporaryDirectory() as name:
        cells: list[tuple[str, str, Callable[[Path], Place]]] = [
            (echo, group, lambda f, e=echo, g=group: cell(f, e, g))  # type: ignore[misc]
            for echo in ECHOES
            for group in GROUPS
        ]
        cells += [("none", "verify", lambda f: plain(f, scored))]
        cells += [("none", "mistyped", lambda f: plain(f, mistyped))]
        for number, (echo, group, made) in enumerate(cells):
            place = made(Path(name) / str(number))
            places.append(place)
            found, seen = place.search, sum(place.search.places.values())
            row = f"{echo:22} {group:9} {len(place.said):6} {seen:7} {found.size >> 10:7}"
            print(f"{row} {len(found.hits)}", flush=True)  # noqa: T201
            for hit in found.hits:
                print(f"    {hit}")  # noqa: T201
    hits = sum(len(place.search.hits) for place in places)
    typed = sum(len(place.said) for place in places)
    kinds = sorted({kind for place in places for kind in place.search.places})
    print(f"{typed} commands, {hits} hits in: {', '.join(kinds)}")  # noqa: T201
    return int(hits > 0)


if __name__ == "__main__":
    sys.exit(main())
