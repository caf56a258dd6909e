"""What belongs to TaDSE alone (Template-aware Dialogue Sentence Embeddings): its models, nearest neighbours, semantic
compression, the shape of the space, and counts of its data. Models, tasks and figures are in its notebook.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from pandas import DataFrame

from dialnb.data import Dataset
from dialnb.errors import check_known
from dialnb.evaluation import (
    EncodeOnce,
    Examples,
    Scores,
    SupportsEncode,
    encode,
    evaluator,
    geometry,
    label_ids,
    nearest,
    stacked,
    tidy_frame,
    tidy_rows,
)
from dialnb.evaluation.intent import knn_predictions
from dialnb.evaluation.projection import project
from dialnb.evaluation.sampling import parts_of
from dialnb.examples.readings import Filled, Limit, Templates, thin
from dialnb.examples.recogniser import default_recogniser
from dialnb.examples.templates import make_template
from dialnb.files import Fields, Values
from dialnb.losses import semantic_compression
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model
from dialnb.studies.shared import NAMES

PAIR, ALIGNED = "L_u + L_t + L_pair", "L_u + L_t' + L_pair"
NAMED = NAMES["tadse"]
LOSSES, COMPRESSED = NAMED["losses"], NAMED["compressed"]
"""Recipes by the name of T5, in which the dash is the alignment layer M_A; rows of T6 by the model compressed there."""

CHECKPOINTS = NAMED["checkpoints"]
"""The printed baselines by hub id, where the run starts from the public SimCSE."""

VARIANTS = NAMED["variants"]
"""What the paper and the code disagree on, or do not say, as options of losses and examples."""

READINGS = ("unit", "lengths", "M_A")
RATIOS = (0.1, 0.2, 0.5)
"""The coefficients of compression that the paper chooses from, on validation data."""

LENGTH = 32
"""Tokens of an utterance, in training and in every test, as in the authors' code."""

Answers = dict[str, DataFrame]
"""Tidy ``rows``, and ``items``: what each test utterance scored."""

Layers = Mapping[str, Mapping[str, torch.Tensor]]
"""What was trained on top of the encoder: the head, and M_A as ``alignment`` where the model has it."""


# --- models -----------------------------------------------------------------------------------------------------------


def entities() -> str:
    """The recogniser that gives CLINC150 its slots here."""
    return default_recogniser().__name__


def filled(sets: Mapping[str, Dataset], s: Fields, **changes: Any) -> Templates:
    """The datasets as a profile trains on them; ``changes`` are other fields of `Filled`."""
    given = {"limit": s["utterances"], "entities": entities()} | changes
    return Templates([Filled(name, records, **given) for name, records in sets.items()])


def model(recipe: str, s: Fields, templates: Templates, pooling: str | None = None, **changes: Any) -> Model:
    """A row of TaDSE's tables, from the model "SimCSE", with the temperature and the weights of a profile, where it has
    any. Models with M_A are trained longer on a single dataset. Training pools as the tests do."""
    pooling = s["pooling"] if pooling is None else pooling
    options = {"sampling": s["sampling"], "pooling": pooling or None}
    if recipe == LOSSES["L_u"]:
        options["temperature"] = s["temperature"]
    else:
        options |= {f"temperature_{term}": s["temperature"] for term in ("utterance", "template", "pair")}
        options["weight_template"] = s["weight_template"]
        if recipe != LOSSES["L_u + L_t"]:
            options["weight_pair"] = s["weight_pair"]
    options = {name: value for name, value in options.items() if value is not None} | changes.pop("options", {})
    longer = recipe == LOSSES[ALIGNED] and len(templates.sources) == 1
    given = {"start": "SimCSE", "settings": {"epochs": s["aligned_epochs"]} if longer else {}}
    return Model(recipe, data=templates, options=options, pooling=pooling, **given | changes)


# --- nearest neighbours -----------------------------------------------------------------------------------------------


