"""The keys of the services that search and read the web: which goes where."""

from urllib.parse import urlsplit

from pydantic import SecretStr

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.problems import Problem
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.tools import SearchConfig
from grpo_practice.redact import redact_url
from grpo_practice.text import is_loopback


def with_keys(
    config: SearchConfig, env: Environment, key: Key, problems: list[Problem], notices: list[str]
) -> SearchConfig:
    """The toolkit with the keys of its services filled in; one that is missing is a problem.

    A key of the environment goes to the service it is for, or to this machine. Anywhere else it
    would go to whoever wrote the config, so there it has to be written beside the URL.
    """
    search = "SERPER_API_KEY" if config.search_engine == "google" else "JINA_API_KEY"
    wanted = [("search", search, config.search_url, config.search_api_key)]
    if config.crawl_engine == "jina":
        wanted.append(("crawl", "JINA_API_KEY", config.crawl_url, config.crawl_api_key))
    found = {}
    for what, name, url, own in wanted:
        named, place = f"{what}_api_key", (*key, f"{what}_api_key")
        value = env.get(name)
        if own is not None:
            continue
        if url is not None and not is_loopback(urlsplit(url).hostname or ""):
            if value:
                notices.append(
                    f"{name} is not sent to {redact_url(url)}, which the config names without a"
                    f" key; if it belongs there, add `{named}: ${{oc.env:{name}}}`"
                )
        elif value:
            found[named] = SecretStr(value)
        elif url is None:
            text = f"is missing: {name} is not set"
            problems.append(Problem(place, text, f"set {name}, or add it to .env"))
    return config.model_copy(update=found)
