"""Configuration for a training request: a file's, or the latest training run's."""

from grpo_practice.config import Loaded, load_practice
from grpo_practice.config.reading.discover import config_here
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.configs import config_file, stored_text, unnamed
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.train.requests import TrainRequest, TuneRequest


def train_config(store: Store, request: TrainRequest | TuneRequest) -> Loaded[PracticeConfig]:
    """Return the requested configuration; without one, that of the latest training run.

    Raises:
        ConfigError: There is no configuration, or it cannot be used.
    """
    env, overrides = request.environment(), request.changes
    if request.config is not None:
        return load_practice(config_file(request.config, "practice"), overrides, env, trains=True)
    latest = store.read(runs.latest, ["train"])
    if latest is not None and latest.purpose == "trial":
        raise ConfigError(
            f"the latest training run, {latest.name}, is a trial of a search, with settings of its"
            " own: name a config with --config",
            hint=f"for instance the file that the search of {latest.exp_id} was started with",
        )
    stored = stored_text(store, latest.name) if latest else None
    if stored is not None:
        return load_practice(stored, overrides, env, trains=True)
    if (here := config_here("practice")) is not None:
        return unnamed(load_practice(here, overrides, env, trains=True), here, "practice")
    raise ConfigError(
        "there is no training run to resume: name a config with --config",
        hint="`grpo-practice init my-task` writes a config to start from",
    )