def neighbours_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    limit: Limit,
    references: Limit,
    ks: Sequence[int] = (1,),
    pooling: str = "",
    split: str = "test",
) -> Answers:
    """Intent accuracy by the k nearest of all training utterances, and whether each test utterance was right."""
    known, asked = parts_of(records, ("train", split), limit, references)
    pooling = pooling or encoder.pooling
    among, queries = (
        encode(encoder, [row.text for row in part], pooling=pooling, max_length=LENGTH) for part in (known, asked)
    )
    return nearest_rows(among, queries, known, asked, dataset, ks, pooling=pooling)


def nearest_rows(
    references: ndarray,
    queries: ndarray,
    known: Examples,
    asked: Examples,
    dataset: str,
    ks: Sequence[int] = (1,),
    **labels: Any,
) -> Answers:
    """Give what `scored` does, of the intents of the k nearest of the ``known`` utterances."""
    _, (intents, wanted) = label_ids([row.intent for row in known], [row.intent for row in asked])
    return scored(knn_predictions(queries, references, intents, ks), wanted, dataset, **labels)


def majority_of(encoder: Any, records: Dataset, dataset: str, limit: Limit, references: Limit) -> Answers:
    """The floor of `neighbours_of`: the most frequent intent of the training utterances; no encoder is asked."""
    known, asked = parts_of(records, limit=limit, train_limit=references)
    answer = Counter(row.intent for row in known).most_common(1)[0][0]
    return scored({1: answer}, np.array([row.intent for row in asked]), dataset, pooling="")


def scored(
    answers: Mapping[int, Any],
    wanted: ndarray,
    dataset: str,
    **labels: Any,
) -> Answers:
    """Give tidy rows of the answers by k, and rows by test item (100 where the answer was right)."""
    common = {"task": "intent", "dataset": dataset, "protocol": "paper", "method": "kNN", **labels}
    rows, items = [], []
    for k, answer in answers.items():
        right = 100.0 * (answer == wanted)
        rows += tidy_rows({"Accuracy": right.mean()}, n=len(wanted), k=k, **common)
        items.append(DataFrame({"item": range(len(wanted)), "value": right, "metric": "Accuracy", "k": k, **common}))
    return {"rows": tidy_frame(rows), "items": stacked(items)}


# --- semantic compression ---------------------------------------------------------------------------------------------


class Compressed:
    """A model with its templates: ``ratio * t + (1 - ratio) * u`` for utterances u and their templates t.

    ``reading``: "unit" mixes vectors of length 1, as the authors' code does, "lengths" vectors as they come. "M_A"
    applies that layer at inference, which the code does not: it was trained on what the head gives, so u and t pass
    the head and t then M_A. At ratio 0 all are the vectors that are tested elsewhere.
    """

    def __init__(self, encoder: SupportsEncode, layers: Layers | None = None, reading: str = "unit") -> None:
        check_known("reading of compression", reading, READINGS)
        self.encoder, self.pooling, self.reading = EncodeOnce(encoder), encoder.pooling, reading
        self.layers = layers if layers and reading == "M_A" else {}

    def plain(self, texts: Sequence[str]) -> ndarray:
        return encode(self.encoder, texts, pooling=self.pooling, max_length=LENGTH)

    def templates(self, rows: Examples) -> ndarray:
        return self._through("alignment", self._inside([make_template(row) for row in rows]))

    def retrieved(self, rows: Examples, known: ndarray) -> ndarray:
        """In place of the rows' own templates, which take annotation: the known one nearest to each utterance."""
        return known[nearest(self._inside([row.text for row in rows]), known)[1][:, 0]]

    def vectors(
        self,
        rows: Examples,
        templates: ndarray,
        ratio: float,
    ) -> ndarray:
        texts = [row.text for row in rows]
        if not ratio:
            return self.plain(texts)
        parts = torch.from_numpy(templates), torch.from_numpy(self._inside(texts))
        return semantic_compression(*parts, ratio, normalize=self.reading != "lengths").numpy()

    def _inside(self, texts: Sequence[str]) -> ndarray:
        vectors = self.plain(texts)
        return self._through("head", vectors) if "alignment" in self.layers else vectors

    def _through(self, name: str, vectors: ndarray) -> ndarray:
        """tanh(W x + b) of the named layer; the vectors as they are where there is none."""
        if name not in self.layers:
            return vectors
        weight, bias = (self.layers[name][key].numpy() for key in ("weight", "bias"))
        return np.tanh(vectors @ weight.T + bias)


