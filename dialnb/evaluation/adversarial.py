"""The adversarial test set of UMS: in each list one negative is replaced by an utterance of the context itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.evaluation.metrics import Ties, ranking_metrics, tidy_frame, tidy_rows
from dialnb.evaluation.selection import TIES, Scorer


@dataclass(frozen=True, slots=True)
class Replacement:
    """In dialogue number ``dialogue``, candidate number ``candidate`` becomes context utterance ``utterance``."""

    dialogue: int
    candidate: int
    utterance: int


@dataclass(frozen=True)
class AdversarialSet:
    """The changed lists, the index that makes them, and how many dialogues were left out and why."""

    groups: tuple[SelectionGroup, ...]
    index: tuple[Replacement, ...]
    left_out: dict[str, int]

    def frame(self) -> pd.DataFrame:
        """The index as a table (dialogue, candidate, utterance) to store beside the results."""
        return pd.DataFrame(
            [(r.dialogue, r.candidate, r.utterance) for r in self.index], columns=list(Replacement.__slots__)
        )


def build_adversarial(groups: Sequence[SelectionGroup], seed: int = 0) -> AdversarialSet:
    """Draw one context utterance and one negative per dialogue, uniformly, and put the one in the other's place.

    Blank utterances and those equal to a true response (after stripping) are not drawn. If the drawn utterance is
    already among the negatives it takes that place, so that no list holds it twice. Dialogues without a usable
    utterance or without a negative are left out. The draw for a dialogue depends on the seed and its number only.
    """
    draws = np.random.default_rng(seed).random((len(groups), 2))
    index: list[Replacement] = []
    left_out: dict[str, int] = {}
    for number, (group, (first, second)) in enumerate(zip(groups, draws)):
        true = {text.strip() for text, label in zip(group.candidates, group.labels) if label}
        usable = [i for i, text in enumerate(group.context) if text.strip() and text.strip() not in true]
        negatives = [i for i, label in enumerate(group.labels) if not label]
        if not usable or not negatives:
            reason = "no negative candidate" if usable else "no usable context utterance"
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        utterance = usable[int(first * len(usable))]
        drawn = group.context[utterance].strip()
        places = [i for i in negatives if group.candidates[i].strip() == drawn] or negatives
        index.append(Replacement(number, places[int(second * len(places))], utterance))
    return AdversarialSet(tuple(apply_index(groups, index)), tuple(index), left_out)


def apply_index(groups: Sequence[SelectionGroup], index: Iterable[Replacement]) -> list[SelectionGroup]:
    """The adversarial lists of a stored index: same context and labels, one candidate replaced."""
    changed: list[SelectionGroup] = []
    for entry in index:
        group = groups[entry.dialogue]
        if group.labels[entry.candidate]:
            raise DataError(f"the index replaces a true response of dialogue {group.id}: it was made for other data")
        candidates = list(group.candidates)
        candidates[entry.candidate] = group.context[entry.utterance]
        changed.append(replace(group, candidates=tuple(candidates)))
    return changed


def adversarial_metrics(
    original: np.ndarray,
    adversarial: np.ndarray,
    labels: np.ndarray,
    replaced: np.ndarray,
    ties: Ties = "against",
) -> dict[str, float]:
    """R_n@1 and MRR (fractions) on both sets, their drops, and the share of adversarial candidates ranked first.

    Rows of the three matrices [n, candidates] are the same dialogues; ``replaced`` is the adversarial column of each.
    With ties against the positive, an adversarial candidate that shares the top score with it is ranked first.
    """
    values: dict[str, float] = {}
    recall = f"R{np.shape(labels)[1]}@1"
    for name, scores in (("Original", original), ("Adversarial", adversarial)):
        found = ranking_metrics(scores, labels, ks=(1,), ties=ties).values
        values |= {f"{name} {recall}": found[recall], f"{name} MRR": found["MRR"]}
    for metric in (recall, "MRR"):
        values[f"Drop {metric}"] = values[f"Original {metric}"] - values[f"Adversarial {metric}"]
    scores = np.asarray(adversarial)
    own = scores[np.arange(len(scores)), replaced]
    if ties == "against":
        first = own == scores.max(1)
    else:
        first = scores.argmax(1) == replaced
    return values | {"Adversarial first": float(first.mean())}


def evaluate_adversarial(
    scorer: Scorer, groups: Sequence[SelectionGroup], *, dataset: str, seeds: Iterable[int] = (0, 1, 2)
) -> pd.DataFrame:
    """Both test sets for every seed's adversarial set (UMS T4 and F3), restricted to the dialogues it holds.

    The original lists are scored once; they must all have one length.
    """
    widths = {len(group.candidates) for group in groups}
    if len(widths) != 1:
        raise DataError(f"adversarial lists must have one length, found {sorted(widths)}")
    original = np.asarray(scorer(groups), np.float64)
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        changed = build_adversarial(groups, seed)
        kept = [entry.dialogue for entry in changed.index]
        labels = np.array([group.labels for group in changed.groups])
        scores = np.asarray(scorer(changed.groups), np.float64)
        for ties in TIES:
            values = adversarial_metrics(
                original[kept], scores, labels, np.array([entry.candidate for entry in changed.index]), ties
            )
            common = {"dataset": dataset, "protocol": "paper" if ties == "against" else "code", "seed": seed}
            rows += tidy_rows(values, task="adversarial selection", n=len(kept), ties=ties, **common)
    return tidy_frame(rows)
