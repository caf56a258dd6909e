"""`python -m benchmarks.scale -o figures/engine/scale.json`: how the cost of training on pairs grows.

Measured on this machine's CPU with a small encoder (2 layers, 128 wide, random weights): a step against its pairs,
memory against the pairs of the corpus, and the same step shared by 1, 2 and 4 processes. Computed: what 8 and 64 GPUs
say to each other in a step of BERT-base, from the recorded rate of one GPU and from bandwidths that are assumed and
named. Every measurement runs in a process of its own. Memory is read from /proc: Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.engine import random_encoder
from dialnb.examples.pairs import PairExamples, pair_examples
from dialnb.files import make_folder
from dialnb.losses import hard_negative_loss
from dialnb.models.encoder import load_encoder
from dialnb.plots import style
from dialnb.runs.provenance import provenance
from dialnb.tokens import Tokens, offsets_of
from dialnb.training import TrainingSettings, train
from dialnb.training.objectives import PairObjective

FOLDER = Path(__file__).resolve().parent.parent
RECORDED = FOLDER / "figures" / "engine" / "bench-gpu.json"
BATCHES = (16, 64, 256, 1024)
CORPORA = (2_500_000, 10_000_000, 20_000_000)
TEXTS = (20_000, 80_000)
PROCESSES = (1, 2, 4)
BLOCK = 500_000  # generated pairs written at a time
TEXT_BLOCK = 5_000  # pairs of texts tokenised at a time
SHARE = 0.1


# --- a corpus on disk -------------------------------------------------------------------------------------------------


def pairs_on_disk(parts: Iterable[PairExamples], folder: Path) -> PairExamples:
    """All pairs of ``parts`` (of blocks of a corpus, say) as three files, written part by part and mapped, so that
    memory holds one part while they are written and what a batch needs while they are read."""
    make_folder(folder)
    kinds = {"ids": np.int32, "offsets": np.int64, "pairs": np.int64}
    files = {name: (folder / name).open("wb") for name in kinds}
    try:
        np.zeros(1, np.int64).tofile(files["offsets"])
        texts = end = 0
        for part in parts:
            part.tokens.ids.tofile(files["ids"])
            (part.tokens.offsets[1:] + end).tofile(files["offsets"])
            (np.stack([part.first, part.second], 1) + texts).tofile(files["pairs"])
            texts, end = texts + len(part.tokens), end + len(part.tokens.ids)
    finally:
        for file in files.values():
            file.close()
    return open_pairs(folder)


def open_pairs(folder: Path, mapped: bool = True) -> PairExamples:
    """What ``pairs_on_disk`` wrote; not mapped: as arrays in memory."""
    kinds = {"ids": np.int32, "offsets": np.int64, "pairs": np.int64}
    read = (lambda path, kind: np.asarray(np.memmap(path, kind, "r"))) if mapped else np.fromfile
    ids, offsets, pairs = (read(folder / name, kind) for name, kind in kinds.items())
    return PairExamples(Tokens(ids, offsets), *pairs.reshape(-1, 2).T)


def generated(pairs: int, seed: int = 0, block: int = BLOCK) -> Iterator[PairExamples]:
    """So many pairs of neighbours in a stream of random texts of 3 to 7 tokens, in blocks."""
    rng = np.random.default_rng(seed)
    for start in range(0, pairs, block):
        first = np.arange(min(block, pairs - start))
        offsets = offsets_of(rng.integers(3, 8, len(first) + 1))
        ids = rng.integers(5, 1000, offsets[-1], dtype=np.int32)
        yield PairExamples(Tokens(ids, offsets), first, first + 1)


# --- what one process measures ----------------------------------------------------------------------------------------


def resident(kind: str = "RssAnon") -> float:
    """Resident memory of this process in MB: "RssAnon" is its own, "RssFile" the pages of files that it maps, which
    the system takes back when it needs them."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) * 1024 / 1e6


class Peak:
    """The most memory of its own that the process holds within the block, above what it held before, in MB."""

    def __enter__(self) -> Peak:
        self.before = self.most = resident()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *_) -> None:
        self._over.set()
        self._watcher.join()
        self.grown = max(self.most, resident()) - self.before


