"""Passes that are recorded and replayed: batches that are filled up, and the same trainings with and without graphs."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from seeds_worker import given as tried

from dialnb.evaluation.finetuning import FineTuning, fit_classifier
from dialnb.evaluation.metrics import accuracy
from dialnb.examples.masking import MaskedExamples
from dialnb.models import packed as packed_path
from dialnb.models.attention import padded_attention
from dialnb.models.graphs import Graphs, Recorded, can_replay, clear_gradients, filled
from dialnb.tokens import Tokens, pack
from dialnb.training import TrainingSettings, train
from dialnb.training.recipes import RECIPES, fit

RECIPE = FineTuning(1e-3, batch_size=8, epochs=6, patience=99, eval_steps=2, max_length=20)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_filling_keeps_the_batch_and_leaves_few_sizes(lengths):
    batch = pack(Tokens.from_lists([np.arange(length) + 7 for length in lengths]))
    full, n, tokens = filled(batch), len(lengths), sum(lengths)
    assert torch.equal(full.ids[:tokens], batch.ids) and torch.equal(full.starts[: n + 1], batch.starts)
    added = full.starts[n:].diff()
    assert added.min() >= 1 and added.max() <= 16 and full.starts[-1] == len(full.ids) == len(full.positions)
    assert len(full.ids) % max(64, 1 << tokens.bit_length() >> 5) == 0
    assert full.groups == batch.groups and full.types is None


@pytest.fixture
def by_starts(monkeypatch):
    """Attention that asks where sequences start, as on a GPU: fillers belong to no group of equal lengths."""

    def attend(qkv, batch, seed, limit, dropout):
        return padded_attention(qkv, batch.starts, 80, dropout)

    monkeypatch.setattr(packed_path, "attend", attend)


def test_what_is_filled_in_changes_no_state(by_starts):
    encoder = tiny.encoder()
    batch = pack(encoder.tokenize(tiny.sentences(9)))
    for first_only in (False, True):
        with torch.no_grad():
            expected, found = (encoder.eager_states(each, first_only) for each in (batch, filled(batch)))
        assert len(found) > len(expected) and torch.allclose(found[: len(expected)], expected, atol=1e-6)


def test_nothing_is_recorded_without_a_gpu_and_a_clone_has_no_graphs():
    encoder = tiny.encoder()
    assert not can_replay(encoder) and encoder.graphs is None
    encoder.graphs = Graphs(encoder)
    assert encoder.clone().graphs is None


class _Again:
    """Stands in for a graph: what was recorded is computed again when it is replayed."""

    def __init__(self, work) -> None:
        self.replay = work


def record_on_any_device(graphs, batch, first_only, learning, pool):
    """Recorded passes as a GPU gives them, but computed: they read and write the same tensors."""
    parameters, passes = graphs._with_gradient(), []
    states = graphs.encoder.eager_states(batch, first_only).detach().clone()
    gradient = torch.empty_like(states) if learning else None

    def forward():
        with torch.set_grad_enabled(learning):
            passes.append(graphs.encoder.eager_states(batch, first_only))
        states.copy_(passes[-1].detach())

    def backward():
        found = torch.autograd.grad(passes.pop(), parameters, gradient, allow_unused=True)
        for parameter, new in zip(parameters, found, strict=True):
            if new is not None:
                parameter.grad += new

    return Recorded(batch, states, gradient, _Again(forward), _Again(backward))


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_replayed_trains_as_what_is_not(monkeypatch, by_starts, name):
    """Everything but the recording itself: places, fillings, gradients in place, heads that a step does not use."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    recorded, losses = [], []

    def record(*asked):
        recorded.append(record_on_any_device(*asked))
        return recorded[-1]

    monkeypatch.setattr(Graphs, "_record", record)
    steps = {"batch_size": 8, "max_steps": 8, "epochs": 99, "precision": "float32", "learning_rate": 1e-3}
    for replay in (False, True):
        monkeypatch.setattr("dialnb.training.loop.can_replay", lambda _, replay=replay: replay)
        encoder, data, options = tried(name, dropout=0.0)
        settings = replace(RECIPES[name].settings, **steps)
        losses.append(fit(name, encoder, data, settings, options=options).result.curve["loss"].to_numpy())
        assert bool(recorded) == replay
    assert np.allclose(*losses, rtol=1e-4) and np.ptp(losses[0]) > 0.01


def test_nothing_is_recorded_while_another_pass_waits_for_its_way_back(monkeypatch, by_starts):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    encoder = tiny.encoder(dropout=0.0).train()
    encoder.graphs, alone = Graphs(encoder), []

    def record(graphs, *asked):
        alone.append(not graphs.waiting)
        return record_on_any_device(graphs, *asked)

    monkeypatch.setattr(Graphs, "_record", record)
    parts = [encoder.tokenize(tiny.sentences(8)) for _ in range(3)]  # of one shape
    optimiser = torch.optim.SGD(encoder.parameters(), 0.1)
    for _ in range(6):
        sum(encoder.embed(part, "mean").square().sum() for part in parts).backward()
        clear_gradients(optimiser, encoder.graphs)
        assert not encoder.graphs.waiting and not encoder.graphs.taken
    assert alone == [True] * 3, "a place for each of the three passes, one after the other"


