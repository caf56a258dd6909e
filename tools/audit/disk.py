"""Checkpoints, cached tokens and stored results of stages that are not what was written."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb.models.encoder import load_encoder
from dialnb.runs.stages import StageCache, StageRecord
from dialnb.tokens import Tokens
from dialnb.training.checkpoint import load_checkpoint, save_checkpoint
from tools.audit.encoders import MINI, TEXTS, Tensors
from tools.audit.outcomes import AGAIN, SOUND, WRONG, Family, Tried, tried


def damages(file: Path) -> Iterator[tuple[str, bytes]]:
    """Ways in which a file can be other than it was: a bit here and there, cut, longer, empty."""
    content = file.read_bytes()
    for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
        place = min(int(share * len(content)), len(content) - 1)
        yield f"a bit at {share:.0%}", content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    yield from (("cut", content[: len(content) // 2]), ("longer", content + b"x"), ("empty", b""))


def damaged_checkpoints(folder: Path) -> Iterator[Tried]:
    """Checkpoints, damaged."""
    tensors = {"encoder.weight": torch.arange(4096.0), "optimiser.0.step": torch.ones(())}
    path = save_checkpoint(folder, 7, tensors, {"fingerprint": "x", "curve": [{"step": 1, "loss": 0.5}]})
    _, facts = load_checkpoint(path)

    def outcome(loaded: tuple[Tensors, Any]) -> str:
        same = loaded[1] == facts and all(torch.equal(loaded[0][name], tensors[name]) for name in tensors)
        return SOUND if same else WRONG

    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for case, other in list(damages(file)):
            file.write_bytes(other)
            yield tried(f"{file.name}: {case}", lambda: load_checkpoint(path), outcome)
        file.unlink()
        yield tried(f"{file.name}: gone", lambda: load_checkpoint(path), outcome)
        file.write_bytes(content)


def damaged_tokens(folder: Path) -> Iterator[Tried]:
    """Cached tokens, damaged."""
    pieces = load_encoder(MINI, device="cpu").wordpieces
    tokens = pieces(TEXTS, 16, cache=folder)
    (file,) = folder.glob("*.safetensors")
    content = file.read_bytes()

    def outcome(read: Tokens) -> str:
        same = np.array_equal(read.ids, tokens.ids) and np.array_equal(read.offsets, tokens.offsets)
        return WRONG if not same else AGAIN if file.read_bytes() == content else SOUND

    for case, other in list(damages(file)):
        file.write_bytes(other)
        yield tried(case, lambda: pieces(TEXTS, 16, cache=folder), outcome)


def counted(rows: int) -> dict[str, Any]:
    """A stage with a table and an array."""
    return {
        "frame": pd.DataFrame({"row": range(rows), "value": [row / 7 for row in range(rows)]}),
        "array": np.eye(rows),
    }


def damaged_stages(folder: Path) -> Iterator[Tried]:
    """Stored results of stages, damaged or another's."""
    cache = StageCache(folder)
    wanted, record = cache.run("counted", counted, {"rows": 9})
    _, other_record = cache.run("counted", counted, {"rows": 8})
    place = folder / record.key

    def run() -> tuple[dict[str, Any], StageRecord]:
        with contextlib.redirect_stdout(io.StringIO()):  # that it is made again is said
            return cache.run("counted", counted, {"rows": 9})

    def outcome(result: tuple[dict[str, Any], StageRecord]) -> str:
        values, its_record = result
        same = values["frame"].equals(wanted["frame"]) and np.array_equal(values["array"], wanted["array"])
        return WRONG if not same else SOUND if its_record.cached else AGAIN

    for file in sorted(path for path in place.rglob("*") if path.is_file()):
        for case, content in list(damages(file)):
            file.write_bytes(content)
            yield tried(f"{file.name}: {case}", run, outcome)
        file.unlink()
        yield tried(f"{file.name}: gone", run, outcome)
    shutil.rmtree(place)
    shutil.copytree(folder / other_record.key, place)
    yield tried("another's", run, outcome)


FAMILIES: tuple[Family, ...] = (damaged_checkpoints, damaged_tokens, damaged_stages)
