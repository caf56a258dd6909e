"""Atomic checkpoints: a checkpoint is there whole or not at all, and the previous one goes only after that.

Everything random in a step is a function of (seed, step, process, chunk), so the step number *is* the state of every
random generator and of the data position; weights, optimiser moments and the curve are stored beside it, under their
sha256: training never goes on from other numbers than it left.
"""

import json
import os
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from dialnb.errors import TrainingError
from dialnb.files import digest_of, sha256

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
        facts = {"step": step, **facts, "sha256": sha256(draft / "state.safetensors")}
        (draft / "state.json").write_text(json.dumps(facts), "utf-8")
        (draft / "state.sha256").write_text(sha256(draft / "state.json"), "utf-8")
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
    return next(iter(checkpoints(folder)), None)


def checkpoints(folder: Path) -> list[Path]:
    """What was saved in a folder, the latest first."""
    return sorted(folder.glob(f"{PREFIX}*"), reverse=True)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and facts of a checkpoint; TrainingError if they are not those that were saved."""
    try:
        text = (path / "state.json").read_text("utf-8")
        facts = json.loads(text)
        if (path / "state.sha256").read_text("utf-8") != digest_of(text):
            raise ValueError("its facts have another sha256")
        if sha256(path / "state.safetensors") != facts["sha256"]:
            raise ValueError("its tensors have another sha256")
        return load_file(path / "state.safetensors"), facts
    except Exception as error:
        raise TrainingError(f"the checkpoint {path} is damaged ({error})") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
