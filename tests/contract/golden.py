"""The JSON document of every command, from one story: `python -m tests.contract.golden` writes all.

The story begins in a copy of a finished demo. Times, durations, paths, ports and versions are
replaced by what they are; of a list, the first two entries are kept.
"""

import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typing_extensions import override

from tests.contract.command import Ran, process, typed
from tests.contract.help import is_command
from tests.data.hub.server import hub
from tests.processes import HANG_S

FOLDER = Path(__file__).with_name("documents")
ENTRIES = 2
"""Entries of a list that are kept."""
SHOWN = 160
"""Characters of a text that are kept."""
DIGITS = 6
"""Significant digits of a number that are kept: others depend on the machine."""

CONFIG = ("--config", "practice.yaml")
APPROVED = ("--exp-id", "asked", "--set", "practice.approve=true", "--set", "practice.epochs=1")
HELD = "the first one held"
STORY: Mapping[str, tuple[str, ...]] = {
    "doctor": ("doctor", *CONFIG),
    "verify": ("verify", "math", "--answer", "25", "--response", r"It is \boxed{24}."),
    "config show": ("config", "show"),
    "config validate": ("config", "validate", *CONFIG),
    "data list": ("data", "list"),
    "data show": ("data", "show", "test"),
    "data upload": ("data", "upload", "held.jsonl", "--name", "held"),
    "data download": ("data", "download", "hf://owner/sums", "--name", "hub"),
    "data split": ("data", "split", "held"),
    "data sample": ("data", "sample", "held", "-n", "4", "--name", "few"),
    "data export": ("data", "export", "few", "-o", "few.jsonl"),
    "data delete": ("data", "delete", "few", "--yes"),
    "runs tag": ("runs", "tag", "demo", "good", "v2"),
    "runs note": ("runs", "note", "demo/eval", "The agent without experiences."),
    "runs list": ("runs", "list"),
    "runs show": ("runs", "show", "demo"),
    "runs show of an evaluation": ("runs", "show", "demo/eval"),
    "runs compare": ("runs", "compare", "demo/eval", "demo"),
    "runs diagnose": ("runs", "diagnose", "demo"),
    "runs trace": ("runs", "trace", "demo/eval"),
    "runs export": ("runs", "export", "demo", "-o", "rows.csv"),
    "runs export of a database": ("runs", "export", "demo/eval", "-o", "moved.db"),
    "runs import": ("runs", "import", "moved.db", "--db", "other.db"),
    "rollouts list": ("rollouts", "list", "demo:0"),
    "rollouts show": ("rollouts", "show", "demo:0", "--failed", "--limit", "1"),
    "experiences list": ("experiences", "list"),
    "experiences show": ("experiences", "show", "E1"),
    "export-agent": ("export-agent", "--format", "json"),
    "export-data": ("export-data", "demo:0", "--format", "dpo", "-o", "pairs.jsonl"),
    "skill": ("skill",),
    "report": ("report", "demo", "-o", "page.html"),
    "serve": ("serve", "--agent", "agent.yaml", "--port", "0"),
    "view": ("view", "--port", "0"),
    "trust": ("trust", "agent.yaml"),
    "eval": ("eval", *CONFIG, "--exp-id", "again", "--dataset", "hub", "--limit", "6"),
    "eval --dry-run": ("eval", *CONFIG, "--exp-id", "planned", "--dry-run"),
    "eval --arms": ("eval", *CONFIG, "--arms", "none,full", "--limit", "6"),
    "eval --show": ("eval", "--run", "demo/eval", "--show"),
    "practice": ("practice", *CONFIG, *APPROVED),
    "practice --dry-run": ("practice", *CONFIG, "--exp-id", "planned", "--dry-run"),
    "experiences list of held ones": ("experiences", "list", "--run", "asked"),
    "experiences approve": ("experiences", "approve", HELD, "--run", "asked"),
    "experiences reject": ("experiences", "reject", "--all", "--run", "asked"),
    "experiences effect": ("experiences", "effect", "demo", "--dataset", "held", "-k", "2"),
    "experiences prune": ("experiences", "prune", "demo", "--max-tokens", "300"),
    "experiences remove": ("experiences", "remove", "E2", "--run", "demo"),
    "experiences edit": (
        "experiences",
        "edit",
        "E1",
        "--run",
        "demo",
        "--text",
        "Units: name them.",
    ),
    "experiences diff": ("experiences", "diff", "L8", "L9"),
    "runs delete": ("runs", "delete", "again/*", "--yes"),
    "db backup": ("db", "backup", "copy.db"),
    "db check": ("db", "check"),
    "init": ("init", "new folder"),
    "error": ("runs", "show", "nobody"),
}
"""Name of a golden file → the words of the command whose document it holds."""
UNTIL_CTRL_C = ("serve", "view")

QUESTION = "{} books are shared equally among {} children, each getting as many as possible."
LAST = "How many books remain?"


