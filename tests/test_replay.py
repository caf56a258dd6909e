"""Steps that are recorded and replayed: batches that are filled up, and the same training with and without graphs."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.evaluation.finetuning import FineTuning, fit_classifier
from dialnb.evaluation.metrics import accuracy
from dialnb.models import replay
from dialnb.models.replay import Replay, filled, replayed
from dialnb.tokens import Tokens, pack

RECIPE = FineTuning(1e-3, batch_size=8, epochs=6, patience=99, eval_steps=2, max_length=20)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_filling_keeps_the_sequences_and_leaves_few_sizes(lengths):
    rows = [np.arange(length) + 7 for length in lengths]
    full = filled(Tokens.from_lists(rows))
    assert all(np.array_equal(row, kept) for row, kept in zip(rows, full, strict=False))
    added = full.lengths[len(rows) :]
    assert added.min() >= 1 and added.max() <= 16
    unit = max(64, 1 << sum(lengths).bit_length() >> 3)
    assert len(full.ids) % unit == 0, "at most eight sizes for every power of two"


def test_what_is_filled_in_changes_no_vector():
    encoder = tiny.encoder()
    tokens = encoder.tokenize(tiny.sentences(9))
    with torch.no_grad():
        expected, found = encoder.embed(tokens), encoder.embed(pack(filled(tokens)))
    assert len(found) > 9 and torch.allclose(found[:9], expected, atol=1e-6)


def test_without_a_gpu_a_step_gets_its_lists_as_they_are():
    encoder, asked = tiny.encoder(), []
    rows = [[2, 5, 3], [2, 3]]
    Replay(lambda *given: asked.append(given), encoder)([rows], np.array([4, 1]))
    assert asked[0][0] == rows and asked[0][1].tolist() == [4, 1]
    assert torch.equal(replayed(encoder.embed, encoder)(rows), encoder.embed(rows))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_replayed_training_ends_where_one_step_by_step_does(monkeypatch):
    replays = []
    play = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replays.append(graph), play(graph)))
    encoder = tiny.encoder(dropout=0.0, hidden_size=64).cuda()
    rows = encoder.tokenize(tiny.sentences(60)), np.arange(60) % 3
    curves = []
    for warm_up in (replay.WARM_UP, 10**9):
        monkeypatch.setattr(replay, "WARM_UP", warm_up)
        seen = []

        def score(logits, targets, seen=seen):
            seen.append(logits.copy())
            return accuracy(targets, logits.argmax(1))

        fit_classifier(encoder, rows, rows, score, RECIPE)
        curves.append(np.array(seen))
        assert (len(replays) > 20) and len({*map(id, replays)}) < 10
    assert np.abs(curves[0] - curves[1]).max() < 1e-3 * np.abs(curves[1]).max() + 1e-4
    assert np.abs(curves[1][-1] - curves[1][0]).max() > 0.1, "it has learned something"
