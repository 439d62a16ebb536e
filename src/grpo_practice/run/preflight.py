"""Checks made before anything is paid for: caps, models, datasets, files, gold answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from grpo_practice.config import EvalConfig, Loaded, PracticeConfig
from grpo_practice.config.schema.runs import EvalData, PracticeSettings, RunConfig, VerifySpec
from grpo_practice.core.calls import Usage
from grpo_practice.core.errors import ChangedKey, ConfigError, DataError, FingerprintError
from grpo_practice.core.hashing import list_digest
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import count, is_data_file
from grpo_practice.data.read import stage_file
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.budget import ASSUMED_OUT, Account, Amount, Caps
from grpo_practice.llm.endpoint import host, place
from grpo_practice.llm.prices import Price, Prices
from grpo_practice.run.batched_runs import check_batches
from grpo_practice.run.clients import SIM_URL, endpoint_of
from grpo_practice.run.requests.base import RunRequest
from grpo_practice.run.session import Session
from grpo_practice.store import Store, datasets
from grpo_practice.store.queries import runs, spending
from grpo_practice.store.queries.spending import Lost, Spent
from grpo_practice.store.records import Branch, DatasetRow, RunSpec
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.resolve import VerifyFunction, check_gold, resolve
from grpo_practice.verify.trial import OTHER_FORMS, Trial, gold_of, unusable_golds
from grpo_practice.verify.verifier import Verifier

LOST = "dataset samples"
"""Key of a diff that reports missing samples."""
TRIED = 5
"""Maximum number of gold answers on which to try the user's verify function before a run begins."""


def session_of(
    session: Session,
    request: RunRequest,
    loaded: Loaded[PracticeConfig] | Loaded[EvalConfig],
    *names: str,
    beside: Sequence[RunConfig] = (),
) -> Session:
    """Return the session for these runs, with caps and restart set; emit the notices.

    `beside` holds other configurations whose models are called under the same caps.

    Raises:
        ConfigError: There is a cap on cost, and a model has no price.
    """
    session = replace(
        session,
        announcements=loaded.unannounced(place_of(session.store, names[0])),
        announced=loaded.trust.announce,
    )
    if session.only_looks:  # a forecast sends nothing and never calls announce()
        replace(session, announcements=dict.fromkeys(loaded.announcements, "")).announce()
    give_notices(session, loaded)
    config, restart_step = loaded.config, request.restart_step
    if restart_step is None and config.kind == "practice":
        restart_step = config.practice.restart_step
    gate = admission(session.store, names, (config, *beside), request.caps, session.command)
    return replace(session, restart_step=restart_step, again=request.again, admission=gate)


def place_of(store: Store, run: str) -> str:
    """Return the name of a run with that of its database, for `Loaded.unannounced`."""
    return f"{str(store.path.resolve())!a} {run}"


def give_notices(session: Session, loaded: Loaded[PracticeConfig] | Loaded[EvalConfig]) -> None:
    """Emit the notices about a configuration."""
    for text in [*loaded.notices, *(loaded.ignored if session.verbose else [])]:
        session.notice(text)


def verify_function(
    session: Session, own: VerifyFunction | None, spec: VerifySpec, folder: Path
) -> VerifyFunction:
    """Return the function that scores answers: passed from Python, or else configured."""
    load = not session.only_looks
    verify = own or resolve(spec.name, spec.params, spec.timeout_s, folder, load=load)
    if verify.note:
        session.notice(verify.note)
    check_texts({f"the file of verify {verify.name}": verify.source})
    return verify


async def try_verify(
    session: Session, spec: RunSpec, verify: VerifyFunction, dataset: DatasetRow
) -> None:
    """Try the user's verify function on gold answers, unless the run began with this function.

    A notice is emitted if the function scores no gold answer as right.

    Raises:
        ConfigError: The function raises for every gold answer, or its workers cannot start.
    """
    # Built-in functions need no trial, a judge costs money, and a known function was tried when
    # the run began.
    if verify.built_in is not None or verify.is_judge:
        return
    branch = session.store.read(runs.newest_branch, spec.name)
    if branch and branch.identity.get("verify.sha256") == spec.identity.get("verify.sha256"):
        return
    first = session.store.read(datasets.samples, dataset.id, most=TRIED)
    samples = [sample for sample in first if gold_texts(sample.answer)]
    async with Verifier(verify) as verifier:
        await verifier.start()
        if samples and not await Trial(verifier).takes_any_gold(samples):
            session.notice(
                f"verify {verify.name} scores none of {count(len(samples), 'gold answer')} of"
                f" {dataset.name} as right, for instance {gold_of(samples[0])!r}: {OTHER_FORMS}"
            )


def check_models(config: RunConfig, verify: VerifyFunction) -> None:
    """Raise ConfigError if a model's settings make requests to it impossible."""
    check_batches(config, verify)
    for model in (*config.models.values(), *config.evaluation.readers):
        endpoint_of(model)


