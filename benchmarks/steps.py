"""`python -m benchmarks.steps`: training steps from an encoder of MiniLM's shape, step by step and as CUDA graphs,
with and without the kernel of the residual connection.

For every kind of step: steps per second, milliseconds that the GPU computes in each (the rest it waits for the host),
and how many kernels are started. Weights are random: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine import _Rows, _Selection, bundled_inputs, bundled_pairs, random_encoder
from dialnb.evaluation import finetuning
from dialnb.evaluation.finetuning import ACTIONS, INTENTS, RESPONSES, fit_classifier
from dialnb.examples.pairs import pair_examples
from dialnb.files import write_json
from dialnb.models import packed
from dialnb.models.encoder import load_encoder
from dialnb.runs.provenance import provenance
from dialnb.tokens import Tokens
from dialnb.training import TrainingSettings, loop, train
from dialnb.training.objectives import PairObjective

TEXTS = {"fine-tuned intents": (INTENTS, 385, 5, 30), "fine-tuned actions": (ACTIONS, 400, 20, 32)}
TEXTS |= {"fine-tuned responses": (RESPONSES, 500, 20, 128)}


def on_gpu(work) -> dict[str, float]:
    """What the GPU does in ``work``, which gives the number of its steps."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        steps = work()
    kernels = [event for event in found.key_averages() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [event for event in kernels if "#" not in event.key]  # "Optimizer.step#Adam.step" is a span of time
    busy = sum(event.self_device_time_total for event in kernels) / 1000
    return {"gpu_ms": busy / steps, "kernels": sum(event.count for event in kernels) / steps}


def trainings(encoder, device: torch.device):
    """Kinds of training: objective, examples and settings."""
    pairs = bundled_pairs()
    precise = "bfloat16" if device.type == "cuda" else "float32"
    for size in (64, 256, 1024) if device.type == "cuda" else (8,):
        settings = TrainingSettings(size, epochs=1e6, precision=precise)
        yield f"DSE, {size} pairs", PairObjective(encoder.dim), pair_examples(encoder, pairs), settings
    rows = bundled_inputs(encoder, 2_000 if device.type == "cuda" else 64)
    inputs = 64 if device.type == "cuda" else 2
    settings = TrainingSettings(inputs, epochs=1e6, learning_rate=3e-5, precision=precise)
    yield f"cross-encoder, {inputs} inputs", _Selection(encoder.dim), _Rows(rows), settings


def measure_training(encoder, objective, examples, settings, steps: int) -> dict[str, float]:
    def run(number: int) -> float:
        return train(encoder, objective, examples, replace(settings, max_steps=number), show_progress=False).seconds

    run(min(20, steps))
    rate = steps / run(steps)
    found = {"steps_per_s": rate, "examples_per_s": rate * settings.batch_size}
    return found | (on_gpu(lambda: run(10) and 10) if torch.cuda.is_available() else {})


def measure_fit(encoder, recipe, n: int, shortest: int, longest: int, steps: int) -> dict[str, float]:
    """Validation is part of it."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(5, 5000, draw.integers(shortest, longest)).tolist() for _ in range(n)]
    data = Tokens.from_lists(rows), draw.integers(0, 20, n)

    def run(number: int) -> tuple[int, float]:
        lasting = replace(recipe, epochs=max(1, number * recipe.batch_size // n), patience=10**6, learning_rate=1e-6)
        began = time.perf_counter()
        fit_classifier(encoder, data, data, lambda logits, _: 1.0 + float(logits.mean()) * 0, lasting)
        return lasting.epochs * -(-n // recipe.batch_size), time.perf_counter() - began

    run(min(20, steps))
    taken, seconds = run(steps)
    found = {"steps_per_s": taken / seconds, "examples_per_s": taken * recipe.batch_size / seconds}
    return found | (on_gpu(lambda: run(20)[0]) if torch.cuda.is_available() else {})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="timed steps of each kind")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="also write rows and provenance as JSON")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_encoder("mini", device="cpu").tokenizer
    rows, can, had = [], loop.can_replay, packed.kernels
    ways = ((True, True), (True, False), (False, True)) if device.type == "cuda" else ((False, False),)
    for graphs, kernel in ways:
        loop.can_replay = finetuning.can_replay = can if graphs else lambda encoder: False
        packed.kernels = had if kernel else None
        way = {"graphs": graphs, "residual_kernel": kernel}
        encoder = random_encoder("minilm", tokenizer, device)
        for name, objective, examples, settings in trainings(encoder, device):
            found = measure_training(encoder, objective, examples, settings, options.steps)
            rows.append({"step": name, **way, **found})
            print(rows[-1], flush=True)
        for name, given in TEXTS.items():
            rows.append({"step": name, **way, **measure_fit(encoder, *given, options.steps)})
            print(rows[-1], flush=True)
    packed.kernels = had
    print(pd.DataFrame(rows).round(2).to_string(index=False))
    if options.out:
        write_json(options.out, {"provenance": provenance(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
