"""DialogueCSE's step, context encoded once and candidates together, against a plain loop over candidates.

    python -m benchmarks.matching

Forward and backward pass of the same groups with the same weights; the exit code is 1 unless the packed step is at
least 5 times faster and the losses agree to 1e-6.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from dialnb import losses
from dialnb.examples.batches import Batch
from dialnb.examples.matching import MatchingExamples
from dialnb.training.objectives_dialogue import MatchingGuidedObjective


def naive_loss(encoder, objective: MatchingGuidedObjective, batch: Batch) -> torch.Tensor:
    """The loss candidate by candidate: the context encoded again for each of them, full matching matrices."""
    rows = []
    for turns, candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        similarity = []
        for candidate in candidates:
            states, packed = encoder.hidden(batch.tokens["texts"][[*turns[turns >= 0], candidate]])
            parts = states.split(packed.lengths.tolist())
            *context, response = (parts[place] for place in packed.rank.tolist())
            ones = [torch.ones(len(tokens), device=response.device) for tokens in (*context, response)]
            pooled = [
                (losses.matching_matrix(turn, mask, response, ones[-1]) @ response).mean(0)
                for turn, mask in zip(context, ones)
            ]
            aware = torch.stack(pooled)
            if objective.attention is None:
                aware = aware.mean(0)
            else:
                aware = (objective.attention(aware).softmax(0) * aware).sum(0)
            similarity.append(torch.cosine_similarity(response.mean(0), aware, dim=0))
        rows.append(-(torch.stack(similarity) / objective.temperature).log_softmax(0)[0])
    return torch.stack(rows).mean()


def bench_matching(encoder, examples: MatchingExamples, groups: int = 8, repeats: int = 2) -> dict[str, float]:
    """Seconds of one forward and backward pass either way (best of ``repeats``), their ratio, and the losses' gap."""
    objective = MatchingGuidedObjective(encoder.dim).to(encoder.device)
    batch = examples.batch(np.arange(groups), np.random.default_rng(0))
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "packed": lambda: objective.terms(encoder, batch)["matching"],
        "naive": lambda: naive_loss(encoder, objective, batch),
    }
    row: dict[str, float] = {}
    values = {}
    for name, way in ways.items():
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            loss = way()
            loss.backward()
            values[name] = loss.item()
            seconds.append(time.perf_counter() - began)
        row[f"{name} (s)"] = min(seconds)
    row["times faster"] = row["naive (s)"] / row["packed (s)"]
    return row | {"difference": abs(values["packed"] - values["naive"])}


def main() -> int:
    from dialnb.data import load
    from dialnb.examples.matching import build_groups, matching_examples, sessions
    from dialnb.models.encoder import load_encoder

    encoder = load_encoder("mini")
    found = sessions(load("bundled/SGD"))[:50]
    row = bench_matching(encoder, matching_examples(encoder, build_groups(found)))
    print("  ".join(f"{name} {value:.3g}" for name, value in row.items()))
    return int(row["times faster"] < 5 or row["difference"] > 1e-6)


if __name__ == "__main__":
    sys.exit(main())
