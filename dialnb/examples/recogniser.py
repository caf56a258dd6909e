"""Named entities as slots, for CLINC150, which has none (TaDSE Section 3.1 and Tables 7 to 11).

The paper takes spaCy's ``en_core_web_lg``. Where that is not installed, rules do: patterns for dates, times, numbers,
money, percentages, quantities and ordinals, and a small gazetteer of places, nationalities and organisations. They use
spaCy's labels, so that the two Entity Books can stand side by side; people, products and works of art they do not find.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import accumulate, chain

from dialnb.data.records import IntentUtterance, Slot, Slots
from dialnb.files import read_yaml

MODEL = "en_core_web_lg"
Annotated = tuple[str, Slots]
Recogniser = Callable[[Sequence[str]], Iterable[Annotated]]

_UNITS = "two|three|four|five|six|seven|eight|nine"
_TEENS = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_WORD = rf"(?:zero|one|{_UNITS}|{_TEENS}|{_TENS}|hundred|thousand|million|billion)"
_NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|{_WORD}(?:[ -](?:and )?{_WORD})*)(?: hundred| thousand| million| billion)?"
_AMOUNT = rf"(?:{_NUMBER}|an?|a few|a couple(?: of)?|several|half an?|(?:a )?dozen)"
_MONTH = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|aug|sept|sep|oct|nov|dec)"
)
_SURE_MONTH = "(?:january|february|april|june|july|august|september|october|november|december)"
_ORDINAL = (
    rf"(?:\d+(?:st|nd|rd|th)|(?:(?:{_TENS})[ -])?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)"
    r"|tenth|eleventh|twelfth|thirteenth|fifteenth|twentieth|thirtieth)"
)
_WEEKDAY = "(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?"
_PERIOD = "(?:day|week|weekend|month|quarter|year|decade|summer|winter|spring|fall)"
_PART = "(?:morning|afternoon|evening|night)"
_YEAR = r"(?:19|20)\d\d"
_HALF = r"(?:am|pm|a\.m\.|p\.m\.|a\.m|p\.m|o'clock)"

PATTERNS = {
    "MONEY": rf"\$ ?{_NUMBER}|{_AMOUNT} (?:dollars?|bucks|cents?|euros?|yen|pesos?|rupees?|rubles?|lira|usd)",
    "PERCENT": rf"{_NUMBER} ?(?:%|percent\b)",
    "TIME": rf"(?:\d{{1,2}}(?::\d\d)?|{_WORD}(?: thirty| fifteen)?) ?{_HALF}(?!\w)|\d{{1,2}}:\d\d"
    rf"|{_AMOUNT}[ -](?:hours?|minutes?|mins?|seconds?)|noon|midnight|tonight|(?:this|tomorrow|last) {_PART}",
    "DATE": rf"today|tomorrow|yesterday|(?:(?:next|this|last|every) )?{_WEEKDAY}"
    rf"|(?:next|this|last|the past|the next) (?:{_PERIOD}|{_NUMBER} {_PERIOD}s|{_MONTH})"
    rf"|{_AMOUNT}[ -](?:days?|weeks?|months?|years?)|the weekend|daily|weekly|monthly|annually"
    rf"|(?:the )?(?:{_ORDINAL}|\d{{1,2}}) (?:of )?{_MONTH}(?:,? {_YEAR})?"
    rf"|{_MONTH} (?:the )?(?:{_ORDINAL}|\d{{1,2}}\b)(?:,? {_YEAR})?"
    rf"|{_MONTH} (?:of )?{_YEAR}|{_SURE_MONTH}|(?:(?<=in )|(?<=of )|(?<=for )|(?<=until ))(?:may|march)"
    rf"|\d{{1,2}}/\d{{1,2}}(?:/\d{{2,4}})?|{_YEAR}",
    "QUANTITY": rf"{_NUMBER} (?:miles?|feet|foot|inch(?:es)?|yards?|meters?|kilometers?|pounds?|lbs|ounces?|grams?"
    r"|kilos?|kilograms?|cups?|gallons?|liters?|pints?|quarts?|tablespoons?|teaspoons?|degrees?|acres?)",
    "ORDINAL": _ORDINAL,
    "CARDINAL": rf"(?!one\b){_NUMBER}|(?:a )?dozen",
}
COMPILED = {label: re.compile(rf"(?<![\w.$])(?:{pattern})(?!\w)") for label, pattern in PATTERNS.items()}
AFTER_PREPOSITION = frozenset(("turkey", "jordan", "chad", "nice", "la", "mesa", "lima", "aurora", "phoenix", "mobile"))
"""Places whose names are words too: they count only after a preposition of place."""
_PREPOSITIONS = frozenset(("in", "to", "from", "near", "of", "around", "visit", "visiting", "for"))
LONGEST = 4  # words of a name
_TOKEN = re.compile(r"'s\b|\w+(?:[&.-]\w+)*")


@cache
def gazetteer() -> dict[tuple[str, ...], str]:
    """Names as tuples of words -> label."""
    listed = read_yaml(__file__, "gazetteer.yaml")
    found: dict[tuple[str, ...], str] = {(name,): "GPE" for name in AFTER_PREPOSITION}
    for label, lists in listed.items():
        for name in chain(*lists):
            found[tuple(_TOKEN.findall(name))] = label
    return found


def rule_slots(text: str) -> Slots:
    """The entities of one text, from left to right: of those that begin together the longest, then the next.

    >>> [(s.name, s.value) for s in rule_slots("book a flight to new york on march 5th for $200")]
    [('GPE', 'new york'), ('DATE', 'march 5th'), ('MONEY', '$200')]
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow when lowered, and the places would be wrong
        lowered = text
    spans = []
    for label, pattern in COMPILED.items():
        spans += [(*match.span(), label) for match in pattern.finditer(lowered)]
    spans += _listed(lowered)
    slots, end = [], 0
    for start, stop, label in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            slots.append(Slot(label, text[start:stop], start, stop))
            end = stop
    return tuple(slots)


