"""The one loop: any objective, any recipe, one process or many, small memory or large, interrupted or not.

- Negatives span the whole batch of all processes. Every process computes the loss of the whole batch, with gradient
  flowing into its own rows; summing the processes' gradients then gives exactly the gradient of one process.
- ``chunk`` smaller than the batch: vectors first, then the loss and its gradient with respect to them, then each chunk
  again with that gradient (a gradient cache). Same gradient, bounded memory.
- Randomness of a step depends on (seed, step, process, chunk) alone, so resuming needs only the step number.
"""

import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from pandas import DataFrame
from torch import Tensor, nn

from dialnb.errors import TrainingError
from dialnb.examples.batches import Batch, Examples
from dialnb.files import Values, digest_of, say
from dialnb.models.encoder import Encoder, evaluating
from dialnb.models.graphs import SMALL, Graphs, can_replay, clear_gradients, going_first
from dialnb.models.packed import small_products
from dialnb.progress import Bar
from dialnb.seeding import seeded
from dialnb.training.background import Ahead, Interrupts
from dialnb.training.checkpoint import checkpoints, latest_checkpoint, load_checkpoint, save_checkpoint
from dialnb.training.objective import Objective, Tensors
from dialnb.training.optimiser import freeze_bottom_layers, make_optimiser
from dialnb.training.plan import BatchPlan
from dialnb.training.settings import TrainingSettings

FORMAT = 3  # of checkpoints: the curve has the terms of a loss one by one


@dataclass
class TrainingResult:
    """What a run leaves behind besides the trained encoder."""

    steps: int
    curve: DataFrame  # step, epoch, loss, rate and, of a loss with several terms, each of them
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


