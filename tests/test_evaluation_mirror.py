"""Evaluators on published data: sample counts and trivial floors, with vectors that know nothing."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from dialnb.data import load
from dialnb.evaluation import act_tagging_examples, evaluate_retrieval, evaluate_scope, next_act_examples

pytestmark = pytest.mark.mirror


class RandomEncoder:
    """A fixed random vector per text: every evaluator must put it at chance."""

    def encode(self, texts, **settings):
        return np.stack([np.random.default_rng(zlib.crc32(t.encode())).standard_normal(16) for t in texts])


def test_clinc150_has_the_floors_the_paper_should_be_read_against(mirror_store):
    parts = [load("CLINC150", "plus", split=split, store=mirror_store) for split in ("train", "test")]
    frame = evaluate_scope(RandomEncoder(), *parts, dataset="CLINC150", shots=(1,), seeds=(0,))
    floors = frame[frame.protocol == "floor"].pivot(index="threshold", columns="metric", values="value")
    assert floors.loc["always-reject", "OOS-Accuracy"] == pytest.approx(18.2, abs=0.05)
    assert floors.loc["never-reject", "OOS-Accuracy"] == pytest.approx(81.8, abs=0.05)
    assert floors.loc["never-reject", "In-Accuracy"] < 3
    assert frame.set_index("metric").n[["Accuracy", "In-Accuracy", "OOS-Recall"]].unique().tolist() == [
        5500,
        4500,
        1000,
    ]


def test_dstc2_yields_the_printed_numbers_of_diaeval_samples_and_of_dse_test_dialogues(mirror_store):
    dialogues = load("DSTC2", store=mirror_store)
    counts = {split: [d for d in dialogues if d.split == split] for split in ("train", "dev", "test")}
    assert [len(next_act_examples(part)) for part in counts.values()] == [20_130, 6_856, 17_546]
    assert len(act_tagging_examples(counts["test"])) == 1_117


def test_ecd_retrieval_pools_put_random_vectors_at_the_computed_chance(mirror_store):
    queries = load("DialogueCSE", "ecd-select", split="test", store=mirror_store)
    frame = evaluate_retrieval(RandomEncoder(), queries, dataset="ECD")
    values = frame.pivot(index="metric", columns="protocol", values="value")
    assert (frame.n == 4243).all() and (frame.pool == 70).all()
    assert values["floor"]["MAP"] == pytest.approx(46.0, abs=0.05)
    assert (values["paper"] - values["floor"]).abs().max() < 1.5