def compression_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    limit: Limit,
    references: Limit,
    ratios: Sequence[float],
    layers: Layers | None = None,
    reading: str = "unit",
) -> Answers:
    """Accuracy at each ratio, with gold and with retrieved templates of the test utterances. Rows of the ratio that is
    best on development data, with gold templates, are marked as ``chosen``; of it there are items."""
    model, parts = Compressed(encoder, layers, reading), []
    for split in ("dev", "test"):
        known, asked = parts_of(records, ("train", split), limit, references)
        means = model.templates(known)
        kinds = {"gold": model.templates(asked), "retrieved": model.retrieved(asked, means)}
        for ratio in ratios:
            references_there = model.vectors(known, means, ratio)
            for kind, templates in kinds.items():
                labels = {"split": split, "template": kind, "compression": ratio, "pooling": model.pooling}
                asked_there = model.vectors(asked, templates, ratio)
                parts.append(nearest_rows(references_there, asked_there, known, asked, dataset, **labels))
    rows, items = (stacked([part[name] for part in parts]) for name in ("rows", "items"))
    best = chosen_ratio(rows)
    rows = rows.assign(chosen=rows["compression"] == best).query("split == 'test'")
    items = items.assign(chosen=items["compression"] == best).query("chosen and split == 'test'")
    return {"rows": rows, "items": items}


def chosen_ratio(rows: DataFrame) -> float:
    """The ratio of the paper's three that is best on dev with gold templates, the smallest of equals."""
    dev = rows[rows["compression"].isin(RATIOS)].query("split == 'dev' and template == 'gold'")
    return float(dev.groupby("compression")["value"].mean().idxmax())


# --- shape of the space -----------------------------------------------------------------------------------------------


@evaluator("geometry")
def space_of(
    encoder: Encoder,
    records: Dataset,
    *,
    dataset: str,
    limit: Limit,
    folds: int,
    ratios: Sequence[float],
) -> Scores:
    """Alignment, uniformity and silhouette of the test utterances at each ratio: of all (protocol ``paper``), and of
    ``folds`` disjoint parts as replicates (protocol ``folds``), since one value has no interval."""
    from sklearn.metrics import silhouette_score

    test = thin(records.filter(split="test"), limit)
    model, intents = Compressed(encoder), np.array([row.intent for row in test])
    templates = model.templates(test)
    order = np.random.default_rng(24).permutation(len(test))
    parts = [("paper", 0, order)]
    parts += [("folds", number, part) for number, part in enumerate(np.array_split(order, folds))]
    for ratio in ratios:
        vectors = model.vectors(test, templates, ratio)
        for protocol, seed, part in parts:
            labels = intents[part]
            values = {
                "Alignment": geometry.alignment(vectors[part], labels.tolist()),
                "Uniformity": geometry.uniformity(vectors[part]),
                "Silhouette": 100 * float(silhouette_score(vectors[part], labels, metric="cosine")),
            }
            yield values, {"protocol": protocol, "n": len(part), "seed": seed, "compression": ratio}


def plane_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    ratio: float,
    method: str,
    limit: Limit,
    seed: int,
) -> DataFrame:
    """F4, F9, F10: the test utterances of a dataset in a plane, compressed by ``ratio``."""
    test = thin(records.filter(split="test"), limit)
    model = Compressed(encoder)
    plane = project(model.vectors(test, model.templates(test), ratio), method, seed=seed)
    shared = [row.text for row in test] if records.name.startswith("bundled/") else ""
    return plane.assign(label=[row.intent.removeprefix("atis_") for row in test], text=shared)


# --- counts -----------------------------------------------------------------------------------------------------------


def statistics_of(source: Filled) -> Values:
    """A line of T1 in units, with the number of mentions in the Entity Book by type and by value."""
    made = source.augmentation()
    book = {name: dict(counts.most_common()) for name, counts in made.book.items()}
    return {"statistics": made.statistics, "book": book}
