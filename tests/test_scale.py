"""Corpora that memory cannot hold: their order is computed, their pairs lie on disk; and the model of many GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import Process

from benchmarks import scale
from dialnb.tokens import Tokens
from dialnb.training import plan as plans
from dialnb.training.plan import BatchPlan

FEW, MANY = 2_500_000, 7_500_000


@pytest.fixture
def computed(monkeypatch):
    """Every order is computed, however few rows there are."""
    monkeypatch.setattr(plans, "STORED", 0)


@given(st.integers(2, 3000), st.integers(0, 9))
def test_a_computed_order_has_every_row_once(size, seed):
    side = 1 << -(-size.bit_length() // 2)
    tables = np.random.default_rng(seed).integers(side, size=(4, side))
    assert sorted(plans.computed_order(range(size), size, tables)) == list(range(size))


@pytest.mark.usefixtures("computed")
def test_a_plan_with_a_computed_order_is_a_function_of_seed_and_step():
    plan, same, other = BatchPlan(1000, 64, 3), BatchPlan(1000, 64, 3), BatchPlan(1000, 64, 4)
    steps = range(2 * plan.steps_per_epoch)
    forward = [plan.rows(step).tolist() for step in steps]
    assert forward == [same.rows(step).tolist() for step in reversed(steps)][::-1]
    assert forward != [other.rows(step).tolist() for step in steps]
    epochs = [[row for batch in forward[start : start + 16] for row in batch] for start in (0, 16)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1]) == list(range(1000))


@pytest.mark.usefixtures("computed")
def test_a_computed_order_mixes_like_a_shuffle():
    size = 50_000
    plan = BatchPlan(size, 500, 1)
    rows = np.concatenate([plan.rows(step) for step in range(plan.steps_per_epoch)])
    assert abs(np.corrcoef(np.arange(size), rows)[0, 1]) < 0.02
    steps = np.abs(np.diff(rows))
    assert steps.mean() == pytest.approx(size / 3, rel=0.02), "neighbours in the order are strangers in the corpus"
    halves = [(plan.rows(step) < size / 2).mean() for step in range(plan.steps_per_epoch)]
    assert np.std(halves) == pytest.approx((0.25 / 500) ** 0.5, rel=0.4), "batches are as mixed as chance has it"


def test_the_order_of_fewer_rows_is_the_stored_shuffle_that_records_were_made_with():
    shuffled = np.random.default_rng([7, 24, 1]).permutation(np.arange(100))
    plan = BatchPlan(100, 10, 7)
    assert np.concatenate([plan.rows(step) for step in range(10, 20)]).tolist() == shuffled.tolist()


@pytest.mark.usefixtures("computed")
def test_groups_are_never_mixed_by_a_computed_order():
    plan = BatchPlan(40, 5, 1, [np.arange(20), np.arange(20, 40)])
    assert all(len(set(plan.rows(step) // 20)) == 1 for step in range(plan.steps_per_epoch))


def test_pairs_on_disk_are_the_pairs_of_all_parts(tmp_path):
    parts = list(scale.generated(1000, block=300))
    found = scale.pairs_on_disk(iter(parts), tmp_path / "pairs")
    assert len(found) == 1000
    whole = Tokens.concatenate([part.tokens for part in parts])
    assert [row.tolist() for row in found.tokens] == [row.tolist() for row in whole]
    for number in (0, 299, 300, 999):
        part, row = parts[number // 300], number % 300
        expected = [part.tokens[int(side[row])].tolist() for side in (part.first, part.second)]
        assert [text.tolist() for text in found.batch(np.array([number]), None).tokens["pair"]] == expected


def measured(folder: Path, how: str) -> dict:
    """What a small training in a process of its own says of its memory."""
    process = Process(folder.with_suffix(f".{how}"), scale.main, ["--measure", "corpus", str(folder), how])
    assert process.wait() == 0, process.said()
    return json.loads(process.said().splitlines()[-1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc, which only Linux has")
def test_the_memory_of_a_training_does_not_grow_with_the_pairs_on_disk(tmp_path):
    for size in (FEW, MANY):
        scale.pairs_on_disk(scale.generated(size), tmp_path / str(size))
    few, many = (measured(tmp_path / str(size), "mapped") for size in (FEW, MANY))
    loaded = measured(tmp_path / str(MANY), "whole")
    assert (few["pairs"], many["pairs"]) == (FEW, MANY)
    # The same run differs by up to 17 MB, 3.4 bytes for each of these pairs; a stored order takes 8 at the very least.
    assert (many["grown_mb"] - few["grown_mb"]) * 1e6 / (MANY - FEW) < 6, "bytes for every further pair"
    assert loaded["grown_mb"] - many["grown_mb"] > 40 * MANY / 1e6, "what is loaded is seen by the same measurement"


def test_every_gpu_receives_the_vectors_of_the_whole_batch_and_sums_every_weight():
    gpus, assumed = scale.NETWORKS["8 GPUs, NVLink"]
    found = scale.step_of(gpus, 128, 20_000, assumed)
    assert found["gathered_bytes"] == 2 * 1024 * 128 * 4
    assert found["summed_bytes"] == 4 * scale.PARAMETERS
    parts = sum(found[part] for part in ("compute_ms", "wire_ms", "loss_ms", "reduce_ms"))
    assert found["pairs_per_s"] == pytest.approx(1024 / parts * 1e3)
    assert found["compute_ms"] == pytest.approx(6.4)


@pytest.mark.parametrize("network", scale.NETWORKS)
def test_gathering_costs_a_tenth_at_the_batch_that_is_named(network):
    gpus, assumed = scale.NETWORKS[network]
    rate = scale.recorded_rate()
    limit = scale.costly_batch(gpus, rate, assumed)
    shares = [scale.step_of(gpus, each, rate, assumed)["gathering_share"] for each in (limit, 2 * limit, limit - 1)]
    assert scale.SHARE <= shares[0] < shares[1] and shares[2] < scale.SHARE


def test_one_gpu_gathers_nothing():
    found = scale.step_of(1, 1024, 20_000, scale.Assumed(1e9, 0.0))
    assert found["gathering_share"] == found["reduce_ms"] == 0 and found["efficiency"] == 1