def small_training(examples: PairExamples, batch: int, steps: int, encoder=None) -> float:
    """Seconds that a step takes."""
    encoder = encoder or tiny_encoder()
    torch.manual_seed(0)
    settings = TrainingSettings(batch, epochs=1e6, max_steps=steps)
    return train(encoder, PairObjective(encoder.dim), examples, settings, show_progress=False).seconds / steps


def tiny_encoder():
    return random_encoder("tiny", load_encoder("mini", device="cpu").tokenizer, torch.device("cpu"))


def measure_step(batch: int, steps: int) -> dict:
    """A step of so many pairs (shared, where there are several processes), and the loss of such a batch alone."""
    (examples,) = generated(20_000, block=20_000)
    encoder = tiny_encoder()
    small_training(examples, batch, 1, encoder)
    seconds = small_training(examples, batch, steps, encoder)
    sides = torch.randn(2, batch, 128, requires_grad=True)
    hard_negative_loss(*sides).backward()
    began = time.perf_counter()
    for _ in range(3):
        hard_negative_loss(*sides).backward()
    loss = (time.perf_counter() - began) / 3
    return {"batch": batch, "seconds": seconds, "pairs_per_s": batch / seconds, "loss_seconds": loss}


def measure_corpus(folder: Path, mapped: bool, steps: int = 12, batch: int = 64) -> dict:
    """Memory of a training on pairs that lie in ``folder``."""
    (few,) = generated(4_000)
    encoder = tiny_encoder()
    small_training(few, batch, steps, encoder)
    with Peak() as memory:
        examples = open_pairs(folder, mapped)
        seconds = small_training(examples, batch, steps, encoder)
    where = "on disk" if mapped else "in memory"
    found = {"pairs": len(examples), "where": where, "grown_mb": memory.grown, "mapped_mb": resident("RssFile")}
    return found | {"seconds": seconds}


def measure_making(pairs: int, blocks: bool) -> dict:
    """Memory and time of making examples from texts, which come one by one, as from a file."""
    encoder = tiny_encoder()
    pair_examples(encoder, [("a table", "for two")])

    def texts(start: int, stop: int) -> list[tuple[str, str]]:
        return [(f"is there a train number {i} to town", f"yes it leaves at {i} today") for i in range(start, stop)]

    began = time.perf_counter()
    with TemporaryDirectory() as folder, Peak() as memory:
        if blocks:
            starts = range(0, pairs, TEXT_BLOCK)
            parts = (pair_examples(encoder, texts(i, min(i + TEXT_BLOCK, pairs))) for i in starts)
            pairs_on_disk(parts, Path(folder))
        else:
            pair_examples(encoder, texts(0, pairs))
        seconds = time.perf_counter() - began
    way = "block by block" if blocks else "all at once"
    return {"pairs": pairs, "way": way, "seconds": seconds, "grown_mb": memory.grown}


# --- what GPUs say to each other --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assumed:
    """What is not measured here. Bandwidths are what a ring of all GPUs reaches (NCCL's "bus bandwidth"), bytes/s."""

    bandwidth: float
    latency: float  # seconds of one collective call, however small
    float32: float = 47e12  # operations per second: 70 % of an H200's 67
    memory: float = 3.8e12  # bytes per second: 80 % of an H200's 4.8
    passes: int = 20  # how often the loss, forward and backward, reads or writes each similarity


NETWORKS = {
    "8 GPUs, NVLink": (8, Assumed(360e9, 20e-6)),
    "64 GPUs, 400 Gbit/s InfiniBand for each": (64, Assumed(360e9, 100e-6)),
    "64 GPUs, 400 Gbit/s InfiniBand for eight": (64, Assumed(45e9, 100e-6)),
}
"""8 adapters of a machine carry 45 GB/s each (of 50), which is as much as NVLink's ring; or one carries all."""

PARAMETERS = 109_482_240 + 768 * 768 + 768 * 128  # BERT-base and DSE's head
WIDTH = 128  # of the vectors that are gathered, float32
CALLS = 4  # collectives of a step: both sides of the pairs, who has a gradient, the gradient


def loss_seconds(pairs: float, assumed: Assumed) -> float:
    """The loss of a batch, forward and backward: three products and some passes over (2 pairs)² similarities."""
    each = 3 * 2 * WIDTH / assumed.float32 + 4 * assumed.passes / assumed.memory
    return (2 * pairs) ** 2 * each


