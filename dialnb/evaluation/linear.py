"""One linear layer on frozen vectors, fitted to convergence on whitened features (DiaEval).

Whitening on the training vectors makes the penalty blind to the encoder's coordinates: an invertible linear map of all
vectors changes no prediction, so that a probe compares what vectors hold and not how they are scaled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch.nn import functional

from dialnb.errors import DataError, check_known
from dialnb.evaluation.hidden import fit_hidden
from dialnb.evaluation.metrics import Score
from dialnb.evaluation.vectors import SupportsEncode, encode

PENALTIES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Weights of the squared norm beside the mean loss, the strongest first."""

KINDS = ("linear", "hidden", "majority")
"""Readings of the layer that is trained on a frozen encoder; and its floor, which asks no encoder."""

FLAT = 1e-13
"""Directions with less than this share of the largest variance are rounding errors, and are left out."""


@dataclass(frozen=True)
class LinearProbe:
    """A fitted layer for vectors as they come, and the penalty that it was fitted with."""

    weight: ndarray
    bias: ndarray
    penalty: float

    def logits(self, vectors: ndarray) -> ndarray:
        """Scores [n, classes]; a class is predicted where its logit is largest, or positive for several labels."""
        return np.asarray(vectors, np.float64) @ self.weight.T + self.bias


def whitening(vectors: ndarray) -> tuple[ndarray, ndarray]:
    """Mean [d] and map [d, rank] after which the vectors have mean zero and the identity as covariance."""
    mean = vectors.mean(0)
    variances, directions = np.linalg.eigh(np.cov(vectors - mean, rowvar=False, bias=True).reshape(len(mean), -1))
    kept = variances > max(FLAT * variances.max(), np.finfo(np.float64).tiny)
    return mean, directions[:, kept] / np.sqrt(variances[kept])


def fit_linear(
    train: tuple[ndarray, ndarray],
    validation: tuple[ndarray, ndarray],
    score: Score,
    *,
    penalties: Sequence[float] = PENALTIES,
) -> LinearProbe:
    """The best layer over a grid of L2 penalties, each fitted to convergence (L-BFGS) from the one before it.

    Targets are class numbers [n] (softmax cross-entropy) or a 0/1 matrix [n, classes] (sigmoid cross-entropy).
    ``score(logits, targets)`` is the validation metric; of equal scores the earlier penalty wins. The bias is free, and
    there is no chance in it. All on the CPU: on a GPU thousands of steps as small as these wait.
    """
    (vectors, targets), (held_out, held_out_targets) = train, validation
    vectors = np.asarray(vectors, np.float64)
    mean, to_white = whitening(vectors)
    several = targets.ndim == 2
    classes = targets.shape[1] if several else 1 + int(max(targets.max(), held_out_targets.max()))
    inputs = torch.from_numpy((vectors - mean) @ to_white).float()
    wanted = torch.from_numpy(targets.astype(np.float32 if several else np.int64))
    layer = torch.nn.Linear(inputs.shape[1], classes)
    for part in layer.parameters():
        torch.nn.init.zeros_(part)
    best_value = -np.inf
    for penalty in penalties:
        _descend(layer, inputs, wanted, several, penalty)
        weight, bias = (part.detach().double().numpy() for part in layer.parameters())
        weight = weight @ to_white.T
        probe = LinearProbe(weight, bias - weight @ mean, penalty)
        value = float(score(probe.logits(held_out), held_out_targets))
        if value > best_value:
            best = probe
            best_value = value
    return best


def most_frequent(targets: ndarray) -> ndarray:
    """The most frequent combination of labels [classes], of class numbers or of rows of a 0/1 matrix."""
    if targets.ndim == 1:
        return np.eye(1 + targets.max(), dtype=np.int8)[np.bincount(targets).argmax()]
    combinations, often = np.unique(targets, axis=0, return_counts=True)
    return combinations[often.argmax()]


def probe_texts(
    encoder: SupportsEncode,
    texts: Sequence[Sequence[str]],
    targets: Sequence[ndarray],
    score: Score,
    max_length: int,
    kind: str = "linear",
) -> tuple[ndarray, dict[str, Any]]:
    """Logits of test texts by a layer on the frozen encoder, and how it was chosen.

    ``texts`` and ``targets`` are those of training, validation and test; texts are cut from the left. The ``kind`` of
    probe is a layer on whitened vectors (``linear``), one hidden layer on standardised ones (``hidden``), or none: the
    most frequent label (``majority``).
    """
    check_known("kind of probe", kind, KINDS)
    if kind == "majority":
        logits = most_frequent(targets[0]) - 0.5
        return np.broadcast_to(logits, (len(texts[2]), len(logits))), {"method": "majority"}
    if not all(map(len, texts)):
        raise DataError("a linear probe needs examples to train, validate and test on, and one of the splits is empty")
    train, held_out, test = (encode(encoder, part, max_length=max_length, truncate="left") for part in texts)
    parts = (train, targets[0]), (held_out, targets[1])
    if kind == "hidden":
        device = getattr(getattr(encoder, "encoder", encoder), "device", "cpu")
        layer = fit_hidden(*parts, score, device=device)
        return layer.logits(test), {"method": "hidden layer", "penalty": layer.penalty, "rate": layer.rate}
    probe = fit_linear(*parts, score)
    return probe.logits(test), {"method": "linear probe", "penalty": probe.penalty}


def _descend(layer: torch.nn.Linear, inputs: torch.Tensor, wanted: torch.Tensor, several: bool, penalty: float) -> None:
    """Take the layer to the minimum of its penalised loss."""
    steps = torch.optim.LBFGS(layer.parameters(), max_iter=500, tolerance_grad=1e-4, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        steps.zero_grad()
        logits = layer(inputs)
        if several:
            loss = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / len(inputs)
        else:
            loss = functional.cross_entropy(logits, wanted)
        loss = loss + penalty / 2 * layer.weight.square().sum()
        loss.backward()
        return loss

    steps.step(closure)
