"""Ubuntu IRC: disentangled conversations of a chat channel, and response selection built from them.

The corpus stands in for DSTC7-Ubuntu, which was drawn from the same resource, and for Ubuntu V1, which was drawn from
the same channel. The selection sets are ours: made by rule from a published seed, never the official ones.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from posixpath import basename

import numpy as np

from dialnb.data.readers import TRAIN_DEV_TEST, Files, Records, reader
from dialnb.data.records import Dialogue, SelectionGroup, Utterance
from dialnb.errors import DataError

SEED = 20
LEAST, MOST = 2, 20  # turns of a context
REACH = 100  # lines after which a conversation is over
MESSAGE = re.compile(r"\[\d\d:\d\d\] <([^>]+)> ?(.*)")
ACTION = re.compile(r"\[\d\d:\d\d\] +\* ?(\S+) ?(.*)")
ADDRESSED = re.compile(r"(\S+?)\s*[:,]\s")
OPENING = re.compile(r"\A(\S+?)\s*[:,]\s*")
NOTICE = re.compile(r"\[\d\d:\d\d\] .*")

Log = list[Utterance | str]
"""The lines of a log: messages, and reasons why the others are none."""


@reader("UbuntuIRC", variants=("conversations", "turns", "lines", "selection-10", "selection-100", "threads-10"))
def read_ubuntu_irc(files: Files, variant: str) -> Records:
    """Nicknames are the speakers.

    "conversations": gold conversations, message by message; "turns": the same with consecutive messages of a speaker
    merged; "lines": every log as one long dialogue, annotated or not, for language modelling; "selection-10": 1:1
    training rows, 1:9 dev and test groups; "selection-100": dev and test groups of 100 candidates; "threads-10": as
    "selection-10", with training rows from the lines without annotation as well (see `thread`).
    """
    for split in TRAIN_DEV_TEST:
        if (variant, split) == ("selection-100", "train"):
            continue
        logs = {}
        for key, data in files.matching(f"data/{split}/*.ascii.txt"):
            date = basename(key).partition(".")[0]
            logs[date] = [read_message(line) for line in files.lines(key, data)]
        if variant == "lines":
            for date, log in logs.items():
                yield Dialogue(date, messages(files, log), split=split)
        else:
            key = f"data/gold.{split}.clusters.txt"
            conversations = list(read_conversations(files, key, files.read(key), split, logs))
            if (variant, split) == ("threads-10", "train"):
                for date, log in logs.items():
                    conversations += thread(date, log)
            yield from derive(conversations, split, variant.replace("threads", "selection"))


def derive(conversations: Iterable[Dialogue], split: str, variant: str) -> Records:
    """The records of a variant from the gold conversations of one split."""
    if variant == "conversations":
        yield from conversations
    elif variant == "turns":
        yield from map(merge_turns, conversations)
    elif (variant, split) != ("selection-100", "train"):
        wanted = int(variant.removeprefix("selection-"))
        generator = np.random.default_rng((SEED, TRAIN_DEV_TEST.index(split), wanted))
        yield from build_selection(conversations, 2 if split == "train" else wanted, generator)


def read_message(line: str) -> Utterance | str:
    """The message on a line of a log, or the reason why there is none."""
    if match := MESSAGE.fullmatch(line) or ACTION.fullmatch(line):
        text = match[2].strip()
        return Utterance(match[1], text) if text else "empty message"
    if line.startswith("==="):
        return "system line"
    if NOTICE.fullmatch(line):
        return "notice"
    raise ValueError(f"neither a message, an action, a notice nor a system line: {line!r}")


def messages(files: Files, log: Log) -> tuple[Utterance, ...]:
    """The messages among lines of a log; the others are counted."""
    files.skipped.update(line for line in log if isinstance(line, str))
    return tuple(line for line in log if isinstance(line, Utterance))


def read_conversations(files: Files, name: str, data: bytes, split: str, logs: dict[str, Log]) -> Iterator[Dialogue]:
    """The gold conversations: rows ``LOG:line line ...`` name the lines (from 0) that belong together. Of the ``logs``
    lines without annotation are left."""
    annotated, rest = 0, {log: list(lines) for log, lines in logs.items()}
    for row in files.lines(name, data):
        log, _, numbers = row.partition(":")
        places = list(map(int, numbers.split()))
        annotated += len(places)
        for place in places:
            rest[log][place] = "annotated"
        if utterances := messages(files, [logs[log][place] for place in places]):
            yield Dialogue(f"{log}:{places[0]}", utterances, split=split)
        else:
            files.skipped["conversation without a message"] += 1
    files.skipped["line without annotation"] += sum(map(len, logs.values())) - annotated
    logs.update(rest)


def thread(date: str, log: Log) -> Iterator[Dialogue]:
    """Conversations of two, put together by the names that open messages, as Ubuntu V1 was made.

    Who addresses somebody for the first time answers what that one said last to nobody. What names nobody goes to the
    conversation that its speaker is in, if there is exactly one.
    """
    utterances = {number: line for number, line in enumerate(log) if isinstance(line, Utterance)}
    people = {line.speaker.lower(): line.speaker for line in utterances.values()}
    open_talks: dict[frozenset[str], list[int]] = {}
    talks = []
    loose: dict[str, int] = {}  # the last line of each speaker that is in no conversation
    for number, line in utterances.items():
        open_talks = {pair: talk for pair, talk in open_talks.items() if number - talk[-1] <= REACH}
        named = ADDRESSED.match(line.text)
        other = people.get(named[1].lower(), line.speaker) if named else line.speaker
        if other != line.speaker:
            pair = frozenset((line.speaker, other))
            if pair not in open_talks:
                asked = loose.pop(other, -REACH - 1)
                open_talks[pair] = [asked] if number - asked <= REACH else []
                talks.append(open_talks[pair])
            open_talks[pair].append(number)
            continue
        talks_of_speaker = [talk for pair, talk in open_talks.items() if line.speaker in pair]
        if len(talks_of_speaker) == 1:
            talks_of_speaker[0].append(number)
        else:
            loose[line.speaker] = number
    for lines in talks:
        yield Dialogue(f"{date}~{lines[0]}", tuple(utterances[number] for number in lines), split="train")


def merge_turns(dialogue: Dialogue) -> Dialogue:
    """Join consecutive messages of one speaker by a space: an utterance is everything said in one turn."""
    turns = []
    for speaker, items in groupby(dialogue.utterances, key=lambda item: item.speaker):
        turns.append(Utterance(speaker, " ".join(item.text for item in items)))
    return replace(dialogue, utterances=tuple(turns))


def strip_addressees(dialogue: Dialogue) -> Dialogue:
    """Take away the ``nickname:`` that opens a message; it would give the right response away by name alone."""
    names, stripped = {item.speaker.lower() for item in dialogue.utterances}, []
    for item in dialogue.utterances:
        if text := OPENING.sub(lambda found: "" if found[1].lower() in names else found[0], item.text):
            stripped.append(Utterance(item.speaker, text))
    return replace(dialogue, utterances=tuple(stripped))


def build_selection(conversations: Iterable[Dialogue], n_candidates: int, generator: np.random.Generator) -> Records:
    """Response selection from conversations of one split: every turn after the first two is a response.

    Messages are merged into turns and lose the nickname they address. The true response is listed first, followed by
    ``n_candidates - 1`` different responses of other conversations in the same split, none of which reads like the
    true one; the context keeps the last twenty turns. Equal generators give equal groups.
    """
    dialogues = [merge_turns(strip_addressees(dialogue)) for dialogue in conversations]
    if len(splits := {dialogue.split for dialogue in dialogues}) > 1:
        raise DataError(f"selection groups must not mix splits, but these are from {', '.join(sorted(splits))}")
    pool = []
    for number, dialogue in enumerate(dialogues):
        pool += [(number, item.text) for item in dialogue.utterances[LEAST:]]
    for number, dialogue in enumerate(dialogues):
        texts = [item.text for item in dialogue.utterances]
        for place in range(LEAST, len(texts)):
            negatives = draw_negatives(pool, number, texts[place], n_candidates - 1, generator)
            context = tuple(texts[max(0, place - MOST) : place])
            labels = (1, *[0] * len(negatives))
            name = f"{dialogue.id}#{place}"
            yield SelectionGroup(name, context, (texts[place], *negatives), labels, dialogue.split)


def draw_negatives(
    pool: list[tuple[int, str]], conversation: int, response: str, wanted: int, generator: np.random.Generator
) -> list[str]:
    """Distinct texts from other conversations, uniformly over the pool, none equal to the response but for case."""

    def draws() -> Iterator[int]:
        yield from generator.integers(len(pool), size=4 * wanted).tolist()
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


@lru_cache(2**16)
def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
