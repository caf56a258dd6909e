"""Rows of a file of one's own as records: what each kind of file has in its columns, and how a cell is read.

A cell that cannot be read raises a ValueError, a sentence to which the reader of the file adds the line.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dialnb.data.readers import SPEAKERS, SPLITS, unique
from dialnb.data.records import RECORDS, Dialogue, Record, Slot, Slots, Texts, Utterance
from dialnb.data.sources import read_registry
from dialnb.data.tables import fields
from dialnb.files import digest_of

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One utterance of a dialogue that is spread over rows."""

    dialogue: str
    utterance: Utterance
    domain: str
    split: str


@dataclass(frozen=True)
class Kind:
    """What a file can hold: the columns it must and may have, and the records that its rows are."""

    what: str
    record: Callable[..., Any]
    required: list[str]
    optional: list[str]

    def make(self, row: Row) -> Record | Turn:
        """The record of a row, field by field."""
        values = {}
        for field in fields(self.record):
            if read := CELLS.get((self.record, field)) or CELLS.get(field):
                values[field] = read(row)
            else:
                values[field] = _text(row, field, None if field in self.required else "")
        return self.record(**values)


MADE = RECORDS | {"Turn": Turn}
KINDS = [Kind(**kind | {"record": MADE[kind["record"]]}) for kind in read_registry("own")]
"""The first that fits is taken."""

FIELDS = unique(field for kind in KINDS for field in (*kind.required, *kind.optional))


def joined(turns: Iterable[Turn]) -> list[Dialogue]:
    """Turns of the same dialogue together, in order of first appearance."""
    dialogues: dict[str, list[Turn]] = {}
    for turn in turns:
        dialogues.setdefault(turn.dialogue, []).append(turn)
    return [
        Dialogue(
            name,
            _spoken([turn.utterance for turn in rows]),
            unique(turn.domain for turn in rows if turn.domain),
            rows[0].split,
        )
        for name, rows in dialogues.items()
    ]


def _text(row: Row, field: str, default: str | None = None) -> str:
    """A cell with text in it, white space folded."""
    value = row.get(field)
    if isinstance(value, list | dict | bool):
        raise ValueError(f"{field!r} should be text, but is {json.dumps(value)[:40]}")
    text = " ".join(str("" if value is None else value).split())
    if text:
        return text
    if default is not None:
        return default
    raise ValueError(f"{field!r} is empty")


def _several(row: Row, field: str) -> list:
    """The values of a list, or of a cell that separates them by ``|``."""
    value = row.get(field)
    if value is None or isinstance(value, str):
        return [part.strip() for part in (value or "").split("|") if part.strip()]
    if not isinstance(value, list):
        raise ValueError(f"{field!r} should be a list, but is {json.dumps(value)[:40]}")
    return value


def _texts(row: Row, field: str, least: int = 0) -> Texts:
    texts = tuple(_text({field: value}, field) for value in _several(row, field))
    if len(texts) < least:
        raise ValueError(f"{field!r} should have at least {least} value(s), but has {len(texts)}")
    return texts


def _split(row: Row) -> str:
    name = _text(row, "split", "train").casefold()
    if name not in SPLITS:
        raise ValueError(f"split {name!r} is none of train, dev, test")
    return SPLITS[name]


def _slots(row: Row, aligned: bool = True) -> Slots:
    """Named values, each at its first free place in the text; one that does not occur is an error, or has no place."""
    text = _text(row, "text")
    lowered = text.lower() if len(text.lower()) == len(text) else text
    slots: list[Slot] = []
    for name, value in _named_values(row):
        wanted = value.lower()
        start = lowered.find(wanted)
        while start >= 0 and any(start < slot.end and slot.start < start + len(wanted) for slot in slots):
            start = lowered.find(wanted, start + 1)
        if aligned and (start < 0 or not wanted):
            raise ValueError(f"slot {name}={value} does not occur in the text")
        end = start + len(wanted)
        slots.append(Slot(name, text[start:end], start, end) if start >= 0 else Slot(name, value))
    return tuple(slots)


def _named_values(row: Row) -> list[tuple[str, str]]:
    """Slots as pairs, of an object or of ``city=Boston|day=Monday``."""
    given = row.get("slots")
    if isinstance(given, dict):
        return [(name, str(value)) for name, value in given.items()]
    pairs = [part.partition("=") for part in _texts(row, "slots")]
    for part, equals, _ in pairs:
        if not equals:
            raise ValueError(f"slots are written name=value|name=value, but here is {part!r}")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _said(row: Row | str) -> Utterance:
    row = {"text": row} if isinstance(row, str) else row
    if not isinstance(row, dict):
        raise ValueError(f"an utterance is a text or an object with one, but is {json.dumps(row)[:40]}")
    speaker = _text(row, "speaker", "")
    speaker = SPEAKERS.get(speaker.casefold(), speaker)
    slots = _slots(row, aligned=False)
    return Utterance(speaker, _text(row, "text"), _texts(row, "acts"), slots, _text(row, "intent", ""))


def _spoken(utterances: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """User and system in turn where nobody is named."""
    if not utterances:
        raise ValueError("'utterances' is empty")
    if any(utterance.speaker for utterance in utterances):
        return tuple(utterances)
    return tuple(
        replace(utterance, speaker=("user", "system")[place % 2]) for place, utterance in enumerate(utterances)
    )


def _labels(row: Row) -> tuple[int, ...]:
    """0 or 1 for each candidate; where none are given, the first is the right one."""
    candidates = len(_several(row, "candidates"))
    marks = [str(mark).strip() for mark in _several(row, "labels")] or ["1", *"0" * (candidates - 1)]
    if len(marks) != candidates or not set(marks) <= {"0", "1"}:
        raise ValueError(f"'labels' should be 0 or 1 for each of the {candidates} candidates")
    return tuple(map(int, marks))


def _score(row: Row) -> float:
    score = _text(row, "score")
    try:
        return float(score)
    except ValueError:
        raise ValueError(f"score {score!r} is not a number") from None


CELLS: dict[Any, Callable[[Row], Any]] = {
    "id": lambda row: _text(row, "id", digest_of(json.dumps(row, sort_keys=True))[:8]),
    "split": _split,
    "slots": _slots,
    "score": _score,
    "labels": _labels,
    "utterance": _said,
    "domains": lambda row: _texts(row, "domain"),
    "context": lambda row: _texts(row, "context", 1),
    "candidates": lambda row: _texts(row, "candidates", 2),
    "utterances": lambda row: _texts(row, "utterances", 2),
    (Dialogue, "utterances"): lambda row: _spoken(list(map(_said, _several(row, "utterances")))),
}
"""How the fields of records are read that are not plain text."""
