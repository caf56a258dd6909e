"""The stages of TaDSE: models from filled templates, nearest neighbours, compressed vectors and their geometry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from dialnb.data import Dataset
from dialnb.data.records import IntentUtterance
from dialnb.data.store import default_store
from dialnb.evaluation import geometry
from dialnb.evaluation.intent import knn_predictions
from dialnb.evaluation.metrics import accuracy, tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, encode, label_ids, nearest
from dialnb.examples.recogniser import rules, spacy_entities, with_entities
from dialnb.examples.templates import Augmentation, augment, entity_book, make_template, mistaken_slots
from dialnb.losses import semantic_compression
from dialnb.models.encoder import Encoder
from dialnb.seeding import seeded
from dialnb.studies.training import thin
from dialnb.training import TrainingSettings, train
from dialnb.training.objective import Objective
from dialnb.training.recipes import get_recipe

LENGTH = 32
"""Tokens of an utterance, in training and in every test, as in the authors' code."""

RECOGNISERS = {recogniser.__name__: recogniser for recogniser in (rules, spacy_entities)}
Layers = dict[str, dict[str, torch.Tensor]]
"""What was trained on top of the encoder: the head, and M_A as ``alignment`` where the model has it."""


# --- data -------------------------------------------------------------------------------------------------------------


def annotated(dataset: str, utterances: Sequence[IntentUtterance], entities: str) -> list[IntentUtterance]:
    """The utterances with their slots; CLINC150 has none, so named entities are recognised in their place."""
    return with_entities(utterances, RECOGNISERS[entities]) if dataset == "CLINC150" else list(utterances)


@dataclass(frozen=True)
class Filled:
    """A dataset to train on: ``limit`` of its training utterances, filled with the ``k`` most frequent values.

    ``k`` None is the dataset's own of Table 1, 0 leaves the originals. ``typed`` placeholders tell slots apart, and
    ``mistaken`` is the share of slots that are filled with values of another type, on purpose.
    """

    dataset: str
    records: Dataset
    k: int | None = None
    limit: int | None = None
    entities: str = "rules"
    typed: bool = False
    mistaken: float = 0.0

    def augmentation(self) -> Augmentation:
        rows = annotated(self.dataset, thin(list(self.records.filter(split="train")), self.limit), self.entities)
        book = entity_book(rows)
        rows = mistaken_slots(rows, self.mistaken) if self.mistaken else rows
        return augment(self.dataset, rows, self.k, typed=self.typed, book=book)


def statistics_of(source: Filled) -> dict[str, Any]:
    """A line of T1 in units, with the number of mentions in the Entity Book by type and by value."""
    made = source.augmentation()
    book = {name: dict(counts.most_common()) for name, counts in made.book.items()}
    return {"statistics": made.statistics, "book": book}


# --- training ---------------------------------------------------------------------------------------------------------


