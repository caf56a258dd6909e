"""The adversarial test set of UMS: in each list one negative is replaced by an utterance of the context itself.

Beyond the paper there are harder ones (``KINDS``): the last utterance of the context, the one that shares most words
with the true response, and a random one in other words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from pandas import DataFrame, concat

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError, check_known
from dialnb.evaluation.metrics import Ties, ranked_labels, tidy_frame, tidy_rows
from dialnb.evaluation.selection import PROTOCOLS, Groups, as_scorer
from dialnb.examples.readings import Limit, thin

KINDS = ("random", "last", "similar", "paraphrase")
TEMPLATES = ("i said {}", "so {}", "you mean {} ?", "as i told you , {}")
"""Other words for an utterance: each says the same once more, and none answers it."""


class Replacement(NamedTuple):
    """In dialogue number ``dialogue``, candidate number ``candidate`` becomes context utterance ``utterance``."""

    dialogue: int
    candidate: int
    utterance: int


@dataclass(frozen=True)
class AdversarialSet:
    """The changed lists, the index that made them, and how many dialogues were left out and why."""

    groups: tuple[SelectionGroup, ...]
    index: tuple[Replacement, ...]
    left_out: Counter[str]

    def frame(self) -> DataFrame:
        """The index as a table (dialogue, candidate, utterance) to store beside the results."""
        return DataFrame(self.index, columns=Replacement._fields)

    def reasons(self) -> str:
        """How many dialogues were left out for which reason, in words."""
        return ", ".join(f"{count} with {reason}" for reason, count in self.left_out.items())


def build_adversarial(groups: Groups, seed: int = 0, kind: str = "random") -> AdversarialSet:
    """Draw one context utterance and one negative per dialogue, uniformly, and put the one in the other's place.

    ``kind`` may choose the utterance in another way, see the module. Blank utterances and those equal to a true
    response (after stripping) are not drawn. If the drawn utterance is already among the negatives it takes that place,
    so that no list holds it twice. Dialogues without a usable utterance, a negative or a true response are left out.
    The draw for a dialogue depends on the seed and its number only.
    """
    check_known("kind of adversarial utterance", kind, KINDS)
    draws = np.random.default_rng(seed).random((len(groups), 2))
    changed = []
    index = []
    left_out: Counter[str] = Counter()
    for number, (group, (first, second)) in enumerate(zip(groups, draws)):
        candidates = [text.strip() for text in group.candidates]
        true = {text for text, label in zip(candidates, group.labels) if label}
        negatives = [i for i, label in enumerate(group.labels) if not label]
        usable = [i for i, text in enumerate(group.context) if text.strip() and text.strip() not in true]
        needed = {"usable context utterance": usable, "negative candidate": negatives, "true response": true}
        absent = [name for name, choices in needed.items() if not choices]
        if absent:
            left_out[f"no {absent[0]}"] += 1
            continue
        utterance = _choose(kind, group.context, usable, true, first)
        drawn = group.context[utterance]
        if kind == "paraphrase":
            drawn = TEMPLATES[number % len(TEMPLATES)].format(drawn)
        places = [i for i in negatives if candidates[i] == drawn.strip()] or negatives
        place = places[int(second * len(places))]
        index.append(Replacement(number, place, utterance))
        listed = (*group.candidates[:place], drawn, *group.candidates[place + 1 :])
        changed.append(replace(group, candidates=listed))
    return AdversarialSet(tuple(changed), tuple(index), left_out)


def _choose(kind: str, context: Sequence[str], usable: list[int], true: set[str], draw: float) -> int:
    """The number of the context utterance that becomes the adversarial candidate."""
    if kind == "last":
        return usable[-1]
    if kind == "similar":
        return max(usable, key=lambda i: (max(_shared(context[i], text) for text in true), i))
    return usable[int(draw * len(usable))]


def _shared(first: str, second: str) -> float:
    """Share of words that two utterances have in common (Jaccard)."""
    words, others = (set(text.casefold().split()) for text in (first, second))
    return len(words & others) / max(1, len(words | others))


def adversarial_items(
    original: ndarray, adversarial: ndarray, labels: ndarray, replaced: ndarray, ties: Ties = "against"
) -> dict[str, ndarray]:
    """Of every dialogue: R_n@1 and reciprocal rank (fractions) on both sets, and whether the adversarial candidate is
    ranked first.

    Rows of the three matrices [n, candidates] are the same dialogues; ``replaced`` is the adversarial column of each.
    With ties against the positive, an adversarial candidate that shares the top score with it is ranked first.
    """
    items = {}
    for name, scores in (("Original", original), ("Adversarial", adversarial)):
        ranked = ranked_labels(scores, labels, ties)
        items[f"{name} R{labels.shape[1]}@1"] = ranked[:, 0] / ranked.sum(1)
        items[f"{name} MRR"] = 1 / (ranked.argmax(1) + 1)
    first = adversarial[np.arange(len(labels)), replaced] == adversarial.max(1)
    if ties == "file":
        first = adversarial.argmax(1) == replaced
    return items | {"Adversarial first": first.astype(float)}


def evaluate_adversarial(encoder: Any, records: Groups, *, limit: Limit = None, **options: Any) -> DataFrame:
    """Both test sets for every seed's adversarial set (UMS T4 and F3), restricted to the dialogues it holds, of an
    encoder or a scorer of lists."""
    return evaluate_adversarial_items(encoder, thin(records, limit), **options)[0]


def evaluate_adversarial_items(
    model: Any,
    groups: Groups,
    *,
    dataset: str,
    seeds: Iterable[int] = (0, 1, 2),
    kind: str = "random",
) -> tuple[DataFrame, DataFrame]:
    """Recall, MRR, their drops and the share of adversarial candidates ranked first, and what each dialogue (``item``)
    adds to the recalls, their drop and the share, as a mean over seeds.

    The original lists are scored once; they must all have one length.
    """
    scorer = as_scorer(model)
    widths = {len(group.candidates) for group in groups}
    if len(widths) != 1:
        raise DataError(
            f"adversarial lists must have one length, found {', '.join(map(str, sorted(widths))) or 'no lists'}"
        )
    recall = f"R{widths.pop()}@1"
    original = np.asarray(scorer(groups), np.float64)
    rows = []
    items = []
    shared = {"dataset": dataset, "task": "adversarial selection", "adversary": kind}
    for seed in seeds:
        changed = build_adversarial(groups, seed, kind)
        if not changed.groups:
            raise DataError(
                f"none of the {len(groups)} lists of {dataset or 'this dataset'} can be tested: {changed.reasons()}. A "
                "list should have a right and a wrong reply, and a context with an utterance that is not the right one"
            )
        kept, replaced, _ = np.array(changed.index).T
        labels = np.array([group.labels for group in changed.groups])
        scores = np.asarray(scorer(changed.groups), np.float64)
        for ties, protocol in PROTOCOLS.items():
            measured = adversarial_items(original[kept], scores, labels, replaced, ties)
            for metric in (recall, "MRR"):
                measured[f"Drop {metric}"] = measured[f"Original {metric}"] - measured[f"Adversarial {metric}"]
            values = {name: part.mean() for name, part in measured.items()}
            rows += tidy_rows(values, n=len(kept), ties=ties, protocol=protocol, seed=seed, **shared)
            if ties == "against":
                for name in (f"Original {recall}", f"Adversarial {recall}", f"Drop {recall}", "Adversarial first"):
                    items.append(DataFrame({"metric": name, "item": kept, "value": measured[name]}))
    means = concat(items).groupby(["metric", "item"], sort=False)["value"].mean().reset_index()
    return tidy_frame(rows), means.assign(protocol="paper", **shared)
