"""The world's questions whose answers are words: tickets, premises, tools, rules.

Six labels are the answers of all of them, so that each is shared by many questions. One has to know
which label a situation gets; the advice that helps names it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelTopic:
    """One situation, which always gets the same label."""

    name: str
    when: str
    label: str
    slips: tuple[str, str]
    """The labels that two common mistakes lead to."""
    names: tuple[str, str, str]
    """The short names of the advice to give the label, and to give either slip."""
    wordings: tuple[str, ...]
    """Templates; `{o}` and `{m}` are numbers, `{b}` one above `{m}`."""
    verb: str = "choose"

    def advice(self, label: str) -> str:
        """Return the advice of somebody who would give this label."""
        return f"{self.verb} `{label}`"


_QUEUES = "Which queue gets it: returns, shipping_department or billing?"
_RELATIONS = "Is it entailment, contradiction or undetermined?"
_TOOLS = "Which tool comes first: search_web, execute_python or read_document?"

LABELS: tuple[LabelTopic, ...] = (
    LabelTopic(
        "broken",
        "goods arrived damaged",
        "returns",
        ("shipping_department", "billing"),
        ("Damage goes back", "Damage is the carrier's", "Damage is money"),
        (
            "Ticket {o}: the {things} of order {m} arrived broken, and {name} wants new ones. "
            + _QUEUES,
            "Ticket {o}: {name} opened parcel {m} and found the {things} in pieces. " + _QUEUES,
        ),
        verb="route it to",
    ),
    LabelTopic(
        "regret",
        "a customer no longer wants what was ordered",
        "returns",
        ("billing", "shipping_department"),
        ("Regret goes back", "Regret is money", "Regret is delivery"),
        (
            "Ticket {o}: {name} has unopened {things} from order {m} and no longer wants them. "
            + _QUEUES,
            "Ticket {o}: {name} changed plans and asks what to do with {m} {things}. " + _QUEUES,
        ),
        verb="route it to",
    ),
    LabelTopic(
        "some",
        "the premise speaks of some and the hypothesis of all",
        "undetermined",
        ("entailment", "contradiction"),
        ("Some leaves open", "Some means all", "Some excludes all"),
        (
            "Case {o}. Premise: some of the {m} {things} of {name} are red. Hypothesis: all "
            "of them are red. " + _RELATIONS,
            "Case {o}. Premise: {name} sold some of {m} {things}. Hypothesis: all were sold. "
            + _RELATIONS,
        ),
    ),
    LabelTopic(
        "plan",
        "the premise tells a plan and the hypothesis its outcome",
        "undetermined",
        ("contradiction", "entailment"),
        ("Plans prove nothing", "Plans fail", "Plans come true"),
        (
            "Case {o}. Premise: {name} plans to buy {m} {things}. Hypothesis: they were "
            "bought. " + _RELATIONS,
            "Case {o}. Premise: {name} wants to plant {m} trees. Hypothesis: the trees stand. "
            + _RELATIONS,
        ),
    ),
    LabelTopic(
        "limit",
        "the hypothesis names more than the premise allows",
        "contradiction",
        ("undetermined", "entailment"),
        ("Above the limit", "Limits leave open", "Limits are reached"),
        (
            "Case {o}. Premise: {name} owns at most {m} {things}. Hypothesis: it is {b} of "
            "them. " + _RELATIONS,
            "Case {o}. Premise: no more than {m} {things} fit in. Hypothesis: {name} put in "
            "{b}. " + _RELATIONS,
        ),
    ),
    LabelTopic(
        "price",
        "a price of today is asked for",
        "search_web",
        ("execute_python", "read_document"),
        ("Prices change", "Prices are sums", "Prices are on file"),
        (
            "Request {o}: {name} asks what {m} {things} cost today. " + _TOOLS,
            "Request {o}: at what price do {things} number {m} sell now, asks {name}? " + _TOOLS,
        ),
        verb="call",
    ),
    LabelTopic(
        "news",
        "the outcome of a recent event is asked for",
        "search_web",
        ("read_document", "execute_python"),
        ("News is outside", "News is on file", "News is computed"),
        (
            "Request {o}: {name} asks who won race {m} last week. " + _TOOLS,
            "Request {o}: did team {m} win on Sunday, asks {name}? " + _TOOLS,
        ),
        verb="call",
    ),
    LabelTopic(
        "opening",
        "the opening hours of a place are asked for",
        "search_web",
        ("read_document", "execute_python"),
        ("Hours are posted", "Hours are on file", "Hours are computed"),
        (
            "Request {o}: {name} asks when shop {m} opens on holidays. " + _TOOLS,
            "Request {o}: until what hour is museum {m} open, asks {name}? " + _TOOLS,
        ),
        verb="call",
    ),
    LabelTopic(
        "deadline",
        "something is done on the last day allowed",
        "yes",
        ("no", "maybe"),
        ("Last day counts", "Last day is late", "Last day is open"),
        (
            "Claim {o} may be made within {m} days; {name} makes it on day {m} exactly. Is it "
            "in time: yes, no or maybe?",
            "Rule {o}: {things} may be kept for up to {m} days. {name} brings them on day {m}. "
            "Is that allowed: yes, no or maybe?",
        ),
        verb="answer",
    ),
    LabelTopic(
        "both",
        "a rule asks for two things and one of them is missing",
        "no",
        ("yes", "maybe"),
        ("Both are needed", "One is enough", "One may do"),
        (
            "Rule {o}: one needs a ticket and a passport. {name} has ticket {m} and no "
            "passport. May {name} board: yes, no or maybe?",
            "Rule {o}: a refund needs a receipt and a card. {name} has receipt {m} but no card. "
            "Is there a refund: yes, no or maybe?",
        ),
        verb="answer",
    ),
)