def dataset_of(
    session: Session, name: str, base_dir: Path, fields: Mapping[str, str] | None = None
) -> DatasetRow:
    """Return the dataset with this name, or store the file with this name and return its dataset.

    Notices report oddities in a file, such as missing or repeated answers.

    Raises:
        DataError: The dataset does not exist, or the file cannot be read as a dataset.
    """
    if not is_data_file(name):
        return session.store.read(datasets.get, name)
    path = Path(name) if Path(name).is_absolute() else base_dir / name
    with StagedSamples() as staged:
        for note in stage_file(staged, path, mapping=fields or {}).notes:
            session.notice(f"{path.name}: {note}")
        content = list_digest(staged.hashes()).hex()[:8]
        name = f"{path.stem}-{content}"  # differs for other contents
        return session.store.add_dataset(name, staged, origin=str(path), replace=True)[0]


def eval_dataset(session: Session, data: EvalData, base_dir: Path) -> DatasetRow:
    """Return the dataset of an evaluation; raise DataError if there is no such dataset."""
    if data.dataset is None:
        raise DataError(
            "there is no dataset to evaluate on", hint="name one: --dataset D, or data.dataset"
        )
    named = {"question": data.question_field, "answer": data.gt_field}
    fields = {key: field for key, field in named.items() if field}
    return dataset_of(session, data.dataset, base_dir, fields)


def unscorable(
    store: Store,
    dataset: DatasetRow,
    verify: VerifyFunction,
    *,
    first: int = 0,
    end: int | None = None,
) -> dict[int, str]:
    """Return the reasons why samples from `first` up to `end` cannot be scored, by position."""
    # One by one, because the answers of a large dataset do not fit into memory.
    golds = store.each(datasets.golds, dataset.id, first=first, end=end)
    reasons = ((at, check_gold(verify, gold)) for at, gold in enumerate(golds, first))
    return {at: why for at, why in reasons if why}


def unscorable_notice(
    dataset: DatasetRow,
    verify: VerifyFunction,
    reasons: Mapping[int, str],
    *,
    n: int,
    asked: int,
    max_share: float,
) -> str:
    """Return a sentence that names questions that cannot be scored; see `unusable_golds`.

    Raises:
        DataError: The share of these questions exceeds `max_share`.
    """
    found = unusable_golds(
        verify.name, dataset.name, reasons, n=n, asked=asked, max_share=max_share
    )
    if found.severity == "problem":
        raise DataError(found.sentence, hint=found.hint)
    return found.sentence


def scorable(
    store: Store, dataset: DatasetRow, verify: VerifyFunction, settings: PracticeSettings
) -> tuple[list[int], str | None]:
    """Return the samples that can be scored, and a notice that names any others.

    Raises:
        DataError: The share of the other samples exceeds `max_failed_share`.
    """
    most = settings.rollout_data_truncate
    ids = store.read(datasets.sample_ids, dataset.id, most=most)
    bad = unscorable(store, dataset, verify, end=most)
    if not bad:
        return ids, None
    share = settings.max_failed_share
    notice = unscorable_notice(dataset, verify, bad, n=len(bad), asked=len(ids), max_share=share)
    return [i for at, i in enumerate(ids) if at not in bad], notice


def practice_data(
    session: Session, loaded: Loaded[PracticeConfig], verify: VerifyFunction
) -> tuple[DatasetRow, list[int]]:
    """Return the configured practice dataset, and its samples that can be scored.

    Raises:
        DataError: The dataset does not exist, or too many of its samples cannot be scored.
    """
    config = loaded.config
    dataset = dataset_of(session, config.data.practice_dataset_name, loaded.base_dir)
    ids, notice = scorable(session.store, dataset, verify, config.practice)
    if notice:
        session.notice(notice)
    return dataset, ids


def check_texts(texts: Mapping[str, str | None]) -> None:
    """Raise ConfigError if one of these texts, which are stored with the run, contains a secret.

    The message says which text it is but does not quote the secret.
    """
    for name, text in texts.items():
        if text and redactor.holds(text):
            raise ConfigError(
                f"{name} contains a secret (an API key, a header, a part of a URL)",
                hint="remove it, because this text is stored with the run",
            )


def check_plan(store: Store, branch: Branch, now: DatasetRow, planned: Sequence[int]) -> list[str]:
    """Return notices about changes in the dataset since the branch was planned.

    Raises:
        FingerprintError: A sample in the plan is no longer in the dataset.
    """
    if branch.dataset_id == now.id:
        return []
    was = store.read(datasets.by_id, branch.dataset_id)
    gone = store.read(datasets.missing, now.id, planned)
    missing = [i for i in planned if i in gone]
    if missing and was.name != now.name:
        raise FingerprintError(
            f"{branch.run} was started with dataset {was.name!r}, and {now.name!r} lacks"
            f" {len(missing)} of the {len(planned)} planned samples",
            [ChangedKey(LOST, was.name, now.name)],
            hint="undo the change, give the run another exp_id, or add --restart-step 0 to make"
            " a new plan",
        )
    if missing:
        before, lost = count(len(planned), "sample"), f"{len(missing)} of them are missing"
        raise FingerprintError(
            f"dataset {now.name!r} has lost {len(missing)} of the samples {branch.run} plays",
            [ChangedKey(LOST, before, lost)],
            hint="give the run another exp_id, add --restart-step 0 to make a new plan, or upload"
            " the earlier rows again",
        )
    if was.name != now.name:
        return [
            f"dataset {now.name!r} contains all samples that {branch.run} planned from"
            f" {was.name!r}; the run continues with them (--restart-step 0 makes a new plan)"
        ]
    return [
        f"dataset {now.name!r} has changed; {branch.run} continues with its planned samples"
        " (--restart-step 0 makes a new plan)"
    ]