def rows() -> str:
    """Return twelve questions that the simulated model can answer, as lines of JSON."""
    pairs = [(n, 7 + n % 9) for n in range(200, 212)]
    made = [{"question": f"{QUESTION.format(*p)} {LAST}", "answer": p[0] % p[1]} for p in pairs]
    return "".join(f"{json.dumps(row)}\n" for row in made)


def play(folder: Path) -> Iterator[tuple[str, Ran]]:
    """Type the commands of the story, with `--json`, in the folder of a finished demo."""
    (folder / "held.jsonl").write_text(rows(), "utf-8")
    with collector() as url, hub() as server:
        server.add("owner/sums", {"train.jsonl": rows().encode()})
        collected = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        env = {**os.environ, **collected, **server.env(folder / "hub")}
        held = ""
        for name, given in STORY.items():
            if not is_command(given):  # without its slice
                continue
            words = [held if word == HELD else word for word in (*given, "--json")]
            if words[0] in UNTIL_CTRL_C or words[:2] == ["data", "download"]:
                # A server of the program runs until Ctrl-C; the hub's client reads its variables
                # when it is first imported.
                ran = _in_a_process(words, folder, env)
            else:
                with patch.dict(os.environ, collected):
                    ran = typed(*words)
            held = held or "".join(re.findall(r'"(H\d+)"', ran.out)[:1])
            yield name, ran


def _in_a_process(words: list[str], folder: Path, env: Mapping[str, str]) -> Ran:
    with process(*words, cwd=folder, env=env) as running:
        if words[0] not in UNTIL_CTRL_C:
            out, err = running.communicate(timeout=HANG_S)
            return Ran(running.returncode, out, err)
        assert running.stdout is not None
        lines = list[str]()
        while not lines or lines[-1] != "}\n":
            lines.append(running.stdout.readline())
            assert lines[-1], running.communicate()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=HANG_S)
    return Ran(0, "".join(lines), "")


@contextmanager
def collector() -> Iterator[str]:
    """Take OpenTelemetry spans on this machine for the block; yield the address."""

    class Taken(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Taken)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PLACEHOLDERS = ("bytes", "sha256")
"""Keys whose values differ from play to play, as those of durations do."""
_CHANGING = {
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?"): "TIME",
    re.compile(r"(?<=http://127\.0\.0\.1:)\d+(/[\w-]{43}(?=/))?"): "PORT",
}


def normal(value: Any, places: Mapping[str, str], key: str = "") -> Any:
    """Return a document with what differs between two plays of the story replaced.

    Args:
        value: The document, or a part of it.
        places: Path of a folder → what stands for it.
        key: The key that the part has.
    """
    match value:
        case None | bool():
            return value
        case dict():
            return {k: normal(v, places, k) for k, v in value.items()}
        case list():
            kept = [normal(v, places, key) for v in value[:ENTRIES]]
            return [*kept, f"… {len(value) - ENTRIES} more"] if len(value) > ENTRIES else kept
        case float() if key.endswith("_s"):
            return key.upper()
        case _ if key in PLACEHOLDERS or key.startswith("seconds"):
            return key.upper()
        case float():
            return float(f"{round(value, DIGITS):.{DIGITS}g}")
        case str():
            return _text(value, places)
        case _:
            return value


def _text(value: str, places: Mapping[str, str]) -> str:
    for path, name in places.items():
        value = value.replace(path, name)
    for pattern, name in _CHANGING.items():
        value = pattern.sub(name, value)
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"


def file_of(name: str) -> Path:
    """Return the golden file of a case."""
    return FOLDER / f"{re.sub(r'[ -]+', '-', name)}.json"


def text_of(document: Mapping[str, Any]) -> str:
    """Return a document as its golden file has it."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def made(demo: Path, folder: Path) -> dict[str, str]:
    """Play the story in a copy of the demo; return each case's text of a golden file."""
    shutil.copytree(demo, folder, dirs_exist_ok=True)
    places = {str(folder): "FOLDER", str(demo): "DEMO", os.environ["XDG_CONFIG_HOME"]: "USER"}
    found = dict[str, str]()
    for name, ran in play(folder):
        assert (ran.code != 0) == (name == "error"), (name, ran.err)
        document = ran.document
        if name == "doctor":  # what it finds is of the machine
            document["findings"] = [dict.fromkeys(document["findings"][0], "of the machine")]
        found[name] = text_of(normal(document, places))
    return found


def main() -> None:
    """Write all golden files."""
    with tempfile.TemporaryDirectory() as temporary:
        demo, folder = Path(temporary, "kept"), Path(temporary, "story")
        os.environ |= {"XDG_CONFIG_HOME": f"{temporary}/user", "COLUMNS": "200"}
        assert typed("demo", "--keep", str(demo)).code == 0
        folder.mkdir()
        os.chdir(folder)
        texts = made(demo, folder)
    with suppress(FileNotFoundError):
        shutil.rmtree(FOLDER)
    FOLDER.mkdir()
    for name, text in texts.items():
        file_of(name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