def step_of(gpus: int, each: float, rate: float, assumed: Assumed) -> dict[str, float]:
    """Seconds and bytes of a step with ``each`` pairs on every GPU; ``rate`` is one GPU's, in pairs per second.

    Gathering is the vectors on the wire, their two calls, and the loss of the whole batch, which every GPU computes,
    beyond that of its own pairs. Nothing overlaps, as in the loop.
    """
    others = (gpus - 1) / gpus
    gathered, summed = 2 * gpus * each * WIDTH * 4, PARAMETERS * 4
    wire = gathered * others / assumed.bandwidth + 2 * assumed.latency
    loss = loss_seconds(gpus * each, assumed) - loss_seconds(each, assumed)
    reduce = 2 * summed * others / assumed.bandwidth + (CALLS - 2) * assumed.latency
    total = each / rate + wire + loss + reduce
    return {
        "pairs_per_gpu": each,
        "pairs": gpus * each,
        "gathered_bytes": gathered,
        "summed_bytes": summed,
        "compute_ms": 1e3 * each / rate,
        "wire_ms": 1e3 * wire,
        "loss_ms": 1e3 * loss,
        "reduce_ms": 1e3 * reduce,
        "wire_share": wire / total,
        "gathering_share": (wire + loss) / total,
        "efficiency": each / rate / total,
        "pairs_per_s": gpus * each / total,
    }


def costly_batch(gpus: int, rate: float, assumed: Assumed, share: float = SHARE, part: str = "gathering_share"):
    """The fewest pairs per GPU from which on, however many more, gathering costs that share of a step; None: it never
    does below a million."""
    sizes = np.unique(np.geomspace(1, 1e6, 20_000).astype(int))
    below = np.flatnonzero([step_of(gpus, each, rate, assumed)[part] < share for each in sizes])
    if not len(below):
        return 1
    return int(sizes[below[-1] + 1]) if below[-1] + 1 < len(sizes) else None


