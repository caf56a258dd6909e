"""What real processes do in the training tests: alone (``slowly``) or together (``one_of_several``)."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import tiny
import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from dialnb import losses
from dialnb.training import TrainingSettings, train
from dialnb.training.checkpoint import latest_checkpoint
from dialnb.training.loop import _Run

EXAMPLES, BATCH = 14, 6  # batches of 6, 6 and 2: 6 does not divide by 4, 2 is fewer than 4
STEPS = (0, 2)
RUN = TrainingSettings(batch_size=8, epochs=3, learning_rate=1e-3, schedule="onecycle", checkpoint_every=1)


def settings(**options) -> TrainingSettings:
    return TrainingSettings(precision="float64", batch_size=BATCH, seed=5, **options)


def cases(encoder):
    """(name, objective, settings, step) of every gradient that has to agree."""
    for name in tiny.objectives(encoder):
        for step in STEPS:
            yield f"{name}, step {step}", tiny.objectives(encoder)[name], settings(), step
        yield f"{name}, cached", tiny.objectives(encoder)[name], settings(chunk=2), 0


def naive_gradient(encoder, objective, examples) -> dict[str, torch.Tensor]:
    """What a careless gather gives: own anchors against everybody's vectors, no gradient into those of the others."""
    encoder.zero_grad(), objective.zero_grad()
    run = _Run(encoder, objective, examples, settings(), None, None, "naive", False)
    (chunk,) = run.build(0)
    sizes = [len(part) for part in torch.arange(BATCH).tensor_split(run.world)]
    vectors = run._gather(objective.embed(encoder, chunk), sizes)
    rows = losses.nt_xent_loss(vectors["first"], vectors["second"], reduction="none").split(sizes)[run.rank]
    (rows.sum() / BATCH).backward()
    run._sum_gradients()
    named = [*encoder.named_parameters("encoder"), *objective.named_parameters("objective")]
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


class Interrupted(tiny.Pairs):
    """Somebody presses Ctrl-C in one process only, in the third step."""

    calls = 0

    def embed(self, encoder, batch):
        self.calls += 1
        if self.calls == 3 and Accelerator(cpu=True).is_last_process:
            os.kill(os.getpid(), signal.SIGINT)
        return super().embed(encoder, batch)


def gradients(folder: Path) -> None:
    accelerator = Accelerator(cpu=True)
    encoder = tiny.encoder(dropout=0.0)
    examples = tiny.Everything(encoder, EXAMPLES)
    found, values = {}, {}
    for name, objective, options, step in cases(encoder):
        values[name], parts = tiny.gradient(encoder, objective, examples, options, step)
        found |= {f"{name}|{key}": gradient for key, gradient in parts.items()}
    naive = naive_gradient(encoder, tiny.objectives(encoder)["nt_xent"], examples)
    found |= {f"naive|{key}": gradient for key, gradient in naive.items()}

    twin, heads = tiny.encoder(dropout=0.0), tiny.objectives(encoder, seed=accelerator.process_index)["sum"]
    train(twin, heads, examples, settings(epochs=2, learning_rate=1e-4), show_progress=False)
    vectors = torch.from_numpy(twin.encode(tiny.TEXTS))
    found |= {"trained": vectors}
    spread = float((accelerator.gather(vectors).view(-1, *vectors.shape) - vectors).abs().max())

    stopped = False
    try:
        train(
            encoder, Interrupted(encoder.dim), examples, settings(epochs=5), folder / "interrupted", show_progress=False
        )
    except KeyboardInterrupt:
        stopped = True
    stopped = accelerator.gather(torch.tensor([stopped])).tolist()
    if accelerator.is_main_process:
        kept = latest_checkpoint(folder / "interrupted").name
        save_file(found, folder / "gradients.safetensors")
        said = {
            "losses": values,
            "processes": accelerator.num_processes,
            "spread": spread,
            "stopped": stopped,
            "kept": kept,
        }
        (folder / "said.json").write_text(json.dumps(said))


class Slow(tiny.Pairs):
    """Leaves the parent time to kill us between two checkpoints."""

    def embed(self, encoder, batch):
        time.sleep(0.05)
        return super().embed(encoder, batch)


def training(kind: type[tiny.Pairs], folder: Path | None, **options):
    """The run that is killed, interrupted and resumed: dropout, redrawn masks, twelve steps."""
    encoder = tiny.encoder(dropout=0.1)
    torch.manual_seed(3)
    objective = kind(encoder.dim)
    result = train(
        encoder, objective, tiny.Everything(encoder, 30, redrawn=True), RUN, folder, show_progress=False, **options
    )
    return encoder, objective, result


def one_of_several(folder: Path) -> None:
    torch.set_num_threads(1)
    gradients(folder)
    torch.distributed.barrier()  # leave together: a process that goes early can abort the others at exit
    torch.distributed.destroy_process_group()


def slowly(folder: Path) -> None:
    torch.set_num_threads(1)
    training(Slow, folder)
