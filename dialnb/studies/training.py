"""Models as stages: one function that every study trains with, so that a model made for one notebook serves the others.

A stage is found again by its inputs and the code it reaches; this module is small and rarely changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dialnb.data import Dataset, load
from dialnb.data.corpora import Conversation, utterances_of
from dialnb.data.records import InferenceItem, Record, ScoredPair
from dialnb.data.store import default_store
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.examples.pairs import tail_quirk
from dialnb.files import read_json, write_json
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import PretrainingRecipe, pretrain, pretraining_settings
from dialnb.training.recipes import scaled, train_recipe

Job = tuple[Callable[..., Any], dict[str, Any]]
"""A stage to be made: its function and inputs."""

CURVES = ("DSE", "DSE-dropout")
"""Recipes whose encoder is kept after every epoch: Figure 3 of DSE scores them all."""


def thin(items: Sequence, limit: int | None, seed: int = 24) -> list:
    """``limit`` of the items in their order, drawn once by ``seed``; all of them for None.

    >>> thin("abcdef", 3) == thin("abcdef", 3), thin("abc", None)
    (True, ['a', 'b', 'c'])
    """
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in np.sort(np.random.default_rng(seed).choice(len(items), limit, replace=False))]


def conversations(corpora: Sequence[Dataset], limit: int | None = None, tail: bool = False) -> list[Conversation]:
    """All dialogues with their non-empty utterances, or ``limit`` of them drawn at random.

    ``tail`` loses the same opening and closing lines as DSE's code. Of inference pairs the entailed ones are
    conversations of two utterances (DSE-dianli).
    """
    parts = [part.filter(label="entailment") if part.table.kind == "InferenceItem" else part for part in corpora]
    if limit is None:
        return [Conversation(part.name, said) for part in parts for said in _all_said(part, tail)]
    places = thin([(part, row) for part in parts for row in range(len(part))], limit)
    return [Conversation(part.name, _said(part[row], tail)) for part, row in places]


def _all_said(part: Dataset, tail: bool) -> Iterator[tuple[str, ...]]:
    """What each record says; of whole corpora of dialogues without making a record of each utterance."""
    if tail or part.table.kind != "Dialogue":
        yield from (_said(record, tail) for record in part)
        return
    said, folded = part.column("utterances.text"), {}
    said = iter([folded.get(text) or folded.setdefault(text, " ".join(text.split())) for text in said])
    for size in part.sizes("utterances"):
        yield tuple(filter(None, islice(said, size)))


def _said(record: Record, tail: bool) -> tuple[str, ...]:
    if isinstance(record, InferenceItem):
        return record.utterances
    said = utterances_of(record)
    return tuple(tail_quirk(said, record.utterances[0].speaker == "system")) if tail and said else said


def training(
    recipe: str, encoder: Encoder, corpora: Sequence[Dataset], settings: TrainingSettings, limit: int | None = None,
    tail: bool = False, options: dict[str, Any] | None = None,
) -> Job:  # fmt: skip
    """The stage that trains ``recipe`` from ``encoder``; every study builds it here, so that equal models are one."""
    kept = recipe in CURVES and settings.epochs > 1
    dev = load("bundled/STS-B", "captions", "dev") if recipe == "SimCSE-unsup" else None
    return train_model, {
        "recipe": recipe, "encoder": encoder, "corpora": list(corpora), "settings": settings, "limit": limit,
        "tail": tail, "options": options or {}, "keep_epochs": kept, "dev": dev,
    }  # fmt: skip


def train_model(
    recipe: str, encoder: Encoder, corpora: list[Dataset], settings: TrainingSettings, limit: int | None, tail: bool,
    options: dict[str, Any], keep_epochs: bool, dev: Dataset | None, folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """The trained encoder, its loss curve, the facts of the training and, if asked for, the encoder of each epoch.

    With ``dev``, pairs that people scored, the encoder comes back as it was when it agreed with them best (SimCSE).
    """

    def keep(epoch: int, current: Encoder) -> None:
        current.save(folder / "epochs" / str(epoch))

    dialogues, tokens = conversations(corpora, limit, tail), default_store().tokens
    watch = keep if keep_epochs else None
    if dev is not None:
        watch = keep_best(folder, partial(agreement, pairs=dev, pooling="cls"))
    result = train_recipe(recipe, encoder, dialogues, settings, folder, tokens, options, on_epoch=watch)
    if (folder / "best").is_dir():
        encoder = load_encoder(folder / "best", device=encoder.device)
    encoder.name = recipe
    kept = sorted((folder / "epochs").glob("[0-9]*"), key=lambda path: int(path.name))
    epochs = {int(path.name): load_encoder(path) for path in kept}
    return {"encoder": encoder.eval(), "curve": result.curve, "training": result, "epochs": epochs}


def keep_best(folder: Path, score: Callable[[Encoder], float]) -> Callable[[int, Encoder], None]:
    """Called during a training: saves the encoder in ``folder/best`` when it scores higher than it ever did before.

    Scores are kept on disk, so that a training that was interrupted goes on comparing with what it saw.
    """
    path = folder / "scores.json"

    def look(steps: int, encoder: Encoder) -> None:
        before = {at: value for at, value in (read_json(path) or {}).items() if int(at) < steps}
        value = float(np.nan_to_num(score(encoder), nan=-100.0))
        if all(value > other for other in before.values()):
            encoder.save(folder / "best")
        write_json(path, before | {str(steps): value})

    return look


def agreement(encoder: Encoder, pairs: Sequence[ScoredPair], **encoding: Any) -> float:
    """Spearman's correlation of cosines with the scores of ``pairs``, in percent: what development sets choose by."""
    return float(evaluate_similarity(encoder, pairs, dataset="dev", **encoding)["value"].iloc[0])


