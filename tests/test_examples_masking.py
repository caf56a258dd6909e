"""Masked-language-model examples: what is hidden, by what, and what is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.errors import DataError
from dialnb.examples.masking import MaskedExamples
from dialnb.models.tokens import Tokens, pack

SPECIAL = frozenset(range(5))
ROWS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), min_size=1, max_size=8)


def examples_of(rows, probability=0.15):
    return MaskedExamples(Tokens.from_lists(rows), mask_id=4, special=SPECIAL, vocabulary=61, probability=probability)


@given(ROWS, st.integers(0, 2**32), st.floats(0, 1))
def test_masks_fall_on_words_and_labels_are_the_hidden_words(rows, seed, probability):
    examples = examples_of(rows, probability)
    batch = examples.batch(np.arange(len(rows)), np.random.default_rng(seed))
    masked = batch.tokens["masked"]
    asked = {}
    for sequence, position, label in zip(
        *(batch.arrays[f"masked_{k}"] for k in ("sequence", "position", "label")), strict=True
    ):
        assert rows[sequence][position] == label and label not in SPECIAL
        asked[int(sequence), int(position)] = label
    assert batch.counts == {"mlm": len(asked), "rtd": sum(map(len, rows))} and len(asked) == len(
        batch.arrays["masked_label"]
    )
    for s, row in enumerate(rows):
        assert len(masked[s]) == len(row)
        for p, word in enumerate(row):
            if (s, p) not in asked:
                assert masked[s][p] == word, "what is not asked for is not changed"
            assert 0 <= masked[s][p] < 61
    assert [row.tolist() for row in examples.tokens] == rows, "the examples themselves stay"


def test_fifteen_percent_are_hidden_and_split_eighty_ten_ten():
    words = np.random.default_rng(0).integers(5, 1000, 200_000)
    examples = MaskedExamples(Tokens.from_lists([words]), mask_id=4, special=SPECIAL, vocabulary=1000)
    batch = examples.batch(np.array([0]), np.random.default_rng(1))
    labels = batch.arrays["masked_label"]
    assert len(labels) / len(words) == pytest.approx(0.15, abs=0.003)
    shown = batch.tokens["masked"].ids[batch.arrays["masked_position"]]
    assert np.mean(shown == 4) == pytest.approx(0.8, abs=0.01)
    assert np.mean(shown == labels) == pytest.approx(0.1, abs=0.01)
    swapped = shown[(shown != 4) & (shown != labels)]
    assert len(swapped) / len(labels) == pytest.approx(0.1, abs=0.01)
    assert len(np.unique(swapped)) > 800, "from the whole vocabulary"


def test_masks_are_a_function_of_the_generator():
    examples = examples_of([list(range(5, 60))])
    draw = [
        examples.batch(np.array([0]), np.random.default_rng(seed)).tokens["masked"].ids.tolist() for seed in (1, 1, 2)
    ]
    assert draw[0] == draw[1] != draw[2]


@given(ROWS)
def test_packed_places_point_at_the_hidden_words(rows):
    batch = examples_of(rows, 0.5).batch(np.arange(len(rows)), np.random.default_rng(0))
    sequence, position, label = (
        torch.from_numpy(batch.arrays[f"masked_{k}"]) for k in ("sequence", "position", "label")
    )
    places = pack(Tokens.from_lists(rows)).places(sequence, position)
    assert pack(Tokens.from_lists(rows)).ids[places].tolist() == label.tolist()


def test_an_encoder_says_what_is_special():
    encoder = tiny.encoder()
    examples = MaskedExamples.from_tokens(encoder, encoder.tokenize(["book a table", "hello"]), 1.0)
    assert examples.vocabulary == 96 and examples.mask_id == 4 and len(examples) == 2
    batch = examples.batch(np.array([1, 0]), np.random.default_rng(0))
    assert batch.counts == {"mlm": 4, "rtd": 8}
    assert [int(row[0]) for row in batch.tokens["masked"]] == [2, 2]
    assert [int(row[-1]) for row in batch.tokens["masked"]] == [3, 3]


def test_a_tokenizer_without_a_mask_is_refused():
    encoder = tiny.encoder()
    encoder.tokenizer.mask_token = None
    with pytest.raises(DataError, match="no mask token"):
        MaskedExamples.from_tokens(encoder, encoder.tokenize(["hello"]))
