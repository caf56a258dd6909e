"""Settings, plan and loop: the schedules of the libraries, every row once, one gradient however it is computed."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dialnb.errors import DialnbError, TrainingError, UnknownName
from dialnb.examples.masking import MaskedExamples
from dialnb.training import TrainingSettings, loop, train
from dialnb.training.loop import _Run
from dialnb.training.objectives import PairObjective, ReplacedTokenDetection
from dialnb.training.plan import BatchPlan

OBJECTIVES = tuple(tiny.objectives(tiny.encoder()))
EXACT = {"precision": "float64", "batch_size": 11, "seed": 5}


pytestmark = pytest.mark.usefixtures("one_thread")


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 2, 3, 4, 7, 10, 100])
def test_one_cycle_is_pytorchs(total):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.Adam([parameter], lr=1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1, total_steps=total)
    ours = TrainingSettings(schedule="onecycle")
    for step in range(total):
        group = optimiser.param_groups[0]
        assert ours.rate_factor(step, total) == pytest.approx(group["lr"], rel=1e-9)
        assert ours.momentum(step, total) == pytest.approx(group["betas"][0], rel=1e-9)
        optimiser.step()
        if step + 1 < total:
            scheduler.step()


@pytest.mark.parametrize("schedule", ["linear", "constant"])
@pytest.mark.parametrize(("total", "warmup"), [(1, 0.0), (10, 0.0), (10, 0.3), (40, 0.05), (7, 0.9)])
def test_warm_up_and_decay_are_hugging_faces(schedule, total, warmup):
    from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    warm = round(warmup * total)
    if schedule == "linear":
        scheduler = get_linear_schedule_with_warmup(optimiser, warm, total)
    else:
        scheduler = get_constant_schedule_with_warmup(optimiser, warm)
    ours = TrainingSettings(schedule=schedule, warmup=warmup)
    for step in range(total):
        assert ours.rate_factor(step, total) == pytest.approx(optimiser.param_groups[0]["lr"])
        assert ours.momentum(step, total) == 0.9
        optimiser.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"schedule": "cosine"}, "'schedule' must be one of constant, linear, onecycle, but is 'cosine'"),
        ({"optimiser": "adm"}, "did you mean adam"),
        ({"precision": "float8"}, "'precision' must be one of"),
        ({"batch_size": 0}, "'batch_size' must be a whole number, at least 1"),
        ({"batch_size": True}, "'batch_size' must be a whole number"),
        ({"epochs": -1}, "'epochs' must be a number, above 0"),
        ({"learning_rate": math.nan}, "'learning_rate' must be a number, above 0"),
        ({"head_learning_rate": 0.0}, "'head_learning_rate' must be a number, above 0"),
        ({"max_steps": 0}, "'max_steps' must be a whole number, at least 1"),
        ({"chunk": 0}, "'chunk' must be a whole number, at least 1"),
        ({"clip": 0.0}, "'clip' must be a number, above 0"),
        ({"checkpoint_every": 0}, "'checkpoint_every' must be a whole number, at least 1"),
        ({"warmup": 1.0}, "'warmup' must be a number, at least 0, below 1"),
        ({"weight_decay": -0.1}, "'weight_decay' must be a number, at least 0"),
        ({"freeze": -1}, "'freeze' must be a whole number, at least 0, at most 2147483647, or one of half"),
        ({"seed": -1}, "'seed' must be a whole number, at least 0, at most 2147483647"),
        ({"seed": 10**20}, "'seed' must be a whole number, at least 0, at most 2147483647"),
        ({"learning_rate": math.inf}, "'learning_rate' must be a number, above 0"),
        ({"weight_decay": math.inf}, "'weight_decay' must be a number, at least 0"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(wrong, says):
    with pytest.raises(DialnbError, match=says):
        TrainingSettings(**wrong)


@pytest.mark.parametrize(
    ("epochs", "max_steps", "steps"), [(1, None, 100), (0.07, None, 7), (0.001, None, 1), (3, 250, 250), (2, 900, 200)]
)
def test_steps_follow_from_epochs_and_limit(epochs, max_steps, steps):
    assert TrainingSettings(epochs=epochs, max_steps=max_steps).total_steps(100) == steps


# --- plan -------------------------------------------------------------------------------------------------------------


@given(st.integers(2, 60), st.integers(2, 20), st.integers(0, 9), st.booleans())
def test_every_row_comes_once_per_epoch(size, batch_size, seed, drop_last):
    if drop_last and size < batch_size:
        with pytest.raises(TrainingError, match="nothing to train on"):
            BatchPlan(size, batch_size, seed, drop_last=True)
        return
    plan = BatchPlan(size, batch_size, seed, drop_last=drop_last)
    for epoch in range(2):
        batches = [plan.rows(epoch * plan.steps_per_epoch + i) for i in range(plan.steps_per_epoch)]
        seen = np.concatenate(batches)
        assert len(set(seen)) == len(seen) and set(seen) <= set(range(size))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        rest = size % batch_size
        assert size - len(seen) == (rest if drop_last or rest == 1 else 0), "only a batch of one is left out"


@given(st.lists(st.integers(0, 17), min_size=1, max_size=4).filter(lambda s: max(s) > 1), st.integers(2, 5))
def test_groups_never_mix_and_take_turns(sizes, batch_size):
    rows = np.random.default_rng(0).permutation(sum(sizes))
    groups = np.split(rows, np.cumsum(sizes)[:-1])
    plan = BatchPlan(sum(sizes), batch_size, 1, groups)
    owner = {int(row): g for g, group in enumerate(groups) for row in group}
    batches = [plan.rows(step) for step in range(plan.steps_per_epoch)]
    owners = [{owner[int(row)] for row in batch} for batch in batches]
    assert all(len(own) == 1 for own in owners)
    order = [own.pop() for own in owners]
    left = [sum(o == g for o in order) for g in range(len(groups))]
    for turn in range(max(left)):  # as long as a group has batches, it gets one in every turn
        expected = [g for g in range(len(groups)) if left[g] > turn]
        assert order[: len(expected)] == expected
        order = order[len(expected) :]
    seen = np.concatenate(batches)
    assert len(set(seen.tolist())) == len(seen)
    assert sum(sizes) - len(seen) == sum(n % batch_size == 1 for n in sizes)


def test_a_plan_is_a_function_of_seed_and_step():
    plan, same, other = BatchPlan(50, 8, 3), BatchPlan(50, 8, 3), BatchPlan(50, 8, 4)
    steps = range(3 * plan.steps_per_epoch)
    forward = [plan.rows(step).tolist() for step in steps]
    backward = [same.rows(step).tolist() for step in reversed(steps)][::-1]
    assert forward == backward
    assert forward != [other.rows(step).tolist() for step in steps]
    n = plan.steps_per_epoch
    assert forward[:n] != forward[n : 2 * n] != forward[2 * n :]


def test_one_example_is_nothing_to_train_on():
    with pytest.raises(TrainingError, match="at least 2 examples"):
        BatchPlan(1, 8, 0)


# --- one gradient -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_gradient_cache_gives_the_gradient_of_the_whole_batch(name, chunk):
    encoder = tiny.encoder(dropout=0.0)
    objective, examples = tiny.objectives(encoder)[name], tiny.Everything(encoder, 14)
    loss, whole = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT))
    cached_loss, cached = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT, chunk=chunk))
    assert cached_loss == pytest.approx(loss, rel=1e-12)
    assert all(g.dtype == torch.float64 for g in whole.values())
    assert tiny.relative_error(cached, whole) < 1e-9


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_is_that_of_the_loss_written_down_plainly(name):
    encoder = tiny.encoder(dropout=0.0)
    objective, examples = tiny.objectives(encoder)[name], tiny.Everything(encoder, 14)
    loss, found = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT))
    batch = examples.batch(BatchPlan(14, 11, 5).rows(0), None)
    encoder.zero_grad(), objective.zero_grad()
    vectors, terms = objective.embed(encoder, batch), objective.terms(encoder, batch)
    plain = sum(terms.values()) + (objective.loss(vectors) if vectors else 0)
    plain.backward()
    named = [*encoder.named_parameters("encoder"), *objective.named_parameters("objective")]
    assert plain.item() == pytest.approx(loss, rel=1e-12)
    assert tiny.relative_error(found, {n: p.grad for n, p in named if p.grad is not None}) < 1e-12


@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_passes_of_the_gradient_cache_see_the_same_dropout(name):
    encoder = tiny.encoder(dropout=0.3)
    objective, examples = tiny.objectives(encoder)[name], tiny.Everything(encoder, 14)
    settings = TrainingSettings(**EXACT, chunk=3)
    _, cached = tiny.gradient(encoder, objective, examples, settings)
    run = _Run(encoder, objective, examples, settings, None, None, "test", False)
    run._enter_training()
    encoder.zero_grad(), objective.zero_grad()
    parts, averaged, chunks = [], 0.0, run.build(0)
    for i, chunk in enumerate(chunks):  # the same masks, all in one graph
        run.seed(0, i)
        parts.append(objective.embed(encoder, chunk))
        total = sum(c.counts["mlm"] for c in chunks)
        averaged += sum(v * chunk.counts[k] / total for k, v in objective.terms(encoder, chunk).items())
    whole = {k: torch.cat([part[k] for part in parts]) for k in parts[0]}
    (averaged + (objective.loss(whole) if whole else 0)).backward()
    named = [*encoder.named_parameters("encoder"), *objective.named_parameters("objective")]
    assert tiny.relative_error(cached, {n: p.grad for n, p in named if p.grad is not None}) < 1e-9


def test_dropout_masks_differ_between_steps_chunks_and_views():
    encoder = tiny.encoder(dropout=0.3)
    examples = tiny.Everything(encoder, 8)
    run = _Run(encoder, tiny.Pairs(encoder.dim), examples, TrainingSettings(), None, None, "test", False)
    encoder.train()
    twice = encoder.tokenize(["book a table"] * 2)
    views = []
    for step, chunk in ((0, 0), (0, 1), (1, 0), (0, 0)):
        run.seed(step, chunk)
        views.append(encoder.embed(twice).detach())
    assert torch.equal(views[0], views[3])
    distinct = torch.cat(views[:3])
    assert torch.pdist(distinct).min() > 1e-3


def test_chunks_without_any_masked_word_do_no_harm():
    encoder = tiny.encoder(dropout=0.0)
    examples = tiny.Everything(encoder, 14)
    empty = examples.batch

    def sparse(rows, rng):  # only the first row keeps its masks
        batch = empty(rows, rng)
        kept = rows[batch.arrays["masked_sequence"]] == BatchPlan(14, 11, 5).rows(0)[0]
        masked = {k: v[kept] for k, v in batch.arrays.items() if k.startswith("masked")}
        return type(batch)(batch.size, batch.tokens, batch.arrays | masked, {"mlm": int(kept.sum())})

    examples.batch = sparse
    objective = tiny.objectives(encoder)["mlm"]
    _, whole = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT))
    _, cached = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT, chunk=1))
    assert tiny.relative_error(cached, whole) < 1e-9


# --- the loop ---------------------------------------------------------------------------------------------------------


def run(objective="sum", encoder=None, examples=None, on_epoch=None, **options):
    encoder = encoder or tiny.encoder()
    examples = examples or tiny.Everything(encoder, 26, redrawn=True)
    objective = tiny.objectives(encoder)[objective] if isinstance(objective, str) else objective
    settings = TrainingSettings(**{"batch_size": 8, "learning_rate": 1e-3, "epochs": 2} | options)
    result = train(encoder, objective, examples, settings, on_epoch=on_epoch, show_progress=False)
    return encoder, objective, result


def state(*modules):
    return {f"{i}.{n}": t.clone() for i, module in enumerate(modules) for n, t in module.state_dict().items()}


@pytest.mark.parametrize("name", ["hard_negative", "mlm"])
def test_what_can_be_learnt_is_learnt(name):
    encoder = tiny.encoder(dropout=0.0)
    _, _, result = run(name, encoder, tiny.Everything(encoder, 26), epochs=40, batch_size=13)
    assert result.curve.loss.iloc[-1] < 0.1 * result.curve.loss.iloc[0]


def test_a_result_says_what_was_done():
    _, _, result = run("hard_negative")
    assert result.steps == 8 and result.resumed_at == 0
    assert result.curve.step.tolist() == list(range(1, 9)) and result.curve.epoch.iloc[-1] == 2
    assert result.examples_per_second > 0 and result.tokens_per_second > 0
    assert result.facts["objective"]["loss"] == "hard_negative" and result.facts["settings"]["batch_size"] == 8
    assert result.facts["determinism"] == "bit-identical with 1 threads" and result.facts["processes"] == 1


@pytest.mark.parametrize("chunk", [None, 3])
def test_one_seed_gives_the_same_bits_twice(chunk):
    first, second, other = (run(chunk=chunk, seed=seed) for seed in (1, 1, 2))
    a, b, c = (state(encoder, objective) for encoder, objective, _ in (first, second, other))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert first[2].curve.equals(second[2].curve)
    assert any(not torch.equal(a[k], c[k]) for k in a)


def test_what_the_caller_does_with_random_numbers_does_not_matter():
    plain, _, _ = run()
    noisy, _, _ = run(on_epoch=lambda *_: (torch.rand(3), np.random.seed(0)))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), noisy.parameters(), strict=True))


def test_the_rate_and_momentum_of_every_step_reach_the_optimiser():
    settings = {"schedule": "onecycle", "epochs": 3, "head_learning_rate": 0.1}
    encoder = tiny.encoder(dropout=0.0)
    examples = tiny.Everything(encoder, 26)
    _, objective, result = run("hard_negative", encoder, examples, **settings, precision="float64")
    reference = tiny.encoder(dropout=0.0).double()
    heads = tiny.objectives(reference)["hard_negative"].double()
    optimiser = torch.optim.Adam([{"params": list(reference.parameters())}, {"params": list(heads.parameters())}])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimiser, [1e-3, 0.1], total_steps=12)
    for step, rate in enumerate(result.curve.rate):
        assert rate == pytest.approx(optimiser.param_groups[0]["lr"])
        batch = examples.batch(BatchPlan(26, 8, 1).rows(step), None)
        optimiser.zero_grad()
        heads.loss(heads.embed(reference, batch)).backward()
        optimiser.step()
        scheduler.step()
    np.testing.assert_allclose(encoder.encode(tiny.TEXTS), reference.encode(tiny.TEXTS), atol=1e-5)
    torch.testing.assert_close(objective.heads["0"][2].weight, heads.heads["0"][2].weight, rtol=1e-6, atol=1e-8)


def test_a_separate_rate_moves_the_heads_alone_further():
    def distance(**options):
        encoder = tiny.encoder()
        objective = tiny.objectives(encoder)["hard_negative"]
        before = state(encoder, objective)
        run(objective, encoder, max_steps=1, **options)
        moved = {k: float((v - before[k]).abs().max()) for k, v in state(encoder, objective).items()}
        return max(v for k, v in moved.items() if k[0] == "0"), max(v for k, v in moved.items() if k[0] == "1")

    body, head = distance(learning_rate=1e-4)
    assert body == pytest.approx(1e-4, rel=0.05) and head == pytest.approx(1e-4, rel=0.05)
    body, head = distance(learning_rate=1e-4, head_learning_rate=1e-2)
    assert body == pytest.approx(1e-4, rel=0.05) and head == pytest.approx(1e-2, rel=0.05)


def test_weight_decay_spares_vectors():
    encoder = tiny.encoder()
    objective = tiny.objectives(encoder)["hard_negative"]
    from dialnb.training.optimiser import make_optimiser

    optimiser = make_optimiser(encoder, objective, TrainingSettings(weight_decay=0.01, optimiser="adamw"))
    assert isinstance(optimiser, torch.optim.AdamW)
    for group in optimiser.param_groups:
        assert {p.dim() > 1 for p in group["params"]} == {group["weight_decay"] == 0.01}
    trained = sum(len(group["params"]) for group in optimiser.param_groups)
    assert trained == len([*encoder.parameters(), *objective.parameters()])


def test_clipping_bounds_the_gradient():
    norms = []

    class Watched(tiny.Pairs):
        def loss(self, vectors):
            return 1e4 * super().loss(vectors)

    encoder = tiny.encoder()
    objective = Watched(encoder.dim)
    examples, settings = tiny.Everything(encoder, 8), TrainingSettings(batch_size=8, clip=1.0)
    loop = _Run(encoder, objective, examples, settings, None, None, "test", False)
    loop.backward(0, loop.build(0))

    def norm(*_):
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in loop.parameters if p.grad is not None]).item())

    norm()
    loop.optimiser.register_step_pre_hook(norm)
    loop.update(0)
    assert norms[0] > 10 and norms[1] == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("family", ["bert", "electra", "distilbert", "mpnet", "t5"])
def test_frozen_layers_stay_as_they_were_and_thaw_afterwards(family):
    encoder = tiny.encoder(family)
    before = {n: p.detach().clone() for n, p in encoder.named_parameters()}
    run("plain", encoder, freeze=1, max_steps=2)
    moved = {n for n, p in encoder.named_parameters() if not torch.equal(p, before[n])}
    frozen = {n for n in before if re.search(r"embed|shared|(encoder|transformer)\.(layer|block)\.0\.", n)}
    assert len(frozen) > 5 and not moved & frozen
    assert [n for n in moved if re.search(r"(encoder|transformer)\.(layer|block)\.1\.", n)]
    assert all(p.requires_grad for p in encoder.parameters()), "the next run starts unfrozen"
    with pytest.raises(TrainingError, match="cannot freeze 3 layers"):
        run("plain", encoder, freeze=3)


@pytest.mark.filterwarnings("ignore:TF32")
@torch.backends.mkldnn.flags(enabled=False)  # on a CPU without bfloat16 it would switch itself off for good
def test_the_encoder_comes_back_in_its_own_mode_and_precision():
    seen = []
    encoder = tiny.encoder(dropout=0.3)

    class Watched(tiny.Pairs):
        def embed(self, encoder, batch):
            seen.append(modes(encoder))
            return super().embed(encoder, batch)

    def modes(encoder):
        return encoder.training, encoder.dtype, encoder.attention_dropout

    run(Watched(encoder.dim), encoder, precision="bfloat16", attention_dropout=False, epochs=1,
        on_epoch=lambda _, encoder: seen.append(modes(encoder)))  # fmt: skip
    assert set(seen[:-1]) == {(True, torch.bfloat16, False)}
    assert seen[-1] == (False, None, True), "evaluations on the way run sober and in full precision"
    assert modes(encoder) == (False, None, True)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}, "master weights stay wide"


def test_epochs_are_announced_after_the_whole_epoch_only():
    epochs = []
    run(epochs=2.5, on_epoch=lambda epoch, encoder: epochs.append((epoch, encoder.encode(["a"]).shape)))
    assert epochs == [(1, (1, 32)), (2, (1, 32))]


def test_those_who_watch_are_called_after_so_many_steps():
    steps = []
    run(max_steps=7, epochs=9, evaluate_every=3, on_epoch=lambda step, _: steps.append(step))
    assert steps == [3, 6]


def test_a_training_stays_where_its_encoder_is(monkeypatch):
    """The device of the first training in a process is what Accelerate says from then on."""
    monkeypatch.setattr("accelerate.Accelerator.device", torch.device("meta"))
    assert run(max_steps=1)[0].device.type == "cpu"


def test_drop_last_leaves_the_incomplete_batch_out():
    assert run(epochs=1)[2].steps == 4
    assert run(epochs=1, drop_last=True)[2].steps == 3


def test_window_sizes_have_heads_of_their_own():
    encoder = tiny.encoder()
    examples = tiny.Everything(encoder, 24, windows=(1, 3))
    objective = PairObjective(encoder.dim, "weighted_symmetric", "linear", windows=(1, 3, 5))
    before = state(objective)
    run(objective, encoder, examples, epochs=1)
    moved = {k for k, v in state(objective).items() if not torch.equal(v, before[k])}
    assert moved == {f"0.heads.{w}.{n}" for w in (1, 3) for n in ("weight", "bias")}


def test_one_head_serves_all_windows_when_none_are_named():
    encoder = tiny.encoder()
    examples = tiny.Everything(encoder, 24, windows=(1, 3))
    run(PairObjective(encoder.dim, "weighted_symmetric"), encoder, examples, epochs=1)


def electra():
    """A discriminator, and a generator that shares its word table."""
    torch.manual_seed(1)
    encoder, small = tiny.encoder("electra"), tiny.encoder("electra", seed=8, num_hidden_layers=1)
    small.transformer.embeddings.word_embeddings = encoder.transformer.embeddings.word_embeddings
    rows = encoder.tokenize(tiny.sentences(26))
    return encoder, ReplacedTokenDetection(encoder, small), MaskedExamples.from_tokens(encoder, rows)


def test_the_generator_draws_words_by_their_probability():
    encoder, objective, examples = electra()
    batch = examples.batch(np.arange(26), np.random.default_rng(0))
    batch.arrays["masked_label"][:] = 7
    likely = torch.full((encoder.tokenizer.vocab_size,), -20.0)
    likely[[7, 8]] = torch.tensor([0.25, 0.75]).log()
    objective.word_head.forward = lambda states, words: likely.expand(len(states), -1)
    torch.manual_seed(1)
    shares = [objective._detect(encoder, batch)[-1].sum() / len(batch.arrays["masked_label"]) for _ in range(60)]
    assert np.mean(shares) == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize("bound, times", [(10_000, 1), (10, 0)])
def test_steps_of_few_tokens_go_first_on_a_gpu_whatever_their_number_of_examples(monkeypatch, bound, times):
    entered = []
    monkeypatch.setattr(loop, "SMALL", bound)
    monkeypatch.setattr(loop, "going_first", lambda encoder: entered.append(encoder) or nullcontext())
    train(*electra(), TrainingSettings(batch_size=8, max_steps=3), show_progress=False)
    assert len(entered) == times


def test_a_shared_word_table_is_trained_clipped_and_saved_once(tmp_path):
    encoder, objective, examples = electra()
    run = _Run(encoder, objective, examples, TrainingSettings(clip=1.0), None, None, "test", False)
    assert len(set(map(id, run.parameters))) == len(run.parameters)
    assert sum(len(g["params"]) for g in run.optimiser.param_groups) == len(run.parameters)
    settings = TrainingSettings(batch_size=8, learning_rate=1e-3, clip=1.0, epochs=2, checkpoint_every=1)
    whole = train(encoder, objective, examples, settings, show_progress=False)

    def stop(*_):
        raise InterruptedError

    again, heads, rows = electra()
    with pytest.raises(InterruptedError):
        train(again, heads, rows, settings, tmp_path, on_epoch=stop, show_progress=False)
    again, heads, rows = electra()
    result = train(again, heads, rows, settings, tmp_path, show_progress=False)
    assert result.resumed_at == 4 and result.curve.equals(whole.curve)
    expected, found = state(encoder, objective), state(again, heads)
    assert all(torch.equal(found[k], expected[k]) for k in expected)


def test_wide_weights_do_not_widen_the_loss():
    encoder = tiny.encoder()
    objective = tiny.objectives(encoder)["weighted_symmetric"]
    batch = tiny.Everything(encoder, 8).batch(np.arange(8), None)
    assert batch.arrays["weights"].dtype == np.float64
    assert objective.loss(objective.embed(encoder, batch)).dtype == torch.float32


@pytest.mark.parametrize("option", [{"loss": "triplet"}, {"head": "mlp"}])
def test_an_unknown_loss_or_head_is_named(option):
    with pytest.raises(UnknownName, match=next(iter(option.values()))):
        PairObjective(32, **option)


@hypothesis_settings(max_examples=5)
@given(st.integers(1, 7))
def test_any_chunk_size_gives_the_same_loss(chunk):
    encoder = tiny.encoder(dropout=0.0)
    examples = tiny.Everything(encoder, 14)
    values = [
        tiny.gradient(encoder, tiny.objectives(encoder)["sum"], examples, TrainingSettings(**EXACT, chunk=c))[0]
        for c in (None, chunk)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
