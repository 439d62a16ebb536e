"""URL and API key of a model, taken from the same source so that no key reaches the wrong host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.interpolate import interpolate, variables
from grpo_practice.config.reading.problems import Problem, dotted
from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.schema.base import check_address
from grpo_practice.config.schema.provider import ModelProvider, is_sim
from grpo_practice.config.trust.keys import NOWHERE, Address
from grpo_practice.config.trust.word import host_of
from grpo_practice.core.calls import API_NAMES
from grpo_practice.core.redact import REDACTED, redact_url

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Tier:
    """A URL with the API key from the same source."""

    name: str
    """`UTU_LLM`, `JUDGE_LLM`, `OPENAI`, or the role that the model has."""
    url: str
    key: str | None
    origin: str
    """Source of the URL."""
    key_origin: str
    """Source of the key, or the place where a key can be set."""
    variable: str | None = None
    """Variable that holds the key, if a variable does."""
    address: Address = NOWHERE
    """Source of the URL, for the trust rules."""
    split: bool = False
    """Whether URL and key come from two different places."""
    api: str | None = None
    """API that is spoken at the URL, perhaps an invalid name; None if the source does not say."""


def tier_of(provider: ModelProvider, address: Address) -> Tier | None:
    """Return URL and key of the agent's model; None if it is simulated."""
    if not provider.base_url:
        return None
    at, key_at = f"the agent ({provider.origin})", f"the agent ({provider.key_origin})"
    return Tier(
        "the agent", provider.base_url, provider.key, at, key_at, None, address, api=provider.type
    )


def env_tier(env: Environment, name: str) -> Tier | None:
    """Read `NAME_BASE_URL` and `NAME_API_KEY`; return None if neither is set."""
    both = url_name, key_name = f"{name}_BASE_URL", f"{name}_API_KEY"
    url, key = env.get(url_name), env.get(key_name)
    if not url and not key:
        return None
    source = url_name if url else key_name
    line = env.line(source)
    address = Address(f"{source} in {line}", line, (url_name,) if url else ())
    # Otherwise, a folder's `.env` could send the user's own key to any host.
    split = bool(url and key) and not env.together(*both)
    if name == "OPENAI" and not url:
        url = OPENAI_URL
    at = f"{source} in {env.origin(source)}"
    key_at = f"{key_name} in {env.origin(key_name)}" if key else key_name
    at_url = (url or "").rstrip("/")
    variable = key_name if key else None
    api = env.get(f"{name}_TYPE") or None
    return Tier(name, at_url, key or None, at, key_at, variable, address, split, api)


