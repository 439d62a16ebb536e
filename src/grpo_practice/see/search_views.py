"""The page of the viewer that finds words: in experiences, questions and answers."""

from grpo_practice.app.library_refs import run_and_step
from grpo_practice.reports.stored_runs import runs_report
from grpo_practice.see.address import Page, Query
from grpo_practice.see.group_views import place_of, place_text
from grpo_practice.store import Store
from grpo_practice.store.queries import search
from grpo_practice.store.queries.search import AnswerHits

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
    answers, after = AnswerHits((), None), place_of(query)
    if words and branch is not None:
        answers = store.read(search.find_answers, branch, words, after, looked=ANSWERS, most=HITS)
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
        "answers": answers.hits,
        "more": place_text(answers.looked) if answers.looked else None,
        "begun": begun,
    }
    return Page("view/search.html", values)
