"""Stages of DialogueCSE: encoders for its corpora, matching models, their scores on retrieval and similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb.data import Dataset
from dialnb.data.corpora import Conversation, sentences_of
from dialnb.data.records import RetrievalQuery, ScoredPair
from dialnb.data.store import default_store
from dialnb.evaluation import geometry
from dialnb.evaluation.floors import Lexical
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.evaluation.retrieval import evaluate_retrieval
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.evaluation.vectors import SupportsEncode
from dialnb.examples.masking import MaskedExamples
from dialnb.examples.matching import (
    build_groups,
    build_retrieval,
    labelled_utterances,
    matching_examples,
    neighbours,
    sessions,
)
from dialnb.examples.pairs import tokenise_once
from dialnb.models.baselines import Transformed, WordVectors, flow
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.seeding import seeded
from dialnb.studies.training import agreement, thin
from dialnb.training import TrainingSettings
from dialnb.training.loop import train
from dialnb.training.objective import Objective
from dialnb.training.objectives import MaskedLanguageModel
from dialnb.training.objectives_dialogue import MatchingGuidedObjective, SiameseObjective
from dialnb.training.pretrain import PretrainingRecipe, pretrain

ADAPTATION = TrainingSettings(batch_size=50, epochs=0.5, learning_rate=2e-5, optimiser="adamw", weight_decay=0.01,
                              schedule="linear", warmup=0.1, compiled=False)  # fmt: skip
"""Continued pre-training, stage one: half an epoch of masked words (Section 5.2)."""

CONTRAST = TrainingSettings(batch_size=20, epochs=3, learning_rate=5e-5, optimiser="adamw", weight_decay=0.01,
                            schedule="linear", warmup=0.1, compiled=False)  # fmt: skip
"""The contrastive stage; the paper leaves open the optimiser, its schedule and the epochs. Many short trainings do not
earn a compilation back."""

WORDS = "BM25"
"""What stands for vectors in the row that knows words only."""

MOST_NEGATIVES = 19
"""Every group is built with so many; fewer are its first ones, so that all settings share their negatives."""


@dataclass(frozen=True)
class Matching:
    """What tells one matching model from another; the defaults are those of the main experiments."""

    model: str = "DialogueCSE I2"
    temperature: float = 0.1
    negatives: int = 9
    turns: int = 3
    sides: str = "both"
    dialogues: int | None = None
    max_length: int = 50


MODELS: dict[str, Callable[[int, float], Objective]] = {
    "SiameseBERT-s": lambda dim, _: SiameseObjective(dim),
    "SiameseBERT-m": lambda dim, _: SiameseObjective(dim),
    "DialogueCSE I1": lambda dim, temperature: MatchingGuidedObjective(dim, "I1", temperature),
    "DialogueCSE I2": lambda dim, temperature: MatchingGuidedObjective(dim, "I2", temperature),
}
"""The dialogue-based rows of T2: "-s" reads one turn, "-m" several as one sequence."""


# --- encoders ---------------------------------------------------------------------------------------------------------


def spoken(corpora: Sequence[Dataset]) -> list[Conversation]:
    """The sentences of every record; only those of dialogues answer each other."""
    found = ((part, record, sentences_of(record)) for part in corpora for record in part)
    return [Conversation(part.name, said, part.table.kind == "Dialogue") for part, _, said in found if said]


def pretrain_on(corpora: list[Dataset], recipe: PretrainingRecipe, name: str, folder: Path) -> dict[str, Any]:
    """An encoder and its vocabulary from scratch."""
    encoder, result = pretrain(spoken(corpora), recipe, folder, name=name, cache=default_store().tokens)
    return {"encoder": encoder, "curve": result.curve, "training": result}


def adapt(
    encoder: Encoder, corpora: list[Dataset], settings: TrainingSettings, head_steps: int, limit: int | None,
    max_length: int, folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """Stage one: masked words of the corpus, each distinct sentence once an epoch.

    Encoders come without the head that predicts words; a fresh one would spoil them before it knows any. It is trained
    alone first, for ``head_steps``.
    """
    texts = thin(list(dict.fromkeys(text for c in spoken(corpora) for text in c.utterances)), limit)
    tokens = tokenise_once(encoder, texts, max_length, default_store().tokens)
    examples = MaskedExamples.from_tokens(encoder, tokens, 0.15)
    with seeded(settings.seed):
        objective = MaskedLanguageModel(encoder)
    layers = encoder.transformer.config.num_hidden_layers
    alone = replace(settings, freeze=layers, learning_rate=1e-3, epochs=head_steps, max_steps=head_steps)
    train(encoder, objective, examples, alone, folder / "head", name="word head")
    result = train(encoder, objective, examples, settings, folder / "all", name="adapt")
    return {"encoder": encoder.eval(), "curve": result.curve, "training": result}


# --- matching models --------------------------------------------------------------------------------------------------


def train_matching(
    encoder: Encoder, corpora: list[Dataset], matching: Matching, settings: TrainingSettings, min_turns: int,
    dev: Sequence[ScoredPair], folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """Stage two: the encoder after the epoch with the best correlation on ``dev``, or after the last without one."""
    found = thin(sessions((record for part in corpora for record in part), min_turns), matching.dialogues)
    turns = 1 if matching.model == "SiameseBERT-s" else matching.turns
    every = [g for g in build_groups(found, MOST_NEGATIVES) if any(neighbours(g, turns, matching.sides))]
    seen = settings.batch_size * settings.max_steps if settings.max_steps else None  # no more are ever looked at
    groups = thin(every, seen, settings.seed)
    share = len(groups) / len(every) if every else 1.0
    settings = replace(settings, epochs=settings.epochs / share)
    examples = matching_examples(
        encoder, groups, matching.negatives, turns, matching.sides, flat=matching.model == "SiameseBERT-m",
        max_length=matching.max_length, cache=default_store().tokens,
    )  # fmt: skip
    with seeded(settings.seed):
        objective = MODELS[matching.model](encoder.dim, matching.temperature)
    keep = (lambda epoch, current: current.save(folder / "epochs" / str(epoch))) if len(dev) else None
    result = train(encoder, objective, examples, settings, folder, on_epoch=keep, name=matching.model)
    kept = [load_encoder(path, device=encoder.device) for path in sorted((folder / "epochs").glob("*"))]
    best = max([encoder, *kept], key=partial(agreement, pairs=dev)) if kept else encoder
    best.name = matching.model
    curve = result.curve.assign(epoch=result.curve["epoch"] * share)
    return {"encoder": best.eval(), "curve": curve, "training": result, "groups": len(examples)}


def sweep_point(
    encoder: Encoder, corpora: list[Dataset], matching: Matching, settings: TrainingSettings, min_turns: int,
    dev: Sequence[ScoredPair], tests: dict[str, dict[str, Any]], folder: Path,
) -> pd.DataFrame:  # fmt: skip
    """A model with something changed, scored; it is not kept."""
    made = train_matching(encoder, corpora, matching, settings, min_turns, dev, folder)["encoder"]
    return pd.concat(score(made, "mean", dataset=name, seed=settings.seed, **test) for name, test in tests.items())


# --- evaluation -------------------------------------------------------------------------------------------------------


def rebuild(records: Dataset, size: int, positives: int, negatives: int, act: str, seed: int) -> list[RetrievalQuery]:
    """A retrieval set from labelled utterances, those with the dialogue ``act`` only where one is named."""
    dialogues = [replace(d, utterances=tuple(u for u in d.utterances if act in ("", *u.acts))) for d in records]
    return build_retrieval(labelled_utterances(dialogues), size, positives, negatives, seed)


def thinned(queries: Sequence[RetrievalQuery], limit: int | None) -> Sequence[RetrievalQuery]:
    """``limit`` of the queries with all their candidates, which are then no queries themselves."""
    if limit is None or limit >= len(queries):
        return queries
    asked = thin(queries, limit)
    chosen = {query.id for query in asked}
    needed = chosen.union(*((*query.positives, *query.negatives) for query in asked))
    return [query if query.id in chosen else replace(query, positives=(), negatives=())
            for query in queries if query.id in needed]  # fmt: skip


def view(encoder: Encoder, how: str, seed: int = 0, flow_steps: int = 200) -> SupportsEncode:
    """The encoder as a baseline of T2: its word vectors, ``[CLS]``, the mean, or the mean through a transformation."""
    match how:
        case "words":
            return WordVectors(encoder)
        case "flow":
            return Transformed(encoder, partial(flow, steps=flow_steps, seed=seed))
        case "whitening":
            return Transformed(encoder, geometry.whiten)
        case _:
            encoder.pooling = how
            return encoder


def score(
    encoder: Encoder, how: str, queries: Sequence[RetrievalQuery], pairs: Sequence[ScoredPair], limit: int | None,
    max_length: int, dataset: str, seed: int, flow_steps: int = 200,
) -> pd.DataFrame:  # fmt: skip
    """MAP and MRR with their floors and, where there are human scores, Corr."""
    seen = Lexical(encoder, queries, WORDS) if how == WORDS else view(encoder, how, seed, flow_steps)
    settings = {"dataset": dataset, "max_length": max_length}
    rows = [evaluate_retrieval(seen, thinned(queries, limit), **settings)]
    if len(pairs):
        rows.append(evaluate_similarity(seen, thin(pairs, limit), **settings))
    return pd.concat(rows, ignore_index=True).assign(train_seed=seed)


def by_intent(queries: Sequence[RetrievalQuery], intents: int, points: int) -> tuple[list[str], list[str]]:
    """Texts and labels of the ``intents`` most frequent classes, ``points`` of each; no text twice."""
    texts: dict[str, list[str]] = {}
    for query in queries:
        if query.intent and query.text not in (known := texts.setdefault(query.intent, [])):
            known.append(query.text)
    chosen = sorted(texts, key=lambda name: (-len(texts[name]), name))[:intents]
    pairs = [(text, name) for name in chosen for text in texts[name][:points]]
    return [text for text, _ in pairs], [name for _, name in pairs]


def geometry_of(
    encoder: Encoder, how: str, queries: Sequence[RetrievalQuery], max_length: int, dataset: str, seed: int,
    sentences: int, flow_steps: int = 200,
) -> pd.DataFrame:  # fmt: skip
    """Uniformity and alignment by intent of up to ``sentences`` of the 50 most frequent intents."""
    texts, labels = by_intent(queries, 50, max(2, sentences // 50))
    vectors = view(encoder, how, seed, flow_steps).encode(texts, max_length=max_length)
    values = {"uniformity": geometry.uniformity(vectors), "alignment": geometry.alignment(vectors, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(texts)))


def plane_of(
    encoder: Encoder, queries: Sequence[RetrievalQuery], method: str, intents: int, points: int, max_length: int,
    dataset: str, seed: int,
) -> pd.DataFrame:  # fmt: skip
    """Sentences of some intents in a plane; names in scripts that the figure's letters lack become numbers."""
    texts, labels = by_intent(queries, intents, points)
    numbers = {name: f"{dataset} intent {i}" for i, name in enumerate(dict.fromkeys(labels), 1)}
    shown = [name if name.isascii() else numbers[name] for name in labels]
    return project(encoder.encode(texts, max_length=max_length), method, seed=seed).assign(part=dataset, label=shown)


def matching_of(encoder: Encoder, turns: Sequence[str], response: str) -> pd.DataFrame:
    """The matching matrix of each turn with the response, one row a pair of tokens."""
    from dialnb.losses import matching_matrix

    tokens = encoder.tokenize([*turns, response])
    states, packed = encoder.hidden(tokens)
    parts = [part.detach().float().cpu() for part in states.split(packed.lengths.tolist())]
    *context, answer = (parts[place] for place in packed.rank.tolist())
    words = [encoder.tokenizer.convert_ids_to_tokens(tokens[i].ids.tolist()) for i in ([k] for k in range(len(tokens)))]
    rows = []
    for number, (turn, names) in enumerate(zip(context, words), 1):
        matrix = matching_matrix(turn, torch.ones(len(turn)), answer, torch.ones(len(answer))).numpy()
        for i, j in np.ndindex(matrix.shape):
            rows.append((number, i, names[i], j, words[-1][j], float(matrix[i, j])))
    return pd.DataFrame(rows, columns=["turn", "row", "word", "column", "response", "value"])
