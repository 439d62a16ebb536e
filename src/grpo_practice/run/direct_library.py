"""Library for the arm `direct`, requested once and stored in the practice run's ledger."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from grpo_practice.config import Loaded, PracticeConfig, load_practice
from grpo_practice.core.calls import Chat, Reply, Request, Scope
from grpo_practice.core.errors import ConfigError, EndpointError, ReplyError, RunFailedError
from grpo_practice.core.events import silent
from grpo_practice.core.types import Library
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.practice.placebo_arms import FIRST, direct_prompts, write_directly
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.run.clients import Connections, Models, endpoint_of
from grpo_practice.run.configs import stored_text
from grpo_practice.run.library_refs import LibraryRef
from grpo_practice.run.session import Session, end_dead_invocations
from grpo_practice.store import Store, branches
from grpo_practice.store.records import Branch


@dataclass(frozen=True, slots=True)
class DirectJob:
    """A library for the teacher to write from the objectives alone."""

    loaded: Loaded[PracticeConfig]
    """Configuration of the practice run."""
    learnt: LibraryRef
    """Learnt library to compare the new library with."""
    branch: Branch
    """Branch of the practice run, whose ledger holds the request."""


def prepare_direct(store: Store, learnt: LibraryRef, env: Mapping[str, str]) -> DirectJob:
    """Return the job; no request has been sent yet.

    Raises:
        ConfigError: The practice run has no objectives, or its configuration cannot be used.
    """
    stored = stored_text(store, learnt.run)
    assert stored is not None, "a run with a closed step has a configuration"
    loaded = load_practice(stored, [], env)
    settings = loaded.config.practice
    if not (settings.agent_objective or settings.learning_objective):
        raise ConfigError(
            f"{learnt.run} has no objectives that `direct` could be written from",
            hint="practise with practice.agent_objective and practice.learning_objective, or leave"
            " direct out of --arms",
        )
    endpoint_of(loaded.config.teacher)  # raise for impossible settings now, not after the arms
    return DirectJob(loaded, learnt, store.read(branches.load, learnt.branch))


async def written_directly(job: DirectJob, session: Session) -> Library:
    """Return the stored library; requests that already have a stored reply are not sent again.

    Raises:
        LockedError: Another process is working on the practice run.
        RunFailedError: The teacher cannot be reached, or its reply is unusable.
    """
    store, config = session.store, job.loaded.config
    with store.lock(job.branch.run):
        end_dead_invocations(session, job.branch.run)
        library, attempt = await _stored(job, store)
        if library is not None:
            return store.put_library(job.branch, library)
        session.announce()
        # Only the ledger of the practice run is used; its status and its last command stay the
        # same.
        with store.invocation(job.branch, session.command, goes_on=False) as invocation_id:
            connections = Connections(session.emit, concurrency=(1, 1), admission=session.admission)
            ledger = store.ledger(job.branch, invocation_id)
            models = Models(connections, ledger, session.emit, config.evaluation.prices)
            async with connections:
                chat = await models.chats(config.teacher, "teacher")
                try:
                    library = await _write(job, chat, attempt)
                except (EndpointError, ReplyError) as e:
                    raise RunFailedError(
                        f"the library of the arm `direct` could not be written: {e}",
                        hint="repeat the command to ask the teacher again, or leave direct out of"
                        " --arms",
                    ) from e
    return store.put_library(job.branch, library)


async def written_before(job: DirectJob, session: Session) -> Library | None:
    """Return the stored library if every reply is already stored; None if a request remains."""
    library, _ = await _stored(job, session.store)
    if library is None or session.only_looks:
        return library
    return session.store.put_library(job.branch, library)


async def _stored(job: DirectJob, store: Store) -> tuple[Library | None, int]:
    """Return the library made from stored replies, and the first attempt with a missing reply.

    If an attempt's replies produced no library, they stay stored and the next attempt is needed.
    """
    params = endpoint_of(job.loaded.config.teacher)[0]
    model = Model(job.loaded.config.teacher.model_provider.model, params, _refuse)
    # Invocation 0 does not exist, but this ledger is only read, since `_refuse` stores nothing.
    chat = ledgered(model, store.ledger(job.branch, 0), silent)
    for attempt in count(FIRST):
        try:
            return await _write(job, chat, attempt), attempt
        except ReplyError:
            continue
        except _NotAskedError:
            return None, attempt
    raise AssertionError("unreachable")


class _NotAskedError(Exception):
    """Raised for a request without a stored reply; unlike an `EndpointError`, it is not stored."""


async def _refuse(request: Request, *, limit_s: float | None = None) -> Reply:
    """Refuse to send a request.

    Raises:
        _NotAskedError: Always.
    """
    raise _NotAskedError


async def _write(job: DirectJob, chat: Callable[[Scope], Chat], attempt: int) -> Library:
    settings = job.loaded.config.practice
    teacher = Teacher(
        chat=chat,
        prompts=direct_prompts(),
        agent_objective=settings.agent_objective,
        learning_objective=settings.learning_objective,
        truth=settings.given_ground_truth,
        limit=settings.num_experiences_per_query,
        run_seed=settings.seed,
    )
    step = job.learnt.step or 0
    return await write_directly(
        teacher, job.learnt.library, GroupKey(job.branch.id, step, 0), attempt
    )
