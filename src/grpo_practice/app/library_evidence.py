"""Evidence for and against each experience of a stored library."""

from grpo_practice.app.library_refs import LibraryRef
from grpo_practice.practice.evidence import Evidence, evidence_on
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import past_votes


def evidence_of(store: Store, found: LibraryRef) -> dict[str, Evidence]:
    """Return the evidence on the library's experiences as it was when that was made, by id."""
    branch = store.read(branches.load, found.branch)
    end = 0 if found.step is None else found.step + 1
    past = store.read(past_votes.past, branch, found.library, (), end=end)
    truth = branch.identity.get("practice.given_ground_truth", True)
    return evidence_on(found.library, past, rewards=bool(truth))
