"""The engine against its peers: every row measured in the same run on the same texts.

``python -m benchmarks`` runs it: the training step of DSE (pairs per second), the cross-encoder step of UMS (real
tokens per second) and its scoring (lists of ten per second), the matching step of DialogueCSE (groups per second), and
encoding (texts per second). Weights are random: speed does not depend on them.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks import peers
from dialnb.data.records import SelectionGroup
from dialnb.examples.manipulations import manipulation_examples
from dialnb.examples.matching import build_groups, matching_examples, sessions
from dialnb.examples.pairs import pair_examples
from dialnb.models.encoder import Encoder
from dialnb.models.selector import Selector
from dialnb.tokens import Tokens
from dialnb.training import Batch, Objective, TrainingSettings, pretrain, train
from dialnb.training.objectives import MatchingGuidedObjective, PairObjective

SHAPES = pretrain.SHAPES | {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "tiny": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512},
}


def random_encoder(shape: str, tokenizer, device: torch.device, vocabulary: int = 30522) -> Encoder:
    """An encoder of the given shape with random weights."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": max(vocabulary, len(tokenizer)), **SHAPES[shape]}
    config = BertConfig(**sizes)
    return Encoder(BertModel(config), tokenizer, name=f"random {shape}").to(device)


def measure(name: str, work: Callable[[], dict], device: torch.device) -> dict:
    """One row: what ``work`` returns plus peak memory; memory is emptied before."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    row = {"what": name, **work()}
    if device.type == "cuda":
        row["peak_gb"] = torch.cuda.max_memory_allocated(device) / 2**30
    return row


def layer_flops(encoder: Encoder, lengths: np.ndarray) -> float:
    """Floating-point operations of one forward and backward pass over real tokens: 6 per weight and token, plus
    attention's two products (12 * width * length**2 per layer)."""
    c = encoder.transformer.config
    weights = c.num_hidden_layers * (4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size)
    lengths = lengths.astype(np.float64)
    return 6 * weights * lengths.sum() + 12 * c.num_hidden_layers * c.hidden_size * (lengths**2).sum()


