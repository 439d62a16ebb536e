"""Endpoints and settings of a run's student, teacher and judge, and keys of its web services."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from grpo_practice.config.reading.endpoint import (
    Tier,
    Written,
    at_tier,
    env_tier,
    resolve,
    tier_of,
    unused_key,
)
from grpo_practice.config.reading.env import PROCESS, Environment
from grpo_practice.config.reading.key_routes import KeyRoute, NamedBy
from grpo_practice.config.reading.problems import Problem, dotted
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.provider import (
    ModelConfig,
    ModelParams,
    ModelProvider,
    ModelSettings,
    is_sim,
)
from grpo_practice.config.schema.tools import SearchConfig
from grpo_practice.config.trust import host_of, typed_host
from grpo_practice.redact import redact_url
from grpo_practice.text import is_loopback

_CARRIED = (
    "metadata", "store", "prompt_cache_retention", "include_usage",
    "extra_query", "extra_body", "extra_headers", "extra_args",
)  # fmt: skip
"""Settings of the student that say how to reach its endpoint, not how it should answer."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Resolves the models of one config; what is missing is added to `problems`."""

    env: Environment
    problems: list[Problem]
    notices: list[str]
    written: dict[Key, Written]
    """Endpoints as the config has them, by the key of their section; those of search services by
    the key of their URL."""
    routes: list[KeyRoute]
    """Ways of keys, added as models are resolved."""

    def student(self, own: ModelConfig, key: Key) -> ModelConfig:
        """Resolve the agent's model: URL and key from the config, `UTU_LLM_*` or `OPENAI_*`."""
        provider = self._named(own.model_provider, "UTU_LLM", key)
        return self._resolved(own, provider, self._tiers("UTU_LLM", "OPENAI"), key)

    def teacher(self, own: ModelConfig | None, student: ModelConfig, key: Key) -> ModelConfig:
        """Resolve a model called as a teacher: its own, else the student's with `model_params`."""
        if own is None or own.model_provider == ModelProvider():
            return _caller(own or _plain(student), student.model_provider)
        provider = own.model_provider
        if not provider.model:
            provider = provider.model_copy(update={"model": student.model_provider.model})
        tiers = [tier_of(student.model_provider), *self._tiers("UTU_LLM", "OPENAI")]
        return _caller(self._resolved(own, provider, tiers, key))

    def judge(self, own: ModelConfig | None, student: ModelConfig, key: Key) -> ModelConfig:
        """Resolve the model that scores: its own, else `JUDGE_LLM_*`, else the student's."""
        named, at = self.env.get("JUDGE_LLM_MODEL"), self.env.get("JUDGE_LLM_BASE_URL")
        if (own is None or own.model_provider == ModelProvider()) and not named and not at:
            return _caller(own or _plain(student), student.model_provider)
        config = own or ModelConfig()
        provider = self._named(
            config.model_provider, "JUDGE_LLM", key, student.model_provider.model
        )
        ours = tier_of(student.model_provider)
        tiers = [*self._tiers("JUDGE_LLM"), ours, *self._tiers("OPENAI")]
        return _caller(self._resolved(config, provider, tiers, key, "JUDGE_LLM"))

    def services(self, config: SearchConfig, key: Key) -> SearchConfig:
        """Fill in the keys of the services; one that is missing is a problem."""
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
            nowhere = Written(named_by=NamedBy(f"{dotted(key)}.{field_name}", ""))
            written = self.written.get((*key, field_name.replace("api_key", "url")), nowhere)
            # A key of the environment goes to the service it is for, or to this machine: anywhere
            # else it would go to whoever wrote the config.
            if url is not None and not is_loopback(urlsplit(url).hostname or ""):
                if value:
                    self.notices.append(
                        f"{name} is not sent to {redact_url(url)}, which the config names without a"
                        f" key; if it belongs there, add `{field_name}: ${{oc.env:{name}}}`"
                    )
            elif value:
                found[field_name] = SecretStr(value)
                at = (*key, field_name)
                self.sends(name, address, written.named_by, written.elsewhere(name, self.env), at)
            elif url is None:
                hint = f"set {name}, or add it to .env"
                text = f"is missing: {name} is not set"
                self.problems.append(Problem((*key, field_name), text, hint))
        return config.model_copy(update=found)

    def _named(
        self, provider: ModelProvider, prefix: str, key: Key, otherwise: str = ""
    ) -> ModelProvider:
        """Fill in the model name; a `sim` of the environment is served at the URL there."""
        if provider.model:
            return provider
        named = self.env.get(f"{prefix}_MODEL")
        if not named and not otherwise:
            hint = f"set it, or {prefix}_MODEL (in .env, say); `sim` needs no endpoint"
            self.problems.append(
                Problem((*key, "model_provider", "model"), "no model is named", hint)
            )
        provider = provider.model_copy(update={"model": named or otherwise})
        tier = env_tier(self.env, prefix)
        if named and is_sim(named) and not provider.base_url and tier is not None:
            at = (*key, "model_provider")
            self.written[at] = Written(
                keys=(tier.variable,) if tier.variable else (),
                key_named_by=tier.named_by,
                url_variables=(f"{prefix}_BASE_URL",),
            )
            return at_tier(provider, tier)
        return provider

    def _tiers(self, *names: str) -> list[Tier | None]:
        return [env_tier(self.env, name) for name in names]

    def _resolved(
        self,
        config: ModelConfig,
        provider: ModelProvider,
        tiers: Sequence[Tier | None],
        key: Key,
        prefix: str = "UTU_LLM",
    ) -> ModelConfig:
        if not provider.model:
            return config
        at = (*key, "model_provider")
        written = self.written.get(at, Written())
        known = [t for t in tiers if t is not None]
        if written.hidden:  # a key without a host may stand in for the one that was hidden
            known = [t if t.url else replace(t, url=provider.base_url) for t in known]
        own, named = provider.key is not None, bool(provider.base_url)
        provider, tier = resolve(provider, known, at, self.problems)
        if tier is not None and not named:
            written = self.written[at] = self._by_tier(written, tier)
        if written.hidden and not provider.key and not provider.simulated:
            text = "was hidden when the config was stored"
            hint = f"set {prefix}_API_KEY, or pass --config"
            self.problems.append(Problem((*at, "api_key"), text, hint))
        elif notice := unused_key(provider, self.env, prefix):
            self.notices.append(notice)
        self._announce(provider, tier, written, at, own=own)
        return config.model_copy(update={"model_provider": provider})

    def _by_tier(self, written: Written, tier: Tier) -> Written:
        """Return the section with the address that the environment, or the agent, gave it."""
        url = f"{tier.name}_BASE_URL"
        if self.env.get(url):
            return replace(written, url_variables=(url,), of_others=False)
        of = next((w for k, w in self.written.items() if k[-3:-1] == ("agent", "model")), written)
        return replace(
            written, url_variables=of.url_variables, literal=of.literal, of_others=of.of_others
        )

    def _announce(
        self, provider: ModelProvider, tier: Tier | None, written: Written, at: Key, *, own: bool
    ) -> None:
        """Note where the key of an endpoint goes; a place that needs the user's word is asked for.

        The student's key in another role goes where the student's goes, and is noted there.
        """
        if provider.key is None or not provider.base_url:
            return
        by_tier = [tier.elsewhere] if tier is not None and tier.elsewhere else []
        if own and written.keys:
            for name in written.keys:
                elsewhere = by_tier if tier else written.elsewhere(name, self.env)
                self.sends(name, provider.base_url, written.key_named_by, elsewhere, at)
        elif tier is not None and tier.variable is not None:
            if written.hidden and written.of_others:
                by_tier.append(written.named_by.text)
            by = written.named_by if written.hidden else tier.named_by
            self.sends(tier.variable, provider.base_url, by, by_tier, at)

    def sends(self, name: str, url: str, by: NamedBy, elsewhere: Sequence[str], at: Key) -> None:
        """Note that a variable is sent to this address; one that needs it is asked for.

        `by` is the key and line, or the variable, that says so. `elsewhere` has what names the
        address, where that is another place than the variable's; a refusal names the key `at`.
        """
        place, dotenv = self.env.origin(name), f" in {self.env.path}"
        # What the `.env` sets of the two, if the other is in the environment.
        apart = [one.partition(dotenv)[0] for one in elsewhere if dotenv in one]
        if place != PROCESS:
            apart = [name for one in elsewhere if one.endswith(f" in {PROCESS}")]
        beside = f"; or set {apart[0]} in the environment, too" if apart else ""
        self.routes.append(KeyRoute(name, place, host_of(url), by.text, by.place))
        if elsewhere and not self.env.trust.host(url, name):
            text = (
                f"{name} ({place}) would go to {host_of(url)}, which is named elsewhere:"
                f" {', '.join(dict.fromkeys(elsewhere))}; if it may, --trust-host"
                f" {typed_host(url)} says so once{beside}"
            )
            local = is_loopback(urlsplit(url).hostname or "")
            host = host_of(url).removeprefix("http://" if local else "https://")
            # The command alone, so that the line can be typed as it stands.
            hint = f"grpo-practice trust --host {host} --key {name}"
            self.problems.append(Problem(at, text, hint, private=True))


def _plain(student: ModelConfig) -> ModelConfig:
    """Return the student's model with none of the student's own sampling."""
    carried = {name: getattr(student.model_settings, name) for name in _CARRIED}
    settings = ModelSettings().model_copy(update=carried)
    return ModelConfig(model_settings=settings, model_params=student.model_params)


def _caller(config: ModelConfig, provider: ModelProvider | None = None) -> ModelConfig:
    """Lay `model_params` over the model's settings, as teacher or judge call it; temperature 0."""
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
