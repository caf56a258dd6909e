"""Same seed, same model: whatever the process did before, in whatever order, killed half-way or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from dialnb.seeding import seeded
from dialnb.training.pretrain import SPECIAL, train_vocabulary
from dialnb.training.recipes import RECIPES

WORKER = Path(__file__).with_name("seeds_worker.py")


def trained(folder: Path, mode: str) -> dict[str, str]:
    """The hash of every training of a fresh process, by name."""
    folder.mkdir()
    hashing = {"fresh": "1", "worn": "2"}[mode]  # sets of texts come in another order in each
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": hashing}
    environment["PYTHONPATH"] = str(WORKER.parent.parent)
    command = [sys.executable, str(WORKER), str(folder), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 1)


def test_every_training_gives_the_same_bits_in_every_process(tmp_path):
    fresh, worn = (trained(tmp_path / mode, mode) for mode in ("fresh", "worn"))
    assert fresh.keys() >= {*RECIPES, "pretraining electra", "fine-tuning", "UMS on replies"}
    assert [name for name in fresh if fresh[name] != worn[name]] == []
    assert len({*fresh.values()}) > 30, "hashes tell trainings apart"


def test_a_seeded_block_draws_from_its_seed_and_leaves_no_trace():
    torch.manual_seed(5)
    expected = torch.randn(2)
    torch.manual_seed(5)
    draws = []
    for _ in range(2):
        with seeded(3):
            draws.append(torch.randn(4))
    assert torch.equal(*draws) and torch.equal(torch.randn(2), expected)
    with seeded(4):
        assert not np.array_equal(torch.randn(4), draws[0])


def test_a_vocabulary_has_the_usual_special_tokens_and_no_others():
    """Its letters are numbered before it is trained, as special tokens are; afterwards they are none."""
    pieces = train_vocabulary(["book a table", "book the tables", "订 酒店", "a ##b"], 60)
    assert pieces.convert_ids_to_tokens(range(5)) == list(SPECIAL) and {*pieces.all_special_tokens} == {*SPECIAL}
    assert pieces.tokenize("Book 酒店 ##b") == ["book", "酒", "店", "#", "#", "b"]
    assert pieces("a table").input_ids[0] == 2 and pieces.decode(pieces("a table").input_ids[1:-1]) == "a table"
    rare = train_vocabulary(["abc"] * 3 + ["xyz", "zyx"], 20).get_vocab()
    assert {"a", "b", "c", "x", "y", "z"} <= rare.keys() and "##z" in rare