def _listed(text: str) -> Iterator[tuple[int, int, str]]:
    """Spans of names in the gazetteer, the longest at every word."""
    names, found = gazetteer(), list(_TOKEN.finditer(text))
    words = tuple(match.group() for match in found)
    for i, word in enumerate(words):
        for n in range(min(LONGEST, len(words) - i), 0, -1):
            label = names.get(words[i : i + n])
            if label and (n > 1 or word not in AFTER_PREPOSITION or (i and words[i - 1] in _PREPOSITIONS)):
                yield found[i].start(), found[i + n - 1].end(), label
                break


def rules(texts: Sequence[str]) -> Iterator[Annotated]:
    """Recogniser without dependencies; texts stay as they are."""
    return ((text, rule_slots(text)) for text in texts)


def spacy_entities(texts: Sequence[str]) -> Iterator[Annotated]:
    """The paper's recogniser: texts come back as tokens between single spaces, entities with spaCy's labels."""
    import spacy

    nlp = spacy.load(MODEL, exclude=["parser", "lemmatizer", "attribute_ruler"])
    return (from_document(document) for document in nlp.pipe(texts))


def from_document(document) -> Annotated:
    """Tokens joined by single spaces, and the document's entities at their new places."""
    words = [token.text for token in document]
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    text = " ".join(words)
    spans = [(entity.label_, starts[entity.start], starts[entity.end] - 1) for entity in document.ents]
    return text, tuple(Slot(label, text[start:end], start, end) for label, start, end in spans)


def default_recogniser() -> Recogniser:
    """spaCy with its large English model where both are installed, else the rules."""
    return spacy_entities if find_spec("spacy") and find_spec(MODEL) else rules


def with_entities(utterances: Iterable[IntentUtterance], recogniser: Recogniser = rules) -> list[IntentUtterance]:
    """The utterances with recognised entities as their slots."""
    utterances = list(utterances)
    found = recogniser([utterance.text for utterance in utterances])
    return [replace(u, text=text, slots=slots) for u, (text, slots) in zip(utterances, found, strict=True)]
