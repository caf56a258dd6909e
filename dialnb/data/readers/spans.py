"""Slot annotation as character spans, from the three notations in use: tags per token, brackets, chunks.

Each function returns the plain text with its slots, and for every slot ``text[slot.start:slot.end] == slot.value``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from dialnb.data.records import Slot, Slots

BRACKETS = re.compile(r"\[\s*([^\[\]:]*?)\s*:\s*([^\[\]]*?)\s*\]")

Annotated = tuple[str, Slots]


def tagged(tokens: Sequence[str], tags: Sequence[str]) -> Annotated:
    """Join tokens by single spaces and turn their BIO tags into slots; a stray I- opens a slot of its own.

    >>> tagged("fly to san diego".split(), "O O B-toloc I-toloc".split())
    ('fly to san diego', (Slot(name='toloc', value='san diego', start=7, end=16),))
    """
    if len(tokens) != len(tags):
        raise ValueError(f"{len(tokens)} tokens but {len(tags)} tags")
    spans: list[tuple[str, int, int]] = []
    text, previous, start = " ".join(tokens), "O", 0
    for token, tag in zip(tokens, tags):
        prefix, _, name = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or not name):
            raise ValueError(f"{tag!r} is not a BIO tag")
        end = start + len(token)
        if prefix == "I" and previous == name:
            spans[-1] = (name, spans[-1][1], end)
        elif tag != "O":
            spans.append((name, start, end))
        previous, start = name, end + 1
    return text, tuple(Slot(name, text[start:end], start, end) for name, start, end in spans)


def token_slot(name: str, tokens: Sequence[str], first: int, stop: int) -> Slot:
    """The slot that the tokens from ``first`` to before ``stop`` fill, in a text that joins tokens by single spaces."""
    start = sum(len(token) + 1 for token in tokens[:first])
    value = " ".join(tokens[first:stop])
    return Slot(name, value, start, start + len(value))


def plain_to_bio(tags: Iterable[str]) -> list[str]:
    """Neighbouring equal names are one slot: ``O city city`` becomes ``O B-city I-city``."""
    bio, previous = [], "O"
    for tag in tags:
        bio.append(tag if tag == "O" else f"{'I' if tag == previous else 'B'}-{tag}")
        previous = tag
    return bio


def bracketed(markup: str) -> Annotated:
    """Read ``what alarms are set for [date : today]``; runs of white space count as one space.

    >>> bracketed("alarms for [date : today] please")
    ('alarms for today please', (Slot(name='date', value='today', start=11, end=16),))
    """
    markup, text, slots, end = " ".join(markup.split()), "", [], 0
    for match in BRACKETS.finditer(markup):
        name, value = match.groups()
        if not name or not value:
            raise ValueError(f"slot without name or value: {match.group()!r}")
        text += markup[end : match.start()]
        slots.append(Slot(name, value, len(text), len(text) + len(value)))
        text, end = text + value, match.end()
    text += markup[end:]
    if "[" in text or "]" in text:
        raise ValueError(f"unbalanced brackets in {markup!r}")
    return text, tuple(slots)


def chunked(chunks: Iterable[Mapping[str, str]]) -> Annotated:
    """Read the chunks ``{"text": ..., "entity": ...}`` of SNIPS to the letter, white space included.

    >>> chunked([{"text": "rate "}, {"text": "Dune", "entity": "object_name"}])
    ('rate Dune', (Slot(name='object_name', value='Dune', start=5, end=9),))
    """
    text, slots = "", []
    for chunk in chunks:
        value = chunk["text"]
        if value and "entity" in chunk:
            slots.append(Slot(chunk["entity"], value, len(text), len(text) + len(value)))
        text += value
    return text, tuple(slots)
