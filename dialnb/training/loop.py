"""The one loop: any objective, any recipe, one process or many, small memory or large, interrupted or not.

- Negatives span the whole batch of all processes. Every process computes the loss of the whole batch, with gradient
  flowing into its own rows; summing the processes' gradients then gives exactly the gradient of one process.
- ``chunk`` smaller than the batch: vectors first, then the loss and its gradient with respect to them, then each chunk
  again with that gradient (a gradient cache). Same gradient, bounded memory.
- Randomness of a step depends on (seed, step, process, chunk) alone, so resuming needs only the step number.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import nn

from dialnb.errors import TrainingError
from dialnb.examples.batches import Batch, Examples
from dialnb.progress import Bar
from dialnb.seeding import seeded
from dialnb.training.background import Ahead, Interrupts
from dialnb.training.checkpoint import latest_checkpoint, load_checkpoint, save_batch, save_checkpoint
from dialnb.training.objective import Objective
from dialnb.training.optimiser import freeze_bottom_layers, make_optimiser
from dialnb.training.plan import BatchPlan
from dialnb.training.settings import TrainingSettings

WORTH_COMPILING = 1500  # steps; compiling takes 35 to 60 s of a core


@dataclass
class TrainingResult:
    """What a run leaves behind besides the trained encoder."""

    steps: int
    curve: pd.DataFrame  # step, epoch, loss, rate
    seconds: float
    examples_per_second: float
    tokens_per_second: float
    peak_memory_gb: float
    resumed_at: int = 0
    facts: dict = field(default_factory=dict)

    @property
    def last_loss(self) -> float | None:
        """Mean over the last 50 steps."""
        return float(self.curve["loss"].iloc[-50:].mean()) if len(self.curve) else None


def train(
    encoder,
    objective: Objective,
    examples: Examples,
    settings: TrainingSettings,
    folder: str | Path | None = None,
    on_epoch: Callable[[int, object], None] | None = None,
    name: str = "train",
    show_progress: bool = True,
) -> TrainingResult:
    """Train ``encoder`` (in place) and ``objective``'s heads on ``examples``.

    With ``folder`` the run checkpoints itself there and a second call with the same settings goes on where the first
    one stopped. ``on_epoch(epoch, encoder)`` is called after every whole epoch (or every ``evaluate_every`` steps, with
    their number), for curves over training, and again when a run goes on from such a place. The encoder comes back in
    its own mode and precision, nothing frozen, and torch's random generators as they were.
    """
    with seeded(settings.seed):
        return _Run(encoder, objective, examples, settings, folder, on_epoch, name, show_progress).go()


class _Run:
    def __init__(self, encoder, objective, examples, settings, folder, on_epoch, name, show_progress) -> None:
        self.accelerator = Accelerator(cpu=encoder.device.type == "cpu")
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.encoder = encoder.to(self.accelerator.device)
        self.objective = objective.to(self.accelerator.device)
        self.examples, self.settings, self.on_epoch, self.name = examples, settings, on_epoch, name
        self.folder = Path(folder) if folder is not None else None
        self.show_progress = show_progress and self.accelerator.is_main_process
        self.plan = BatchPlan(
            len(examples), settings.batch_size, settings.seed, getattr(examples, "groups", None), settings.drop_last
        )
        self.total = settings.total_steps(self.plan.steps_per_epoch)
        self.interval = settings.evaluate_every or self.plan.steps_per_epoch
        self.own = encoder.training, encoder.dtype, encoder.attention_dropout, encoder.compiled
        if settings.precision == "float64":
            self.encoder.double(), self.objective.double()
        self.trainable = [p for p in encoder.parameters() if p.requires_grad]
        freeze_bottom_layers(encoder.transformer, settings.freeze)
        both = dict.fromkeys([*encoder.parameters(), *objective.parameters()])
        self.parameters = [p for p in both if p.requires_grad]
        self.optimiser = make_optimiser(encoder, objective, settings)
        self.curve: list[tuple[int, float, float]] = []
        self.tokens_seen = self.examples_seen = 0
        self.interrupts = Interrupts()
        self.others: int | None = None  # bytes on a GPU that are not this run's
        self.stop = False  # somebody pressed Ctrl-C; all processes agree on the step after which they leave

    # --- one step -------------------------------------------------------------------------------------------------

    def build(self, step: int) -> list[Batch]:
        """This process's share of the step's batch, in chunks; runs ahead in a thread of its own."""
        whole = self.plan.rows(step)
        rows = np.array_split(whole, self.world)[self.rank]
        if not len(rows):  # fewer examples than processes: compute along with one that counts for nothing
            idle = self.examples.batch(whole[:1], np.random.default_rng(0))
            return [replace(idle, counts=dict.fromkeys(idle.counts, 0))]
        parts = math.ceil(len(rows) / self.settings.chunk) if self.settings.chunk else 1
        chunks = [
            self.examples.batch(part, np.random.default_rng([self.settings.seed, step, self.rank, i]))
            for i, part in enumerate(np.array_split(rows, parts))
        ]
        if self.encoder.packed:
            for tokens in (t for chunk in chunks for t in chunk.tokens.values() if len(t)):
                _ = tokens.layout  # computed here, so that the main thread need not
        return chunks

    def seed(self, step: int, chunk: int) -> None:
        torch.manual_seed(
            int(np.random.SeedSequence([self.settings.seed, step, self.rank, chunk]).generate_state(1)[0])
        )

    def backward(self, step: int, chunks: list[Batch]) -> torch.Tensor:
        """Gradients of the whole batch's loss in ``.grad``; returns the loss (its value, detached)."""
        totals = self._total_counts(chunks)
        sizes = [len(part) for part in np.array_split(self.plan.rows(step), self.world)]
        if len(chunks) == 1:
            self.seed(step, 0)
            vectors = self.objective.embed(self.encoder, chunks[0])
            terms = self._terms(chunks[0], totals)
            in_batch = self.objective.loss(self._gather(vectors, sizes)) if vectors else None
            loss = terms if in_batch is None else in_batch + terms
            loss.backward()
            shown = (0 if in_batch is None else in_batch.detach()), torch.as_tensor(terms).detach()
        else:
            shown = self._cached_backward(step, chunks, totals, sizes)
        in_batch_value, terms_value = shown
        if self.world > 1:
            self._sum_gradients()
            terms_value = self.accelerator.reduce(torch.as_tensor(terms_value, device=self.encoder.device), "sum")
        return in_batch_value + terms_value

    def _cached_backward(self, step: int, chunks: list[Batch], totals: dict, sizes: list[int]):
        parts: list[dict[str, torch.Tensor]] = []
        for i, chunk in enumerate(chunks):
            self.seed(step, i)
            # With gradient although it is thrown away: the same compiled graph draws the same dropout again below.
            parts.append({k: v.detach() for k, v in self.objective.embed(self.encoder, chunk).items()})
        in_batch, gradients = 0, {}
        if parts[0]:
            whole = {k: torch.cat([part[k] for part in parts]) for k in parts[0]}
            leaves = {k: v.requires_grad_() if v.is_floating_point() else v for k, v in whole.items()}
            loss = self.objective.loss(self._gather(leaves, sizes))
            loss.backward()
            in_batch = loss.detach()
            gradients = {k: v.grad for k, v in leaves.items() if v.requires_grad and v.grad is not None}
        start, shown = 0, torch.zeros((), device=self.encoder.device)
        for i, chunk in enumerate(chunks):
            self.seed(step, i)
            vectors = self.objective.embed(self.encoder, chunk)
            terms = self._terms(chunk, totals)
            pull = [
                (v * gradients[k][start : start + len(v)].to(v.dtype)).sum()
                for k, v in vectors.items()
                if k in gradients and v.requires_grad
            ]
            (sum(pull) + terms).backward()
            start, shown = start + chunk.size, shown + torch.as_tensor(terms).detach()
        return in_batch, shown

    def _terms(self, chunk: Batch, totals: dict[str, float]):
        terms = self.objective.terms(self.encoder, chunk)
        return sum((v * (chunk.counts[k] / max(totals[k], 1)) for k, v in terms.items()), start=0.0)

    def _total_counts(self, chunks: list[Batch]) -> dict[str, float]:
        names = sorted(chunks[0].counts)
        totals = torch.tensor([sum(c.counts[n] for c in chunks) for n in names], dtype=torch.float64)
        if self.world > 1 and names:
            totals = self.accelerator.reduce(totals.to(self.encoder.device), "sum").cpu()
        return dict(zip(names, totals.tolist(), strict=True))

    def _gather(self, vectors: dict[str, torch.Tensor], sizes: list[int]) -> dict[str, torch.Tensor]:
        """Everybody's rows, ours with gradient (see the module's first paragraph)."""
        if self.world == 1:
            return vectors
        gathered = {}
        for key, own in vectors.items():
            own = own[: sizes[self.rank]]
            padded = own.detach().new_zeros((max(sizes), *own.shape[1:]))
            padded[: len(own)] = own.detach()
            everyone = self.accelerator.gather(padded).split(max(sizes))
            rows = [own if r == self.rank else part[: sizes[r]] for r, part in enumerate(everyone)]
            gathered[key] = torch.cat(rows)
        return gathered

    def _sum_gradients(self) -> None:
        said = [float(p.grad is not None) for p in self.parameters] + [float(self.interrupts.seen)]
        *touched, stop = self.accelerator.reduce(torch.tensor(said, device=self.encoder.device), "sum").tolist()
        self.stop = stop > 0
        used = [p for p, count in zip(self.parameters, touched, strict=True) if count]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in used]
        flat = self.accelerator.reduce(torch.cat([g.flatten() for g in grads]), "sum")
        for p, part in zip(used, flat.split([g.numel() for g in grads]), strict=True):
            p.grad = part.view_as(p)

    def update(self, step: int) -> None:
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        factor = self.settings.rate_factor(step, self.total)
        momentum = self.settings.momentum(step, self.total)
        for group in self.optimiser.param_groups:
            group["lr"] = group["base"] * factor
            group["betas"] = (momentum, group["betas"][1])
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    # --- the whole run --------------------------------------------------------------------------------------------

    def go(self) -> TrainingResult:
        first = self._resume()
        self._share_weights()
        if self.encoder.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.encoder.device)
            self.others = torch.cuda.memory_allocated(self.encoder.device) - self._own_bytes()
        if first and not first % self.interval:
            self._call_on_epoch(first)
        bar = Bar(
            total=self.total, initial=first, desc=self.name, unit="step", disable=not self.show_progress, mininterval=1
        )
        began = time.perf_counter()
        pending: tuple[int, torch.Tensor] | None = None  # one step behind, so that the device never waits for the host
        self._enter_training()
        try:
            with Ahead(self.build, first, self.total) as ahead, self.interrupts:
                for step in range(first, self.total):
                    chunks = ahead.get()
                    loss = self.backward(step, chunks)
                    if pending is not None:
                        self._record(*pending, bar)
                    pending = step, loss
                    if self.encoder.device.type == "cpu":  # nothing to wait for: a bad loss never reaches the weights
                        self._record(*pending, bar)
                    self.update(step)
                    self._count(chunks)
                    look = (step + 1) % self.interval == 0
                    last = step + 1 == self.total
                    stop = self.interrupts.seen if self.world == 1 else self.stop
                    if last or look or stop or (step + 1) % self.settings.checkpoint_every == 0:
                        self._record(*pending, bar)
                        pending = None
                        self._save(step + 1)
                    bar.update()
                    if look:
                        self._call_on_epoch(step + 1)
                    if stop and not last:
                        self._leave(step + 1, bar)
        finally:
            bar.close()
            self._leave_training()
            for parameter in self.trainable:
                parameter.requires_grad_(True)
        return self._result(first, time.perf_counter() - began)

    def _leave(self, step: int, bar) -> None:
        """Ctrl-C: the step is saved; say how to go on."""
        how = (
            "start the same run again and it goes on there" if self.folder else "nothing was saved: no folder was given"
        )
        bar.write(f"{self.name}: stopped after step {step} of {self.total}; {how}")
        raise KeyboardInterrupt

    def _enter_training(self) -> None:
        self.encoder.train(), self.objective.train()
        self.encoder.dtype = torch.bfloat16 if self.settings.precision == "bfloat16" else None
        self.encoder.attention_dropout = self.settings.attention_dropout
        chosen = self.settings.compiled
        self.encoder.compiled = self.total >= WORTH_COMPILING if chosen is None else chosen

    def _leave_training(self) -> None:
        """The encoder as it came: for evaluations on the way, and when all is over."""
        training, self.encoder.dtype, self.encoder.attention_dropout, self.encoder.compiled = self.own
        self.encoder.train(training)

    def _call_on_epoch(self, steps: int) -> None:
        if self.on_epoch is not None:
            self._leave_training()
            self.encoder.eval()
            self.on_epoch(steps if self.settings.evaluate_every else steps // self.interval, self.encoder)
            self._enter_training()

    def _share_weights(self) -> None:
        """Heads start from random numbers: every process takes those of the first."""
        if self.world > 1:
            for parameter in self.parameters:
                broadcast(parameter.data)

    def _count(self, chunks: list[Batch]) -> None:
        self.examples_seen += sum(chunk.size for chunk in chunks) * self.world
        self.tokens_seen += sum(len(t.ids) for chunk in chunks for t in chunk.tokens.values()) * self.world

    def _record(self, step: int, loss: torch.Tensor, bar) -> None:
        value = float(loss)
        if not math.isfinite(value):
            raise TrainingError(self._explain_bad_loss(step, value))
        if not self.curve or self.curve[-1][0] != step + 1:
            rate = self.settings.learning_rate * self.settings.rate_factor(step, self.total)
            self.curve.append((step + 1, value, rate))
        speed = self.examples_seen / max(bar.format_dict["elapsed"], 1e-9)
        bar.set_postfix_str(f"loss {value:.4f}, {speed:,.0f} examples/s", refresh=False)

    def _explain_bad_loss(self, step: int, value: float) -> str:
        saved = ""
        if self.folder is not None:
            path = self.folder / f"bad-batch-{step + 1}{f'-of-{self.rank}' if self.world > 1 else ''}.safetensors"
            save_batch(path, self.plan.rows(step), self.build(step))
            kept = latest_checkpoint(self.folder)
            saved = f" The batch is in {path}; {f'{kept.name} is from before it' if kept else 'no checkpoint yet'}."
        return (
            f"{self.name}: the loss became {value} at step {step + 1} of {self.total}, so training stopped.{saved} "
            "Usual causes: a learning rate that is too high, a temperature that is too low, or broken input weights."
        )

    def _result(self, first: int, seconds: float) -> TrainingResult:
        curve = pd.DataFrame(self.curve, columns=["step", "loss", "rate"])
        curve.insert(1, "epoch", curve["step"] / self.plan.steps_per_epoch)
        return TrainingResult(
            steps=self.total,
            curve=curve,
            seconds=seconds,
            examples_per_second=self.examples_seen / max(seconds, 1e-9),
            tokens_per_second=self.tokens_seen / max(seconds, 1e-9),
            peak_memory_gb=self._peak_bytes() / 2**30,
            resumed_at=first,
            facts={"settings": self.settings.describe(), "objective": self.objective.describe(), **self._determinism()},
        )

    def _own_bytes(self) -> int:
        """What encoder and heads take on the device, where other models of the same process may lie too."""
        parts = chain(*((*module.parameters(), *module.buffers()) for module in (self.encoder, self.objective)))
        return sum(part.numel() * part.element_size() for part in dict.fromkeys(parts))

    def _peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self.encoder.device) - self.others if self.others is not None else 0

    def _determinism(self) -> dict:
        cuda, exact = self.encoder.device.type == "cuda", f"bit-identical with {torch.get_num_threads()} threads"
        return {
            "determinism": "seeded; GPU reductions may differ in the last bits" if cuda else exact,
            "processes": self.world,
            "packed": self.encoder.packed,
        }

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        shapes = [list(p.shape) for p in self.parameters]
        said = [self.settings.describe(), self.objective.describe(), len(self.examples), self.total, shapes]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    def _state(self) -> dict[str, torch.Tensor]:
        tensors = {f"encoder.{n}": p for n, p in self.encoder.named_parameters() if p.requires_grad}
        tensors |= {f"objective.{n}": p for n, p in self.objective.state_dict().items()}
        for i, parameter in enumerate(self.parameters):
            tensors |= {f"optimiser.{i}.{n}": t for n, t in self.optimiser.state.get(parameter, {}).items()}
        return tensors

    def _save(self, step: int) -> None:
        if self.folder is None:
            return
        if not all(bool(p.isfinite().all()) for p in self.parameters):
            raise TrainingError(
                f"{self.name}: the weights became NaN or infinite in step {step} although its loss did not, so they "
                f"were not saved; the checkpoint before it in {self.folder} is whole. Lower the learning rate, or clip."
            )
        if not self.accelerator.is_main_process:
            return
        facts = {"fingerprint": self._fingerprint(), "curve": self.curve, "total": self.total}
        save_checkpoint(self.folder, step, self._state(), facts)

    def _resume(self) -> int:
        path = latest_checkpoint(self.folder) if self.folder is not None else None
        if path is None:
            return 0
        tensors, facts = load_checkpoint(path)
        if facts.get("fingerprint") != self._fingerprint():
            raise TrainingError(
                f"{path} belongs to a run with other settings, objective, encoder shape or data size; use another "
                "folder, or delete this one to start afresh"
            )
        with torch.no_grad():
            for name, parameter in self.encoder.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(tensors[f"encoder.{name}"])
            self.objective.load_state_dict(
                {n.removeprefix("objective."): t for n, t in tensors.items() if n.startswith("objective.")}
            )
            for i, parameter in enumerate(self.parameters):
                prefix = f"optimiser.{i}."
                state = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
                if state:
                    self.optimiser.state[parameter] = {n: t.to(parameter.device) for n, t in state.items()}
        self.curve = [tuple(row) for row in facts["curve"]]
        return facts["step"]
