"""The page of the viewer that finds words: in experiences, questions and answers."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from grpo_practice.app.library_refs import run_and_step
from grpo_practice.reports.stored_runs import runs_report
from grpo_practice.see.address import Page, Query
from grpo_practice.see.group_views import place_of, place_text
from grpo_practice.store import Store, sidecar_reads
from grpo_practice.store.queries import search
from grpo_practice.store.queries.pages import FIRST
from grpo_practice.store.queries.search import AnswerHit
from grpo_practice.store.records import Branch

HITS = 40
"""Hits of a kind on one page."""
ANSWERS = 10_000
"""Answers that one page looks through."""
QUESTIONS = 50_000
"""Questions that a search looks through."""


def search_page(store: Store, query: Query) -> Page:
    """Return what has all of the words in it; answers are looked through run by run."""
    text, named = query.optional("q") or "", query.optional("run")
    words = search.words_of(text)
    run = branch = None
    if named is not None:
        run, branch, _ = run_and_step(store, named)
    answers: Sequence[AnswerHit] = ()
    more = None
    if words and branch is not None:
        answers, more = _answers(store, branch, words, query)
    begun = query.optional("after") is not None
    first = bool(words) and not begun
    dataset = branch.dataset_id if branch is not None else None
    values = {
        "text": text,
        "words": words,
        "run": run,
        "ref": named,
        "names": [one.name for one in reversed(runs_report(store).runs)],
        "experiences": store.read(search.find_experiences, words, run.name if run else None, HITS)
        if first
        else [],
        "questions": store.read(search.find_questions, words, dataset, QUESTIONS, HITS)
        if first
        else [],
        "answers": answers,
        "more": more,
        "begun": begun,
    }
    return Page("view/search.html", values)


def _answers(
    store: Store, branch: Branch, words: Sequence[str], query: Query
) -> tuple[Sequence[AnswerHit], str | None]:
    """Return answers with all of the words, and where the next page begins, if there is one."""
    after = query.optional("after") or ""
    if "." not in after:
        numbers = _by_index(store, branch, words, query.optional_number("after") or 0)
        if numbers is not None:
            hits = store.read(search.answers_of, branch, numbers[:HITS], words)
            return hits, str(numbers[HITS - 1]) if len(numbers) > HITS else None
    place = place_of(query) if "." in after else FIRST
    found = store.read(search.find_answers, branch, words, place, looked=ANSWERS, most=HITS)
    return found.hits, place_text(found.looked) if found.looked else None


def _by_index(store: Store, branch: Branch, words: Sequence[str], after: int) -> list[int] | None:
    """Return rollouts of a page and one more; None while the file beside the database is made."""
    db = sidecar_reads.opened(store.path)
    if db is None:
        return None
    with closing(db):
        try:
            if not store.read(lambda own: sidecar_reads.is_complete(db, own)):
                return None
            of = store.read(sidecar_reads.holders, branch)
            return sidecar_reads.with_words(db, words, of, after, HITS + 1)
        except sqlite3.Error:  # it is made anew at this moment
            return None
