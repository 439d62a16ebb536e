"""Practice with a real student finds out what a verify function wants that nobody wrote down.

Real are the student, its sampling, the attempts and the verdicts. The teacher is not: it is a rule
(`tests/real/teacher.py`), because a model of 135M parameters cannot teach. The task is a style
guide: an entry of the glossary is one complete sentence of at most `MOST_WORDS` words. Only the
verify function knows the guide.
"""

from tests.real.folder import KEY, Folder
from tests.real.questions import parts, words
from tests.real.servers import Server
from tests.real.teacher import teacher
from tests.real.test_scores import table

MOST_WORDS = 24
GUIDE = f'''
"""The style guide: one complete sentence of at most {MOST_WORDS} words."""
import re


def entry(sample):
    said = sample.response.strip()
    sentences = [part for part in re.split(r"(?<=[.!?])\\s+", said) if part]
    complete = said.endswith((".", "!", "?"))
    return float(complete and len(sentences) == 1 and len(said.split()) <= {MOST_WORDS})
'''


def test_practice_finds_the_style_guide(folder: Folder, llama: Server, seed: int) -> None:
    practise, select, test = parts(words(), 24, 16, 40)
    folder.upload("words-train", practise)
    folder.upload("words-select", select)
    folder.upload("words-test", test)
    (folder.path / "guide.py").write_text(GUIDE, "utf-8")
    with teacher() as rule:
        provider = {"model": rule.model, "base_url": rule.base_url, "api_key": KEY}
        folder.config(
            "words",
            "words",
            llama,
            settings={"temperature": 0.7, "max_tokens": 48},
            instructions="You explain words to children.",
            data={"practice_dataset_name": "words-train"},
            practice={
                "epochs": 2,
                "seed": seed,
                "batch_size": 12,
                "grpo_n": 8,
                "rollout_temperature": 1.0,
                "rollout_concurrency": 8,
                "teacher_model": {"model_provider": provider},
            },
            evaluation={
                "verify": "guide.py:entry",
                "seed": seed,
                "data": {"dataset": "words-test"},
                "pass_k": 4,
                "concurrency": 8,
            },
        )
        done = folder.json("practice", "--config", "words.yaml")
    assert done["experiences"], "the practice found nothing"
    for lesson in done["experiences"]:
        print(f"\n  {lesson['id']} {lesson['text']}", end="")  # noqa: T201
    arms = folder.json("eval", "--config", "words.yaml", "--arms", "none,full,filler,aa")
    for arm in arms["arms"]:
        table(arm["named"], arm["score"])
    named = {arm["run"]: arm["named"] for arm in arms["arms"]}
    between = {(named[c["baseline"]], named[c["arm"]]): c for c in arms["contrasts"]}
    for pair, contrast in between.items():
        print(f"\n{pair}: {contrast['difference']['ci95']}", end="")  # noqa: T201
    assert between["none", "full"]["difference"]["ci95"][0] > 0
    aa = between.get(("full", "aa"))
    assert aa is None or aa["verdict"] == "none found"
    effect = folder.json("experiences", "effect", "--run", "words", "--dataset", "words-select")
    assert effect["measured"]["ci95"][0] > 0, effect["measured"]
