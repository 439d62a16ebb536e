"""The viewer's search page: words in experiences, questions and answers."""

from grpo_practice.reports.stored_runs import runs_report
from grpo_practice.run.library_refs import run_and_step
from grpo_practice.store import Store
from grpo_practice.store.queries import search
from grpo_practice.store.queries.pages import FIRST, Place
from grpo_practice.store.queries.search import AnswerHit
from grpo_practice.viewer.address import Page, Query
from grpo_practice.viewer.group_views import place_text

HITS = 40
"""Hits of each kind per page."""


def search_page(store: Store, query: Query) -> Page:
    """Return the texts that contain all words, in one run or in all runs."""
    text, named = query.optional("q") or "", query.optional("run")
    words = search.words_of(text)
    run = branch = None
    if named is not None:
        run, branch, _ = run_and_step(store, named)
    after = query.numbers("after", 4)
    found = list[AnswerHit]()
    if words:
        last = (after[0], Place(*after[1:])) if after else (-1, FIRST)
        found = store.read(search.find_answers, branch, words, last, HITS + 1)
    # Only answers have further pages: experiences and questions are on the first one.
    first = bool(words) and after is None
    dataset = branch.dataset_id if branch is not None else None
    name = run.name if run else None
    values = {
        "text": text,
        "words": words,
        "run": run,
        "ref": named,
        "names": [one.name for one in reversed(runs_report(store).runs)],
        "experiences": store.read(search.find_experiences, words, name, HITS) if first else [],
        "questions": store.read(search.find_questions, words, dataset, HITS) if first else [],
        "answers": found[:HITS],
        "more": _text(found[HITS - 1]) if len(found) > HITS else None,
        "begun": bool(words) and not first,
    }
    return Page("view/search.html", values)


def _text(hit: AnswerHit) -> str:
    return f"{hit.branch_id}.{place_text(hit.place)}"