def prepare(provider: dict[str, Any], env: Environment, prefix: str, key: Key, tree: Tree) -> bool:
    """Prepare a provider section for filling in variables; return whether its key was hidden.

    A `sim` that the config names is the built-in endpoint unless the config has its own base_url. A
    URL that only the environment sets is used only for a `sim` that the environment names. A key
    that was hidden in a stored config is removed.

    Args:
        provider: The section, variables not filled in; changed in place.
        env: Environment variables.
        prefix: Prefix of the variables of the section's role.
        key: Key of the section in the config.
        tree: The composed config.
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
    """Return the key of a value and the variables that filled it, for display."""
    names = [f"{name} in {env.origin(name)}" for name in variables(value) if name in env]
    return ", from ".join([dotted(key), *names])


def _settle_sim(provider: dict[str, Any], env: Environment, prefix: str) -> None:
    named = provider.get("model")
    # The default in `${oc.env:UTU_LLM_MODEL,sim}` counts as the config's own choice.
    by_env = any(env.get(name) for name in variables(named))
    if not is_sim(interpolate(named, env, [])):
        return
    url = provider.get("base_url")
    if by_env and not url and env.get(f"{prefix}_BASE_URL"):
        provider["base_url"] = f"${{oc.env:{prefix}_BASE_URL}}"
        provider["api_key"] = f"${{oc.env:{prefix}_API_KEY,null}}"
        provider.setdefault("type", f"${{oc.env:{prefix}_TYPE,chat.completions}}")
        return
    unset = [name for name in variables(url) if not env.get(name)]
    if not url or (variables(url) and (unset or not by_env)):
        provider.pop("base_url", None)
        provider.pop("api_key", None)


def resolve(
    provider: ModelProvider, tiers: Sequence[Tier], key: Key, problems: list[Problem]
) -> tuple[ModelProvider, Tier | None]:
    """Return the provider with a concrete URL and key, and the tier that supplied the key.

    If the config has a URL, it is combined with the config's own key, otherwise with the key of a
    tier for the same host, otherwise with no key. If the config has no URL, the first tier supplies
    both.
    """
    if is_sim(provider.model) and not provider.base_url:
        return provider.model_copy(
            update={"api_key": None, "origin": "simulated in this program"}
        ), None
    if provider.base_url:
        # A tier's key goes only to the tier's own host, because a stranger may have written this
        # URL. The scheme must match too: over http, a key for https would be sent in clear text.
        wanted = host_of(provider.base_url)
        same = (t for t in tiers if not t.split and t.url and host_of(t.url) == wanted)
        tier = next(same, None)
        if provider.key or tier is None or not tier.key:
            return provider, None
        found = {"api_key": SecretStr(tier.key), "key_origin": tier.key_origin}
        return provider.model_copy(update=found), tier
    if provider.key is not None:
        # A key without a URL is sent only to the URL of the tier that has the same key.
        tiers = [t for t in tiers if t.key == provider.key]
    if not tiers:
        problems.append(_no_url(provider, key))
        return provider, None
    tier = tiers[0]
    if not tier.url:
        text = f"{tier.name}_API_KEY is set, but {tier.name}_BASE_URL is not"
        problems.append(Problem((*key, "base_url"), text, f"set {tier.name}_BASE_URL too"))
    return at_tier(provider, tier, key, problems), tier


def at_tier(
    provider: ModelProvider, tier: Tier, key: Key, problems: list[Problem]
) -> ModelProvider:
    """Return the provider with the URL, the key and, unless it names its own, the API of a tier."""
    secret = SecretStr(tier.key) if tier.key else None
    at = {"origin": tier.origin, "key_origin": tier.key_origin}
    if tier.api is not None and "type" not in provider.model_fields_set:
        if tier.api not in API_NAMES:
            text = f"{tier.name}_TYPE is {tier.api!r}, but should be {' or '.join(API_NAMES)}"
            problems.append(Problem((*key, "type"), text, f"set {tier.name}_TYPE"))
        else:
            at["type"] = tier.api
    try:
        check_address(tier.url or None)
    except ValueError as e:
        # Without URL and key, because a key cannot be routed to an address without a host.
        problems.append(Problem((*key, "base_url"), f"{tier.address.text} {e}"))
        return provider
    return provider.model_copy(update={"base_url": tier.url, "api_key": secret, **at})


def _no_url(provider: ModelProvider, key: Key) -> Problem:
    if provider.key is not None:
        text = "is missing, and a key is sent only to the host named next to it"
        return Problem(
            (*key, "base_url"), text, f"add base_url next to it, for example {OPENAI_URL}"
        )
    text = f"is missing: where is the model {provider.model!r} served?"
    hint = (
        "set it, or UTU_LLM_BASE_URL and UTU_LLM_API_KEY (in .env, for example), or OPENAI_API_KEY"
    )
    return Problem((*key, "base_url"), text, hint)


def unused_key(provider: ModelProvider, env: Mapping[str, str], prefix: str) -> str | None:
    """Return a notice if the environment has a key for this role that is not sent, else None."""
    name = f"{prefix}_API_KEY"
    if provider.key or not provider.base_url or not env.get(name):
        return None
    return (
        f"{name} is not sent to {redact_url(provider.base_url)}, which the config names without"
        f" a key; if it belongs there, write `api_key: ${{oc.env:{name}}}` next to base_url"
    )
