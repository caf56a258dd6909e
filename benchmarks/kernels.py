"""`python -m benchmarks.kernels`: where the GPU's time goes in steps of a training that lasts.

For each kind of step: milliseconds a step, how many of them the GPU computes, and its most expensive kernels. Passes
are recorded as CUDA graphs by then; weights are random. It takes a minute and wants a GPU to itself.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from benchmarks.engine import _Rows, _Selection, bundled_inputs, bundled_pairs, random_encoder
from dialnb.examples.pairs import pair_examples
from dialnb.models.encoder import load_encoder
from dialnb.training import TrainingSettings, loop
from dialnb.training.objectives import PairObjective

KINDS = (  # shape, kind, examples of a step, steps before the timed ones, timed steps
    ("base", "pairs", 1024, 70, 60),
    ("minilm", "pairs", 1024, 70, 100),
    ("minilm", "cross-encoder", 32, 300, 100),
    ("base", "cross-encoder", 32, 300, 60),
    ("minilm", "pairs", 64, 100, 100),
)
PROFILED = 20  # steps


class Looked(loop._Run):
    """A training whose steps are timed from ``first`` on, and profiled after that."""

    first, timed = 0, 0

    def go(self):
        self.at = {}
        self.seen = profile(
            activities=[ProfilerActivity.CUDA], schedule=schedule(wait=0, warmup=5, active=PROFILED, repeat=1)
        )
        result = super().go()
        self.seen.stop()
        return result

    def update(self, step: int) -> None:
        super().update(step)
        last = self.first + self.timed - 1
        if step in (self.first - 1, last):
            torch.cuda.synchronize()
            self.at[step] = time.perf_counter()
        if step == last:
            self.seen.start()
        elif last < step < last + PROFILED + 10:
            self.seen.step()

    def report(self, title: str) -> None:
        taken = (self.at[self.first + self.timed - 1] - self.at[self.first - 1]) / self.timed
        events = [e for e in self.seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        events = [e for e in events if not e.name.startswith("ProfilerStep")]
        busy, end = 0.0, 0.0
        for begun, ended in sorted((e.time_range.start, e.time_range.end) for e in events):
            busy += max(0.0, ended - max(begun, end))
            end = max(end, ended)
        computed = f"{busy / PROFILED / 1e3:.2f} computed, {len(events) / PROFILED:.0f} kernels"
        print(f"{title}: {taken * 1e3:.2f} ms a step, {computed}", flush=True)
        times: Counter[str] = Counter()
        numbers = Counter(e.name for e in events)
        for event in events:
            times[event.name] += event.time_range.end - event.time_range.start
        for name, spent in times.most_common(28):
            print(f"  {spent / PROFILED / 1e3:7.3f} ms {numbers[name] / PROFILED:6.1f}x {name[:150]}", flush=True)


def main() -> int:
    if not torch.cuda.is_available():
        print("there is no GPU whose kernels could be timed")
        return 1
    device, tokenizer = torch.device("cuda"), load_encoder("mini", device="cpu").tokenizer
    pairs, long = bundled_pairs(), bundled_inputs(random_encoder("tiny", tokenizer, torch.device("cpu")), 3000)
    for shape, kind, size, Looked.first, Looked.timed in KINDS:
        encoder, selects = random_encoder(shape, tokenizer, device), kind == "cross-encoder"
        examples = _Rows(long) if selects else pair_examples(encoder, pairs)
        objective = _Selection(encoder.dim) if selects else PairObjective(encoder.dim)
        steps = Looked.first + Looked.timed + PROFILED + 25
        settings = TrainingSettings(
            size, max_steps=steps, epochs=1e6, precision="bfloat16", optimiser="adamw" if selects else "adam"
        )
        looked = Looked(encoder, objective, examples, settings, None, None, kind, False)
        looked.go()
        looked.report(f"{shape}, {kind}, {size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
