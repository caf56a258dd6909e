"""Consecutive-utterance pairs (DSE Section 3, Appendix A.1) and the examples that feed them to the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dialnb.models.tokens import Tokens
from dialnb.training.objective import Batch

SEPARATOR = " [SEP] "


def enough_words(text: str, above: int = 3) -> bool:
    """DSE's filter: more than three whitespace-separated words."""
    return len(text.split()) > above


def consecutive_pairs(dialogues: Iterable[Sequence[str]], turns: int = 1, min_words: int = 3) -> list[tuple[str, str]]:
    """Every (query, response) of neighbouring utterances, both directions of speaker, duplicates kept.

    ``turns`` > 1 joins that many utterances into the query with the text token ``[SEP]`` (DSE 2-1, 3-1). A pair is kept
    only if *every* utterance in it has more than ``min_words`` words.

    >>> consecutive_pairs([["i need a cheap hotel", "ok", "where do you want it", "in the north please"]])
    [('where do you want it', 'in the north please')]
    """
    pairs = []
    for utterances in dialogues:
        good = [enough_words(u, min_words) for u in utterances]
        for end in range(turns, len(utterances)):
            if all(good[end - turns : end + 1]):
                pairs.append((SEPARATOR.join(utterances[end - turns : end]), utterances[end]))
    return pairs


def keep_last_words(query: str, turns: int, max_length: int = 32) -> str:
    """DSE's code for multi-turn queries: only the last ``int(0.9 * turns * max_length)`` words enter the tokenizer."""
    return " ".join(query.split()[-int(0.9 * turns * max_length) :])


def unique_sentences(dialogues: Iterable[Sequence[str]], min_words: int = 3) -> list[str]:
    """Distinct utterances that pass the word filter, in order of first appearance (DSE-dropout, SimCSE)."""
    return list(dict.fromkeys(u for utterances in dialogues for u in utterances if enough_words(u, min_words)))


@dataclass
class PairExamples:
    """Pairs of tokenised texts. Texts are tokenised once each: ``first[i]`` and ``second[i]`` are rows of ``tokens``.

    ``extras`` are per-pair arrays that travel with the batch (``weights``, ``duplicates``, ``window``).
    """

    tokens: Tokens
    first: np.ndarray
    second: np.ndarray
    extras: dict[str, np.ndarray] | None = None
    groups: Sequence[np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        sides = {"first": self.tokens[self.first[rows]], "second": self.tokens[self.second[rows]]}
        return Batch(len(rows), sides, {k: v[rows] for k, v in (self.extras or {}).items()})


def pair_examples(
    encoder, pairs: Sequence[tuple[str, str]], max_length: int = 32, cache=None, **fields
) -> PairExamples:
    """Tokenise the distinct texts of ``pairs`` once (from ``cache``, a folder, when they were before)."""
    index: dict[str, int] = {}
    first = np.fromiter((index.setdefault(a, len(index)) for a, _ in pairs), np.int64, len(pairs))
    second = np.fromiter((index.setdefault(b, len(index)) for _, b in pairs), np.int64, len(pairs))
    return PairExamples(tokenise_once(encoder, list(index), max_length, cache), first, second, **fields)


def dropout_examples(encoder, sentences: Sequence[str], max_length: int = 32, cache=None) -> PairExamples:
    """Every sentence is its own positive; two independent dropout masks tell the sides apart (SimCSE, DSE-dropout)."""
    rows = np.arange(len(sentences))
    return PairExamples(tokenise_once(encoder, sentences, max_length, cache), rows, rows)


def tokenise_once(encoder, texts: Sequence[str], max_length: int, cache=None, truncate: str = "right") -> Tokens:
    """Token ids of ``texts``, read from the folder ``cache`` when the same texts were tokenised before."""
    if cache is None:
        return encoder.tokenize(texts, max_length, truncate)
    return encoder.wordpieces.cached(texts, min(max_length, encoder.max_length), truncate, cache)
