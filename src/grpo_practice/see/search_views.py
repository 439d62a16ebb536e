"""The page of the viewer that finds words: in experiences, questions and answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.app.library_refs import run_and_step
from grpo_practice.reports.stored_runs import runs_report
from grpo_practice.see.address import Page, Query
from grpo_practice.see.group_views import place_of, place_text
from grpo_practice.store import Store, sidecar_reads
from grpo_practice.store.queries import search
from grpo_practice.store.queries.search import AnswerHit
from grpo_practice.store.records import Branch

HITS = 40
"""Hits of a kind on one page."""
ANSWERS = 10_000
"""Answers that one page looks through."""
QUESTIONS = 50_000
"""Questions that a search looks through."""


def search_page(store: Store, query: Query) -> Page:
    """Return what has all of the words in it, in one run or in all of them."""
    text, named = query.optional("q") or "", query.optional("run")
    words = search.words_of(text)
    run = branch = None
    if named is not None:
        run, branch, _ = run_and_step(store, named)
    answers = _answers(store, query, text, branch) if words else Answers()
    first = bool(words) and not query.optional("after") and not query.optional("past")
    dataset = branch.dataset_id if branch is not None else None
    name = run.name if run else None
    values = {
        "text": text,
        "words": words,
        "run": run,
        "ref": named,
        "names": [one.name for one in reversed(runs_report(store).runs)],
        "experiences": store.read(search.find_experiences, words, name, HITS) if first else [],
        "questions": store.read(search.find_questions, words, dataset, QUESTIONS, HITS)
        if first
        else [],
        "answers": answers,
        "begun": not first and bool(words),
    }
    return Page("view/search.html", values)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers that were found."""

    hits: Sequence[AnswerHit] = ()
    looked: bool = False
    """Whether answers were looked through: all with an index, else those of a run."""
    indexed: bool = False
    after: str | None = None
    """Place after which a run is looked through further."""
    past: int | None = None
    """Row after which the index goes on."""


def _answers(store: Store, query: Query, text: str, branch: Branch | None) -> Answers:
    found: list[int] | None = None
    words = search.words_of(text)
    of = None if branch is None else store.read(sidecar_reads.holders, branch)
    with sidecar_reads.complete_file(store) as index:
        if index is not None:
            past = query.number("past", 0)
            found = sidecar_reads.with_words(index, words, of, past, HITS + 1)
    if found is not None:
        hits = store.read(search.answers_of, branch, found[:HITS], words)
        more = found[HITS - 1] if len(found) > HITS else None
        return Answers(hits, looked=True, indexed=True, past=more)
    if branch is None:
        return Answers()
    scanned = store.read(
        search.find_answers,
        branch,
        words,
        place_of(query),
        looked=ANSWERS,
        most=HITS,
    )
    looked = place_text(scanned.looked) if scanned.looked else None
    return Answers(scanned.hits, looked=True, after=looked)
