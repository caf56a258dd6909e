"""Utterance manipulation (UMS, Section 3): response selection with insertion, deletion and search beside it.

Inputs of a cross-encoder, as token ids (``|`` marks where segment 1 begins)::

    selection   [CLS] u_1 [EOT] ... u_n [EOT] [SEP] | r [EOT] [SEP]
    insertion   [CLS] [INS] u_1 [EOT] [INS] u_2 [EOT] ... [INS] [SEP] | u_t [EOT] [SEP]      where does u_t belong?
    deletion    [CLS] [DEL] u_1 [EOT] [DEL] foreign [EOT] [DEL] u_2 [EOT] ... [SEP]          which one is foreign?
    search      [CLS] [SRCH] u_3 [EOT] [SRCH] u_1 [EOT] ... [SEP] | u_k [EOT] [SEP]          which one is u_{k-1}?

Windows, targets, foreign utterances and permutations are redrawn every time a row is visited; rows are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.examples.batches import Batch
from dialnb.tokens import Tokens

TASKS = ("insertion", "deletion", "search")
PROTOCOLS = ("paper", "code")
MARKS = {"eot": "[EOT]", "insertion": "[INS]", "deletion": "[DEL]", "search": "[SRCH]"}
MAX_LENGTH, MAX_UTTERANCE, WINDOW = 512, 128, 5
NOTHING = np.zeros(0, np.int32)
UNCUT = 1 << 20  # no utterance is longer: inputs are trimmed as a whole


class Manipulation(NamedTuple):
    """What one auxiliary task makes of a dialogue: utterance numbers and which of the marks is the right one."""

    task: str
    context: list[int]
    second: int | None
    target: int


class Input(NamedTuple):
    """One sequence of the cross-encoder; ``marks`` are the places of its special tokens, ``target`` one of them."""

    ids: np.ndarray
    types: np.ndarray
    marks: np.ndarray
    target: int


def window(utterances: Sequence[int], size: int, rng: np.random.Generator, protocol: str = "paper") -> list[int]:
    """``size`` neighbouring utterances, or all where there are no more. The start is uniform; ``code`` never draws the
    last possible one, so that the end of a longer dialogue (the response) is never inside."""
    spare = len(utterances) - size
    if spare <= 0:
        return list(utterances)
    start = int(rng.integers(spare + (protocol == "paper")))
    return list(utterances[start : start + size])


def insertion(utterances: Sequence[int], rng: np.random.Generator) -> Manipulation:
    """Take utterance t out; of the marks before, between and after the others the t-th is right."""
    target = int(rng.integers(len(utterances)))
    return Manipulation("insertion", [*utterances[:target], *utterances[target + 1 :]], utterances[target], target)


def deletion(utterances: Sequence[int], foreign: int, rng: np.random.Generator) -> Manipulation:
    """Put a foreign utterance before one of the others (never after the last); its mark is right."""
    target = int(rng.integers(len(utterances)))
    return Manipulation("deletion", [*utterances[:target], foreign, *utterances[target:]], None, target)


def search(utterances: Sequence[int], rng: np.random.Generator) -> Manipulation:
    """Shuffle all but the last; the mark of the one that came right before the last is right."""
    order = rng.permutation(len(utterances) - 1)
    target = int(np.flatnonzero(order == len(order) - 1)[0])
    return Manipulation("search", [utterances[i] for i in order], utterances[-1], target)


def manipulate(
    utterances: Sequence[int],
    foreign: int,
    rng: np.random.Generator,
    tasks: Sequence[str] = TASKS,
    protocol: str = "paper",
    size: int = WINDOW,
) -> list[Manipulation]:
    """The auxiliary tasks of one dialogue (its true response included), none if it has a single utterance.

    ``paper``: every task has a window of ``size`` of its own, deletion adds the foreign utterance to it. ``code``: the
    tasks cut one list in turn, deletion to ``size - 1``, so that search sees what is left of it.

    >>> [len(m.context) for m in manipulate(range(9), 99, np.random.default_rng(0))]
    [4, 6, 4]
    >>> [len(m.context) for m in manipulate(range(9), 99, np.random.default_rng(0), protocol="code")]
    [4, 5, 3]
    """
    made: list[Manipulation] = []
    current = list(utterances)
    for task in tasks if len(current) > 1 else ():
        seen = window(current, size - (protocol == "code" and task == "deletion"), rng, protocol)
        if task == "deletion":
            made.append(deletion(seen, foreign, rng))
        else:
            made.append(insertion(seen, rng) if task == "insertion" else search(seen, rng))
        if protocol == "code":
            current = seen
    return made


def trim(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens the first part loses at its front and the second at its end: while both exceed ``room``, one from
    the first if it is the longer one, otherwise one from the second.

    >>> trim(10, 4, 10), trim(6, 6, 9), trim(2, 9, 6)
    ((4, 0), (1, 2), (0, 5))
    """
    excess = max(0, first + second - room)
    lead = min(excess, abs(first - second))
    rest = excess - lead
    cut = (lead, 0) if first > second else (0, lead)
    return cut[0] + rest // 2, cut[1] + rest - rest // 2


