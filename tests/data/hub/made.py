"""Datasets in the published files' shapes, with rows that were made up for the tests."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'

Pairs = Iterable[tuple[str, str]]
"""Question and answer."""


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), buffer)
    return buffer.getvalue()


def card(*splits: tuple[str, str], config: str = "default") -> bytes:
    """A README that says where each split is."""
    files = "".join(f"  - split: {name}\n    path: '{path}'\n" for name, path in splits)
    head = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n"
    return (head + "# A dataset\n").encode()


def aime(pairs: Pairs) -> dict[str, bytes]:
    """Files of AIME24 and AIME25: a card, and one parquet file."""
    rows = [
        {"id": i, "problem": q, "solution": f"made: \\boxed{{{a}}}", "answer": a, "year": "2024"}
        for i, (q, a) in enumerate(pairs)
    ]
    return {
        "README.md": card(("train", "data/train-*")),
        "data/train-00000-of-00001.parquet": parquet(rows),
    }


def dapo(pairs: Pairs) -> dict[str, bytes]:
    """Files of DAPO-Math-17k: rows for training, each problem in its wrapper."""
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": BEFORE + q + AFTER}],
            "ability": "MATH",
            "reward_model": {"ground_truth": a, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"made-{i}"},
        }
        for i, (q, a) in enumerate(pairs)
    ]
    return {"README.md": b"# DAPO\n", "data/dapo-math-17k.parquet": parquet(rows)}


def afm(rows: Iterable[tuple[str, Sequence[str]]]) -> dict[str, bytes]:
    """Files of AFM_web_RL: each question with one answer or several."""
    made = [
        {
            "data_source": "web_agent",
            "prompt": [{"role": "user", "content": f"Long instructions.\n{q}"}],
            "reward_model": {"ground_truth": {"target": list(answers)}, "style": "rule"},
            "extra_info": {"question": q, "answer": list(answers), "index": i},
        }
        for i, (q, answers) in enumerate(rows)
    ]
    return {"AFM-WebAgent-RL.parquet": parquet(made)}


def webwalker(rows: Iterable[tuple[str, str, str]]) -> dict[str, bytes]:
    """Files of WebWalkerQA: question, answer and difficulty (easy, medium or hard)."""
    made = [
        {
            "question": q,
            "answer": a,
            "root_url": "https://example.org/",
            "info": {
                "difficulty_level": level,
                "domain": "made",
                "golden_path": ["root->page"],
                "lang": "en",
                "source_website": ["https://example.org/page"],
                "type": "single_source",
            },
        }
        for q, a, level in rows
    ]
    return {
        "README.md": card(("main", "data/main-*"), ("silver", "data/silver-*")),
        "data/main-00000-of-00001.parquet": parquet(made),
        "data/silver-00000-of-00001.parquet": parquet([*made[:1]]),
    }


REPOS = {
    "AIME24": "HuggingFaceH4/aime_2024",
    "AIME25": "yentinglin/aime_2025",
    "DAPO-Math-17k": "BytedTsinghua-SIA/DAPO-Math-17k",
    "AFM_web_RL": "PersonalAILab/AFM-WebAgent-RL-Dataset",
    "WebWalkerQA": "callanwu/WebWalkerQA",
}
"""Where each of the published datasets is."""