def test_a_recording_that_finds_no_memory_is_tried_again_later(monkeypatch, by_starts):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr("dialnb.models.graphs.LATER", 3)
    encoder, before, tries = tiny.encoder(dropout=0.0).train(), [], []

    def record(graphs, *asked):
        tries.append(len(before))
        if len(tries) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return record_on_any_device(graphs, *asked)

    monkeypatch.setattr(Graphs, "_record", record)
    encoder.graphs, part = Graphs(encoder), encoder.tokenize(tiny.sentences(8))
    optimiser = torch.optim.SGD(encoder.parameters(), 0.1)
    for _ in range(8):
        encoder.embed(part, "mean").square().sum().backward()
        clear_gradients(optimiser, encoder.graphs)
        before.append("a pass")
    assert tries == [1, 6] and encoder.graphs.able and len(encoder.graphs.recorded) == 1


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@pytest.fixture
def replays(monkeypatch):
    """The graphs that are replayed, in order."""
    played, play = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (played.append(graph), play(graph)))
    return played


@needs_gpu
def test_a_replayed_fine_tuning_ends_where_one_step_by_step_does(monkeypatch, replays):
    encoder = tiny.encoder(dropout=0.0, hidden_size=64).cuda()
    rows = encoder.tokenize(tiny.sentences(60)), np.arange(60) % 3
    curves = []
    for replay in (True, False):
        monkeypatch.setattr("dialnb.evaluation.finetuning.can_replay", lambda _, replay=replay: replay)
        seen = []

        def score(logits, targets, seen=seen):
            seen.append(logits.copy())
            return accuracy(targets, logits.argmax(1))

        fit_classifier(encoder, rows, rows, score, RECIPE)
        curves.append(np.array(seen))
        assert len(replays) > 50 and len({*map(id, replays)}) < 20
    assert np.abs(curves[0] - curves[1]).max() < 0.02 * np.abs(curves[1]).max()
    assert np.abs(curves[1][-1] - curves[1][0]).max() > 0.1, "it has learned something"


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_replayed_training_has_the_losses_of_one_step_by_step(monkeypatch, replays, dropout):
    """Masked words read the table of word vectors outside of the graphs as well."""
    curves = []
    for replay in (True, False):
        monkeypatch.setattr("dialnb.training.loop.can_replay", lambda _, replay=replay: replay)
        torch.manual_seed(0)
        encoder = tiny.encoder(dropout=dropout, hidden_size=64).cuda()
        objective = tiny.MaskedLanguageModel(encoder)
        examples = MaskedExamples.from_tokens(encoder, encoder.tokenize(tiny.sentences(64)))
        settings = TrainingSettings(16, max_steps=30, epochs=99, learning_rate=1e-3, precision="float32", clip=1.0)
        curves.append(train(encoder, objective, examples, settings, show_progress=False).curve["loss"].to_numpy())
    assert len(replays) > 40
    if dropout:
        assert np.abs(curves[0][-5:].mean() - curves[1][-5:].mean()) < 0.3
    else:
        assert np.abs(curves[0] - curves[1]).max() < 0.01
    assert curves[0][-1] < curves[0][0] - 0.1


@needs_gpu
def test_recordings_of_several_shapes_share_memory():
    encoder = tiny.encoder(dropout=0.0, hidden_size=256).cuda().train()
    encoder.graphs, held, optimiser = Graphs(encoder), [], torch.optim.SGD(encoder.parameters(), 0.1)
    for size in (1600, 1500, 1400, 1300):  # the largest first: whatever comes later finds room in what it needed
        part = encoder.tokenize(tiny.sentences(size))
        for _ in range(3):
            encoder.embed(part, "mean").square().sum().backward()
            clear_gradients(optimiser, encoder.graphs)
        gc.collect()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    assert len(encoder.graphs.recorded) == 4
    assert held[-1] < 1.3 * held[0]


@needs_gpu
def test_passes_that_wait_for_their_way_back_do_not_share_memory():
    encoder = tiny.encoder(dropout=0.0, hidden_size=64).cuda().train()
    parts = [encoder.tokenize(tiny.sentences(8, seed)) for seed in range(4)]
    found, optimiser = [], torch.optim.SGD(encoder.parameters(), 0.1)
    for graphs in (None, Graphs(encoder)):
        for _ in range(6):
            encoder.graphs = graphs
            clear_gradients(optimiser, graphs)
            vectors = [encoder.embed(part, "mean") for part in parts]
            sum((i + 1) * v.square().sum() for i, v in enumerate(vectors)).backward()
            del vectors  # a recording is spoiled by gradients' way to the parameters that an earlier step still holds
        found.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    assert graphs.recorded and not graphs.taken
    assert {key[0] for key in graphs.recorded} == {0, 1, 2, 3}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    encoder.graphs = graphs
    encoder.embed(parts[0])
    assert not graphs.taken, "a pass that nobody goes back through is forgotten"
