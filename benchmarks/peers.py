"""What a user would pick instead, run as its authors intend: the loop of DSE's code, and sentence-transformers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from dialnb.examples.batches import Batch
from dialnb.losses import hard_negative_loss, matching_matrix
from dialnb.models.encoder import Encoder
from dialnb.models.heads import contrastive_head
from dialnb.models.wordpieces import Wordpieces
from dialnb.tokens import Numbers, Tokens
from dialnb.training.objectives import MatchingGuidedObjective

Pairs = Sequence[tuple[str, str]]


class Clock:
    """Examples per second over the steps after the warm-up, device work included."""

    def __init__(self, device: torch.device, warmup: int) -> None:
        self.device, self.warmup, self.step, self.examples, self.seconds = device, warmup, 0, 0, 0.0

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def tick(self, examples: int) -> None:
        """Call after every step."""
        self.step += 1
        if self.step == self.warmup:
            self.began = self._now()
        elif self.step > self.warmup:
            self.examples += examples

    def rate(self) -> float:
        return self.examples / (self._now() - self.began)


def batches(pairs: Pairs, size: int, steps: int) -> Iterator[list[tuple[str, str]]]:
    """``steps`` shuffled batches, going round when the pairs run out."""
    order = np.random.default_rng(0).permutation(len(pairs))
    for step in range(steps):
        yield [pairs[order[i % len(order)]] for i in range(step * size, (step + 1) * size)]


def authors_loop(model: Any, tokenizer, pairs: Pairs, batch: int, warmup: int, steps: int) -> float:
    """DSE's released loop: float32, tokenised in every step, padded to 32, plain Adam. Pairs per second."""
    device = next(model.parameters()).device
    head = contrastive_head(model.config.hidden_size).to(device)
    groups = [{"params": model.parameters(), "lr": 3e-6}, {"params": head.parameters(), "lr": 3e-4}]
    optimiser = torch.optim.Adam(groups)
    clock = Clock(device, warmup)
    model.train()
    for chosen in batches(pairs, batch, warmup + steps):
        vectors = []
        for side in zip(*chosen, strict=True):
            inputs = tokenizer(list(side), max_length=32, padding="max_length", truncation=True, return_tensors="pt")
            ids, mask = inputs["input_ids"].to(device), inputs["attention_mask"].to(device)
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            vectors.append(head((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)))
        loss = hard_negative_loss(*vectors)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()
        clock.tick(batch)
    return clock.rate()


class Ready:
    """Collates pairs that were tokenised beforehand, as fast as padding allows: columns hold rows of ``tokens``."""

    valid_label_columns = ()

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __call__(self, features: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        found = {}
        for side in ("anchor", "positive"):
            padded = self.tokens[[row[side] for row in features]].padded()
            for name, array in zip(("input_ids", "attention_mask"), padded, strict=True):
                found[f"{side}_{name}"] = torch.from_numpy(array)
        return found


def sentence_transformers_trainer(
    folder: str, pairs: Pairs, batch: int, warmup: int, steps: int, beforehand: bool = False
) -> float:
    """sentence-transformers' own trainer with its in-batch loss (bf16 on a GPU), which tokenises on the way, or reads
    what was tokenised ``beforehand``. Pairs per second."""
    import tempfile

    from datasets import Dataset
    from sentence_transformers import (  # type: ignore[attr-defined]  # which finds `losses` when it is asked for it
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )
    from transformers import TrainerCallback

    model = SentenceTransformer(folder)
    model.max_seq_length = 32
    clock = Clock(torch.device(model.device), warmup)

    class Tick(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            clock.tick(batch)

    chosen = [pair for part in batches(pairs, batch, warmup + steps) for pair in part]
    sides: Any = [a for a, _ in chosen], [b for _, b in chosen]
    if beforehand:
        numbers = Numbers()
        sides = [numbers.of(side) for side in sides]
        ready = Ready(Wordpieces(model.tokenizer)(list(numbers), 32))
    data = Dataset.from_dict({"anchor": sides[0], "positive": sides[1]})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            scratch, max_steps=warmup + steps, per_device_train_batch_size=batch, bf16=clock.device.type == "cuda",
            save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        loss = losses.MultipleNegativesRankingLoss(model)
        trainer: Any = SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=[Tick()])
        if beforehand:
            trainer.data_collator = ready
        trainer.train()
    return clock.rate()


def padded_to_512(rows: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = torch.zeros(len(rows), 512, dtype=torch.long), torch.zeros(len(rows), 512, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = torch.from_numpy(row.astype(np.int64)), 1
    return ids, mask


def padded_step(model: Any, rows: Sequence[np.ndarray], warmup: int, steps: int, batch: int = 32) -> float:
    """A plain cross-encoder loop: bf16 autocast on a GPU, padded to 512, one logit on [CLS]. Real tokens per second."""
    device = next(model.parameters()).device
    head = nn.Linear(model.config.hidden_size, 1).to(device)
    optimiser = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=3e-5)
    clock = Clock(device, warmup)
    model.train()
    for step in range(warmup + steps):
        chosen = [rows[(step * batch + i) % len(rows)] for i in range(batch)]
        ids, mask = padded_to_512(chosen)
        labels = (torch.arange(batch, device=device) % 2).float()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            states = model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
            logits = head(states[:, 0]).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()
        clock.tick(sum(len(row) for row in chosen))
    return clock.rate()


@torch.inference_mode()
def padded_scores(model: nn.Module, rows: Sequence[np.ndarray], narrow: bool, batch: int = 32) -> np.ndarray:
    """A plain scoring loop over inputs in their order: padded to 512, states of [CLS]."""
    device, states = next(model.parameters()).device, []
    model.eval()
    for start in range(0, len(rows), batch):
        ids, mask = padded_to_512(rows[start : start + batch])
        with torch.autocast(device.type, torch.bfloat16, enabled=narrow):
            found = model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state[:, 0]
        states.append(found.float().cpu().numpy())
    return np.concatenate(states)


def loop_over_candidates(encoder: Encoder, objective: MatchingGuidedObjective, batch: Batch) -> torch.Tensor:
    """DialogueCSE's loss as its equations read, candidate by candidate: the context is encoded again for each of them,
    and matrices of all tokens are made."""
    rows = []
    for turns, candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        similarity = []
        for candidate in candidates:
            states, packed = encoder.hidden(batch.tokens["texts"][[*turns[turns >= 0], candidate]])
            parts = states.split(packed.lengths.tolist())
            *context, response = (parts[place] for place in packed.rank.tolist())
            everything = torch.ones(len(response), device=response.device)
            seen = []
            for turn in context:
                matrix = matching_matrix(turn, turn.new_ones(len(turn)), response, everything)
                seen.append((matrix @ response).mean(0))
            aware = torch.stack(seen)
            weights = 1 / len(seen) if objective.attention is None else objective.attention(aware).softmax(0)
            similarity.append(torch.cosine_similarity(response.mean(0), (weights * aware).sum(0), dim=0))
        rows.append(-(torch.stack(similarity) / objective.temperature).log_softmax(0)[0])
    return torch.stack(rows).mean()