def bench_training(
    pairs: peers.Pairs, tokenizer, shape: str, device: torch.device, batch: int, steps: int, compare: bool = True
) -> list[dict]:
    """DSE's full step: hard-negative loss, Adam, batch of ``batch`` pairs of at most 32 tokens, in a training of
    ``steps``: on a GPU with the time in which passes are recorded. Peers are timed on fewer steps, after some."""
    cuda = device.type == "cuda"
    rows = []

    def ours() -> dict:
        encoder = random_encoder(shape, tokenizer, device)
        examples = pair_examples(encoder, pairs)
        warmup = len(pairs) // batch + 2 if cuda else 2  # a whole epoch: every shape is recorded then
        settings = TrainingSettings(batch, max_steps=warmup, epochs=1e6, precision="bfloat16" if cuda else "float32")
        objective = PairObjective(encoder.dim)
        train(encoder, objective, examples, settings, show_progress=False)
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        result = train(encoder, objective, examples, replace(settings, max_steps=steps), show_progress=False)
        lengths = examples.tokens.lengths
        both = np.concatenate([lengths[examples.first], lengths[examples.second]])
        flops = layer_flops(encoder, both) / len(pairs)
        return {
            "rate": result.examples_per_second,
            "tokens_per_s": result.tokens_per_second,
            "tflops": result.examples_per_second * flops / 1e12,
            "mean_tokens": both.mean(),
        }

    def authors() -> dict:
        model = random_encoder(shape, tokenizer, device).transformer
        return {"rate": peers.authors_loop(model, tokenizer, pairs, batch, 2, max(2, steps // 48))}

    def trainer(beforehand: bool) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            random_encoder(shape, tokenizer, torch.device("cpu")).save(folder)
            warmup, timed = (8, steps // 12) if cuda else (3, max(3, steps // 4))
            return {"rate": peers.sentence_transformers_trainer(folder, pairs, batch, warmup, timed, beforehand)}

    rows.append(measure("dialnb", ours, device))
    if compare:
        for how, beforehand in {"": False, ", tokenised beforehand": True}.items():
            name = "sentence-transformers trainer" + (", bf16" if cuda else "") + how
            rows.append(measure(name, partial(trainer, beforehand), device))
        rows.append(measure("authors' loop (fp32, padded to 32)", authors, device))
    return [{"bench": f"train {shape}, batch {batch}", "unit": "pairs/s", **row} for row in rows]


def bench_encoding(texts: Sequence[str], kind: str, tokenizer, shape: str, device: torch.device) -> list[dict]:
    """``Encoder.encode`` and ``SentenceTransformer.encode`` in float32 on the same texts, which are of some ``kind``;
    vectors compared."""
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as folder:
        encoder = random_encoder(shape, tokenizer, device).eval()
        encoder.save(folder)
        peer = SentenceTransformer(folder, device=str(device))

    def timed(encode: Callable[[Sequence[str]], np.ndarray]) -> tuple[dict, np.ndarray]:
        encode(texts)  # once before: kernels of every length are made then
        began = time.perf_counter()
        vectors = encode(texts)
        return {"rate": len(texts) / (time.perf_counter() - began)}, vectors

    rows, vectors = [], []
    ways = {"dialnb": encoder.encode} | {
        f"SentenceTransformer.encode, batch {size}": lambda t, size=size: peer.encode(
            list(t), batch_size=size, show_progress_bar=False
        )
        for size in ((32, 256) if device.type == "cuda" else (32,))
    }
    for name, encode in ways.items():
        row, found = timed(encode)
        rows.append({"bench": f"encode {shape}, float32, {kind}", "unit": "texts/s", "what": name, **row})
        vectors.append(found)
    rows[0]["max_difference"] = float(np.abs(vectors[0] - vectors[1]).max())
    return rows


class _Rows:
    """Long token rows as examples of a cross-encoder."""

    groups = None

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        labels = (np.arange(len(rows)) % 2).astype(np.float32)
        return Batch(len(rows), {"text": self.tokens[rows]}, {"labels": labels}, {"selection": len(rows)})


class _Selection(Objective):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, 1)

    def terms(self, encoder, batch: Batch) -> dict[str, torch.Tensor]:
        logits = self.head(encoder.embed(batch.tokens["text"], "cls")).squeeze(1)
        labels = batch.tensor("labels", logits.device)
        return {"selection": nn.functional.binary_cross_entropy_with_logits(logits, labels)}


def bench_cross_encoder(tokens: Tokens, tokenizer, shape: str, device: torch.device, steps: int) -> list[dict]:
    """UMS's step: 32 inputs of up to 512 tokens, one logit each, in a training of ``steps``, as above."""
    cuda = device.type == "cuda"

    def ours() -> dict:
        encoder = random_encoder(shape, tokenizer, device)
        settings = TrainingSettings(
            32, max_steps=20 if cuda else 2, epochs=1e6, learning_rate=3e-5, optimiser="adamw",
            precision="bfloat16" if cuda else "float32",
        )  # fmt: skip
        objective = _Selection(encoder.dim)
        train(encoder, objective, _Rows(tokens), settings, show_progress=False)
        result = train(encoder, objective, _Rows(tokens), replace(settings, max_steps=steps), show_progress=False)
        return {"rate": result.tokens_per_second, "mean_tokens": tokens.lengths.mean()}

    def padded() -> dict:
        model = random_encoder(shape, tokenizer, device).transformer
        rows = [tokens[i] for i in range(len(tokens))]
        return {"rate": peers.padded_step(model, rows, 3, max(3, steps // (6 if cuda else 2)))}

    rows = [measure("dialnb", ours, device), measure("plain loop, padded to 512", padded, device)]
    return [{"bench": f"cross-encoder {shape}, batch 32", "unit": "real tokens/s", **row} for row in rows]


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 (x86: AMX or AVX-512; ARM: its instructions for it)."""
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def bench_scoring(
    groups: Sequence[SelectionGroup], tokenizer, shape: str, device: torch.device, narrow: bool
) -> list[dict]:
    """A cross-encoder scores lists of replies to contexts of up to 512 tokens, in float32 or ``narrow``, in bfloat16;
    the plain loop gets its inputs tokenised."""
    selector = Selector(random_encoder(shape, tokenizer, device))
    transformer = selector.encoder.transformer
    selector.encoder.dtype = torch.bfloat16 if narrow else None
    examples = manipulation_examples(selector.encoder, groups, tasks=())
    inputs = list(examples.selections(range(len(examples))))
    few, some = groups[: len(groups) // 10], inputs[: len(inputs) // 10]

    def timed(score: Callable, warmup: Sequence, asked: Sequence) -> dict:
        score(warmup)  # kernels are made then
        began = time.perf_counter()
        score(asked)
        return {"rate": len(groups) / (time.perf_counter() - began), "mean_tokens": np.mean([*map(len, inputs)])}

    plain = partial(peers.padded_scores, transformer, narrow=narrow)
    rows = [
        measure("dialnb", partial(timed, selector.score, few, groups), device),
        measure("plain loop, padded to 512", partial(timed, plain, some, inputs), device),
    ]
    precision = "bfloat16" if narrow else "float32"
    return [{"bench": f"scoring {shape}, {precision}", "unit": "lists of ten/s", **row} for row in rows]


def bench_matching(tokenizer, shape: str, device: torch.device, groups: int) -> list[dict]:
    """DialogueCSE's step without the optimiser, float32: ``groups`` of ten candidates go through the encoder together
    and a context once, against a loop over candidates. The better of three, and how far the losses are apart."""
    from dialnb.data import load

    encoder = random_encoder(shape, tokenizer, device).eval()  # no dropout: both compute the same loss
    talks = sessions(load("bundled/SGD", split="train")[:50])
    batch = matching_examples(encoder, build_groups(talks)).batch(np.arange(groups), np.random.default_rng(0))
    objective, losses = MatchingGuidedObjective(encoder.dim).to(device), {}
    seconds: dict[str, float] = {}
    ways = {
        "dialnb": lambda: objective.terms(encoder, batch)["matching"],
        "loop over candidates": lambda: peers.loop_over_candidates(encoder, objective, batch),
    }
    for name, way in ways.items():
        for _ in range(3):
            began = time.perf_counter()
            loss = way()
            loss.backward()
            losses[name] = loss.item()
            encoder.transformer.embeddings.word_embeddings.weight.grad.sum().item()  # the device has ended then
            seconds[name] = min(seconds.get(name, np.inf), time.perf_counter() - began)
    rows = [{"what": name, "rate": groups / took} for name, took in seconds.items()]
    rows[0]["max_difference"] = abs(losses["dialnb"] - losses["loop over candidates"])
    return [{"bench": f"matching {shape}, {groups} groups of 10", "unit": "groups/s", **row} for row in rows]


def bundled_pairs() -> peers.Pairs:
    """Consecutive utterances of real dialogues."""
    from dialnb.data import load
    from dialnb.examples.pairs import consecutive_pairs

    return consecutive_pairs([[u.text for u in d.utterances] for d in load("bundled/SGD")])


def bundled_inputs(encoder, most: int) -> Tokens:
    """Contexts with their right replies, of up to 512 tokens."""
    from dialnb.data import load

    groups = load("bundled/UbuntuIRC", "selection-10", split="train")[:most]
    return encoder.tokenize([" [SEP] ".join((*g.context, *g.candidates[:1])) for g in groups], 512, "left")


def as_table(rows: list[dict]) -> pd.DataFrame:
    """Rows with the ratio of dialnb's rate to each peer's, per bench."""
    table = pd.DataFrame(rows)
    own = table[table["what"] == "dialnb"].set_index("bench")["rate"]
    table.insert(table.columns.get_loc("rate") + 1, "dialnb_is", own.loc[table["bench"]].to_numpy() / table["rate"])
    return table


def run_benchmarks(
    shape: str | None = None, batch: int | None = None, steps: int | None = None
) -> Iterator[pd.DataFrame]:
    """A table for each bench on this machine's best device, on bundled dialogues with the bundled encoder's pieces."""
    from dialnb.data import load
    from dialnb.models.encoder import load_encoder

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    shape, batch, steps = (
        shape or ("base" if cuda else "mini"),
        batch or (1024 if cuda else 128),
        steps or (600 if cuda else 12),
    )
    tokenizer = load_encoder("mini", device="cpu").tokenizer
    said = [u.text for d in load("bundled/SGD") for u in d.utterances]
    texts = {"utterances as said": said, "distinct utterances": list(dict.fromkeys(said))}
    encoder = random_encoder(shape, tokenizer, torch.device("cpu"))
    long = bundled_inputs(encoder, 3_000 if cuda else 200)
    yield as_table(bench_training(bundled_pairs(), tokenizer, shape, device, batch, steps))
    yield as_table(bench_cross_encoder(long, tokenizer, shape, device, steps if cuda else max(4, steps // 5)))
    lists = load("bundled/UbuntuIRC", "selection-10", split="test")[: 1_000 if cuda else 20]
    for narrow in (False, True)[: 1 + (cuda or has_bfloat16())]:
        yield as_table(bench_scoring(lists, tokenizer, shape, device, narrow))
    yield as_table(bench_matching(tokenizer, shape, device, 64 if cuda else 8))
    for kind, some in texts.items():
        yield as_table(bench_encoding(some[: 30_000 if cuda else 4_000], kind, tokenizer, shape, device))
