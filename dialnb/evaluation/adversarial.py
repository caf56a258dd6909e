"""The adversarial test set of UMS: in each list one negative is replaced by an utterance of the context itself.

Beyond the paper there are harder ones (``KINDS``): the last utterance of the context, the one that shares most words
with the true response, and a random one in other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.metrics import Ties, ranked_labels, ranking_metrics, tidy_frame, tidy_rows
from dialnb.evaluation.selection import PROTOCOLS, TIES, Scorer, as_scorer

KINDS = ("random", "last", "similar", "paraphrase")
TEMPLATES = ("i said {}", "so {}", "you mean {} ?", "as i told you , {}")
"""Other words for an utterance: each says the same once more, and none answers it."""


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
    kind: str = "random"

    def frame(self) -> pd.DataFrame:
        """The index as a table (dialogue, candidate, utterance) to store beside the results."""
        return pd.DataFrame(list(map(asdict, self.index)), columns=list(Replacement.__slots__))


def build_adversarial(groups: Sequence[SelectionGroup], seed: int = 0, kind: str = "random") -> AdversarialSet:
    """Draw one context utterance and one negative per dialogue, uniformly, and put the one in the other's place.

    ``kind`` may choose the utterance in another way, see the module. Blank utterances and those equal to a true
    response (after stripping) are not drawn. If the drawn utterance is already among the negatives it takes that place,
    so that no list holds it twice. Dialogues without a usable utterance or without a negative are left out. The draw
    for a dialogue depends on the seed and its number only.
    """
    if kind not in KINDS:
        raise UnknownName("kind of adversarial utterance", kind, KINDS)
    draws = np.random.default_rng(seed).random((len(groups), 2))
    index = []
    left_out = {}
    for number, (group, (first, second)) in enumerate(zip(groups, draws)):
        true = {text.strip() for text, label in zip(group.candidates, group.labels) if label}
        usable = [i for i, text in enumerate(group.context) if text.strip() and text.strip() not in true]
        negatives = [i for i, label in enumerate(group.labels) if not label]
        if not usable or not negatives:
            reason = "no negative candidate" if usable else "no usable context utterance"
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        utterance = _choose(kind, group.context, usable, true, first)
        drawn = adversary(group.context[utterance], number, kind).strip()
        places = [i for i in negatives if group.candidates[i].strip() == drawn] or negatives
        index.append(Replacement(number, places[int(second * len(places))], utterance))
    return AdversarialSet(tuple(apply_index(groups, index, kind)), tuple(index), left_out, kind)


def _choose(kind: str, context: Sequence[str], usable: list[int], true: set[str], draw: float) -> int:
    """The number of the context utterance that becomes the adversarial candidate."""
    if kind == "last":
        return usable[-1]
    if kind == "similar":
        wanted = [set(text.casefold().split()) for text in true]
        return max(usable, key=lambda i: (max((_shared(context[i], words) for words in wanted), default=0.0), i))
    return usable[int(draw * len(usable))]


def _shared(text: str, words: set[str]) -> float:
    """Share of words that two utterances have in common (Jaccard)."""
    own = set(text.casefold().split())
    return len(own & words) / max(1, len(own | words))


def adversary(text: str, dialogue: int, kind: str = "random") -> str:
    """What stands among the candidates: the utterance itself, or the same in other words.

    >>> adversary("it does not boot", 1, "paraphrase"), adversary("it does not boot", 1)
    ('so it does not boot', 'it does not boot')
    """
    return TEMPLATES[dialogue % len(TEMPLATES)].format(text) if kind == "paraphrase" else text


def apply_index(
    groups: Sequence[SelectionGroup], index: Iterable[Replacement], kind: str = "random"
) -> list[SelectionGroup]:
    """The adversarial lists of a stored index: same context and labels, one candidate replaced."""
    changed = []
    for entry in index:
        group = groups[entry.dialogue]
        if group.labels[entry.candidate]:
            raise DataError(f"the index replaces a true response of dialogue {group.id}: it was made for other data")
        candidates = list(group.candidates)
        candidates[entry.candidate] = adversary(group.context[entry.utterance], entry.dialogue, kind)
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
    values = {}
    recall = f"R{np.shape(labels)[1]}@1"
    for name, scores in (("Original", original), ("Adversarial", adversarial)):
        found = ranking_metrics(scores, labels, ks=(1,), ties=ties).values
        values |= {f"{name} {recall}": found[recall], f"{name} MRR": found["MRR"]}
    for metric in (recall, "MRR"):
        values[f"Drop {metric}"] = values[f"Original {metric}"] - values[f"Adversarial {metric}"]
    return values | {"Adversarial first": float(_adversary_first(np.asarray(adversarial), replaced, ties).mean())}


def _adversary_first(scores: np.ndarray, replaced: np.ndarray, ties: Ties) -> np.ndarray:
    if ties == "file":
        return scores.argmax(1) == replaced
    return scores[np.arange(len(scores)), replaced] == scores.max(1)


def adversarial_items(
    original: np.ndarray, adversarial: np.ndarray, labels: np.ndarray, replaced: np.ndarray
) -> dict[str, np.ndarray]:
    """What every dialogue adds to the recalls, the drop and the share of :func:`adversarial_metrics`."""
    before, after = (ranked_labels(scores, labels)[:, 0].astype(float) for scores in (original, adversarial))
    recall = f"R{np.shape(labels)[1]}@1"
    first = _adversary_first(np.asarray(adversarial), replaced, "against").astype(float)
    named = {f"Original {recall}": before, f"Adversarial {recall}": after, f"Drop {recall}": before - after}
    return named | {"Adversarial first": first}


def evaluate_adversarial(
    scorer: Scorer,
    groups: Sequence[SelectionGroup],
    *,
    dataset: str,
    seeds: Iterable[int] = (0, 1, 2),
    kind: str = "random",
) -> pd.DataFrame:
    """Both test sets for every seed's adversarial set (UMS T4 and F3), restricted to the dialogues it holds."""
    return evaluate_adversarial_items(scorer, groups, dataset=dataset, seeds=seeds, kind=kind)[0]


