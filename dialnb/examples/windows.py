"""Multi-window positive pairs and inverse response frequency (WMDC Sections 4.1 and 4.2).

Every utterance but the first of a dialogue is a response; its context are the ``w`` utterances before it, for every
window ``w``. Utterances are tokenised once and contexts put together from them batch by batch, so that a window more
costs a few bytes per pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dialnb.errors import DataError, UnknownName
from dialnb.examples.batches import Batch
from dialnb.losses import inverse_response_frequency
from dialnb.tokens import Tokens

WINDOWS = (1, 2, 3)
RESPONSE_LENGTH = 64
WHOLE = 1 << 20  # tokens: utterances are kept whole, since contexts are cut from the left and responses from the right
WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
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


def cumulative_share(frequencies: Counter[str]) -> np.ndarray:
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
    utterances: np.ndarray
    places: np.ndarray
    windows: np.ndarray
    longest: int  # what the encoder can read
    extras: dict[str, np.ndarray]
    groups: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        places, windows = self.places[rows], self.windows[rows]
        pair = Tokens.concatenate([self.contexts(places, int(windows[0])), self.responses(places)])
        arrays = {name: values[places] for name, values in self.extras.items()}
        return Batch(len(rows), {"pair": pair}, arrays | {"window": windows})

    def contexts(self, places: np.ndarray, window: int) -> Tokens:
        """The utterances before each place, a separator behind each, cut from the left to the window's length."""
        before, _ = self.affixes
        said = self.utterances[places[:, None] + np.arange(-window, 0)]
        lengths = self.tokens.lengths[said] - before
        excess = lengths.sum(1, keepdims=True) - (min(context_length(window), self.longest) - before)
        cut = np.clip(excess - (np.cumsum(lengths, 1) - lengths), 0, lengths)
        starts = self.tokens.offsets[said] + before + cut
        opening = np.zeros((len(places), 1), np.int64)  # the first sequence's first tokens are everybody's
        return self._gather(np.hstack([opening, starts]), np.hstack([opening + before, lengths - cut]))

    def responses(self, places: np.ndarray) -> Tokens:
        """The utterance at each place, cut from the right."""
        _, after = self.affixes
        said = self.utterances[places]
        bodies = np.minimum(self.tokens.lengths[said], min(RESPONSE_LENGTH, self.longest)) - after
        starts = np.stack([self.tokens.offsets[said], self.tokens.offsets[said + 1] - after], 1)
        return self._gather(starts, np.stack([bodies, np.full(len(said), after)], 1))

    def _gather(self, starts: np.ndarray, lengths: np.ndarray) -> Tokens:
        """One sequence per row, put together from stretches of the flat token ids, one per column."""
        offsets = np.concatenate([[0], np.cumsum(lengths.sum(1))])
        flat = lengths.ravel()
        where = np.repeat(starts.ravel() - (np.cumsum(flat) - flat), flat) + np.arange(offsets[-1])
        return Tokens(self.tokens.ids[where], offsets)


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
    if weighting is not None and weighting not in WEIGHTINGS:
        raise UnknownName("weighting", weighting, WEIGHTINGS)
    texts: dict[str, int] = {}
    keys: dict[str, int] = {}
    utterances, key_of, turn = [], [], []
    for said in dialogues:
        utterances += [texts.setdefault(text, len(texts)) for text in said]
        key_of += [keys.setdefault(response_key(text), len(keys)) for text in said]
        turn += range(len(said))
    groups = [np.flatnonzero(np.array(turn, np.int32) >= window) for window in windows]
    if not sum(map(len, groups)):
        raise DataError(f"no dialogue has the {min(windows) + 1} utterances that the smallest window needs")
    pieces = encoder.wordpieces
    read = pieces if cache is None else lambda *a: pieces.cached(*a, cache)
    extras, key_ids = {}, np.array(key_of)
    if weighting is not None:
        extras["weights"] = WEIGHTINGS[weighting](np.bincount(key_ids))[key_ids].astype(np.float32)
    if mask_duplicates:
        extras["duplicates"] = key_ids
    places = np.concatenate(groups)
    sizes = np.cumsum([len(group) for group in groups])[:-1]
    return WindowExamples(
        read(list(texts), WHOLE, "right"), (len(pieces.prefix), len(pieces.suffix)), np.array(utterances), places,
        np.repeat(np.array(windows, np.int64), [len(group) for group in groups]), encoder.max_length, extras,
        np.split(np.arange(len(places)), sizes),
    )  # fmt: skip
