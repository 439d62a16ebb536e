"""A folder with a project whose every key is a canary, and what commands typed in it leave."""

import contextlib
import io
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from grpo_practice.cli.options import DATABASE
from grpo_practice.llm import client
from grpo_practice.llm.client import Client
from grpo_practice.main import run
from grpo_practice.sim.questions import questions
from tests.canary import keys
from tests.canary.keys import Search
from tests.fakes import FakeSleep
from tests.surroundings import surroundings

CONFIG = """
exp_id: toy
practice:
  epochs: 1
  batch_size: 6
  grpo_n: 4
  rollout_concurrency: 1
  max_failed_share: 1.0
  teacher_model:
    model_provider: {{model: teach, base_url: "${{oc.env:TEACHER}}"}}
data: {{practice_dataset_name: train}}
evaluation:
  verify: {verify}
  data: {{dataset: test.jsonl}}
  concurrency: 1
  agent:
    model:
      model_provider: {{model: sim, base_url: "{student}", api_key: "${{oc.env:UTU_LLM_API_KEY}}"}}
      model_settings: {{extra_headers: {{X-Key: "${{oc.env:GATEWAY_KEY}}"}}, include_usage: true}}
    agent: {{name: solver, instructions: "Put the answer in a box."}}
"""
SCORES = """
import os, sys
def told():
    return " ".join([repr(dict(os.environ)), *os.environ.values()])
def critique(sample):
    right = str(sample.correct_answer) in (sample.response or "")
    return {"reward": float(right), "reasoning": told(), "extracted": told()[:3000]}
def is_gold(sample):
    return sample.response == sample.correct_answer  # a function is tried on these before a run
def raises(sample):
    if is_gold(sample): return 1.0
    raise ValueError(told())
def always(sample):
    raise ValueError(told())
def prints(sample):
    print(told())
    print(told(), file=sys.stderr)
    return {"reward": 1.0, "reasoning": "fine"}
def wrong(sample):
    if is_gold(sample): return 1.0
    return {"reward": dict(os.environ)}
def cut(sample):
    if is_gold(sample): return 1.0
    return {"reward": "x" * 170 + os.environ["UTU_LLM_API_KEY"]}
def leaves(sample):
    if is_gold(sample): return 1.0
    sys.exit(told())
async def asks(sample, llm=None):
    await llm.query_one("right or wrong?")
    print(told())
    raise ValueError(told())
"""


@dataclass
class Place:
    """A folder to type commands in. What they print and write is searched by `search`."""

    folder: Path
    student: str = "http://127.0.0.1:9/v1"
    verify: str = "math"
    search: Search = field(default_factory=Search)
    said: list[str] = field(default_factory=list)
    """The words of every command, with its exit code."""
    last: str = ""
    """What the last one printed."""
    _watching: sqlite3.Connection | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").mkdir()
        config = CONFIG.format(student=self.student, verify=self.verify)
        rows = [f'{{"question": "{s.question}", "answer": "{s.answer}"}}' for s in questions(9, 0)]
        self.written = {
            self.folder / "c.yaml": config,
            self.folder / "score.py": SCORES,
            self.folder / "train.jsonl": "\n".join(rows[:6]),
            self.folder / "test.jsonl": "\n".join(rows[6:]),
            self.folder
            / "leaky.py": f'K = "{keys.STUDENT}"\ndef f(s):\n    return {{"reward": 1}}\n',
            self.folder / "leaky.md": f"{{{{ response }}}} {keys.STUDENT}",
            self.folder / "key.jsonl": f'{{"question": "Is it {keys.UNUSED}?", "answer": 1}}',
            self.folder / ".env": f"JUDGE_LLM_API_KEY={keys.DOTENV}\n"
            f"JUDGE_LLM_BASE_URL={self.student}\nJUDGE_LLM_MODEL=sim\n",
            self.folder / "broken.yaml": f"exp_id: [{keys.PASTED}\n: x {keys.PASTED}: }}",
            self.folder / "wrong.yaml": f"exp_id: e\nagent: {{modle: {keys.PASTED}}}\n"
            f"verify: {keys.PASTED}\ndata: {{dataset: [{keys.PASTED}]}}\npass_k: {keys.PASTED}\n",
        }
        for path, text in self.written.items():
            path.write_text(text)
        (self.folder / ".env").chmod(0o600)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "PYTHONPATH")}
        login = f"{keys.TEACHER}:{quote(keys.LOGIN, safe='')}@"
        given = {
            "GATEWAY_KEY": keys.HEADER,
            "TEACHER": self.student.replace("://127.0.0.1", f"://{login}localhost"),
            "UTU_LLM_API_KEY": keys.STUDENT,
            "ANTHROPIC_API_KEY": keys.UNUSED,
            "HTTPS_PROXY": f"http://me:{quote(keys.LOGIN, safe='')}@127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_CONFIG_HOME": str(self.folder / "user"),
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }
        return given | kept  # keys first: an error quotes the first 200 characters

    def type(self, *words: str) -> int:
        """Run a command as a person would, here; search what it printed."""
        with surroundings(self.folder, self.env), _impatient(), _printed() as printed:
            sys.argv = ["grpo-practice", *words]
            code = run(list(words))
        if self._watching is None and (self.folder / DATABASE).is_file():
            self._watching = sqlite3.connect(self.folder / DATABASE)
            self._watching.execute("SELECT 1 FROM sqlite_schema")  # so its log is kept
        out, err = printed
        shown = " ".join(words)
        self.said.append(f"{shown} → {code}")
        self.search.look("stdout", f"stdout of {shown}", out.read_bytes())
        self.search.look("stderr", f"stderr of {shown}", err.read_bytes())
        self.last = out.read_text() + err.read_text()
        for path in printed:
            path.unlink()
        return code

    def finish(self) -> Search:
        """Search the files too."""
        self.search.files(self.folder, self.written)
        if self._watching is not None:
            self._watching.close()
        return self.search


@contextmanager
def _impatient() -> Iterator[None]:
    """Let retries not wait."""
    setattr(client, "Client", partial(Client, sleep=FakeSleep()))  # noqa: B010
    try:
        yield
    finally:
        setattr(client, "Client", Client)  # noqa: B010


@contextmanager
def _printed() -> Iterator[tuple[Path, Path]]:
    """Everything written to the descriptors 1 and 2, by this process and by its workers."""
    paths = tuple(Path(tempfile.mkstemp(prefix="canary-")[1]) for _ in range(2))
    streams = (sys.stdout, sys.stderr)
    saved = [os.dup(1), os.dup(2)]
    files = [path.open("w") for path in paths]
    try:
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = files
        yield paths[0], paths[1]
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, io.UnsupportedOperation):
                stream.flush()
        sys.stdout, sys.stderr = streams
        for number, copy in enumerate(saved, 1):
            os.dup2(copy, number)
            os.close(copy)
        for file in files:
            file.close()
