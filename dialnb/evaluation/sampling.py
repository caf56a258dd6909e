"""The parts of a dataset; few-shot splits and response blocks, which are drawn once per seed, from labels alone, and so
shared by all models."""

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from dialnb.errors import DataError
from dialnb.examples.readings import Limit, thin
from dialnb.tokens import Numbers


@dataclass(frozen=True)
class FewShotSplit:
    """Row numbers of the training file: the support (or fine-tuning) set and its validation set."""

    train: ndarray
    validation: ndarray


def parts_of(
    records: Any,
    splits: Sequence[str] = ("train", "test"),
    limit: Limit = None,
    train_limit: Limit = None,
    keep: Callable[[Any], bool] = lambda record: True,
) -> Sequence[Sequence[Any]]:
    """The records of each split that are to be kept, thinned; parts that were given one by one stay as they are."""
    if isinstance(records, tuple):
        return records
    parts: dict[str, list[Any]] = {split: [] for split in splits}
    for record in records:
        if record.split in parts and keep(record):
            parts[record.split].append(record)
    return [thin(part, train_limit if split == "train" else limit) for split, part in parts.items()]


def item_groups(keys: Sequence[Hashable], count: int = 10) -> ndarray:
    """A group number for every test item: items of one key (a dialogue) stay together, keys are dealt out at random,
    always alike.

    >>> len(set(item_groups(["a", "b", "a", "b"], 2)[[0, 2]]))
    1
    """
    numbers = Numbers()
    ids = numbers.of(keys)
    dealt = np.random.default_rng(24).permutation(len(numbers)) % min(count, max(1, len(numbers)))
    return dealt[ids]


def few_shot_split(labels: Sequence[Hashable], shots: int, seed: int) -> FewShotSplit:
    """DSE's sampler: per label, in order of first appearance, draw ``min(2 * shots, available)`` rows.

    The first half (rounded up) of a label's draw is for training and the rest for validation; the stream is that of
    Python's ``random`` after ``random.seed(seed)``. Examples may carry several labels, as a tuple: what was taken for
    an earlier one is skipped, which is not made up for, so that such splits have fewer than ``shots`` of each.
    """
    generator = random.Random(seed)
    rows_of: dict[Hashable, list[int]] = {}
    for row, carried in enumerate(labels):
        for label in carried if isinstance(carried, tuple) else [carried]:
            rows_of.setdefault(label, []).append(row)
    taken = set()
    train = []
    validation = []
    for rows in rows_of.values():
        drawn = generator.sample(rows, min(2 * shots, len(rows)))
        half = (len(drawn) + 1) // 2
        train += [row for row in drawn[:half] if row not in taken]
        validation += [row for row in drawn[half:] if row not in taken]
        taken.update(drawn)
    return FewShotSplit(np.array(train, np.int64), np.array(validation, np.int64))


def few_shot_splits(
    labels: Sequence[Hashable], shots: Iterable[int], seeds: Iterable[int]
) -> dict[tuple[int, int], FewShotSplit]:
    """The split of every (shots, seed): a function of the training labels only, hence the same for all models."""
    seeds = list(seeds)
    return {(k, seed): few_shot_split(labels, k, seed) for k in shots for seed in seeds}


def response_blocks(n: int, size: int = 100, seed: int = 0) -> ndarray:
    """Rows of n pairs in blocks [blocks, size], shuffled by seed; the remainder is dropped."""
    if n < size:
        raise DataError(f"{n} pairs do not fill one block of {size}")
    order = np.random.default_rng(seed).permutation(n)
    return order[: n - n % size].reshape(-1, size)


def response_split(n: int, shots: int, seed: int, validation: int = 100) -> FewShotSplit:
    """``shots`` training and ``validation`` pairs of n, disjoint from each other."""
    if n < shots + validation:
        raise DataError(f"{shots} + {validation} pairs were asked for, but there are only {n}")
    drawn = np.random.default_rng(seed).permutation(n)[: shots + validation]
    return FewShotSplit(drawn[:shots], drawn[shots:])
