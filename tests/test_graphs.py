"""Passes that are recorded and replayed: batches that are filled up, and the same trainings with and without graphs."""

from __future__ import annotations

import gc
import warnings
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import MagicMock

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
from dialnb.training.pretrain import replaced_token_detection
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
            expected, found = (encoder.forward(each, first_only) for each in (batch, filled(batch)))
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
    parameters, passes = [graphs.parameters[name] for name in graphs.gradients()], []
    states = graphs.encoder.forward(batch, first_only).detach().clone()
    gradient = torch.empty_like(states) if learning else None

    def forward():
        with torch.set_grad_enabled(learning):
            passes.append(graphs.encoder.forward(batch, first_only))
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


def test_a_recording_that_finds_no_memory_is_tried_again_later(monkeypatch, by_starts):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr("dialnb.models.graphs.LATER", 3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", [MagicMock()])
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
    assert tries == [1, 6] and len(encoder.graphs.recorded) == 1


def test_a_recording_adds_to_the_gradients_by_leaves_of_its_own(monkeypatch, by_starts):
    """All of it but the GPU: the same gradients, although another pass waits for its way back to the parameters."""
    monkeypatch.setattr("dialnb.models.graphs._capturing", lambda graph, pool: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    for name in ("CUDAGraph", "Stream", "current_stream", "synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    encoder = tiny.encoder(dropout=0.0).train()
    batch, learned = filled(pack(encoder.tokenize(tiny.sentences(8)))), list(encoder.transformer.parameters())
    encoder.forward(batch, False).sum().backward()
    expected = [None if p.grad is None else 2 * p.grad for p in learned]
    waits, reached = encoder.forward(batch, False), []
    for parameter in learned:
        parameter.register_hook(reached.append)
    monkeypatch.setattr(torch, "empty_like", torch.ones_like)  # the gradient that a replay would copy there
    recorded = Graphs(encoder)._record(batch, False, True, (0, 0))
    assert torch.equal(recorded.states, waits) and not reached
    for parameter, gradient in zip(learned, expected, strict=True):
        assert gradient is None or torch.allclose(parameter.grad, gradient, atol=1e-5)


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
def test_replaced_tokens_are_recorded_beside_a_generator_that_shares_the_words(replays):
    """Its pass waits for its way back to the same table of words, on another stream than a recording's."""
    encoder = tiny.encoder(hidden_size=64).cuda()
    objective = replaced_token_detection(encoder)
    examples = MaskedExamples.from_tokens(encoder, encoder.tokenize(tiny.sentences(64)))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="some passes go on without CUDA graphs")
        train(encoder, objective, examples, TrainingSettings(16, max_steps=12, epochs=99), show_progress=False)
    assert replays


@needs_gpu
def test_a_recording_that_fails_leaves_the_training_as_it_is(monkeypatch):
    encoder = tiny.encoder(dropout=0.1, hidden_size=64).cuda().train()
    part = encoder.tokenize(tiny.sentences(8))
    eager = packed_path.packed_forward

    def looks(transformer, packed, *options):
        torch.cuda.is_current_stream_capturing() and packed.ids.sum().item()  # not allowed in a recording
        return eager(transformer, packed, *options)

    monkeypatch.setattr(packed_path, "packed_forward", looks)
    encoder.graphs = Graphs(encoder)
    with pytest.warns(UserWarning, match="go on without CUDA graphs"):
        for _ in range(4):
            encoder.embed(part, "mean").square().sum().backward()
    assert not encoder.graphs.recorded and all(
        p.grad.isfinite().all() for p in encoder.graphs.parameters.values() if p.grad is not None
    )


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
        found.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    assert graphs.recorded and not graphs.taken
    assert {key[0] for key in graphs.recorded} == {0, 1, 2, 3}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    encoder.graphs = graphs
    encoder.embed(parts[0])
    assert not graphs.taken, "a pass that nobody goes back through is forgotten"
