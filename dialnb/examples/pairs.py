"""Consecutive-utterance pairs (DSE Section 3, Appendix A.1) and the examples that feed them to the loop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.examples.batches import Batch
from dialnb.tokens import Numbers, Tokens

SEPARATOR = " [SEP] "
Talks = Iterable[Sequence[str]]
"""Dialogues as their utterances."""


def enough_words(text: str, above: int = 3) -> bool:
    """DSE's filter: more than three whitespace-separated words."""
    return len(text.split()) > above


def consecutive_pairs(dialogues: Talks, turns: int = 1, min_words: int = 3) -> list[tuple[str, str]]:
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


def tail_quirk(utterances: Sequence[str], system_opens: bool) -> list[str]:
    """The utterances of a dialogue as DSE's code sees them, through the records that TOD-BERT's readers write.

    A record is a history of (system, user) exchanges and the last exchange apart. So a closing system line is lost, an
    opening one too (the code drops the first entry of the history, which is empty where the user opens), and the last
    exchange is appended only if its system line did not occur before. The loss of the closing line is inferred: with
    it, and only with it, the pairs extrapolate to within 1 % of the printed 892,835 (see ``dialnb data stats``).

    >>> tail_quirk(["hello", "a table please", "anything else?", "wine", "anything else?", "no thanks", "bye"], True)
    ['a table please', 'anything else?', 'wine']
    """
    exchanges = list(utterances) if system_opens else ["", *utterances]
    exchanges = exchanges[: len(exchanges) // 2 * 2]
    history, last = exchanges[1:-2], exchanges[-2:]
    if last and last[0] not in history:
        history += last
    return [text for text in history if text]


def context_pairs(dialogues: Talks, draws: int, seed: int) -> list[tuple[str, str]]:
    """TOD-BERT's response selection: ``draws`` times per dialogue, a random turn as response and all before it as
    context, joined with ``[SEP]``."""
    rng = np.random.default_rng(seed)
    pairs = []
    for utterances in dialogues:
        for end in rng.integers(1, len(utterances), draws) if len(utterances) > 1 else ():
            pairs.append((SEPARATOR.join(utterances[:end]), utterances[end]))
    return pairs


def keep_last_words(query: str, turns: int) -> str:
    """DSE's code for multi-turn queries: only the last ``int(0.9 * turns * 32)`` words enter the tokenizer."""
    return " ".join(query.split()[-int(0.9 * turns * 32) :])


def unique_sentences(dialogues: Talks) -> list[str]:
    """Distinct utterances that pass the word filter, in order of first appearance (DSE-dropout, SimCSE)."""
    return list(dict.fromkeys(u for utterances in dialogues for u in utterances if enough_words(u)))


@dataclass
class PairExamples:
    """Pairs of tokenised texts. Texts are tokenised once each: ``first[i]`` and ``second[i]`` are rows of ``tokens``.
    A batch's tokens ``pair`` are all first sides, then all second sides.
    """

    tokens: Tokens
    first: ndarray
    second: ndarray

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        both = self.tokens[np.concatenate([self.first[rows], self.second[rows]])]
        return Batch(len(rows), {"pair": both})


def pair_examples(
    encoder,
    pairs: Sequence[tuple[str, str]],
    max_length: int = 32,
    cache=None,
    query_length: int | None = None,
    query_truncate: str = "right",
) -> PairExamples:
    """Tokenise each distinct text of ``pairs`` once (from ``cache``, a folder, when it was before).

    ``query_length`` is the longest first side where it differs from ``max_length`` (queries of several turns), and
    ``query_truncate`` the side on which such a query is cut.
    """
    queries, responses = Numbers(), Numbers()
    if query_length in (None, max_length) and query_truncate == "right":  # one table of texts for both sides
        query_length, responses = max_length, queries
    first = queries.of(query for query, _ in pairs)
    second = responses.of(response for _, response in pairs)
    tokens = encoder.tokenize(list(queries), query_length, query_truncate, cache)
    if responses is not queries:
        answers = encoder.tokenize(list(responses), max_length, cache=cache)
        tokens, second = Tokens.concatenate([tokens, answers]), second + len(tokens)
    return PairExamples(tokens, first, second)


def dropout_examples(encoder, sentences: Sequence[str], max_length: int = 32, cache=None) -> PairExamples:
    """Every sentence is its own positive; two independent dropout masks tell the sides apart (SimCSE, DSE-dropout)."""
    rows = np.arange(len(sentences))
    return PairExamples(encoder.tokenize(sentences, max_length, cache=cache), rows, rows)
