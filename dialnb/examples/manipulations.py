"""Utterance manipulation (UMS, Section 3): response selection with insertion, deletion and search beside it.

Inputs of a cross-encoder, as token ids (``|`` marks where segment 1 begins)::

    selection   [CLS] u_1 [EOT] ... u_n [EOT] [SEP] | r [EOT] [SEP]
    insertion   [CLS] [INS] u_1 [EOT] [INS] u_2 [EOT] ... [INS] [SEP] | u_t [EOT] [SEP]      where does u_t belong?
    deletion    [CLS] [DEL] u_1 [EOT] [DEL] foreign [EOT] [DEL] u_2 [EOT] ... [SEP]          which one is foreign?
    search      [CLS] [SRCH] u_3 [EOT] [SRCH] u_1 [EOT] ... [SEP] | u_k [EOT] [SEP]          which one is u_{k-1}?

Windows, targets, foreign utterances and permutations are redrawn every time a row is visited; rows are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.records import SelectionGroup, conversation_of
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Batch
from dialnb.tokens import Integers, Numbers, Tokens, joined, offsets_of, stretches

TASKS = ("insertion", "deletion", "search")
PROTOCOLS = ("paper", "code")
MARKS = {"eot": "[EOT]", "insertion": "[INS]", "deletion": "[DEL]", "search": "[SRCH]"}
NEGATIVES = ("fixed", "redrawn")
MAX_LENGTH, WINDOW = 512, 5
UNCUT = 1 << 20  # no utterance is longer: inputs are trimmed as a whole


class Manipulation(NamedTuple):
    """What one auxiliary task makes of a dialogue: utterance numbers and which of the marks is the right one."""

    task: str
    context: list[int]
    second: int | None
    target: int


class Input(NamedTuple):
    """One sequence of the cross-encoder; ``marks`` are the places of its special tokens, ``target`` one of them."""

    ids: ndarray
    types: ndarray
    marks: ndarray
    target: int


def input_tokens(inputs: Sequence[Input]) -> Tokens:
    """What the encoder reads."""
    return Tokens.from_lists([one.ids for one in inputs], [one.types for one in inputs])


def window(utterances: Sequence[int], size: int, rng: Generator, protocol: str = "paper") -> list[int]:
    """``size`` neighbouring utterances, or all where there are no more. The start is uniform; ``code`` never draws the
    last possible one, so that the end of a longer dialogue (the response) is never inside."""
    spare = len(utterances) - size
    if spare <= 0:
        return list(utterances)
    start = int(rng.integers(spare + (protocol == "paper")))
    return list(utterances[start : start + size])


def insertion(utterances: Sequence[int], rng: Generator) -> Manipulation:
    """Take utterance t out; of the marks before, between and after the others the t-th is right."""
    target = int(rng.integers(len(utterances)))
    return Manipulation("insertion", [*utterances[:target], *utterances[target + 1 :]], utterances[target], target)


def deletion(utterances: Sequence[int], foreign: int, rng: Generator) -> Manipulation:
    """Put a foreign utterance before one of the others (never after the last); its mark is right."""
    target = int(rng.integers(len(utterances)))
    return Manipulation("deletion", [*utterances[:target], foreign, *utterances[target:]], None, target)


def search(utterances: Sequence[int], rng: Generator) -> Manipulation:
    """Shuffle all but the last; the mark of the one that came right before the last is right."""
    order = rng.permutation(len(utterances) - 1)
    target = int(np.flatnonzero(order == len(order) - 1)[0])
    return Manipulation("search", [utterances[i] for i in order], utterances[-1], target)


def manipulate(
    utterances: Sequence[int], foreign: int, rng: Generator, tasks: Sequence[str] = TASKS, protocol: str = "paper"
) -> list[Manipulation]:
    """The auxiliary tasks of one dialogue (its true response included), none if it has a single utterance.

    ``paper``: every task has a window of five of its own, deletion adds the foreign utterance to it. ``code``: the
    tasks cut one list in turn, deletion to four, so that search sees what is left of it.

    >>> [len(m.context) for m in manipulate(range(9), 99, np.random.default_rng(0))]
    [4, 6, 4]
    >>> [len(m.context) for m in manipulate(range(9), 99, np.random.default_rng(0), protocol="code")]
    [4, 5, 3]
    """
    if len(utterances) < 2:
        return []
    make: dict[str, Callable[..., Manipulation]] = {
        "insertion": insertion,
        "deletion": partial(deletion, foreign=foreign),
        "search": search,
    }
    made = []
    for task in tasks:
        room = WINDOW - (protocol == "code" and task == "deletion")
        seen = window(utterances, room, rng, protocol)
        made.append(make[task](seen, rng=rng))
        if protocol == "code":
            utterances = seen
    return made


def trim(first: Any, second: Any, room: int) -> tuple[Any, Any]:
    """How many tokens the first part loses at its front and the second at its end: while both exceed ``room``, one from
    the first if it is the longer one, otherwise one from the second. Also for many inputs at once.

    >>> trim(np.array([10, 6, 2]), np.array([4, 6, 9]), 9)
    (array([5, 1, 0]), array([0, 2, 2]))
    """
    excess = np.maximum(0, first + second - room)
    lead = np.minimum(excess, abs(first - second))
    from_first = (excess - lead) // 2 + lead * (first > second)
    return from_first, excess - from_first


@dataclass(frozen=True)
class Layout:
    """How inputs are written with one tokenizer: its special ids and the longest input."""

    cls: int
    sep: int
    eot: int
    marks: dict[str, int]
    max_length: int
    second_segment: int = 1  # 0 for encoders that know a single one

    @classmethod
    def of(cls, encoder, max_length: int) -> Layout:
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

    def closed(self, pieces: Sequence[ndarray]) -> Tokens:
        """Utterances for :meth:`selections`, each closed by [EOT]."""
        parts = Tokens.from_lists(part for piece in pieces for part in (piece, [self.eot]))
        return Tokens(parts.ids, parts.offsets[::2])

    def selections(self, said: Tokens, contexts: Iterable[tuple[int, ...]], responses: ndarray) -> Tokens:
        """Response selection, read at [CLS]: the inputs of many contexts with their responses at once, as numbers of
        closed utterances: every input is five stretches of one row that holds whatever they are made of."""
        distinct = Numbers()
        before = distinct.of(contexts)
        spoken = said[joined(distinct)]
        ends = spoken.offsets[offsets_of([*map(len, distinct)])]
        first, second = np.diff(ends)[before], said.lengths[responses]
        lost, shortened = trim(first, second, self.max_length - 3)
        ids = joined([[self.cls, self.sep], spoken.ids, said.ids])
        starts = 0, 2 + ends[before] + lost, 1, 2 + ends[-1] + said.offsets[responses], 1
        lengths = np.column_stack(np.broadcast_arrays(1, first - lost, 1, second - shortened, 1))
        types = np.repeat(
            np.resize(np.array([0, 0, 0, 1, 1], np.int8) * self.second_segment, lengths.size), lengths.ravel()
        )
        where = stretches(np.column_stack(np.broadcast_arrays(*starts)), lengths)
        return Tokens(ids[where], offsets_of(lengths.sum(1)), types)

    def manipulation(self, made: Manipulation, pieces: Sequence[ndarray]) -> Input:
        """An auxiliary input, ``pieces`` being the tokens of its utterances (context, then second part), each cut to a
        quarter of the longest input.

        Where trimming cut marks away, the target is counted among those that are left.
        """
        mark, context = [self.marks[made.task]], [piece[: self.max_length // 4] for piece in pieces]
        second = [] if made.second is None else [context.pop(), [self.eot]]
        first, places = [], offsets_of([len(piece) + 2 for piece in context])
        for piece in context:
            first += [mark, piece, [self.eot]]
        if made.task == "insertion":
            return self.join([*first, mark], second, places, made.target)
        return self.join(first, second, places[:-1], made.target)

    def join(self, first: list, second: list, marks: ndarray | None = None, target: int = 0) -> Input:
        """``[CLS] first [SEP] second [SEP]`` (no second part: one [SEP]), trimmed; ``marks``: places in ``first``.

        The first part loses its oldest tokens or, where it has a target, those on the side that is farther from it.
        """
        start, end = joined(first), joined(second)
        lost, shortened = trim(len(start), len(end), self.max_length - (3 if second else 2))
        front = lost
        if marks is not None:  # up to the middle of what is before the target and what is after it
            front = int(np.clip(2 * marks[target] - len(start) + lost, 0, 2 * lost)) // 2
        kept = start[front : len(start) - (lost - front)]
        tail: list[Integers] = [end[: len(end) - shortened], [self.sep]] if second else []
        ids = joined([[self.cls], kept, [self.sep], *tail])
        types = np.zeros(len(ids), np.int8)
        types[len(kept) + 2 :] = self.second_segment
        if marks is None:
            return Input(ids, types, np.zeros(1, np.int64), 0)
        gone, left = np.searchsorted(marks, [front, front + len(kept)])
        return Input(ids, types, marks[gone:left] - front + 1, int(target - gone))


def bare_pieces(encoder, texts: Sequence[str], cache=None) -> list[ndarray]:
    """Token ids of every text, uncut and without special tokens (from the folder ``cache`` when they were before)."""
    words = encoder.wordpieces
    before, after = len(words.prefix), len(words.suffix)
    return [ids[before : len(ids) - after] for ids in words(texts, UNCUT, cache=cache)]


@dataclass
class ManipulationExamples:
    """Rows (context, response, label); of the rows with label 1 also the auxiliary ``tasks``.

    ``contexts`` and ``responses`` are numbers into ``pieces``, the token ids of the distinct texts. Foreign utterances
    come from rows with more than 2 utterances and another number in ``conversations``. A batch's tokens
    ``inputs`` are all selection inputs, then those of the tasks; arrays ``{task}_sequence``, ``_position``, ``_mask``
    ([P, K]) and ``_target`` ([P]) say where the marks lie. Without ``tasks`` this is plain response selection. Wrong
    responses are those of the data, or ``redrawn`` from other conversations every time.
    """

    layout: Layout
    pieces: list[ndarray]
    contexts: list[tuple[int, ...]]
    responses: ndarray
    labels: ndarray
    conversations: ndarray
    tasks: tuple[str, ...]
    protocol: str
    negatives: str

    def __post_init__(self) -> None:
        check_known("protocol", self.protocol, PROTOCOLS)
        check_known("kind of negatives", self.negatives, NEGATIVES)
        for task in self.tasks:
            check_known("task", task, TASKS)
        self.tasks = tuple(task for task in TASKS if task in self.tasks)
        self.donors = np.flatnonzero([len(context) > 2 for context in self.contexts])
        if "deletion" in self.tasks and len(np.unique(self.conversations[self.donors])) < 2:
            raise DataError(
                "deletion takes utterances of other conversations, but fewer than 2 have a context of more than 2 "
                "utterances: give it more data, or leave the task out"
            )

    def __len__(self) -> int:
        return len(self.responses)

    def draw(self, row: int, rng: Generator) -> list[Manipulation]:
        """The auxiliary tasks of a row with label 1, newly drawn."""
        foreign = -1
        if "deletion" in self.tasks:
            donor = self._elsewhere(row, self.donors, rng)
            foreign = self.contexts[donor][rng.integers(len(self.contexts[donor]))]
        utterances = (*self.contexts[row], int(self.responses[row]))
        return manipulate(utterances, foreign, rng, self.tasks, self.protocol)

    def _elsewhere(self, row: int, rows: ndarray, rng: Generator) -> int:
        """One of the rows that is from another conversation."""
        found = row
        while self.conversations[found] == self.conversations[row]:
            found = rows[rng.integers(len(rows))]
        return found

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        asked: Integers = rows
        if self.negatives == "redrawn":
            right = np.flatnonzero(self.labels)
            asked = [row if self.labels[row] else self._elsewhere(row, right, rng) for row in rows]
        inputs: list[Input] = []
        numbers: dict[str, list[int]] = {task: [] for task in self.tasks}  # of the task's inputs
        for row in rows[self.labels[rows] == 1]:
            for drawn in self.draw(row, rng):
                numbers[drawn.task].append(len(inputs))
                inputs.append(self.write(drawn))
        arrays = {"labels": self.labels[rows]}
        counts: dict[str, float] = {"selection": len(rows)}
        for task, own in numbers.items():
            marks, mask = Tokens.from_lists(inputs[i].marks for i in own).padded()
            arrays[f"{task}_sequence"] = np.broadcast_to(np.array(own, np.int64)[:, None] + len(rows), marks.shape)
            arrays[f"{task}_position"] = marks
            arrays[f"{task}_mask"] = mask.astype(bool)
            arrays[f"{task}_target"] = np.array([inputs[i].target for i in own], np.int64)
            counts[task] = len(own)
        tokens = Tokens.concatenate([self.selections(rows, asked), input_tokens(inputs)])
        return Batch(len(rows), {"inputs": tokens}, arrays, counts)

    def selections(self, rows: Integers, asked: Integers | None = None) -> Tokens:
        """The inputs of rows for response selection, with their own responses or those of other rows."""
        responses = self.responses[rows if asked is None else asked]
        return self.layout.selections(self.said, (self.contexts[row] for row in rows), responses)

    @cached_property
    def said(self) -> Tokens:
        return self.layout.closed(self.pieces)

    def write(self, drawn: Manipulation) -> Input:
        """The input of an auxiliary task."""
        numbers = drawn.context if drawn.second is None else [*drawn.context, drawn.second]
        return self.layout.manipulation(drawn, [self.pieces[i] for i in numbers])


def manipulation_examples(
    encoder,
    groups: Iterable[SelectionGroup],
    max_length: int = MAX_LENGTH,
    cache=None,
    tasks: Sequence[str] = TASKS,
    protocol: str = "paper",
    negatives: str = "fixed",
) -> ManipulationExamples:
    """Every candidate of ``groups`` as a row of its own; ``encoder`` is that of a ``Selector``.

    Groups cut from one conversation say so by the part of their id before "#" (see the Ubuntu IRC reader).
    """
    texts, conversations = Numbers(), Numbers()
    contexts, columns = [], []
    for group in groups:
        context = tuple(texts[text] for text in group.context)
        conversation = conversations[conversation_of(group)]
        for response, label in zip(group.candidates, group.labels, strict=True):
            contexts.append(context)
            columns.append((texts[response], label, conversation))
    layout, pieces = Layout.of(encoder, max_length), bare_pieces(encoder, list(texts), cache)
    responses, labels, origins = np.array(columns).reshape(-1, 3).T
    return ManipulationExamples(layout, pieces, contexts, responses, labels, origins, tuple(tasks), protocol, negatives)