def pretraining(
    shape: str, vocabulary: Encoder, corpora: Sequence[Dataset], epochs: float, limit: int | None = None,
    max_steps: int | None = None, seed: int = 1, kind: str = "bert", warm: bool = False,
) -> Job:  # fmt: skip
    """The stage that makes an encoder of ``shape`` with the word pieces of another one: from scratch, or ``warm`` from
    the other one's weights, at half the rate."""
    usual = pretraining_settings(shape)
    rate = usual.learning_rate * (0.5 if warm else 1)
    settings = scaled(usual, epochs=epochs, max_steps=max_steps, seed=seed, learning_rate=rate)
    return pretrain_encoder, {
        "recipe": PretrainingRecipe(shape, kind, settings=settings), "vocabulary": vocabulary, "corpora": list(corpora),
        "limit": limit, "warm": warm,
    }  # fmt: skip


def pretrain_encoder(
    recipe: PretrainingRecipe, vocabulary: Encoder, corpora: list[Dataset], limit: int | None, warm: bool, folder: Path
) -> dict[str, Any]:
    """The new encoder, its loss curve and the facts of its training."""
    dialogues = conversations(corpora, limit)
    encoder, result = pretrain(
        dialogues, recipe, folder, name=recipe.shape, tokenizer=vocabulary.tokenizer, cache=default_store().tokens,
        start=vocabulary if warm else None,
    )  # fmt: skip
    return {"encoder": encoder, "curve": result.curve, "training": result}


class Step(NamedTuple):
    """A stage that waits for an encoder: which one, what it makes of it, and under which name its own is known."""

    name: str
    source: tuple[str, str]
    job: Callable[[Encoder], Job]
    gives: tuple[str, str] | None = None


def in_order(run, known: Mapping[tuple[str, str], Encoder], steps: list[Step]) -> dict[str, Any]:
    """Results of all steps by name; each begins as soon as its encoder is known."""
    gives = {step.name: step.gives for step in steps}

    def follow(name: str, result: dict[str, Any]) -> dict[str, Job]:
        waited = [step for step in steps if gives[name] is not None and step.source == gives[name]]
        return {step.name: step.job(result["encoder"]) for step in waited}

    ready = [step for step in steps if step.source in known]
    return run.stage_each({step.name: step.job(known[step.source]) for step in ready}, follow)
