"""Typed records: what every reader yields and every example builder consumes.

A record is one raw item of a dataset as published, before any method-specific processing. All records are
immutable, hold plain Python values and carry the ``split`` they were published in.
"""

from dataclasses import dataclass

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A named value; ``start`` and ``end`` are character offsets in the text it occurs in (-1: not aligned)."""

    name: str
    value: str
    start: int = -1
    end: int = -1


Slots = tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Utterance:
    """Everything one speaker says in one turn. ``speaker`` is "user" or "system", or a nickname in chat logs."""

    speaker: str
    text: str
    acts: Texts = ()
    slots: Slots = ()
    intent: str = ""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """An ordered conversation; ``domains`` are the corpus' own names (services, tasks, topics)."""

    id: str
    utterances: tuple[Utterance, ...]
    domains: Texts = ()
    split: str = "train"


@dataclass(frozen=True, slots=True)
class IntentUtterance:
    """One labelled utterance with its slot spans (empty where the dataset has none)."""

    text: str
    intent: str
    slots: Slots = ()
    domain: str = ""
    split: str = "train"


@dataclass(frozen=True, slots=True)
class SelectionGroup:
    """Response selection: one context, its candidate responses and a 0/1 label for each."""

    id: str
    context: Texts
    candidates: Texts
    labels: tuple[int, ...]
    split: str = "test"


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """Semantic retrieval: a sentence and the ids (rows of the same split) of relevant and irrelevant candidates."""

    id: int
    text: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    intent: str = ""
    split: str = "test"


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two sentences and a human similarity score on the dataset's own scale."""

    first: str
    second: str
    score: float
    split: str = "test"


@dataclass(frozen=True, slots=True)
class InferenceItem:
    """Inference over a sequence of utterances: a judged dialogue (last utterance judged) or (premise, hypothesis)."""

    id: str
    utterances: Texts
    label: str
    split: str = "train"


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A question and the answer given to it."""

    question: str
    answer: str
    category: str = ""


@dataclass(frozen=True, slots=True)
class MatchingGroup:
    """A DialogueCSE training row: utterances before and after the response, and candidates (the true one first)."""

    before: Texts
    after: Texts
    candidates: Texts
    labels: tuple[int, ...]
    split: str = "train"


@dataclass(frozen=True, slots=True)
class WordVector:
    """A word and its vector: numbers with blanks between them, as a text takes a quarter of the memory of so many."""

    word: str
    numbers: str


def conversation_of(record: Dialogue | SelectionGroup | InferenceItem) -> str:
    """The conversation that a test item was cut from; items of one conversation are no independent evidence.

    Lists of replies are named by conversation and place (``2005-07-06_14:1005#3``). The ids of judged dialogues tell
    nothing, but those of one conversation open with the same two utterances.
    """
    if isinstance(record, InferenceItem):
        return "\n".join(record.utterances[:2])
    return record.id.partition("#")[0]


TEXTS = {
    Dialogue: ("utterances.text",),
    IntentUtterance: ("text",),
    SelectionGroup: ("context", "candidates"),
    RetrievalQuery: ("text",),
    ScoredPair: ("first", "second"),
    InferenceItem: ("utterances",),
    QuestionAnswer: ("question", "answer"),
    MatchingGroup: ("before", "after", "candidates"),
    WordVector: ("word",),
}
"""The fields of each kind of record that hold text."""

Record = (
    Dialogue
    | IntentUtterance
    | SelectionGroup
    | RetrievalQuery
    | ScoredPair
    | InferenceItem
    | QuestionAnswer
    | MatchingGroup
    | WordVector
)

RECORDS: dict[str, type] = {kind.__name__: kind for kind in TEXTS}
"""The closed list of what a file may say that it holds."""
