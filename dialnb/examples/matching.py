"""DialogueCSE (Section 4.1): sessions, groups of a context and candidate responses, and a retrieval set by BM25."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, Texts
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Batch
from dialnb.examples.pairs import SEPARATOR
from dialnb.tokens import Numbers, Tokens, offsets_of

SIDES = ("both", "past")
WORD = re.compile(r"\b\w\w+\b")
SATURATION, LENGTH = 1.5, 0.75
"""The two constants of BM25: how soon further occurrences of a word count less, and how much long texts pay."""
NEAR = 10  # utterances on each side that a built group keeps


def sessions(dialogues: Iterable[Dialogue], min_turns: int = 4) -> list[Texts]:
    """Dialogues as turns: consecutive utterances of one speaker merged, blank ones left out, short dialogues dropped.

    The paper drops fewer than 4 turns in JDDC and ECD and none in MDC (``min_turns=0``).
    """
    merged = []
    for dialogue in dialogues:
        said = [utterance for utterance in dialogue.utterances if utterance.text.strip()]
        runs = groupby(said, key=lambda utterance: utterance.speaker)
        turns = tuple(" ".join(utterance.text.strip() for utterance in run) for _, run in runs)
        if len(turns) >= max(min_turns, 1):
            merged.append(turns)
    return merged


def build_groups(found: Sequence[Sequence[str]], negatives: int = 9, seed: int = 0) -> list[MatchingGroup]:
    """One group per utterance that has a neighbour: what was said around it, itself, and responses of other sessions.

    Negatives are distinct places of other sessions, drawn once; they are not compared with the true response, and the
    first n of them are a fair draw of n, so that one set serves every number of negatives.
    """
    pool = list(chain.from_iterable(found))
    starts = offsets_of([len(session) for session in found])
    rng = np.random.default_rng(seed)
    groups = []
    for start, session in zip(starts, found):
        others = len(pool) - len(session)
        if others < negatives:
            raise DataError(f"{negatives} negatives wanted, but the other sessions hold only {others} utterances")
        if len(session) < 2:
            continue
        for k, response in enumerate(session):
            drawn = rng.choice(others, negatives, replace=False)
            drawn += (drawn >= start) * len(session)
            candidates = (response, *(pool[i] for i in drawn))
            before, after = tuple(session[max(0, k - NEAR) : k]), tuple(session[k + 1 : k + 1 + NEAR])
            groups.append(MatchingGroup(before, after, candidates, (1, *[0] * negatives)))
    return groups


def neighbours(group: MatchingGroup, turns: int = 3, sides: str = "both") -> tuple[list[str], list[str]]:
    """The utterances before and after a response that are its context, each nearest first: the ``turns`` nearest ones,
    ties towards the past, from one side what the other lacks.

    ``sides="past"`` looks back only. Blank utterances do not exist.

    >>> neighbours(MatchingGroup(("a", "b", "c"), ("d", "e"), ("r", "n"), (1, 0)))
    (['c', 'b'], ['d'])
    """
    check_known("side of the context", sides, SIDES)
    before = [text for text in reversed(group.before) if text.strip()]
    after = [text for text in group.after if text.strip()] if sides == "both" else []
    later = min(len(after), max(turns // 2, turns - len(before)))
    return before[: turns - later], after[:later]


@dataclass
class MatchingExamples:
    """Groups as numbers of tokenised texts: ``turns`` [groups, T] (-1: no such turn) and ``candidates`` [groups, m].

    A batch's tokens ``texts`` hold every turn and candidate; its arrays ``turns`` and ``candidates`` point into them.
    """

    tokens: Tokens
    turns: ndarray
    candidates: ndarray
    share: float = 1.0  # of the groups that could be made

    def __len__(self) -> int:
        return len(self.turns)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        turns, candidates = self.turns[rows], self.candidates[rows]
        exists = turns >= 0
        texts = self.tokens[np.concatenate([turns[exists], candidates.ravel()])]
        turn_places = np.where(exists, np.cumsum(exists).reshape(turns.shape) - 1, -1)
        candidate_places = np.arange(candidates.size).reshape(candidates.shape) + exists.sum()
        arrays = {"turns": turn_places, "candidates": candidate_places}
        return Batch(len(rows), {"texts": texts}, arrays, {"matching": len(rows)})


def matching_examples(
    encoder,
    groups: Iterable[MatchingGroup],
    negatives: int = 9,
    turns: int = 3,
    sides: str = "both",
    flat: bool = False,
    max_length: int = 50,
    cache=None,
) -> MatchingExamples:
    """Tokenised groups, built here or released; those without any context are left out.

    ``flat`` joins the context, in the order it was said, into one sequence (SiameseBERT-m).
    """
    contexts = []
    answers: list[str] = []
    for group in groups:
        if len(group.candidates) <= negatives:
            raise DataError(f"{negatives} negatives wanted, but a group has {len(group.candidates) - 1}: ask for fewer")
        before, after = neighbours(group, turns, sides)
        if before or after:
            contexts.append([SEPARATOR.join([*before[::-1], *after])] if flat else [*before, *after])
            answers += group.candidates[: negatives + 1]
    context_texts, answer_texts = Numbers(), Numbers()
    around, _ = Tokens.from_lists(context_texts.of(context) for context in contexts).padded(-1)
    candidates = answer_texts.of(answers).reshape(len(contexts), negatives + 1) + len(context_texts)
    longest = max_length * (turns if flat else 1)
    tokens = [
        encoder.tokenize(list(context_texts), longest, cache=cache),
        encoder.tokenize(list(answer_texts), max_length, cache=cache),
    ]
    return MatchingExamples(Tokens.concatenate(tokens), around, candidates)


def labelled_utterances(dialogues: Iterable[Dialogue], act: str = "") -> list[tuple[str, str]]:
    """(text, intent) of what users say, where the corpus names an intent and, where an ``act`` is named, that one."""
    said = (u for d in dialogues for u in d.utterances if u.speaker == "user" and u.intent)
    return [(u.text, u.intent) for u in said if act in ("", *u.acts)]


def build_retrieval(
    labelled: Iterable[tuple[str, str]],
    size: int = 2000,
    positives: int = 30,
    pool: int = 100,
    seed: int = 0,
) -> list[RetrievalQuery]:
    """A semantic-retrieval set from labelled utterances, the way the paper made that of MDC.

    ``size`` distinct utterances are drawn (all, if there are fewer; texts with several intents, or without a word of
    two letters, are left out). Each is a query whose candidates are the ``pool`` others that BM25 finds first: those of
    its intent are relevant, at most ``positives`` of them, drawn so that their place in that order tells nothing. Where
    all candidates are of one kind there is nothing to rank, and the utterance is a candidate only.
    """
    intents: dict[str, set[str]] = {}
    for text, intent in labelled:
        intents.setdefault(" ".join(text.split()), set()).add(intent)
    clear = [text for text, names in intents.items() if text and len(names) == 1]
    clear = [text for text in clear if WORD.search(text)]
    if len(clear) < 2:
        raise DataError(f"a retrieval set needs at least 2 different labelled utterances, got {len(clear)}")
    rng = np.random.default_rng(seed)
    texts = [clear[i] for i in rng.permutation(len(clear))[:size]]
    names = np.array([min(intents[text]) for text in texts])
    words = [WORD.findall(text.lower()) for text in texts]
    weights = word_weights(words)
    queries = []
    for number, text in enumerate(texts):
        scores = np.zeros(len(texts), np.float32)
        for word in words[number]:
            places, values = weights[word]
            scores[places] += values
        ranked = np.argsort(-scores, kind="stable")
        ranked = ranked[ranked != number][:pool]
        same = names[ranked] == names[number]
        kinds = rng.permutation(ranked[same])[:positives].tolist(), ranked[~same].tolist()
        relevant, irrelevant = map(tuple, kinds if all(kinds) else ((), ()))
        queries.append(RetrievalQuery(number, text, relevant, irrelevant, str(names[number])))
    return queries


def word_weights(texts: Sequence[Sequence[str]]) -> dict[str, tuple[ndarray, ndarray]]:
    """Weigh the words of texts by BM25, in Lucene's form: for each word, the texts that have it and its weights."""
    counts = [Counter(words) for words in texts]
    mean = np.mean([len(words) for words in texts])
    having = defaultdict(list)
    for number, count in enumerate(counts):
        for word in count:
            having[word].append(number)
    weights = {}
    for word, places in having.items():
        rarity = np.float32(math.log(1 + (len(texts) - len(places) + 0.5) / (len(places) + 0.5)))
        times = np.array([counts[place][word] for place in places], np.float32)
        lengths = np.array([len(texts[place]) for place in places])
        saturated = times / (SATURATION * ((1 - LENGTH) + LENGTH * lengths / mean) + times)
        weights[word] = np.array(places), (rarity * saturated).astype(np.float32)
    return weights
