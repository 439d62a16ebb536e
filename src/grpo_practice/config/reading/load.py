"""The config loader of all commands: files, flags and environment in, a frozen config out."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Generic, TypeVar, cast

from grpo_practice.config.reading.compose import (
    Override,
    compose,
    override,
    refuse_hidden,
)
from grpo_practice.config.reading.draft import ComposedConfig, Draft
from grpo_practice.config.reading.env import Environment, as_environment
from grpo_practice.config.reading.problems import Problem
from grpo_practice.config.reading.roles import Roles
from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.redact import secrets_in
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig
from grpo_practice.config.schema.tools import SearchToolkit
from grpo_practice.config.trust.foreign import lay_agent_over, read_agent, read_stored
from grpo_practice.config.trust.keys import KeyRoute, sentences
from grpo_practice.config.trust.word import Trust, stored_digest
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import digest
from grpo_practice.core.redact import REDACTED, redactor
from grpo_practice.core.text import is_data_file

C = TypeVar("C", PracticeConfig, EvalConfig)


@dataclass(frozen=True, slots=True)
class StoredText:
    """A config as a database stores it."""

    text: str
    base_dir: Path
    """Folder for relative file names in the config."""
    database: Path
    """Database file that contains the config."""
    imported_as: str | None = None
    """Experiment of an imported run, which may have been renamed; None for any other run."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """A config with the notices that a command shows about it."""

    config: C
    path: Path | None
    """File that the config was read from; None for a stored text or for flags alone."""
    base_dir: Path
    """Folder for relative file names in the config."""
    text: str
    """Composed config as YAML, variables not filled in and secrets hidden; it can be loaded
    again."""
    ignored: list[str]
    """Messages about keys that have no effect, one per key."""
    notices: list[str]
    """Messages for the user."""
    routes: list[KeyRoute]
    """Routes of the environment's secrets: the recipient of each, and the setting that names it."""
    trust: Trust
    asks: bool
    """Whether the config requests a program, a file or a key for a host, which requires trust."""
    vouched: bool = True
    """Whether no third-party file supplies both an address and a key that is hidden when stored."""
    addresses: tuple[str, ...] = ()
    """Notices that only repeat settings of the user's own `.env` file next to the config."""

    @property
    def announcements(self) -> list[str]:
        """Messages to show before the first request: the recipient of each key."""
        return sentences(self.routes)

    def unannounced(self, place: str) -> dict[str, str]:
        """Return the messages that were never shown for a run: message → key for `Trust.announce`.

        `place` identifies the run and its database. The record is kept beside the user's trust,
        because a database may come from other people.
        """
        known = self.trust.announced()
        found = {
            route.sentence: digest({"in": place, "key": route.variable, "to": route.to}).hex()
            for route in self.routes
        }
        return {text: key for text, key in found.items() if key not in known}

    def as_evaluation(self: "Loaded[PracticeConfig]", config: EvalConfig) -> "Loaded[EvalConfig]":
        """Return an evaluation config of this run, without the notices that were already shown."""
        mine = cast("Loaded[EvalConfig]", self)
        return replace(mine, config=config, ignored=[], notices=[], routes=[], addresses=())

    def remember(self) -> None:
        """Remember this config as trusted by the user, for resuming a run."""
        if self.asks and self.vouched:
            with suppress(ConfigError):  # home is read-only, so the user has to repeat --trust
                self.trust.remember([stored_digest(self.text, self.base_dir)], None)

    def is_trusted(self, path: Path) -> bool:
        """Return whether the user trusts the config in this file, or has used it before."""
        return self.trust.text(stored_digest(self.text, self.base_dir), path)


Source = Path | Tree | StoredText | None
"""A config: a file, values, a stored text, or None if overrides supply everything."""


def load_practice(
    source: Source,
    overrides: Sequence[Override],
    env: Mapping[str, str],
    *,
    trains: bool = False,
) -> Loaded[PracticeConfig]:
    """Load a practice config and apply `a.b=c` overrides to it.

    Without a source, the overrides contain everything: texts as for `--set`, or keys with typed
    values. If a stored text has a hidden key, `env` supplies that key. With `trains`, the config
    must have a `train:` section, and only a judge that is called needs an address.

    Raises:
        ConfigError: The config is unusable; the message names each wrong key with file and line.
    """
    composed = _composed(source, env)
    loaded = _practice(composed, overrides, trains=trains)
    if trains and loaded.config.train is None:
        raise ConfigError(
            f"{composed.name} has no `train:` section, so it does not say which model to train",
            hint="add `train: {model: FOLDER}`, or --set train.model=FOLDER",
        )
    return loaded