UNKNOWN = Usage(ASSUMED_OUT, None, ASSUMED_OUT)
"""Usage assumed for a call with unknown token counts, if no other call is known."""


def admission(
    store: Store,
    names: Iterable[str],
    configs: Sequence[RunConfig],
    caps: Caps,
    command: str,
) -> Admission:
    """Return a command's admission gate for these runs; with caps, it starts from past spending.

    Spending includes earlier commands, all branches, and the runs that a run started. A call that
    may have been billed without reporting its tokens counts as the largest call of its stage.

    Raises:
        ConfigError: There is a cap on cost, and a model has no price.
    """
    if not caps:
        return Admission()
    spent, lost = list[Spent](), list[Lost]()
    for name in names:
        spent += store.read(spending.spent, name)
        lost += store.read(spending.lost, name)
    largest = dict[str, int]()
    for row in spent:
        largest[row.name] = max(largest.get(row.name, 0), row.most_out or 0)
    largest = {name: most for name, most in largest.items() if most}
    micro = 0 if caps.cost_micro is None else _micro(_PriceBook(configs), spent, lost)
    tries = sum(row.tries for row in spent) + sum(row.tries for row in lost)
    already = Amount(tries, _tokens(spent, lost), micro)
    return Admission(Account(caps, already, largest=largest, command=command))


class _PriceBook:
    """Prices of all models that a run calls or has called.

    Raises:
        ConfigError: A model of the configuration has no price.
    """

    def __init__(self, configs: Sequence[RunConfig]) -> None:
        self._prices = Prices(configs[0].evaluation.prices)
        self._by_place = dict[tuple[str, str], Price]()
        for model in chain.from_iterable(
            (*config.models.values(), *config.evaluation.readers) for config in configs
        ):
            _, endpoint = endpoint_of(model, prices=self._prices)
            name, url = model.model_provider.model, endpoint.base_url
            self._by_place[name, place(url)] = self._known(name, url, endpoint.price(name, url))

    def price_of(self, row: Spent) -> Price:
        """Return the price of past calls."""
        where = row.answered_by.rpartition("@")[2]
        if (row.name, where) in self._by_place:
            return self._by_place[row.name, where]
        # Stored calls record only the host, but prices are looked up by URL.
        url = f"https://{where}/v1"
        found = self._prices.find(row.name, url, simulated=where == host(SIM_URL))
        return self._known(row.name, url, found)

    def dearest(self) -> int:
        """Return the highest possible cost of one call to any of the models, in micro-dollars."""
        return max(price.cost_micro(UNKNOWN) or 0 for price in self._by_place.values())

    def _known(self, name: str, url: str, price: Price | None) -> Price:
        if price is None or price.cost_micro(UNKNOWN) is None:
            raise ConfigError(
                f"--max-cost: the price of model {name!r} at {host(url)} is unknown, so no request"
                " is sent",
                hint="set it in the config, in USD per million tokens; 0 for your own model:"
                f" evaluation.prices: {{{name!r}: {{input: 0.27, output: 1.10}}}}"
                " (in an evaluation's file: prices); or use --max-tokens instead",
            )
        return price


def _tokens(spent: Sequence[Spent], lost: Sequence[Lost]) -> int:
    largest = dict[str, int]()
    for row in spent:
        largest[row.stage] = max(largest.get(row.stage, 0), row.most_tokens or 0)
    unknown = 2 * ASSUMED_OUT  # as many tokens in as out, as in `UNKNOWN`
    total = sum((row.usage.tokens_in or 0) + (row.usage.tokens_out or 0) for row in spent)
    total += sum(row.uncounted * (largest[row.stage] or unknown) for row in spent)
    return total + sum(row.maybe_paid * (largest.get(row.stage) or unknown) for row in lost)


def _micro(book: _PriceBook, spent: Sequence[Spent], lost: Sequence[Lost]) -> int:
    largest, total = dict[str, int](), 0
    for row in spent:
        price = book.price_of(row) if row.unpriced.tokens_in or row.uncounted else None
        unknown = row.most_micro or (price.cost_micro(UNKNOWN) or 0 if price else 0)
        largest[row.stage] = max(largest.get(row.stage, 0), unknown)
        known = (price.cost_micro(row.unpriced) or 0) if price else 0
        total += (row.usage.cost_micro or 0) + known + row.uncounted * unknown
    return total + sum(row.maybe_paid * largest.get(row.stage, book.dearest()) for row in lost)
