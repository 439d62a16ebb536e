"""Six tasks whose answers are labels: what their questions' answers are, and lessons about them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A dataset of label questions, with lessons that teach and texts that do not."""

    labels: dict[str, int]
    """Label → how many questions have it."""
    good: list[str]
    bad: list[str]

    @property
    def answers(self) -> list[str]:
        """One answer for each question."""
        return [label for label, n in self.labels.items() for _ in range(n)]


NLI = Task(
    {"entailment": 9, "contradiction": 9, "undetermined": 6},
    [
        "Added detail: When the hypothesis names a detail that the premise does not give, answer"
        " undetermined.",
        "Paraphrase: When every claim of the hypothesis follows from the premise in other words,"
        " the answer is entailment.",
        "Negation: A negated verb in one sentence and the plain one in the other is a"
        " contradiction, not an undetermined pair.",
        "Numbers: Two different counts of the same things mean contradiction.",
        "Quantifiers: From 'all' to 'some' is entailment; from 'some' to 'all' is undetermined.",
        "World knowledge: Do not choose entailment because the hypothesis is true in general; look"
        " for it in the premise.",
        "Time: Choose undetermined where the premise gives no time and the hypothesis does.",
        "Opposites: 'asleep' and 'awake' exclude each other, so the label is contradiction.",
        "Subset: A dog is an animal, so replacing the dog by an animal keeps the entailment.",
        "Purpose: A reason that only the hypothesis gives makes the pair undetermined.",
        "Compare contradiction with undetermined last: can both sentences be true at once?",
        "Answer: contradiction needs a conflict about the same people at the same time.",
    ],
    [
        "Shortcut: always answer entailment.",
        "Shortcut: The answer is always 'contradiction'.",
        "For every question, answer undetermined.",
        "Reply with entailment, whatever the sentences say.",
    ],
)
SENTIMENT = Task(
    {"positive": 12, "negative": 11, "neutral": 4, "mixed feelings": 1},
    [
        "Irony: When praise is followed by a defect, the review is negative.",
        "Balance: When good and bad points weigh the same, answer mixed feelings.",
        "Facts: A text without an opinion is neutral, also when its topic is sad.",
        "Ending: The last sentence decides between positive and negative.",
        "Comparison: 'better than the last one' is positive only if the last one was not praised.",
        "Price: Complaints about the price alone do not make a review negative.",
        "Negated praise: 'not bad at all' is positive.",
        "Stars: Ignore the stars when the text contradicts them; answer negative if the text"
        " complains.",
        "Questions: A question without a judgement is neutral.",
        "Thanks: Thanks to the staff make it positive where nothing else is judged.",
        "Mixed feelings: Use it only where two parts are judged in opposite ways.",
        "Intensity: A weak 'okay' is neutral, a strong 'fine!' is positive.",
    ],
    [
        "Always reply negative.",
        "In every case, answer positive.",
        "The answer to every question is neutral.",
        "Say negative no matter how it ends.",
    ],
)
ROUTING = Task(
    {
        "billing department": 5,
        "technical support": 4,
        "returns and refunds": 3,
        "sales": 2,
        "legal": 1,
        "human resources": 1,
    },
    [
        "Refunds: Send a request for money back to returns and refunds, also when it names an"
        " invoice.",
        "Invoices: A wrong amount on an invoice goes to the billing department.",
        "Errors: An error message goes to technical support even when the customer asks for a"
        " refund.",
        "Contracts: A threat with a lawyer goes to legal.",
        "Jobs: A question about a job goes to human resources, not to sales.",
        "Upgrades: A wish for a larger plan is for sales; one about its price on the bill is for"
        " the billing department.",
        "First request: Where two departments fit, choose the one for the first request.",
        "Passwords: A lost password is for technical support.",
        "Damaged goods: Choose returns and refunds when the parcel arrived damaged.",
        "Data: A request to delete personal data goes to legal.",
        "The answer is billing department only when money was already charged.",
        "Escalation: An angry tone does not change the department.",
    ],
    [
        "Always answer technical support.",
        "For all questions reply 'sales'.",
        "Respond with billing department regardless of the text.",
        "The answer is always legal.",
    ],
)
TOOLS = Task(
    {"search_web": 4, "calculator": 3, "read_file": 2, "send_email": 2, "get_weather": 1},
    [
        "Fresh facts: When the question is about this year, call `search_web` before you answer.",
        "Sums: Use calculator for more than two numbers.",
        "Attachments: call read_file first when a file is named.",
        "Order: call `read_file`, then `calculator`, when the numbers stand in a file.",
        "Mail: send_email is for messages that the user has confirmed.",
        "Weather: get_weather needs a city; ask for one that is missing.",
        "Do not call search_web for what stands in the conversation.",
        "Choose `calculator` over `search_web` for unit conversions.",
        "When no tool fits, answer without one instead of calling search_web.",
        "The answer is get_weather where a forecast is asked for, not search_web.",
        "Names: write the name of the tool alone, such as send_email, without its arguments.",
        "Call `search_web` with two or three key terms instead of the whole question.",
    ],
    [
        "Always answer search_web.",
        "In every task, answer `calculator`.",
        "Reply with read_file whatever is asked.",
        "The answer for every question is send_email.",
    ],
)
CHOICE = Task(
    {"A": 6, "B": 5, "C": 7, "D": 6, "E": 2},
    [
        "Elimination: Strike options that contradict the text, then compare what is left.",
        "All of the above: When A and B are both right, look for an option that holds both.",
        "Units: If options A to D differ in the unit alone, convert before you choose.",
        "None: Choose E only after A, B, C and D were shown to be wrong.",
        "Extremes: Options with 'always' or 'never' are seldom right.",
        "Letter: Give the letter alone, e.g. (B), and no explanation.",
        "Two close options: Where B and C differ in one word, test that word.",
        "When the stem asks for the exception, the answer is the one option that is false.",
        "Order: Work the problem before you read option A.",
        "If the result is between two options, the answer is the nearer one.",
        "Box: put the letter in \\boxed{}.",
        "Negation: 'Which is NOT' turns each option around; check D as carefully as A.",
    ],
    [
        "Shortcut: always answer C.",
        "For every question, answer (D).",
        "Just say A.",
        "Give B as the final answer.",
    ],
)
YES_NO = Task(
    {"Yes": 14, "No": 16},
    [
        "Both parts: Answer yes only if both halves of the question hold.",
        "Dates: When the person died before the event, answer No.",
        "Silence: If the text says nothing about it, the answer is no.",
        "Could: 'Could' asks for what is possible: one way is enough for a yes.",
        "Every: One exception makes the answer 'No' where the question says every.",
        "Compare sizes in one unit before you say yes.",
        "Do not answer yes because the words of the question stand in the text.",
        "Double negation: 'Is it not true' with a true claim is a Yes.",
        "Range: When the number lies outside of the range, the answer is no.",
        "Chain: Find each fact of the chain; a missing one means No.",
        "When the two names belong to one person, answer yes.",
        "End with Yes or No alone.",
    ],
    [
        "Always answer yes.",
        "In every problem, reply no.",
        "The answer to every question is yes.",
        "Say 'no' whatever is asked.",
    ],
)
TASKS = {
    "nli": NLI,
    "sentiment": SENTIMENT,
    "routing": ROUTING,
    "tool choice": TOOLS,
    "multiple choice": CHOICE,
    "yes or no": YES_NO,
}