def load_eval(
    source: Source,
    overrides: Sequence[Override],
    env: Mapping[str, str],
    *,
    agent: Path | None = None,
) -> Loaded[EvalConfig]:
    """Load an evaluation config, or the `evaluation:` section of a practice config.

    An agent's file is laid over the config's agent. Overrides come last; their keys are relative to
    the evaluation, and the prefix `evaluation.` is optional. `exp_id` defaults to the practice
    config's, or else to the dataset's name.

    Raises:
        ConfigError: The config is unusable, as for `load_practice`.
    """
    return _eval(_composed(source, env), overrides, agent)


def _composed(source: Source, env: Mapping[str, str]) -> ComposedConfig:
    known = as_environment(env)
    match source:
        case Path():
            return ComposedConfig(compose(source), source, source.resolve().parent, known)
        case StoredText():
            exp_id, trust = source.imported_as, known.trust
            text, imported = source.text, exp_id is not None
            tree = read_stored(text, source.base_dir, source.database, trust, imported=imported)
            tree = tree if exp_id is None else _renamed(tree, exp_id)
            return ComposedConfig(tree, None, source.base_dir, known)
        case _:
            tree = source or Tree({})
            refuse_hidden(tree, "the config")
            return ComposedConfig(tree, None, Path.cwd(), known)


def _renamed(tree: Tree, exp_id: str) -> Tree:
    """Return the config with the name of its experiment."""
    own = tree.at("evaluation").data.get("exp_id")
    if exp_id in (tree.data.get("exp_id"), own):
        return tree
    data = {**tree.data, "exp_id": exp_id}
    if own is not None:
        data["evaluation"] = {**data["evaluation"], "exp_id": exp_id}
    return Tree(data, tree.places, tree.prefix)


def _is_practice(tree: Tree) -> bool:
    return "practice" in tree.data or "evaluation" in tree.data


def _practice(
    source: ComposedConfig, overrides: Sequence[Override], *, trains: bool = False
) -> Loaded[PracticeConfig]:
    tree = override(source.tree, overrides)
    if not _is_practice(tree) and tree.data.keys() & EvalConfig.model_fields.keys() - {"exp_id"}:
        raise ConfigError(
            f"{source.name} is an evaluation config, which has neither `practice:` nor"
            " `evaluation:`",
            hint="use it with `grpo-practice eval`, or include it in a practice config",
        )
    draft = Draft(source, tree, "practice")
    _one_dataset_key(draft)
    evaluation = draft.data.setdefault("evaluation", {})
    if isinstance(evaluation, dict) and evaluation.get("exp_id") is None and "exp_id" in draft.data:
        evaluation["exp_id"] = draft.data["exp_id"]
    config = draft.validate(PracticeConfig)
    # Training on local weights must work on a machine without an endpoint.
    if trains and not _asks_while_training(config, source.env):
        return _loaded(draft, config)  # no model is called, so none needs an address
    roles = draft.roles()
    agent, evaluation = _eval_models(config.evaluation, roles, ("evaluation",))
    teacher = roles.teacher(
        config.practice.teacher_model, agent.model, ("practice", "teacher_model")
    )
    practice = config.practice.model_copy(update={"teacher_model": teacher})
    draft.check()
    tested = config.evaluation.data.dataset
    if tested is not None and tested == config.data.practice_dataset_name:
        draft.notices.append(
            f"{tested!r} is used for both practice and evaluation, so the score will be too high;"
            " name other questions under evaluation.data.dataset"
        )
    return _loaded(
        draft, config.model_copy(update={"practice": practice, "evaluation": evaluation})
    )


def _asks_while_training(config: PracticeConfig, env: Environment) -> bool:
    """Return whether training calls a judge, so that its endpoint must be resolved.

    Most user-defined verify functions do not call the judge, so for these the judge is resolved
    only if a model is named.
    """
    evaluation = config.evaluation
    named = evaluation.student.model_provider.model or evaluation.judge.model_provider.model
    known = named or env.get("UTU_LLM_MODEL") or env.get("JUDGE_LLM_MODEL")
    return evaluation.verify.name == "judge" or (evaluation.verify.may_ask and bool(known))


