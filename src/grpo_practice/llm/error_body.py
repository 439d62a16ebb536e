"""Parses error responses, which OpenAI-compatible servers write in many different ways.

The patterns match codes and words in use today; if no pattern matches, the status decides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.llm.http_response import Response

_BILLING_CODE = re.compile(
    r"insufficient_(quota|balance|credits?|funds)|credit_balance|spend_limit|budget_exceeded"
    r"|billing|exceeded_current_quota|account_deactivated",
    re.I,
)
_BILLING_WORDS = re.compile(
    r"credit balance is too low|insufficient (balance|credits?|funds)|budget has been exceeded",
    re.I,
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length"
    r"|context (length|window|limit)|available context size|max_tokens must be at least 1, got -"
    r"|(prompt|input) is too long|input token count .{0,40}exceeds",
    re.I | re.S,
)
_CONTEXT = re.compile(
    r"(?:context (?:length|window|size|limit)[ a-z]{0,20}\(?|tokens allowed \(?|(?:tokens|\d) > )"
    r"(?:[\d ]{1,20}\+[\d ]{1,20}> )?(\d{1,3}(?:,\d{3})+|\d{1,9})(?![\d,]*\d)",
    re.I,
)
_MODERATED_CODE = re.compile(
    r"content_filter|(content|bio|cyber|usage|misalignment)_policy|invalid_prompt|responsibleai"
    r"|moderation|data_inspection_failed",
    re.I,
)
_MODERATED_WORDS = re.compile(r"content exists risk|content management policy", re.I)
_NO_MODEL_CODE = re.compile(r"model_not_(found|exist)|invalid_model|unknown_model", re.I)
_NO_MODEL_WORDS = re.compile(
    r"model\b.{0,100}?\b(does not exist|not exist|not found)"
    r"|(unknown|invalid|no such) model\b|not a valid model",
    re.I | re.S,
)
_UNSUPPORTED_CODE = re.compile(r"unsupported_(parameter|value)|unknown_parameter|extra_forbidden")
_UNSUPPORTED_WORDS = re.compile(
    r"unsupported (parameter|value)|(un(known|recognized|expected)|additional) (request )?"
    r"(parameter|argument|field|propert)|extra (inputs|fields)|is deprecated"
    r"|(is|are) not (supported|permitted|allowed)|does not support",
    re.I,
)
_NAMELESS = re.compile(
    r"a|additional|allowed|an|and|are|arguments?|bad|body|client|code|detail|entity|errors?|extra"
    r"|failed|fields?|has|http|in|inputs?|invalid|is|malformed|message|none|not|null|occurred|of|or"
    r"|parameters?|payload|permitted|propert(y|ies)|provide[dr]|request|returned|server|status"
    r"|supplied|supported|the|to|unexpected|unknown|unprocessable|unrecognized|unsupported|upstream"
    r"|validation|values?|was|with|wrong|your|400|422",
    re.I,
)
"""Words that could describe any request."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The details in an error response; '' for a missing detail."""

    words: str
    """Message; an error from a router also includes the message of the provider behind it, if
    any.
    """
    codes: str = ""
    """Code and type, one per line."""
    param: str = ""
    """Body key that the error complains about."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    status: int | None = None
    """HTTP status stated in the body."""
    n_ctx: int | None = None
    """Context window in tokens, in llama.cpp's field."""

    @property
    def billing(self) -> bool:
        """True if no money or quota is left, so that waiting does not help."""
        return bool(_BILLING_CODE.search(self.codes) or _BILLING_WORDS.search(self.words))

    @property
    def overflow(self) -> bool:
        """True if the request is longer than the model's context."""
        return bool(_OVERFLOW.search(f"{self.codes}\n{self.words}"))

    @property
    def context(self) -> int | None:
        """Context window of the model in tokens; None if the error does not state it."""
        found = _CONTEXT.search(self.words)
        return int(found[1].replace(",", "")) if found else self.n_ctx

    @property
    def moderated(self) -> bool:
        """True if a content filter blocked the request."""
        return (
            "flagged_input" in self.metadata
            or "reasons" in self.metadata
            or bool(_MODERATED_CODE.search(self.codes) or _MODERATED_WORDS.search(self.words))
        )

    @property
    def no_model(self) -> bool:
        """True if the endpoint does not have the model."""
        return bool(_NO_MODEL_CODE.search(self.codes) or _NO_MODEL_WORDS.search(self.words))

    @property
    def unsupported(self) -> bool:
        """True if a body key, or every value of it except the default, is rejected."""
        return bool(_UNSUPPORTED_CODE.search(self.codes) or _UNSUPPORTED_WORDS.search(self.words))

    @property
    def nameless(self) -> bool:
        """True if the error calls the request invalid without naming the invalid part."""
        words = re.findall(r"\w+", self.words)
        return not self.param and all(_NAMELESS.fullmatch(word) for word in words)

    def blames(self, name: str) -> bool:
        """Return True if the complaint is about the body key `name`."""
        if self.param:
            return self.param == name
        # OpenAI names the content, not the key, for a model that does not reason.
        also = "|[Ee]ncrypted content" if name == "include" else ""
        return re.search(rf"\b{name}\b{also}", self.words) is not None


def read_error(answer: Response) -> ErrorBody | None:
    """Return the error in the response; None for a 2xx without an error."""
    # Some servers put the error into a list.
    body = answer.body[0] if isinstance(answer.body, list) and answer.body else answer.body
    error = _error_in(body) if isinstance(body, dict) else None
    if 200 <= answer.status < 300 and not error:
        return None
    match error:
        case dict():
            return _from_object(error)
        case None:
            return _from_object(body) if isinstance(body, dict) else ErrorBody(answer.text)
        case _:
            word = str(error)
            return ErrorBody(word, codes="" if " " in word else word)


def _error_in(body: dict[str, Any]) -> Any:
    """Return the error object from any place where servers put it; None if there is no error."""
    if body.get("error"):
        return body["error"]
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        return None
    ended_badly = first.get("finish_reason") == "error"
    return first.get("error") or ("the reply ended with an error" if ended_badly else None)


def _from_object(error: dict[str, Any]) -> ErrorBody:
    words, codes, param = error.get("message") or error.get("detail"), [], error.get("param")
    if isinstance(words, dict):  # {"message": {"detail": [...]}}
        words = words.get("detail") or words.get("message") or words
    if isinstance(words, list) and words and isinstance(words[0], dict):
        first = words[0]  # a validation error: {"type", "loc": ["body", "seed"], "msg"}
        loc = first.get("loc")
        param = next((p for p in loc if p != "body"), None) if isinstance(loc, list) else None
        words = f"{first.get('msg', '')}: {param}"
        codes.append(str(first.get("type", "")))
    metadata = error.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    raw = metadata.get("raw")
    code = str(error.get("code"))
    codes += [str(error[key]) for key in ("code", "type") if error.get(key)]
    return ErrorBody(
        words=": ".join(str(part) for part in (words or error, raw) if part),
        codes="\n".join(codes),
        # Take `messages` from `messages.[0].content`; one router writes "None" for a missing
        # key.
        param=re.split(r"[.\[]", param)[0] if isinstance(param, str) and param != "None" else "",
        metadata=metadata,
        status=int(code) if re.fullmatch(r"[45]\d\d", code) else None,
        n_ctx=n_ctx if isinstance(n_ctx := error.get("n_ctx"), int) else None,
    )
