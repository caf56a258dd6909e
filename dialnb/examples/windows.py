"""Multi-window positive pairs and inverse response frequency (WMDC Sections 4.1 and 4.2).

Every utterance but the first of a dialogue is a response; its context are the ``w`` utterances before it, for every
window ``w``. Utterances are tokenised once and contexts put together from them batch by batch, so that a window more
costs a few bytes per pair.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Batch
from dialnb.losses import inverse_response_frequency
from dialnb.tokens import Numbers, Tokens, joined, offsets_of, stretches

WINDOWS = (1, 2, 3)
RESPONSE_LENGTH = 64
WHOLE = 1 << 20  # tokens: utterances are kept whole, since contexts are cut from the left and responses from the right
WEIGHTINGS: dict[str, Callable[[ndarray], ndarray]] = {
    "irf": lambda frequency: inverse_response_frequency(frequency).numpy(),
    "inverse square root": lambda frequency: 1 / np.sqrt(frequency),
}


def response_key(text: str) -> str:
    """What makes two utterances the same for counting: letters' case and outer space do not, punctuation does
    (Table 5 lists "yes." and "yes" apart)."""
    return text.strip().lower()


def response_frequencies(dialogues: Iterable[Sequence[str]]) -> Counter[str]:
    """How often every utterance occurs in the corpus, whether or not it answers anything (Table 5).

    >>> response_frequencies([["Book a table", "Yes.", "yes"], ["yes. ", "bye"]])["yes."]
    2
    """
    return Counter(response_key(text) for utterances in dialogues for text in utterances)


def cumulative_share(frequencies: Counter[str]) -> ndarray:
    """Share of the corpus covered by its 1, 2, 3, ... most frequent utterances (Figure 1).

    >>> cumulative_share(Counter({"yes": 3, "no": 1})).tolist()
    [0.75, 1.0]
    """
    counts = np.sort(np.fromiter(frequencies.values(), np.int64, len(frequencies)))[::-1]
    return np.cumsum(counts) / max(1, counts.sum())


def context_length(window: int) -> int:
    """Tokens of a context: 32 per utterance, at most 128."""
    return min(32 * window, 128)


@dataclass
class WindowExamples:
    """Pairs of context and response; ``groups`` hold one window each, so that a batch has one window and batches cycle
    through them.

    ``utterances[p]`` is the row of ``tokens`` said at place ``p`` of the corpus; pair ``i`` has the response at place
    ``places[i]`` and the ``windows[i]`` places before it as context. ``extras`` are arrays over places.
    """

    tokens: Tokens
    affixes: tuple[int, int]  # how many special tokens begin and end every sequence
    utterances: ndarray
    places: ndarray
    windows: ndarray
    longest: int  # what the encoder can read
    extras: dict[str, ndarray]
    groups: Sequence[ndarray]

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        places, windows = self.places[rows], self.windows[rows]
        pair = Tokens.concatenate([self.contexts(places, int(windows[0])), self.responses(places)])
        arrays = {name: values[places] for name, values in self.extras.items()}
        return Batch(len(rows), {"pair": pair}, arrays | {"window": windows})

    def contexts(self, places: ndarray, window: int) -> Tokens:
        """The utterances before each place, a separator behind each, cut from the left to the window's length."""
        before, _ = self.affixes
        said = self.utterances[places[:, None] + np.arange(-window, 0)]
        lengths = self.tokens.lengths[said] - before
        excess = lengths.sum(1, keepdims=True) - (min(context_length(window), self.longest) - before)
        cut = np.clip(excess - (np.cumsum(lengths, 1) - lengths), 0, lengths)
        starts = self.tokens.offsets[said] + before + cut
        opening = np.zeros((len(places), 1), np.int64)  # the first sequence's first tokens are everybody's
        return self._join(np.hstack([opening, starts]), np.hstack([opening + before, lengths - cut]))

    def responses(self, places: ndarray) -> Tokens:
        """The utterance at each place, cut from the right."""
        _, after = self.affixes
        said = self.utterances[places]
        bodies = np.minimum(self.tokens.lengths[said], min(RESPONSE_LENGTH, self.longest)) - after
        starts = np.stack([self.tokens.offsets[said], self.tokens.offsets[said + 1] - after], 1)
        return self._join(starts, np.stack([bodies, np.full(len(said), after)], 1))

    def _join(self, starts: ndarray, lengths: ndarray) -> Tokens:
        """One sequence per row, put together from stretches of the flat token ids, one per column."""
        return Tokens(self.tokens.ids[stretches(starts, lengths)], offsets_of(lengths.sum(1)))


def window_examples(
    encoder,
    dialogues: Iterable[Sequence[str]],
    windows: Sequence[int] = WINDOWS,
    weighting: str | None = "irf",
    mask_duplicates: bool = False,
    cache=None,
) -> WindowExamples:
    """All pairs of the dialogues for every window; a context has exactly ``w`` utterances or the pair does not exist.

    Utterances are joined by the token that ends every sequence, which is the separator of BERT, RoBERTa, MPNet and T5.
    ``weighting`` names the weights of responses (None: all alike), ``mask_duplicates`` gives equal responses one number
    so that the loss can leave them out of each other's negatives.
    """
    if weighting is not None:
        check_known("weighting", weighting, WEIGHTINGS)
    texts, responses = Numbers(), Numbers()
    dialogues = list(dialogues)
    utterances = texts.of(text for said in dialogues for text in said)
    response_ids = responses.of(response_key(text) for said in dialogues for text in said)
    turn = joined(range(len(said)) for said in dialogues)
    places = [np.flatnonzero(turn >= window) for window in windows]
    sizes = [len(part) for part in places]
    if not sum(sizes):
        raise DataError(f"no dialogue has the {min(windows) + 1} utterances that the smallest window needs")
    extras = {}
    if weighting is not None:
        weights = WEIGHTINGS[weighting](np.bincount(response_ids))
        extras["weights"] = weights[response_ids].astype(np.float32)
    if mask_duplicates:
        extras["duplicates"] = response_ids
    return WindowExamples(
        tokens=encoder.wordpieces(list(texts), WHOLE, cache=cache),
        affixes=(len(encoder.wordpieces.prefix), len(encoder.wordpieces.suffix)),
        utterances=utterances,
        places=np.concatenate(places),
        windows=np.repeat(windows, sizes),
        longest=encoder.max_length,
        extras=extras,
        groups=np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]),
    )