@dataclass(frozen=True)
class Layout:
    """How inputs are written with one tokenizer: its special ids and the longest input."""

    cls: int
    sep: int
    eot: int
    marks: dict[str, int]
    max_length: int = MAX_LENGTH
    second_segment: int = 1  # 0 for encoders that know a single one

    @classmethod
    def of(cls, encoder, max_length: int = MAX_LENGTH) -> Layout:
        tokenizer = encoder.tokenizer
        ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in MARKS.items()}
        if missing := [MARKS[name] for name, i in ids.items() if i in (None, tokenizer.unk_token_id)]:
            raise DataError(
                f"encoder {encoder.name!r} has no token {', '.join(missing)}: make a Selector of it first, it adds them"
            )
        eot = ids.pop("eot")
        longest = min(max_length, encoder.max_length)
        segments = getattr(encoder.transformer.config, "type_vocab_size", 1)
        return cls(tokenizer.cls_token_id, tokenizer.sep_token_id, eot, ids, longest, min(segments - 1, 1))

    def selection(self, context: Sequence[np.ndarray], response: np.ndarray) -> Input:
        """Response selection: every utterance, and the response, closed by [EOT]; read at [CLS]."""
        return self._join([part for piece in context for part in (piece, [self.eot])], [response, [self.eot]])

    def manipulation(self, made: Manipulation, pieces: Sequence[np.ndarray]) -> Input | None:
        """An auxiliary input, ``pieces`` being the tokens of its utterances (context, then second part).

        Where trimming cut marks away, the target is counted among those that are left; None if it is gone.
        """
        mark, cut = self.marks[made.task], [piece[:MAX_UTTERANCE] for piece in pieces]
        context = cut[: len(made.context)]
        second = [] if made.second is None else [cut[-1], [self.eot]]
        first = [part for piece in context for part in ([mark], piece, [self.eot])]
        marks = np.cumsum([0, *(len(piece) + 2 for piece in context)])
        if made.task == "insertion":
            first.append([mark])
        else:
            marks = marks[:-1]
        return self._join(first, second, marks, made.target)

    def _join(self, first: list, second: list, marks: np.ndarray | None = None, target: int = 0) -> Input | None:
        """``[CLS] first [SEP] second [SEP]`` (no second part: one [SEP]), trimmed; ``marks``: places in ``first``."""
        start, end = (_flat(part) for part in (first, second))
        lost, shortened = trim(len(start), len(end), self.max_length - (3 if second else 2))
        tail = [end[: len(end) - shortened], [self.sep]] if second else []
        ids = _flat([[self.cls], start[lost:], [self.sep], *tail])
        types = np.zeros(len(ids), np.int8)
        types[len(start) - lost + 2 :] = self.second_segment
        if marks is None:
            return Input(ids, types, np.zeros(1, np.int64), 0)
        gone = int(np.searchsorted(marks, lost))
        return Input(ids, types, marks[gone:] - lost + 1, target - gone) if target >= gone else None


def _flat(parts: list) -> np.ndarray:
    return np.concatenate([NOTHING, *parts], dtype=np.int32, casting="unsafe")


def bare_pieces(encoder, texts: Sequence[str], cache=None) -> list[np.ndarray]:
    """Token ids of every text, uncut and without special tokens (from the folder ``cache`` when they were before)."""
    words = encoder.wordpieces
    tokens = words(texts, UNCUT) if cache is None else words.cached(texts, UNCUT, "right", cache)
    starts, ends = tokens.offsets[:-1] + len(words.prefix), tokens.offsets[1:] - len(words.suffix)
    return [tokens.ids[a:b] for a, b in zip(starts.tolist(), ends.tolist())]


