"""Atomic checkpoints: a checkpoint is there whole or not at all, and the previous one goes only after that.

Everything random in a step is a function of (seed, step, process, chunk), so the step number *is* the state of every
random generator and of the data position; weights, optimiser moments and the curve are stored beside it.
"""

import json
import os
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from dialnb.errors import TrainingError

PREFIX = "step-"


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], facts: dict) -> Path:
    """Write ``folder/step-NNNNNNNN`` and then remove older ones; one that is there already is of this run and whole."""
    final = folder / f"{PREFIX}{step:08d}"
    if final.exists():
        return final
    draft = folder / f".draft-{step:08d}"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        # copied, since safetensors takes no shared memory
        cpu = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        save_file(cpu, draft / "state.safetensors")
        (draft / "state.json").write_text(json.dumps({"step": step, **facts}), "utf-8")
        for path in draft.iterdir():
            _sync(path)
        draft.replace(final)
        _sync(folder)
    except Exception as error:  # safetensors reports a full disk as its own kind of error
        shutil.rmtree(draft, ignore_errors=True)
        kept = latest_checkpoint(folder)
        raise TrainingError(
            f"could not write the checkpoint of step {step} to {folder} ({error}); "
            f"{f'the previous one, {kept.name}, is whole' if kept else 'there was none before'}. "
            "Free some space and start the same run again: it goes on from there."
        ) from error
    for old in folder.glob(f"{PREFIX}*"):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    found = sorted(folder.glob(f"{PREFIX}*"))
    return found[-1] if found else None


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    try:
        return load_file(path / "state.safetensors"), json.loads((path / "state.json").read_text("utf-8"))
    except Exception as error:
        raise TrainingError(
            f"checkpoint {path} cannot be read ({error}); delete that folder to start afresh"
        ) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