def evaluate_adversarial_items(
    scorer: Scorer, groups: Sequence[SelectionGroup], *, dataset: str, seeds: Iterable[int], kind: str = "random"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of :func:`evaluate_adversarial`, and what each dialogue (``item``) adds to them, as a mean over seeds.

    The original lists are scored once; they must all have one length.
    """
    scorer = as_scorer(scorer)
    widths = {len(group.candidates) for group in groups}
    if len(widths) != 1:
        raise DataError(f"adversarial lists must have one length, found {', '.join(map(str, sorted(widths)))}")
    original = np.asarray(scorer(groups), np.float64)
    rows = []
    items = []
    shared = {"dataset": dataset, "task": "adversarial selection", "adversary": kind}
    for seed in seeds:
        changed = build_adversarial(groups, seed, kind)
        kept = [entry.dialogue for entry in changed.index]
        labels = np.array([group.labels for group in changed.groups])
        replaced = np.array([entry.candidate for entry in changed.index])
        scores = np.asarray(scorer(changed.groups), np.float64)
        for ties in TIES:
            values = adversarial_metrics(original[kept], scores, labels, replaced, ties)
            rows += tidy_rows(values, n=len(kept), ties=ties, protocol=PROTOCOLS[ties], seed=seed, **shared)
        found = adversarial_items(original[kept], scores, labels, replaced)
        items += [pd.DataFrame({"metric": name, "item": kept, "value": values}) for name, values in found.items()]
    means = pd.concat(items).groupby(["metric", "item"], sort=False)["value"].mean().reset_index()
    return tidy_frame(rows), means.assign(protocol="paper", **shared)