@dataclass
class ManipulationExamples:
    """Rows (context, response, label); of the rows with label 1 also the auxiliary ``tasks``.

    ``contexts`` and ``responses`` are numbers into ``pieces``, the token ids of the distinct texts. Foreign utterances
    come from rows with more than 2 utterances and another number in ``conversations``. A batch's tokens
    ``inputs`` are all selection inputs, then those of the tasks; arrays ``{task}_sequence``, ``_position``, ``_mask``
    ([P, K]) and ``_target`` ([P]) say where the marks lie. Without ``tasks`` this is plain response selection.
    """

    layout: Layout
    pieces: list[np.ndarray]
    contexts: list[tuple[int, ...]]
    responses: np.ndarray
    labels: np.ndarray
    conversations: np.ndarray
    tasks: tuple[str, ...] = TASKS
    protocol: str = "paper"
    window: int = WINDOW
    groups: None = None

    def __post_init__(self) -> None:
        for kind, values, known in (("task", self.tasks, TASKS), ("protocol", (self.protocol,), PROTOCOLS)):
            for value in values:
                if value not in known:
                    raise UnknownName(kind, value, known)
        self.tasks = tuple(task for task in TASKS if task in self.tasks)
        self.donors = np.flatnonzero([len(context) > 2 for context in self.contexts])
        if "deletion" in self.tasks and len(np.unique(self.conversations[self.donors])) < 2:
            raise DataError(
                "deletion takes utterances of other conversations, but fewer than 2 have a context of more than 2 "
                "utterances: give it more data, or leave the task out"
            )

    def __len__(self) -> int:
        return len(self.responses)

    def draw(self, row: int, rng: np.random.Generator) -> list[Manipulation]:
        """The auxiliary tasks of a row with label 1, newly drawn."""
        foreign = -1
        if "deletion" in self.tasks:
            donor = row
            while self.conversations[donor] == self.conversations[row]:
                donor = self.donors[rng.integers(len(self.donors))]
            foreign = self.contexts[donor][rng.integers(len(self.contexts[donor]))]
        utterances = (*self.contexts[row], int(self.responses[row]))
        return manipulate(utterances, foreign, rng, self.tasks, self.protocol, self.window)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        inputs = [self.selection(row) for row in rows]
        arrays: dict[str, np.ndarray] = {"labels": self.labels[rows]}
        made: dict[str, list[tuple[int, Input]]] = {task: [] for task in self.tasks}
        for drawn in chain.from_iterable(self.draw(row, rng) for row in rows if self.labels[row] == 1):
            numbers = drawn.context if drawn.second is None else [*drawn.context, drawn.second]
            written = self.layout.manipulation(drawn, [self.pieces[i] for i in numbers])
            if written is not None:
                made[drawn.task].append((len(inputs), written))
                inputs.append(written)
        for task, items in made.items():
            arrays |= _mark_arrays(task, items)
        tokens = Tokens.from_lists([i.ids for i in inputs], [i.types for i in inputs])
        counts = {"selection": len(rows)} | {task: len(items) for task, items in made.items()}
        return Batch(len(rows), {"inputs": tokens}, arrays, counts)

    def selection(self, row: int) -> Input:
        return self.layout.selection([self.pieces[i] for i in self.contexts[row]], self.pieces[self.responses[row]])


def _mark_arrays(task: str, items: list[tuple[int, Input]]) -> dict[str, np.ndarray]:
    """Where the marks of each sequence lie, padded to the longest list of marks."""
    width = max((len(written.marks) for _, written in items), default=1)
    positions = np.zeros((len(items), width), np.int64)
    mask = np.zeros((len(items), width), bool)
    for i, (_, written) in enumerate(items):
        positions[i, : len(written.marks)] = written.marks
        mask[i, : len(written.marks)] = True
    sequences = np.array([number for number, _ in items], np.int64)
    target = np.array([written.target for _, written in items], np.int64)
    named = {"sequence": np.repeat(sequences[:, None], width, 1), "position": positions, "mask": mask, "target": target}
    return {f"{task}_{name}": array for name, array in named.items()}


def manipulation_examples(
    encoder, groups: Iterable[SelectionGroup], max_length: int = MAX_LENGTH, cache=None, **fields
) -> ManipulationExamples:
    """Every candidate of ``groups`` as a row of its own; ``encoder`` is that of a ``Selector``.

    Groups cut from one conversation say so by the part of their id before "#" (see the Ubuntu IRC reader).
    """
    number: dict[str, int] = {}
    conversation: dict[str, int] = {}
    contexts, columns = [], []
    for group in groups:
        context = tuple(number.setdefault(text, len(number)) for text in group.context)
        source = conversation.setdefault(group.id.partition("#")[0], len(conversation))
        for response, label in zip(group.candidates, group.labels, strict=True):
            contexts.append(context)
            columns.append((number.setdefault(response, len(number)), label, source))
    layout, pieces = Layout.of(encoder, max_length), bare_pieces(encoder, list(number), cache)
    return ManipulationExamples(layout, pieces, contexts, *np.array(columns).reshape(-1, 3).T, **fields)
