"""Rows of a file of one's own as records: what each kind of file has in its columns, and how a row is read.

A cell that cannot be read raises a ValueError, a sentence to which the reader of the file adds the line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dialnb.data.readers.files import SPLITS
from dialnb.data.records import (
    Dialogue,
    InferenceItem,
    IntentUtterance,
    QuestionAnswer,
    Record,
    ScoredPair,
    SelectionGroup,
    Slot,
    Utterance,
)

SPEAKERS = dict.fromkeys(("user", "usr", "customer", "client", "human"), "user")
SPEAKERS |= dict.fromkeys(("system", "sys", "agent", "assistant", "bot", "operator"), "system")
Row = Mapping[str, Any]


class Turn(NamedTuple):
    """One utterance of a dialogue that is spread over rows."""

    dialogue: str
    utterance: Utterance
    domain: str
    split: str


def joined(turns: Iterable[Turn]) -> list[Dialogue]:
    """Turns of the same dialogue together, in order of first appearance."""
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        found.setdefault(turn.dialogue, []).append(turn)
    return [
        Dialogue(name, _spoken([turn.utterance for turn in own]),
                 tuple(dict.fromkeys(turn.domain for turn in own if turn.domain)), own[0].split)
        for name, own in found.items()
    ]  # fmt: skip


# --- cells ------------------------------------------------------------------------------------------------------------


def _text(row: Row, field: str, default: str | None = None) -> str:
    """A cell with text in it, white space folded."""
    value = row.get(field)
    if isinstance(value, list | dict | bool):
        raise ValueError(f"{field!r} should be text, but is {json.dumps(value)[:40]}")
    text = " ".join(str("" if value is None else value).split())
    if text or default is not None:
        return text or default
    raise ValueError(f"{field!r} is empty")


def _several(row: Row, field: str) -> list:
    """The values of a list, or of a cell that separates them by ``|``."""
    value = row.get(field)
    if value is None or isinstance(value, str):
        return [part.strip() for part in (value or "").split("|") if part.strip()]
    if not isinstance(value, list):
        raise ValueError(f"{field!r} should be a list, but is {json.dumps(value)[:40]}")
    return value


def _texts(row: Row, field: str, least: int = 0) -> tuple[str, ...]:
    found = tuple(_text({field: value}, field) for value in _several(row, field))
    if len(found) < least:
        raise ValueError(f"{field!r} should have at least {least} value(s), but has {len(found)}")
    return found


def _split(row: Row) -> str:
    name = _text(row, "split", "train").casefold()
    if name not in SPLITS:
        raise ValueError(f"split {name!r} is none of train, dev, test")
    return SPLITS[name]


def _name(row: Row) -> str:
    """The id of a row, or one made of what it says."""
    return _text(row, "id", hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:8])


def _slots(row: Row, text: str, aligned: bool) -> tuple[Slot, ...]:
    """Named values, each at its first free place in the text; one that does not occur is an error, or has no place."""
    given = row.get("slots")
    pairs = list(given.items()) if isinstance(given, dict) else []
    for part in [] if isinstance(given, dict) else _texts(row, "slots"):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"slots are written name=value|name=value, but here is {part!r}")
        pairs.append((name.strip(), value.strip()))
    lowered = text.lower() if len(text.lower()) == len(text) else text
    found: list[Slot] = []
    for name, value in pairs:
        wanted = str(value).lower()
        start = lowered.find(wanted)
        while start >= 0 and any(start < slot.end and slot.start < start + len(wanted) for slot in found):
            start = lowered.find(wanted, start + 1)
        if aligned and (start < 0 or not wanted):
            raise ValueError(f"slot {name}={value} does not occur in the text")
        end = start + len(wanted)
        found.append(Slot(name, text[start:end], start, end) if start >= 0 else Slot(name, str(value)))
    return tuple(found)


# --- rows -------------------------------------------------------------------------------------------------------------


def _utterance(row: Row) -> IntentUtterance:
    text = _text(row, "text")
    slots = _slots(row, text, aligned=True)
    return IntentUtterance(text, _text(row, "intent", ""), slots, _text(row, "domain", ""), _split(row))


def _said(row: Row | str) -> Utterance:
    row = {"text": row} if isinstance(row, str) else row
    if not isinstance(row, dict):
        raise ValueError(f"an utterance is a text or an object with one, but is {json.dumps(row)[:40]}")
    text, speaker = _text(row, "text"), _text(row, "speaker", "")
    speaker = SPEAKERS.get(speaker.casefold(), speaker)
    return Utterance(speaker, text, _texts(row, "acts"), _slots(row, text, False), _text(row, "intent", ""))


def _spoken(utterances: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """User and system in turn where nobody is named."""
    if any(utterance.speaker for utterance in utterances):
        return tuple(utterances)
    return tuple(replace(said, speaker=("user", "system")[place % 2]) for place, said in enumerate(utterances))


def _turn(row: Row) -> Turn:
    return Turn(_text(row, "dialogue"), _said(row), _text(row, "domain", ""), _split(row))


def _dialogue(row: Row) -> Dialogue:
    said = _spoken([_said(part) for part in _several(row, "utterances")])
    if not said:
        raise ValueError("'utterances' is empty")
    return Dialogue(_name(row), said, _texts(row, "domain"), _split(row))


def _judged(row: Row) -> InferenceItem:
    return InferenceItem(_name(row), _texts(row, "utterances", 2), _text(row, "label"), _split(row))


def _selection(row: Row) -> SelectionGroup:
    candidates = _texts(row, "candidates", 2)
    marks = [str(mark).strip() for mark in _several(row, "labels")] or ["1", *"0" * (len(candidates) - 1)]
    if len(marks) != len(candidates) or not set(marks) <= {"0", "1"}:
        raise ValueError(f"'labels' should be 0 or 1 for each of the {len(candidates)} candidates")
    return SelectionGroup(_name(row), _texts(row, "context", 1), candidates, tuple(map(int, marks)), _split(row))


def _question(row: Row) -> QuestionAnswer:
    return QuestionAnswer(_text(row, "question"), _text(row, "answer"), _text(row, "category", ""))


def _pair(row: Row) -> ScoredPair:
    score = _text(row, "score")
    try:
        return ScoredPair(_text(row, "first"), _text(row, "second"), float(score), _split(row))
    except ValueError as error:
        raise ValueError(f"score {score!r} is not a number" if "convert" in str(error) else str(error)) from None


@dataclass(frozen=True)
class Kind:
    """What a file can hold: the columns it must and may have, and how a row becomes a record."""

    what: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    make: Callable[[Row], Record | Turn]


KINDS = (
    Kind("dialogues, one row an utterance", ("dialogue", "text"),
         ("speaker", "acts", "slots", "intent", "domain", "split"), _turn),
    Kind("utterances", ("text",), ("intent", "slots", "domain", "split"), _utterance),
    Kind("judged dialogues", ("utterances", "label"), ("id", "split"), _judged),
    Kind("dialogues, one row each", ("utterances",), ("id", "domain", "split"), _dialogue),
    Kind("response selection", ("context", "candidates"), ("labels", "id", "split"), _selection),
    Kind("questions with answers", ("question", "answer"), ("category",), _question),
    Kind("similarity", ("first", "second", "score"), ("split",), _pair),
)  # fmt: skip
"""The first that fits is taken."""

FIELDS = tuple(dict.fromkeys(field for kind in KINDS for field in (*kind.required, *kind.optional)))