@small_products
def train(
    encoder: Encoder,
    objective: Objective,
    examples: Examples,
    settings: TrainingSettings,
    folder: str | Path | None = None,
    on_epoch: Callable[[int, Any], None] | None = None,
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


@small_products
@torch.inference_mode()
def loss_on(encoder: Encoder, objective: Objective, examples: Examples, batch_size: int) -> float:
    """The mean loss of examples without dropout, the same random numbers in them (masks) for whoever asks."""
    losses, sizes = [], []
    with evaluating(nn.ModuleList([encoder, objective])):
        for rows in np.array_split(np.arange(len(examples)), math.ceil(len(examples) / batch_size)):
            batch = examples.batch(rows, np.random.default_rng(rows[:1]))
            vectors = objective.embed(encoder, batch)
            terms = objective.terms(encoder, batch).values()
            losses.append(float(sum(terms, objective.loss(vectors) if vectors else 0.0)))
            sizes.append(batch.size)
    return float(np.average(losses, weights=sizes))


def _sent(values: Tensor) -> Callable[[], list[float]]:
    """Send numbers to the host. Who asks for them waits for them alone, not for what the device was told since."""
    there = values.to("cpu", non_blocking=True)
    if not values.is_cuda:
        return there.tolist
    event = torch.cuda.Event()
    event.record()

    def received() -> list[float]:
        event.synchronize()
        return there.tolist()

    return received


class _Run:
    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        examples: Examples,
        settings: TrainingSettings,
        folder: str | Path | None,
        on_epoch: Callable[[int, Any], None] | None,
        name: str,
        show_progress: bool,
    ) -> None:
        self.accelerator = Accelerator(cpu=encoder.device.type == "cpu")
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        # alone on its own device: Accelerate's is that of the first training of the process
        device = self.accelerator.device if self.world > 1 else encoder.device
        self.both = nn.ModuleList([encoder, objective]).to(device)
        self.encoder, self.objective = encoder, objective
        self.examples, self.settings, self.on_epoch, self.name = examples, settings, on_epoch, name
        self.folder = Path(folder) if folder is not None else None
        self.show_progress = show_progress and self.accelerator.is_main_process
        self.plan = BatchPlan(
            len(examples), settings.batch_size, settings.seed, getattr(examples, "groups", None), settings.drop_last
        )
        self.total = settings.total_steps(self.plan.steps_per_epoch)
        self.interval = settings.evaluate_every or self.plan.steps_per_epoch
        self.before = encoder.training, encoder.dtype, encoder.attention_dropout
        if settings.precision == "float64":
            self.both.double()
        self.trainable = [p for p in encoder.parameters() if p.requires_grad]
        freeze_bottom_layers(encoder.transformer, settings.freeze)
        self.parameters = [p for p in self.both.parameters() if p.requires_grad]
        self.optimiser = make_optimiser(encoder, objective, settings)
        alone = self.world == 1 and settings.chunk is None  # a gradient cache reads each chunk twice
        self.graphs = Graphs(encoder) if alone and can_replay(encoder) else None
        self.curve: list[dict[str, float]] = []
        self.pending: list[tuple[int, list[str], Callable[[], list[float]]]] = []  # losses nobody has looked at
        self.tokens_seen = self.examples_seen = 0
        self.interrupts = Interrupts()
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
        for chunk in chunks if self.encoder.packed else ():
            for tokens in chunk.tokens.values():
                _ = tokens.layout if len(tokens) else None  # computed here, so that the main thread need not
        return chunks

    def seed(self, step: int, chunk: int) -> None:
        number = int(np.random.SeedSequence([self.settings.seed, step, self.rank, chunk]).generate_state(1)[0])
        torch.default_generator.manual_seed(number)  # torch.manual_seed notes the whole stack for devices not here
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)

    def backward(self, step: int, chunks: list[Batch]) -> tuple[Tensor, Tensors]:
        """Gradients of the whole batch's loss in ``.grad``; returns the loss and its averaged terms, detached."""
        totals = self._total_counts(chunks)
        sizes = [len(part) for part in np.array_split(self.plan.rows(step), self.world)]
        if len(chunks) == 1:
            self.seed(step, 0)
            vectors = self.objective.embed(self.encoder, chunks[0])
            terms = self._terms(chunks[0], totals)
            in_batch = self.objective.loss(self._gather(vectors, sizes)) if vectors else self._nothing
            (in_batch + self._sum(terms)).backward()
        else:
            in_batch, terms = self._cached_backward(step, chunks, totals, sizes)
        terms = {name: value.detach() for name, value in terms.items()}
        if self.world > 1:
            self._sum_gradients()
            terms = {name: self.accelerator.reduce(value, "sum") for name, value in terms.items()}
        return in_batch.detach() + self._sum(terms), terms

    @property
    def _nothing(self) -> Tensor:
        return torch.zeros((), device=self.encoder.device)

    def _sum(self, terms: Tensors) -> Tensor:
        return sum(terms.values(), self._nothing)

    def _cached_backward(self, step: int, chunks: list[Batch], totals: dict, sizes: list[int]):
        parts: list[Tensors] = []
        for i, chunk in enumerate(chunks):
            self.seed(step, i)
            # With gradient although it is thrown away: the pass below takes the same kernels and the same dropout.
            parts.append({k: v.detach() for k, v in self.objective.embed(self.encoder, chunk).items()})
        in_batch, all_terms, leaves = self._nothing, dict.fromkeys(totals, self._nothing), {}
        if parts[0]:
            leaves = {k: torch.cat([part[k] for part in parts]) for k in parts[0]}
            for leaf in leaves.values():
                leaf.requires_grad_(leaf.is_floating_point())
            in_batch = self.objective.loss(self._gather(leaves, sizes))
            in_batch.backward()
        start = 0
        for i, chunk in enumerate(chunks):
            self.seed(step, i)
            vectors = self.objective.embed(self.encoder, chunk)
            terms = self._terms(chunk, totals)
            loss = self._sum(terms)
            for k, v in vectors.items():
                gradient = leaves[k].grad
                if gradient is not None and v.requires_grad:
                    loss = loss + (v * gradient[start : start + len(v)].to(v.dtype)).sum()
            loss.backward()
            start += chunk.size
            all_terms = {name: value + terms[name].detach() for name, value in all_terms.items()}
        return in_batch, all_terms

    def _terms(self, chunk: Batch, totals: dict[str, float]) -> Tensors:
        """The averaged losses of a chunk, each weighed by its share of the batch's items; 0 of what it has none of."""
        terms = dict.fromkeys(totals, self._nothing)
        for name, value in self.objective.terms(self.encoder, chunk).items():
            terms[name] = value * (chunk.counts[name] / max(totals[name], 1))
        return terms

    def _total_counts(self, chunks: list[Batch]) -> dict[str, float]:
        names = sorted(chunks[0].counts)
        totals = torch.tensor([sum(c.counts[n] for c in chunks) for n in names], dtype=torch.float64)
        if self.world > 1 and names:
            totals = self.accelerator.reduce(totals.to(self.encoder.device), "sum").cpu()
        return dict(zip(names, totals.tolist(), strict=True))

    def _gather(self, vectors: Tensors, sizes: list[int]) -> Tensors:
        """Everybody's rows, ours with gradient (see the module's first paragraph)."""
        if self.world == 1:
            return vectors
        gathered = {}
        for key, own in vectors.items():
            own = own[: sizes[self.rank]]
            padded = own.new_zeros((max(sizes), *own.shape[1:]))
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
        clear_gradients(self.optimiser, self.graphs)

    # --- the whole run --------------------------------------------------------------------------------------------

    def go(self) -> TrainingResult:
        first = self._resume()
        if self.world > 1:  # heads start from random numbers: every process takes those of the first
            for parameter in self.parameters:
                broadcast(parameter.data)
        held_by_others = self._start_measuring()
        if first and not first % self.interval:
            self._call_on_epoch(first)
        bar = Bar(
            total=self.total, initial=first, desc=self.name, unit="step", disable=not self.show_progress, mininterval=1
        )
        began = time.perf_counter()
        self._enter_training()
        try:
            with Ahead(self.build, first, self.total) as ahead, self.interrupts, ExitStack() as entered:
                for step in range(first, self.total):
                    self._step(step, ahead.get(), bar)
                    if step == first and self.tokens_seen <= SMALL:
                        entered.enter_context(going_first(self.encoder))
        finally:
            bar.close()
            self._leave_training()
            self.graphs = None  # and the memory that they hold
            for parameter in self.trainable:
                parameter.requires_grad_(True)
        return self._result(first, time.perf_counter() - began, held_by_others)

    def _step(self, step: int, chunks: list[Batch], bar: Bar) -> None:
        """Update the weights, and do what is due after that: save, show the encoder, leave."""
        loss, terms = self.backward(step, chunks)
        self.pending.append((step, list(terms), _sent(torch.stack([loss, *terms.values()]))))
        # A GPU is looked at one step later, so that it never waits for the host; on a CPU there is nothing to wait for,
        # and a bad loss never reaches the weights.
        self._record(bar, later=1 if self.encoder.device.type == "cuda" else 0)
        self.update(step)
        for chunk in chunks:
            self.examples_seen += chunk.size * self.world
            self.tokens_seen += sum(len(tokens.ids) for tokens in chunk.tokens.values()) * self.world
        done = step + 1
        last, look = done == self.total, done % self.interval == 0
        stop = self.interrupts.seen if self.world == 1 else self.stop
        if last or look or stop or done % self.settings.checkpoint_every == 0:
            self._record(bar)
            self._save(done)
        bar.update()
        if look:
            self._call_on_epoch(done)
        if stop and not last:
            how = (
                "start the same run again and it goes on there"
                if self.folder
                else "nothing was saved: no folder was given"
            )
            bar.write(f"{self.name}: stopped after step {done} of {self.total}; {how}")
            raise KeyboardInterrupt

    def _enter_training(self) -> None:
        self.both.train()
        self.encoder.dtype = torch.bfloat16 if self.settings.precision == "bfloat16" else None
        self.encoder.attention_dropout = self.settings.attention_dropout
        self.encoder.graphs = self.graphs

    def _leave_training(self) -> None:
        """The encoder as it came: for evaluations on the way, and when all is over."""
        self.encoder.graphs = None
        training, self.encoder.dtype, self.encoder.attention_dropout = self.before
        self.encoder.train(training)

    def _call_on_epoch(self, steps: int) -> None:
        if self.on_epoch is not None:
            self._leave_training()
            self.encoder.eval()
            self.on_epoch(steps if self.settings.evaluate_every else steps // self.interval, self.encoder)
            self._enter_training()

    def _record(self, bar: Bar, later: int = 0) -> None:
        """Take the losses of all steps but the last ``later`` ones into the curve; stop at one that is no number."""
        while len(self.pending) > later:
            step, names, arrived = self.pending.pop(0)
            value, *values = arrived()
            if not math.isfinite(value):
                raise TrainingError(self._explain_bad_loss(step, value))
            rate = self.settings.learning_rate * self.settings.rate_factor(step, self.total)
            several = dict(zip(names, values, strict=True)) if len(names) > 1 else {}
            self.curve.append({"step": step + 1, "loss": value, "rate": rate} | several)
            speed = self.examples_seen / max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"loss {value:.4f}, {speed:,.0f} examples/s", refresh=False)

    def _explain_bad_loss(self, step: int, value: float) -> str:
        kept = self.folder and latest_checkpoint(self.folder)
        before = f" {kept.name} is from before it." if kept else ""
        return (
            f"{self.name}: the loss became {value} at step {step + 1} of {self.total}, so training stopped.{before} "
            "Usual causes: a learning rate that is too high, a temperature that is too low, or broken input weights."
        )

    def _result(self, first: int, seconds: float, held_by_others: int) -> TrainingResult:
        determinism, peak = f"bit-identical with {torch.get_num_threads()} threads", 0
        if self.encoder.device.type == "cuda":
            determinism = "seeded; GPU reductions may differ in the last bits"
            peak = torch.cuda.max_memory_allocated(self.encoder.device) - held_by_others
        facts: dict[str, Any] = {"settings": asdict(self.settings), "objective": self.objective.describe()}
        facts |= {"determinism": determinism, "processes": self.world, "packed": self.encoder.packed}
        curve = DataFrame(self.curve)
        curve.insert(1, "epoch", curve["step"] / self.plan.steps_per_epoch)
        return TrainingResult(
            steps=self.total,
            curve=curve,
            seconds=seconds,
            examples_per_second=self.examples_seen / max(seconds, 1e-9),
            tokens_per_second=self.tokens_seen / max(seconds, 1e-9),
            peak_memory_gb=peak / 2**30,
            resumed_at=first,
            facts=facts,
        )

    def _start_measuring(self) -> int:
        """Watch the GPU's memory from here on; returns the bytes that lie there and are not this run's."""
        if self.encoder.device.type != "cuda":
            return 0
        torch.cuda.reset_peak_memory_stats(self.encoder.device)
        ours = sum(part.nbytes for part in (*self.both.parameters(), *self.both.buffers()))
        return torch.cuda.memory_allocated(self.encoder.device) - ours

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        shapes = [list(p.shape) for p in self.parameters]
        said = [asdict(self.settings), self.objective.describe(), len(self.examples), self.total, shapes, FORMAT]
        return digest_of(json.dumps(said, sort_keys=True, default=str))

    def _state(self) -> Tensors:
        tensors: Tensors = {f"encoder.{n}": p for n, p in self.encoder.named_parameters() if p.requires_grad}
        tensors |= {f"objective.{n}": p for n, p in self.objective.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": moment for name, moment in moments.items()}
        return tensors

    def _save(self, step: int) -> None:
        if self.folder is None:
            return
        if not all(p.isfinite().all() for p in self.parameters):
            raise TrainingError(
                f"{self.name}: the weights became NaN or infinite in step {step} although its loss did not, so they "
                f"were not saved; the checkpoint before it in {self.folder} is whole. Lower the learning rate, or clip."
            )
        if not self.accelerator.is_main_process:
            return
        facts = {"fingerprint": self._fingerprint(), "curve": self.curve, "total": self.total}
        save_checkpoint(self.folder, step, self._state(), facts)

    def _resume(self) -> int:
        """Go on from the latest checkpoint that is sound; returns its step. A damaged one goes, and that is said."""
        for path in checkpoints(self.folder) if self.folder else ():
            try:
                tensors, facts = load_checkpoint(path)
            except TrainingError as error:
                say(f"{self.name}: {error}; it is deleted, and training goes on from the one before it, if any")
                shutil.rmtree(path, ignore_errors=True)
                continue
            self._take(path, tensors, facts)
            return facts["step"]
        return 0

    def _take(self, path: Path, tensors: Tensors, facts: Values) -> None:
        """Take weights, moments and curve of a checkpoint, which must be of this very run."""
        if facts.get("fingerprint") != self._fingerprint():
            raise TrainingError(
                f"{path} belongs to a run with other settings, objective, encoder shape or data size; use another "
                "folder, or delete this one to start afresh"
            )
        parts: dict[str, Tensors] = {"encoder": {}, "objective": {}, "optimiser": {}}
        for name, tensor in tensors.items():
            part, _, name = name.partition(".")
            parts[part][name] = tensor
        self.encoder.load_state_dict(parts["encoder"], strict=False)  # what is frozen was not saved
        self.objective.load_state_dict(parts["objective"])
        optimiser = self.optimiser.state_dict()
        for name, moment in parts["optimiser"].items():
            number, _, name = name.partition(".")
            optimiser["state"].setdefault(int(number), {})[name] = moment
        self.optimiser.load_state_dict(optimiser)
        self.curve = facts["curve"]
