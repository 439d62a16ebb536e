"""Checks of the data: unreadable gold answers, and duplicate questions."""

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.core.errors import ConfigError, DataError, GrpoPracticeError
from grpo_practice.core.findings import Finding, ok, problem, problems, warning
from grpo_practice.core.prompts.files import prompts_from
from grpo_practice.core.text import count, folded, is_data_file
from grpo_practice.core.types import Sample, Samples
from grpo_practice.data.catalog import way_to
from grpo_practice.data.read import stage_file
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.run.doctor.tools import not_run
from grpo_practice.run.recorded import stage_attempts
from grpo_practice.run.specs import DEFAULT_LIMITS, configured_prompts
from grpo_practice.store import Store, branches, datasets
from grpo_practice.store.queries import runs
from grpo_practice.store.store import StoredSamples
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.resolve import VerifyFunction, check_gold, resolve
from grpo_practice.verify.trial import SHOWN, tried, unusable_golds

GOLDS = 20
"""Maximum number of gold answers to try, taken evenly from the whole dataset."""


RECORDED = "recorded"
"""Use of the questions at which attempts were recorded."""


def samples_of(
    config: RunConfig, store: Store | None, base_dir: Path, held: ExitStack
) -> tuple[dict[str, Samples], list[Finding]]:
    """Return the samples of each dataset that the configuration names, by use, and the findings.

    Stored samples can be read while the store is open, and samples from files until `held` is
    closed.
    """
    found, findings = dict[str, Samples](), list[Finding]()
    data = config.evaluation.data
    for use, name in config.datasets.items():
        try:
            if use == RECORDED:
                attempts = stage_attempts(store, name, base_dir)
                found[use] = held.enter_context(StagedSamples(attempts.samples()))
            elif is_data_file(name):
                staged = held.enter_context(StagedSamples())
                columns = {"question": data.question_field, "answer": data.gt_field}
                mapping = {key: column for key, column in columns.items() if column}
                stage_file(staged, base_dir / name, mapping=mapping)
                found[use] = staged
            elif store is None:
                raise DataError(f"there is no dataset {name!r} yet", hint=way_to(name))
            else:
                found[use] = StoredSamples(store, store.read(datasets.get, name))
            findings.append(ok(f"{use} data", f"{name}: {count(len(found[use]), 'question')}"))
        except GrpoPracticeError as e:
            findings.append(problem(f"{use} data", e))
    return found, findings


def diagnose_prompts(config: RunConfig, store: Store | None, base_dir: Path) -> list[Finding]:
    """Check that the distillation prompts can be used: the files, or those an open run stored."""
    if config.kind != "practice":
        return []
    try:
        configured_prompts(config, base_dir)
        run = store.read(runs.find, config.exp_id) if store is not None else None
        if store is not None and run is not None and run.steps_closed < run.steps:
            assert run.head_branch is not None, "a run with steps has a branch"
            # An unfinished run continues with the prompts that it stored, not with the files.
            prompts_from(store.read(branches.load, run.head_branch).prompts, run.name)
    except GrpoPracticeError as e:
        return [problem("prompts", e)]
    own = config.practice.prompts_dir
    return [ok("prompts", f"the prompt files in {own} can be used")] if own else []


def diagnose_questions(data: Mapping[str, Samples]) -> list[Finding]:
    """Check for questions that are repeated within a dataset or shared between datasets."""
    found = []
    # Compare hashes instead of texts, because the texts of a dataset may not fit into memory.
    seen = {use: {hash(folded(s.question)) for s in samples} for use, samples in data.items()}
    for use, questions in seen.items():
        twice = len(data[use]) - len(questions)
        if twice:
            hint = "data upload --dedup keeps one of each"
            text = f"{count(twice, 'question')} {_are(twice)} repeated"
            found.append(warning(f"{use} data", text, hint))
    uses = list(seen)
    for i, use in enumerate(uses):
        for other in uses[i + 1 :]:
            shared = len(seen[use] & seen[other])
            if shared:
                of = count(len(seen[other]), "question")
                text = f"{shared} of {of} {_are(shared)} also in the {use} data"
                hint = "a score on questions that were practised or selected on is too high"
                found.append(warning(f"{other} data", text, hint))
    return found


async def diagnose_verify(
    config: RunConfig, data: Mapping[str, Samples], base_dir: Path, *, run: bool
) -> list[Finding]:
    """Check that the verify function accepts right answers and rejects others.

    A function in a file is not called unless `run` is set.
    """
    spec = config.evaluation.verify
    about = f"verify {spec.name}"
    try:
        function = resolve(spec.name, spec.params, spec.timeout_s, base_dir, load=run)
    except ConfigError as e:
        return [problem(about, e)]
    if function.file is not None and not run:
        return [not_run(about, str(function.file.path))]
    findings, answered = _diagnose_golds(config, data, function)
    if function.note:
        findings.append(warning(about, function.note))
    if function.is_judge:
        return [
            *findings,
            ok(about, "asks a judge for each answer; not tried, because that costs money"),
        ]
    if function.needs_rollout:
        return [*findings, ok(about, "scores rollouts; not tried, because that needs an agent")]
    if problems(findings):
        return findings
    golds = (
        sample
        for sample in chain.from_iterable(data.values())
        if gold_texts(sample.answer) and check_gold(function, sample) is None
    )
    # Datasets are often sorted by difficulty or topic, so take samples from the whole dataset.
    every = max(1, answered // GOLDS)
    chosen = list(islice(golds, 0, GOLDS * every, every))
    return findings + await tried(function, chosen or [Sample("What is 12 + 12?", "24")])


def _diagnose_golds(
    config: RunConfig, data: Mapping[str, Samples], function: VerifyFunction
) -> tuple[list[Finding], int]:
    """Check that few gold answers are unusable; return findings and the number of usable ones."""
    most = (config.practice if config.kind == "practice" else DEFAULT_LIMITS).max_failed_share
    findings, answered = list[Finding](), 0
    for use, samples in data.items():
        if use == RECORDED:  # a question whose attempts have rewards needs no answer
            continue
        bad, reasons = 0, dict[int, str]()
        for at, sample in enumerate(samples):
            if why := check_gold(function, sample):
                bad += 1
                if len(reasons) < SHOWN:
                    reasons[at] = why
            else:
                answered += bool(gold_texts(sample.answer))
        if bad:
            name = config.datasets.get(use, use)
            found = unusable_golds(
                function.name, name, reasons, n=bad, asked=len(samples), max_share=most
            )
            findings.append(found)
    return findings, answered


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
