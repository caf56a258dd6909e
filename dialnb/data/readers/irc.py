"""Ubuntu IRC: disentangled conversations of a chat channel, and response selection built from them.

The corpus stands in for DSTC7-Ubuntu, which was drawn from the same resource, and for Ubuntu V1, which was drawn from
the same channel. The selection sets are ours: made by rule from a published seed, never the official ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from dialnb.data.readers import Skipped, reader, row, text_lines
from dialnb.data.records import Dialogue, SelectionGroup, Utterance
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

SEED = 20
SPLITS = ("train", "dev", "test")
MESSAGE = re.compile(r"\[\d\d:\d\d\] <([^>]+)> ?(.*)")
ACTION = re.compile(r"\[\d\d:\d\d\] +\* ?(\S+) ?(.*)")
NOTICE = re.compile(r"\[\d\d:\d\d\] .*")

Log = list[tuple[str, str]]


@reader("UbuntuIRC", variants=("conversations", "turns", "lines", "selection-10", "selection-100"))
def read_ubuntu_irc(
    store: Store, skipped: Skipped, variant: str = "conversations"
) -> Iterator[Dialogue | SelectionGroup]:
    """Nicknames are the speakers.

    "conversations": gold conversations, message by message; "turns": the same with consecutive messages of a speaker
    merged; "lines": every log as one long dialogue, annotated or not, for language modelling; "selection-10": 1:1
    training rows, 1:9 dev and test groups; "selection-100": dev and test groups of 100 candidates.
    """
    for split in SPLITS:
        if variant == "selection-100" and split == "train":
            continue
        logs = read_logs(store, split)
        if variant == "lines":
            yield from whole_logs(logs, split, skipped)
            continue
        key = f"data/gold.{split}.clusters.txt"
        conversations = read_conversations(text_lines(store.path("UbuntuIRC", key), key), logs, split, skipped)
        yield from derive(conversations, split, variant)


def derive(conversations: Iterable[Dialogue], split: str, variant: str) -> Iterator[Dialogue | SelectionGroup]:
    """The records of a variant from the gold conversations of one split."""
    if variant == "conversations":
        yield from conversations
    elif variant == "turns":
        yield from map(merge_turns, conversations)
    elif (variant, split) != ("selection-100", "train"):
        wanted = int(variant.removeprefix("selection-"))
        generator = np.random.default_rng((SEED, SPLITS.index(split), wanted))
        yield from build_selection(conversations, 2 if split == "train" else wanted, generator)


def read_logs(store: Store, split: str) -> dict[str, Log]:
    """The lines of every log of a split with their places, by the date that names the log."""
    paths = store.paths("UbuntuIRC", f"data/{split}/*.ascii.txt")
    return {path.name.partition(".")[0]: list(text_lines(path, key)) for key, path in paths.items()}


def read_message(where: str, line: str, skipped: Skipped) -> Utterance | None:
    """The message on a line of a log; joins, parts, notices and empty messages are counted and give None."""
    if match := MESSAGE.fullmatch(line) or ACTION.fullmatch(line):
        speaker, text = match[1], match[2].strip()
        if text:
            return Utterance(speaker, text)
        skipped.add("empty message", where)
    elif line.startswith("==="):
        skipped.add("system line", where)
    elif NOTICE.fullmatch(line):
        skipped.add("notice", where)
    else:
        raise DataError(f"malformed row at {where}: neither a message, an action, a notice nor a system line: {line!r}")
    return None


def whole_logs(logs: dict[str, Log], split: str, skipped: Skipped) -> Iterator[Dialogue]:
    """Every log with all of its messages."""
    for name, lines in logs.items():
        said = (read_message(where, line, skipped) for where, line in lines)
        yield Dialogue(name, tuple(message for message in said if message), split=split)


def read_conversations(
    clusters: Iterable[tuple[str, str]], logs: dict[str, Log], split: str, skipped: Skipped
) -> Iterator[Dialogue]:
    """The gold conversations: rows ``LOG:line line ...`` name the lines (from 0) that belong together."""
    annotated = 0
    for where, line in clusters:
        with row(where):
            name, _, numbers = line.partition(":")
            if name not in logs:
                raise ValueError(f"there is no log {name!r}")
            members = [logs[name][int(number)] for number in numbers.split()]
        annotated += len(members)
        said = [read_message(*member, skipped) for member in members]
        messages = tuple(message for message in said if message)
        if messages:
            yield Dialogue(f"{name}:{numbers.split()[0]}", messages, split=split)
        else:
            skipped.add("conversation without a message", where)
    skipped.add("line without annotation", split, sum(map(len, logs.values())) - annotated)


def merge_turns(dialogue: Dialogue) -> Dialogue:
    """Join consecutive messages of one speaker by a space: an utterance is everything said in one turn."""
    turns = [(speaker, list(said)) for speaker, said in groupby(dialogue.utterances, key=lambda item: item.speaker)]
    merged = tuple(Utterance(speaker, " ".join(item.text for item in said)) for speaker, said in turns)
    return replace(dialogue, utterances=merged)


def strip_addressees(dialogue: Dialogue) -> Dialogue:
    """Take away the ``nickname:`` that opens a message; it would give the right response away by name alone."""
    names = sorted({re.escape(item.speaker) for item in dialogue.utterances}, key=len, reverse=True)
    opening = re.compile(rf"(?:{'|'.join(names)})\s*[:,]\s*", re.IGNORECASE)
    texts = [
        opening.sub("", item.text, count=1) if opening.match(item.text) else item.text for item in dialogue.utterances
    ]
    kept = tuple(replace(item, text=text) for item, text in zip(dialogue.utterances, texts) if text)
    return replace(dialogue, utterances=kept)


def build_selection(
    conversations: Iterable[Dialogue],
    n_candidates: int,
    generator: np.random.Generator,
    min_context: int = 2,
    max_context: int = 20,
) -> Iterator[SelectionGroup]:
    """Response selection from conversations of one split: every turn after the first ``min_context`` is a response.

    Messages are merged into turns and lose the nickname they address. The true response is listed first, followed by
    ``n_candidates - 1`` different responses of other conversations in the same split, none of which reads like the
    true one; the context keeps the last ``max_context`` turns. Equal generators give equal groups.
    """
    dialogues = [merge_turns(strip_addressees(dialogue)) for dialogue in conversations]
    if len(splits := {dialogue.split for dialogue in dialogues}) > 1:
        raise DataError(f"selection groups must not mix splits, but these are from {', '.join(sorted(splits))}")
    places = [
        (number, place)
        for number, dialogue in enumerate(dialogues)
        for place in range(min_context, len(dialogue.utterances))
    ]
    pool = [(number, dialogues[number].utterances[place].text) for number, place in places]
    for (number, place), (_, response) in zip(places, pool):
        dialogue = dialogues[number]
        negatives = draw_negatives(pool, number, response, n_candidates - 1, generator)
        context = tuple(item.text for item in dialogue.utterances[max(0, place - max_context) : place])
        labels = (1, *[0] * len(negatives))
        yield SelectionGroup(f"{dialogue.id}#{place}", context, (response, *negatives), labels, dialogue.split)


def draw_negatives(
    pool: list[tuple[int, str]], conversation: int, response: str, wanted: int, generator: np.random.Generator
) -> list[str]:
    """Distinct texts from other conversations, uniformly over the pool, none equal to the response but for case."""

    def draws() -> Iterator[int]:
        yield from generator.integers(len(pool), size=4 * wanted)
        yield from generator.permutation(len(pool))

    taken = {_plain(response)}
    negatives: list[str] = []
    for index in draws():
        if len(negatives) == wanted:
            return negatives
        other, text = pool[index]
        if other != conversation and _plain(text) not in taken:
            taken.add(_plain(text))
            negatives.append(text)
    if len(negatives) < wanted:
        raise DataError(f"{wanted} negatives wanted, but the other conversations have only {len(negatives)} responses")
    return negatives


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