def _eval(
    source: ComposedConfig, overrides: Sequence[Override], agent: Path | None
) -> Loaded[EvalConfig]:
    tree = source.tree
    if _is_practice(tree):
        exp_id, place = tree.data.get("exp_id"), tree.place(("exp_id",))
        tree = tree.at("evaluation")
        if tree.data.get("exp_id") is None and exp_id is not None:
            places = dict(tree.places) | ({("exp_id",): place} if place else {})
            tree = Tree({**tree.data, "exp_id": exp_id}, places, tree.prefix)
    if agent is not None:
        # A database can claim any folder, so it must not choose whose programs a trusted file
        # starts.
        folders = [Path.cwd(), source.base_dir] if source.path else [source.base_dir]
        own = read_agent(agent, source.env.trust, folders)
        if _is_practice(own):
            raise ConfigError(
                f"{agent} is a practice config, not an agent file",
                hint="`grpo-practice export-agent` writes one, including the agent's experiences",
            )
        tree = _without_other_type(tree, own)
        tree = lay_agent_over(tree, own)
    # After the agent's file, so that flags override it.
    tree = override(tree, overrides, strip="evaluation")
    draft = Draft(source, tree, "eval")
    dataset = draft.section(("data",)).get("dataset")
    if dataset is None:
        hint = "--dataset NAME, or evaluation.data.dataset in the config"
        draft.problems.append(Problem(("data", "dataset"), "is missing", hint))
        # The name would come from the dataset, so do not report it as missing, too.
        draft.data.setdefault("exp_id", "unnamed")
    elif draft.data.get("exp_id") is None:
        draft.data["exp_id"] = PurePath(dataset).stem if is_data_file(dataset) else dataset
    if draft.data.get("verify") is None:
        hint = "--verify NAME, or evaluation.verify in the config"
        draft.problems.append(Problem(("verify",), "is missing", hint))
    config = draft.validate(EvalConfig)
    _, config = _eval_models(config, draft.roles(), ())
    draft.check()
    return _loaded(draft, config)


def _without_other_type(tree: Tree, own: Tree) -> Tree:
    """Return the config with its agent reduced to the model if the agent's file has another type.

    The keys of one agent type mean nothing to another type, so agents of different types cannot be
    merged.
    """
    under = tree.data.get("agent")
    if not isinstance(under, dict) or own.data.get("type") in (None, under.get("type", "simple")):
        return tree
    model = {"model": under["model"]} if "model" in under else {}
    return Tree({**tree.data, "agent": model}, tree.places, tree.prefix)


def _loaded(draft: Draft, config: C) -> Loaded[C]:
    # Keys from the environment are filled in by now; any later message may quote them.
    redactor.know(secrets_in(config.model_dump()))
    draft.refuse_secrets(config)
    draft.finish(config)
    source, text = draft.source, draft.text()
    at_urls: tuple[str, ...] = tuple(draft.keys.asked_by_dotenv())
    beside = source.env.path and source.env.path.parent.resolve() == source.base_dir.resolve()
    return Loaded(
        config=config,
        path=source.path,
        base_dir=source.base_dir,
        text=text,
        ignored=draft.ignored,
        notices=[*draft.notices, *at_urls],
        routes=draft.keys.routes,
        trust=source.env.trust,
        asks=draft.asks or REDACTED in text,
        vouched=not draft.has_key_of_others,
        addresses=at_urls if beside and source.env.trusts_dotenv else (),
    )


def _eval_models(config: EvalConfig, roles: Roles, at: Key) -> tuple[AgentConfig, EvalConfig]:
    """Resolve the models of the evaluation; drop a judge that is not called."""
    model = roles.student(config.agent.model, (*at, "agent", "model"))
    toolkits = dict(config.agent.toolkits)
    for name, kit in toolkits.items():
        if isinstance(kit, SearchToolkit):
            key = (*at, "agent", "toolkits", name)
            reader = roles.teacher(kit.config_llm, model, (*key, "config_llm"))
            services = roles.services(kit.config, (*key, "config"))
            toolkits[name] = kit.model_copy(update={"config_llm": reader, "config": services})
    agent = config.agent.model_copy(update={"model": model, "toolkits": toolkits})
    judge = None
    if config.verify.may_ask:
        judge = roles.judge(config.judge_model, model, (*at, "judge_model"))
    return agent, config.model_copy(update={"agent": agent, "judge_model": judge})


def _one_dataset_key(draft: Draft) -> None:
    """Convert `data.practice_dataset`, an alias, to `data.practice_dataset_name`."""
    section = draft.section(("data",))
    if "practice_dataset" not in section:
        return
    other = section.pop("practice_dataset")
    if section.setdefault("practice_dataset_name", other) != other:
        text = "differs from practice_dataset_name"
        draft.problems.append(Problem(("data", "practice_dataset"), text, "keep one of them"))