def train_templates(
    recipe: str, encoder: Encoder, sources: list[Filled], settings: TrainingSettings, options: dict[str, Any],
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """The trained encoder, the layers above it (for compression), its loss curve and the facts of the training."""
    result, objective = _fit(recipe, encoder, sources, settings, options, folder)
    encoder.name = recipe
    return {"encoder": encoder.eval(), "layers": layers_of(objective), "curve": result.curve, "training": result}


def score_epochs(
    recipe: str, encoder: Encoder, sources: list[Filled], settings: TrainingSettings, options: dict[str, Any],
    records: Dataset, dataset: str, pooling: str, limit: int | None, references: int | None, folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """F7: nearest-neighbour accuracy after every epoch; kept in the stage's folder, so that a killed run goes on."""
    done = folder / "scores"
    done.mkdir(exist_ok=True)

    def score(epoch: int, current: Encoder) -> None:
        rows = neighbours_of(current, records, dataset, pooling, (1,), limit, references)["rows"]
        rows.assign(epoch=epoch).to_json(done / f"{epoch}.json", orient="records")

    score(0, encoder)
    result, _ = _fit(recipe, encoder, sources, settings, options, folder, score)
    paths = sorted(done.iterdir(), key=lambda path: int(path.stem))
    rows = pd.concat([pd.read_json(path, orient="records") for path in paths], ignore_index=True)
    return {"rows": rows, "curve": result.curve, "training": result}


def _fit(
    recipe: str, encoder: Encoder, sources: list[Filled], settings: TrainingSettings, options: dict[str, Any],
    folder: Path, on_epoch: Callable[[int, Encoder], None] | None = None,
):  # fmt: skip
    made = get_recipe(recipe)
    examples = made.examples(encoder, [source.augmentation() for source in sources], default_store().tokens)
    with seeded(settings.seed):
        objective = made.objective(encoder, **options)
    return train(encoder, objective, examples, settings, folder, on_epoch, name=recipe), objective


def layers_of(objective: Objective) -> Layers:
    """Weights of the head and of M_A, as far as the objective has them; see :class:`TemplateObjective`."""
    parts = {name: getattr(objective, name, None) for name in ("head", "alignment")}
    return {
        name: {key: tensor.detach().float().cpu() for key, tensor in part[0].state_dict().items()}
        for name, part in parts.items()
        if isinstance(part, nn.Sequential)
    }


def apply_layer(layers: Layers, name: str, vectors: np.ndarray) -> np.ndarray:
    """tanh(W x + b) of the named layer; the vectors as they are where there is none."""
    if name not in layers:
        return vectors
    weight, bias = (layers[name][key].numpy() for key in ("weight", "bias"))
    return np.tanh(vectors @ weight.T + bias)


# --- nearest neighbours -----------------------------------------------------------------------------------------------


def parts_of(
    records: Dataset, limit: int | None, references: int | None, split: str = "test"
) -> tuple[list[IntentUtterance], list[IntentUtterance]]:
    """Training utterances to look among, and test utterances (out-of-scope ones are a class of their own)."""
    return thin(list(records.filter(split="train")), references), thin(list(records.filter(split=split)), limit)


def neighbours_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, pooling: str, ks: Sequence[int], limit: int | None,
    references: int | None,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Intent accuracy by the k nearest of all training utterances, and whether each test utterance was right."""
    train, test = parts_of(records, limit, references)
    vectors = [encode(encoder, [r.text for r in part], pooling=pooling, max_length=LENGTH) for part in (train, test)]
    return score(*vectors, train, test, dataset, ks, pooling=pooling)


def majority_of(
    encoder: Any,
    records: Dataset,
    dataset: str,
    pooling: str = "",
    ks: Sequence[int] = (1,),
    limit: int | None = None,
    references: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The floor of `neighbours_of`: the most frequent intent of the training utterances; no encoder is asked."""
    train, test = parts_of(records, limit, references)
    answer = Counter(example.intent for example in train).most_common(1)[0][0]
    alike = [replace(example, intent=answer) for example in train[:1]] * max(ks)
    return score(np.ones((len(alike), 1)), np.ones((len(test), 1)), alike, test, dataset, ks, pooling=pooling)


def score(
    references: np.ndarray, queries: np.ndarray, train: Sequence[IntentUtterance], test: Sequence[IntentUtterance],
    dataset: str, ks: Sequence[int] = (1,), **labels: Any,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Tidy rows, and rows by test item (100 where it was right), for each k."""
    _, (known, wanted) = label_ids([r.intent for r in train], [r.intent for r in test])
    common = {"task": "intent", "dataset": dataset, "protocol": "paper", "method": "kNN", **labels}
    rows, items = [], []
    for k, found in knn_predictions(queries, references, known, ks).items():
        rows += tidy_rows({"Accuracy": accuracy(found, wanted)}, n=len(wanted), k=k, **common)
        right = pd.DataFrame({"item": range(len(wanted)), "value": 100.0 * (found == wanted)})
        items.append(right.assign(metric="Accuracy", k=k, **common))
    return {"rows": tidy_frame(rows), "items": pd.concat(items, ignore_index=True)}


# --- semantic compression ---------------------------------------------------------------------------------------------


class Compressed:
    """A model with its templates: ``ratio * t + (1 - ratio) * u`` for utterances u and their templates t.

    M_A was trained on what the head gives, so a model that has it is compressed there: u and t pass the head, t then
    M_A. Models without are compressed as they are tested, without the head, and so is everything at ratio 0.
    """

    def __init__(self, encoder: SupportsEncode, layers: Layers, pooling: str, typed: bool = False) -> None:
        self.encoder, self.layers, self.pooling, self.typed = EncodeOnce(encoder), layers, pooling, typed

    def plain(self, texts: Sequence[str]) -> np.ndarray:
        return encode(self.encoder, texts, pooling=self.pooling, max_length=LENGTH)

    def _inside(self, texts: Sequence[str]) -> np.ndarray:
        found = self.plain(texts)
        return apply_layer(self.layers, "head", found) if "alignment" in self.layers else found

    def templates(self, rows: Sequence[IntentUtterance]) -> np.ndarray:
        return apply_layer(self.layers, "alignment", self._inside([make_template(row, self.typed) for row in rows]))

    def retrieved(self, rows: Sequence[IntentUtterance], known: np.ndarray) -> np.ndarray:
        """In place of the rows' own templates, which take annotation: the known one nearest to each utterance."""
        return known[nearest(self._inside([row.text for row in rows]), known)[1][:, 0]]

    def vectors(self, rows: Sequence[IntentUtterance], templates: np.ndarray, ratio: float) -> np.ndarray:
        texts = [row.text for row in rows]
        if not ratio:
            return self.plain(texts)
        parts = torch.from_numpy(templates), torch.from_numpy(self._inside(texts))
        return semantic_compression(*parts, ratio).numpy()


def compressed_of(
    encoder: SupportsEncode, layers: Layers, records: Dataset, dataset: str, pooling: str, ratios: Sequence[float],
    limit: int | None, references: int | None, entities: str,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Accuracy at each ratio, on dev (to choose by) and test, with gold and with retrieved templates of the queries."""
    model, rows, items = Compressed(encoder, layers, pooling), [], []
    for split in ("dev", "test"):
        train, asked = (annotated(dataset, part, entities) for part in parts_of(records, limit, references, split))
        if not asked:
            continue
        known = model.templates(train)
        own = {"gold": model.templates(asked), "retrieved": model.retrieved(asked, known)}
        for ratio in ratios:
            references_at = model.vectors(train, known, ratio)
            for kind, templates in own.items():
                labels = {"split": split, "template": kind, "compression": ratio, "pooling": pooling}
                found = score(references_at, model.vectors(asked, templates, ratio), train, asked, dataset, **labels)
                rows.append(found["rows"])
                items += [found["items"]] if split == "test" else []
    return {"rows": pd.concat(rows, ignore_index=True), "items": pd.concat(items, ignore_index=True)}


# --- geometry ---------------------------------------------------------------------------------------------------------


def space_of(
    encoder: SupportsEncode, layers: Layers, records: Dataset, dataset: str, pooling: str, ratios: Sequence[float],
    limit: int | None, folds: int, entities: str,
) -> pd.DataFrame:  # fmt: skip
    """Alignment, uniformity and silhouette of the test utterances at each ratio: of all (protocol ``paper``), and of
    ``folds`` disjoint parts as replicates (protocol ``folds``), since one value has no interval."""
    from sklearn.metrics import silhouette_score

    test = annotated(dataset, parts_of(records, limit, 1)[1], entities)
    model, intents = Compressed(encoder, layers, pooling), np.array([row.intent for row in test])
    templates = model.templates(test)
    order = np.random.default_rng(24).permutation(len(test))
    parts = [("paper", 0, order), *(("folds", i, part) for i, part in enumerate(np.array_split(order, folds)))]
    rows = []
    for ratio in ratios:
        vectors = model.vectors(test, templates, ratio)
        for protocol, seed, part in parts:
            of_part, labels = vectors[part], intents[part]
            values = {
                "Alignment": geometry.alignment(of_part, labels.tolist()),
                "Uniformity": geometry.uniformity(of_part),
                "Silhouette": 100 * float(silhouette_score(of_part, labels, metric="cosine")),
            }
            common = {"task": "geometry", "dataset": dataset, "n": len(part), "seed": seed, "compression": ratio}
            rows += tidy_rows(values, protocol=protocol, **common)
    return tidy_frame(rows)


def project_intents(
    encoder: SupportsEncode, layers: Layers, records: Dataset, dataset: str, pooling: str, ratio: float, method: str,
    limit: int | None, seed: int, entities: str,
) -> pd.DataFrame:  # fmt: skip
    """F4, F9, F10: the test utterances of a dataset in a plane, compressed by ``ratio``."""
    test = annotated(dataset, parts_of(records, limit, 1)[1], entities)
    model = Compressed(encoder, layers, pooling)
    plane = project(model.vectors(test, model.templates(test), ratio), method, seed=seed)
    shared = [row.text for row in test] if records.name.startswith("bundled/") else ""
    return plane.assign(label=[row.intent for row in test], text=shared)
