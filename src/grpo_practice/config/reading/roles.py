"""Endpoints and settings for a run's student, teacher and judge, and keys for its web services."""

from collections.abc import Container, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from grpo_practice.config.reading.endpoint import (
    Tier,
    at_tier,
    env_tier,
    resolve,
    tier_of,
    unused_key,
)
from grpo_practice.config.reading.problems import Problem, dotted, section_at
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.provider import (
    ModelConfig,
    ModelParams,
    ModelProvider,
    ModelSettings,
    is_sim,
)
from grpo_practice.config.schema.tools import SearchConfig
from grpo_practice.config.trust.keys import NOWHERE, Address, Keys
from grpo_practice.core.redact import redact_url
from grpo_practice.core.text import is_loopback

_CARRIED = (
    "metadata", "store", "prompt_cache_retention", "include_usage",
    "extra_query", "extra_body", "extra_headers", "extra_args",
)  # fmt: skip
"""Settings of the student that concern access to its endpoint, not the answers."""


class Roles:
    """Resolver for the models in one config; it adds missing settings to the problems in `keys`."""

    def __init__(self, keys: Keys, hidden: Container[Key], notices: list[str]) -> None:
        """Resolve models of a config.

        Args:
            keys: Record of the recipients of the config's keys, filled while models are resolved.
            hidden: Sections whose key was redacted when the config was stored.
            notices: Messages for the user; resolving adds to them.
        """
        self.keys = keys
        self.env = keys.env
        self.problems = keys.problems
        self.hidden = hidden
        self.notices = notices
        self.agent = NOWHERE
        """Source of the student's URL."""

    def student(self, own: ModelConfig, key: Key) -> ModelConfig:
        """Resolve the agent's model: URL and key from the config, `UTU_LLM_*` or `OPENAI_*`."""
        provider, tier = self._named(own.model_provider, "UTU_LLM", key)
        tiers = self._tiers("UTU_LLM", "OPENAI")
        student = self._resolved(own, provider, tiers, key, named=tier)
        _, self.agent = self.keys.models.get(key, (None, NOWHERE))
        return student

    def teacher(self, own: ModelConfig | None, student: ModelConfig, key: Key) -> ModelConfig:
        """Resolve a teacher's model: its own, or else the student's with `model_params`."""
        if own is None or own.model_provider == ModelProvider():
            return self._as_student(own, student, key)
        provider = own.model_provider
        if not provider.model:
            provider = provider.model_copy(update={"model": student.model_provider.model})
        ours = tier_of(student.model_provider, self.agent)
        return _caller(
            self._resolved(own, provider, [ours, *self._tiers("UTU_LLM", "OPENAI")], key)
        )

    def judge(self, own: ModelConfig | None, student: ModelConfig, key: Key) -> ModelConfig:
        """Resolve the model that scores: its own, then `JUDGE_LLM_*`, then the student's."""
        named, at = self.env.get("JUDGE_LLM_MODEL"), self.env.get("JUDGE_LLM_BASE_URL")
        if (own is None or own.model_provider == ModelProvider()) and not named and not at:
            return self._as_student(own, student, key)
        config = own or ModelConfig()
        provider, tier = self._named(
            config.model_provider, "JUDGE_LLM", key, student.model_provider.model
        )
        ours = tier_of(student.model_provider, self.agent)
        tiers = [*self._tiers("JUDGE_LLM"), ours, *self._tiers("OPENAI")]
        return _caller(self._resolved(config, provider, tiers, key, "JUDGE_LLM", named=tier))

    def _as_student(self, own: ModelConfig | None, student: ModelConfig, key: Key) -> ModelConfig:
        """Return the student's endpoint with a teacher's or judge's settings."""
        self.keys.models[key] = student.model_provider, self.agent
        return _caller(own or _plain(student), student.model_provider)

    def services(self, config: SearchConfig, key: Key) -> SearchConfig:
        """Fill in the API keys of the services; add a problem for each missing key."""
        search = "SERPER_API_KEY" if config.search_engine == "google" else "JINA_API_KEY"
        address, own = config.search_address, config.search_api_key
        wanted = [("search_api_key", search, config.search_url, address, own)]
        if config.crawl_engine == "jina":
            url, own = config.crawl_url, config.crawl_api_key
            wanted.append(("crawl_api_key", "JINA_API_KEY", url, config.crawl_address, own))
        found = {}
        for field_name, name, url, address, own in wanted:
            value = self.env.get(name)
            if own is not None:
                continue
            named_by = Address(f"{dotted(key)}.{field_name}")
            if url is not None:
                named_by = self.keys.address((*key, field_name.replace("api_key", "url")))
            # A key of the environment goes only to its own service or to this machine. Any other
            # address may have been written by a stranger.
            if url is not None and not is_loopback(urlsplit(url).hostname or ""):
                if value:
                    self.notices.append(
                        f"{name} is not sent to {redact_url(url)}, which the config names without a"
                        f" key; if it belongs there, add `{field_name}: ${{oc.env:{name}}}`"
                    )
            elif value:
                found[field_name] = SecretStr(value)
                self.keys.sends(name, address, (*key, field_name), named_by, in_file=False)
            elif url is None:
                hint = f"set {name}, or add it to .env"
                text = f"is missing: {name} is not set"
                self.problems.append(Problem((*key, field_name), text, hint))
        return config.model_copy(update=found)

    def _named(
        self, provider: ModelProvider, prefix: str, key: Key, otherwise: str = ""
    ) -> tuple[ModelProvider, Tier | None]:
        """Fill in the model name; return the environment's tier if it has a `sim` and a URL."""
        if provider.model:
            return provider, None
        named = self.env.get(f"{prefix}_MODEL")
        if not named and not otherwise:
            hint = f"set it, or {prefix}_MODEL (for example in .env); `sim` needs no endpoint"
            self.problems.append(
                Problem((*key, "model_provider", "model"), "no model is named", hint)
            )
        provider = provider.model_copy(update={"model": named or otherwise})
        served = named and is_sim(named) and not provider.base_url
        at_url = served and self.env.get(f"{prefix}_BASE_URL")
        return provider, env_tier(self.env, prefix) if at_url else None

    def _tiers(self, *names: str) -> list[Tier | None]:
        return [env_tier(self.env, name) for name in names]

    def _resolved(
        self,
        config: ModelConfig,
        provider: ModelProvider,
        tiers: Sequence[Tier | None],
        key: Key,
        prefix: str = "UTU_LLM",
        *,
        named: Tier | None = None,
    ) -> ModelConfig:
        """Resolve a section's endpoint, and record its address and the key sent to it.

        `tiers` may supply URL and key; `named` always does. If another role uses the student's key,
        the key goes to the student's host and is recorded there.
        """
        if not provider.model:
            return config
        at = (*key, "model_provider")
        address, hidden = self.keys.address((*at, "base_url")), at in self.hidden
        own, has_url = provider.key is not None, bool(provider.base_url)
        tier = named
        if tier is not None:
            own, provider = False, at_tier(provider, tier, at, self.problems)
        else:
            known = [t for t in tiers if t is not None]
            if hidden:  # a key without a URL may replace the hidden one
                url = provider.base_url
                known = [t if t.url else replace(t, url=url, address=address) for t in known]
            provider, tier = resolve(provider, known, at, self.problems)
        if tier is not None and not has_url:
            address = tier.address
        self.keys.models[key] = provider, address
        if hidden and not provider.key and not provider.simulated:
            text = "was redacted when the config was stored"
            hint = f"set {prefix}_API_KEY in the environment or in .env"
            self.problems.append(Problem((*at, "api_key"), text, hint))
        elif notice := unused_key(provider, self.env, prefix):
            self.notices.append(notice)
        if provider.key is not None and provider.base_url:
            self._send_key(provider.base_url, at, address, None if own else tier)
        section = dotted((*self.keys.tree.prefix, *at))
        return config.model_copy(
            update={"model_provider": provider.model_copy(update={"section": section})}
        )

    def _send_key(self, url: str, at: Key, address: Address, tier: Tier | None) -> None:
        """Record that the key of a section, or of the tier it comes from, is sent to a URL."""
        if tier is None:
            written = section_at(self.keys.data, at).get("api_key")
            for name in self.keys.held(written):
                self.keys.sends(name, url, (*at, "api_key"), address)
        elif tier.variable is not None:
            self.keys.sends(tier.variable, url, at, tier.address, in_file=False)


def _plain(student: ModelConfig) -> ModelConfig:
    """Return the student's model without the student's sampling settings."""
    carried = {name: getattr(student.model_settings, name) for name in _CARRIED}
    settings = ModelSettings().model_copy(update=carried)
    return ModelConfig(model_settings=settings, model_params=student.model_params)


def _caller(config: ModelConfig, provider: ModelProvider | None = None) -> ModelConfig:
    """Add `model_params` to the model's settings, as teacher and judge calls use them.

    The temperature defaults to 0.
    """
    params: ModelParams = config.model_params
    given = params.model_dump(exclude_none=True)
    if config.model_settings.temperature is None:
        given.setdefault("temperature", 0.0)
    return config.model_copy(
        update={
            "model_provider": provider or config.model_provider,
            "model_settings": config.model_settings.model_copy(update=given),
        }
    )