def recorded_rate(path: Path = RECORDED) -> float:
    """Pairs per second of one GPU in the recorded benchmark."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return next(row["rate"] for row in rows if row["bench"] == "train base, batch 1024" and row["what"] == "dialnb")


def model_rows(rate: float) -> list[dict]:
    """Steps of 128 and 1,024 pairs per GPU, and of the batch at which gathering costs a tenth, for every network."""
    rows = []
    for name, (gpus, assumed) in NETWORKS.items():
        limit = costly_batch(gpus, rate, assumed)
        wire = costly_batch(gpus, rate, assumed, part="wire_share")
        for each in sorted({128, 1024, limit}):
            row = {"network": name, "gpus": gpus, **step_of(gpus, each, rate, assumed)}
            rows.append(row | {"tenth_at": limit, "wire_tenth_at": wire, "assumed": asdict(assumed)})
    return rows


# --- all of it --------------------------------------------------------------------------------------------------------


def worker(*arguments: object, processes: int = 1) -> dict:
    """What a measurement in a process of its own (or in several together) says, one thread each."""
    launch = []
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launch = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}"]
    command = [sys.executable, *launch, "-m", "benchmarks.scale", "--measure", *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=FOLDER)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(what: str, *given: str) -> dict | None:
    """One measurement; of several processes, the first one speaks."""
    if what == "step":
        found = measure_step(int(given[0]), int(given[1]))
    elif what == "corpus":
        found = measure_corpus(Path(given[0]), given[1] == "mapped")
    else:
        found = measure_making(int(given[0]), given[1] == "blocks")
    if torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        return found | {"processes": size} if rank == 0 else None
    return found


def run_all(steps: int) -> dict[str, list[dict]]:
    """Every curve; lines of progress on the way."""
    found: dict[str, list[dict]] = {name: [] for name in ("batch", "processes", "corpus", "making")}

    def note(curve: str, row: dict) -> None:
        found[curve].append(row | {"load": os.getloadavg()[0]})
        print(curve, {k: round(v, 4) if isinstance(v, float) else v for k, v in found[curve][-1].items()}, flush=True)

    for batch in BATCHES:
        note("batch", worker("step", batch, max(3, steps * 64 // max(64, batch))))
    for processes in PROCESSES:
        note("processes", {"processes": 1} | worker("step", 256, steps, processes=processes))
    for pairs in CORPORA:
        with TemporaryDirectory() as folder:
            began = time.perf_counter()
            examples = pairs_on_disk(generated(pairs), Path(folder))
            written = {"write_seconds": time.perf_counter() - began}
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
            del examples
            for way in ("mapped", "whole"):
                note("corpus", worker("corpus", folder, way) | written | {"disk_bytes_per_pair": size / pairs})
    for pairs in TEXTS:
        for way in ("blocks", "whole"):
            note("making", worker("making", pairs, way))
    return found


def draw(content: dict, path: Path) -> None:
    """Four panels: a step against its pairs, memory against the corpus, processes, and what gathering costs."""
    figure, (step, memory, shared, share) = style.panels_two_abreast(4, 3.2)
    rows = content["rows"]
    for name, column, colour, marker in zip(
        ("whole step", "loss alone"), ("seconds", "loss_seconds"), style.PALETTE, style.MARKERS, strict=False
    ):
        pairs, seconds = [r["batch"] for r in rows["batch"]], [r[column] for r in rows["batch"]]
        step.loglog(pairs, seconds, color=colour, marker=marker, label=name)
    step.set(title="A step on one core", xlabel="pairs per step", ylabel="seconds")
    for where, colour, marker in zip(("on disk", "in memory"), style.PALETTE, style.MARKERS, strict=False):
        part = [r for r in rows["corpus"] if r["where"] == where]
        memory.plot(
            [r["pairs"] / 1e6 for r in part], [r["grown_mb"] for r in part], color=colour, marker=marker, label=where
        )
    memory.set(title="Memory of a training", xlabel="million pairs in the corpus", ylabel="MB")
    rates = {r["processes"]: r["pairs_per_s"] for r in rows["processes"]}
    shared.plot(list(rates), list(rates.values()), color=style.BLUE, marker="s", label="measured")
    cores = content["provenance"]["hardware"]["cores"]
    ideal = [rates[1] * min(n, cores) for n in rates]
    shared.plot(list(rates), ideal, color=style.SOFT, linestyle=style.DASHES[1], label="ideal on these cores")
    shared.set(title=f"256 pairs shared, {cores} cores", xlabel="processes", ylabel="pairs per second", ylim=(0, None))
    shared.set_xticks(list(rates))
    sizes = np.unique(np.geomspace(16, 16384, 60).astype(int))
    names = {"8 GPUs, NVLink": "8", "64 GPUs, 400 Gbit/s InfiniBand for each": "64, adapter each"}
    names["64 GPUs, 400 Gbit/s InfiniBand for eight"] = "64, adapter for eight"
    for (name, label), colour, dash in zip(names.items(), style.PALETTE, style.DASHES, strict=False):
        gpus, assumed = NETWORKS[name]
        costs = [100 * step_of(gpus, each, content["rate"], assumed)["gathering_share"] for each in sizes]
        share.semilogx(sizes, costs, color=colour, linestyle=dash, label=label)
    share.axhline(100 * SHARE, color=style.SOFT, linewidth=0.8)
    share.set(title="Gathered negatives, modelled", xlabel="pairs per GPU", ylabel="% of a step", ylim=(0, 100))
    for axes in (step, memory, shared):
        axes.legend()
    share.legend(title="GPUs", loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    style.save(figure, path.with_suffix(""), ("png",))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write rows with provenance, and draw them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="write rows and provenance here, a figure beside"
    )
    parser.add_argument("--steps", type=int, default=10, help="timed steps of 64 pairs; larger ones get fewer")
    parser.add_argument("--note", default="", help="what else there is to say about the machine, kept with the rows")
    parser.add_argument("--draw", action="store_true", help="draw what the file holds; measure nothing")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        torch.set_num_threads(1)
        if (found := measure(*options.measure)) is not None:
            print(json.dumps(found))
        return 0
    if not options.draw:
        rate = recorded_rate()
        content = {"provenance": provenance(), "note": options.note, "rate": rate}
        content["rows"] = run_all(options.steps) | {"model": model_rows(rate)}
        for row in content["rows"]["model"]:
            print("model", {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items() if k != "assumed"})
        if options.out:
            make_folder(options.out.parent)
            options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if options.out:
        draw(json.loads(options.out.read_text(encoding="utf-8")), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
