"""URL and key of a model: both from one source, so that no key goes astray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.interpolate import interpolate, variables
from grpo_practice.config.reading.problems import Problem, dotted
from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.schema.provider import ModelProvider, is_sim
from grpo_practice.config.trust.keys import NOWHERE, Address
from grpo_practice.config.trust.word import host_of
from grpo_practice.redact import REDACTED, redact_url

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Tier:
    """A URL and the key that came with it."""

    name: str
    """`UTU_LLM`, `JUDGE_LLM`, `OPENAI`, or whose model it is."""
    url: str
    key: str | None
    origin: str
    """Source of the URL."""
    key_origin: str
    """Source of the key, or the place for one."""
    variable: str | None = None
    """Variable that holds the key, where one does."""
    address: Address = NOWHERE
    """Source of the URL."""
    split: bool = False
    """Whether URL and key are from two places."""


def tier_of(provider: ModelProvider, address: Address) -> Tier | None:
    """Return URL and key of the agent's model; None when it is simulated."""
    if not provider.base_url:
        return None
    at, key_at = f"the agent ({provider.origin})", f"the agent ({provider.key_origin})"
    return Tier("the agent", provider.base_url, provider.key, at, key_at, address=address)


def env_tier(env: Environment, name: str) -> Tier | None:
    """Read `NAME_BASE_URL` and `NAME_API_KEY`; None when neither is set."""
    both = url_name, key_name = f"{name}_BASE_URL", f"{name}_API_KEY"
    url, key = env.get(url_name), env.get(key_name)
    if not url and not key:
        return None
    source = url_name if url else key_name
    line = env.line(source)
    address = Address(f"{source} in {line}", line, (url_name,) if url else ())
    # Else a folder's `.env` could have the user's key sent to any host.
    split = bool(url and key) and not env.together(*both)
    if name == "OPENAI" and not url:
        url = OPENAI_URL
    at = f"{source} in {env.origin(source)}"
    key_at = f"{key_name} in {env.origin(key_name)}" if key else key_name
    at_url = (url or "").rstrip("/")
    variable = key_name if key else None
    return Tier(name, at_url, key or None, at, key_at, variable, address, split)


def prepare(provider: dict[str, Any], env: Environment, prefix: str, key: Key, tree: Tree) -> bool:
    """Make a provider of the config, still uninterpolated, ready for the environment.

    A `sim` that the config names is built in unless the config has a base_url of its own: a URL
    that only the environment knows serves the `sim` that the environment names. A key that was
    hidden in a stored config is taken out; returns whether there was one. The section is changed in
    place; it stands at `key`, and `prefix` begins the variables that go with its role.
    """
    _settle_sim(provider, env, prefix)
    shown = (*tree.prefix, *key)
    if url := provider.get("base_url"):
        provider["origin"] = _source(url, env, (*shown, "base_url"))
        provider["key_origin"] = _source(provider.get("api_key"), env, (*shown, "api_key"))
    hidden = provider.get("api_key") == REDACTED
    if hidden:
        del provider["api_key"]
    return hidden


def _source(value: object, env: Environment, key: Key) -> str:
    """Name the key a value stands under, and the variables that it was filled from."""
    names = [f"{name} in {env.origin(name)}" for name in variables(value) if name in env]
    return ", from ".join([dotted(key), *names])


def _settle_sim(provider: dict[str, Any], env: Environment, prefix: str) -> None:
    named = provider.get("model")
    # A default, as in `${oc.env:UTU_LLM_MODEL,sim}`, is the config's word.
    by_env = any(env.get(name) for name in variables(named))
    if not is_sim(interpolate(named, env, [])):
        return
    url = provider.get("base_url")
    if by_env and not url and env.get(f"{prefix}_BASE_URL"):
        provider["base_url"] = f"${{oc.env:{prefix}_BASE_URL}}"
        provider["api_key"] = f"${{oc.env:{prefix}_API_KEY,null}}"
        return
    unset = [name for name in variables(url) if not env.get(name)]
    if not url or (variables(url) and (unset or not by_env)):
        provider.pop("base_url", None)
        provider.pop("api_key", None)


def resolve(
    provider: ModelProvider, tiers: Sequence[Tier], key: Key, problems: list[Problem]
) -> tuple[ModelProvider, Tier | None]:
    """Return the provider with a concrete URL and key, and the tier that gave the key.

    The config's own URL goes with the config's own key, else with the key of a tier that names the
    same host, else with none. Without a URL in the config the first tier gives both.
    """
    if is_sim(provider.model) and not provider.base_url:
        return provider.model_copy(
            update={"api_key": None, "origin": "simulated in this program"}
        ), None
    if provider.base_url:
        # The key of a tier goes to the tier's own host alone: who wrote the URL may be a stranger.
        # The scheme is a part of the host: over http, a key for https would travel in clear.
        wanted = host_of(provider.base_url)
        same = (t for t in tiers if not t.split and t.url and host_of(t.url) == wanted)
        tier = next(same, None)
        if provider.key or tier is None or not tier.key:
            return provider, None
        found = {"api_key": SecretStr(tier.key), "key_origin": tier.key_origin}
        return provider.model_copy(update=found), tier
    if provider.key is not None:
        tiers = [t for t in tiers if t.key == provider.key]
    if not tiers:
        problems.append(_no_url(provider, key))
        return provider, None
    tier = tiers[0]
    if not tier.url:
        text = f"{tier.name}_API_KEY is set, but {tier.name}_BASE_URL is not"
        problems.append(Problem((*key, "base_url"), text, f"set {tier.name}_BASE_URL too"))
    return at_tier(provider, tier), tier


def at_tier(provider: ModelProvider, tier: Tier) -> ModelProvider:
    """Return the provider at the URL and with the key of a tier."""
    secret = SecretStr(tier.key) if tier.key else None
    at = {"origin": tier.origin, "key_origin": tier.key_origin}
    return provider.model_copy(update={"base_url": tier.url, "api_key": secret, **at})


def _no_url(provider: ModelProvider, key: Key) -> Problem:
    if provider.key is not None:
        text = "is missing: a key is only sent to the host it is written with"
        return Problem((*key, "base_url"), text, f"write base_url beside it ({OPENAI_URL}, say)")
    text = f"is missing: where is the model {provider.model!r} served?"
    hint = "set it, or UTU_LLM_BASE_URL and UTU_LLM_API_KEY (in .env, say), or OPENAI_API_KEY"
    return Problem((*key, "base_url"), text, hint)


def unused_key(provider: ModelProvider, env: Mapping[str, str], prefix: str) -> str | None:
    """Return a sentence when a key stands ready in the environment but is not sent."""
    name = f"{prefix}_API_KEY"
    if provider.key or not provider.base_url or not env.get(name):
        return None
    return (
        f"{name} is not sent to {redact_url(provider.base_url)}, which the config names without"
        f" a key; if it belongs there, write `api_key: ${{oc.env:{name}}}` beside base_url"
    )
