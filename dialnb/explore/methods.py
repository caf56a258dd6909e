"""One small model of every method from the same encoder, for looking around: trained in seconds, kept as stages.

They show what a method does to a space, not how good it is; the papers' notebooks train longer, on more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dialnb.data import load
from dialnb.errors import UnknownName
from dialnb.evaluation.selection import Scorer, cosine_scorer
from dialnb.examples.manipulations import TASKS
from dialnb.files import say
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.runs.stages import StageCache, default_stages, fresh_since
from dialnb.studies.matching import CONTRAST, Matching, train_matching
from dialnb.studies.selectors import FINE_TUNING, assemble, train_selector
from dialnb.studies.templates import Filled, train_templates
from dialnb.studies.training import Job, training
from dialnb.training import TrainingSettings
from dialnb.training.recipes import get_recipe

RAW = "raw"
"""The encoder as it is, among the methods."""

INPUT = 64  # tokens that the selector reads


class Size(NamedTuple):
    """How much the tour does: training steps, dialogues to draw them from, utterances of each intent and corpus on the
    map, and its projections."""

    steps: int
    dialogues: int
    points: int
    projections: tuple[str, ...]


SIZES = {"smoke": Size(2, 40, 4, ("tsne",)), "quick": Size(12, 300, 12, ("tsne", "umap"))}


class Methods(NamedTuple):
    """Sentence encoders by method, the raw one first, and all methods as scorers of candidate responses."""

    encoders: dict[str, Encoder]
    scorers: dict[str, Scorer]


def size_of(profile: str) -> Size:
    """The size of a profile."""
    if profile not in SIZES:
        raise UnknownName("profile of the tour", profile, SIZES)
    return SIZES[profile]


def train_methods(encoder: Encoder | str = "mini", profile: str = "quick", seed: int = 1) -> Methods:
    """DSE, DialogueCSE, TaDSE, WMDC and UMS, a few steps each, from ``encoder``; found again when asked for again."""
    raw = load_encoder(encoder) if isinstance(encoder, str) else encoder
    cache = StageCache(default_stages(), fresh_since(), say)
    made = {}
    for name, (function, inputs) in jobs(raw, size_of(profile), seed).items():
        made[name], record = cache.run(f"train {name}", function, inputs)
        say(f"{name}: {'found again' if record.cached else f'trained in {record.seconds:.0f} s'}")
    selector = made.pop("UMS")
    encoders = {RAW: raw} | {name: result["encoder"] for name, result in made.items()}
    scorers = {name: cosine_scorer(own) for name, own in encoders.items()}
    return Methods(encoders, scorers | {"UMS": assemble(selector["encoder"], selector["heads"], INPUT).score})


def jobs(raw: Encoder, size: Size, seed: int) -> Mapping[str, Job]:
    """The stages by method: the printed recipes with fewer and larger steps, and less memory."""

    def shorter(printed: TrainingSettings, batch_size: int, learning_rate: float, **more: Any) -> TrainingSettings:
        few = {"max_steps": size.steps, "precision": "float32", "seed": seed}
        return replace(printed, batch_size=batch_size, learning_rate=learning_rate, **few, **more)

    talk, heads = [load("bundled/dialogues")], {"head_learning_rate": 1e-2}
    dse = shorter(get_recipe("DSE").settings, 32, 4e-4, **heads)
    wmdc = shorter(get_recipe("WMDC").settings, 24, 5e-4, **heads)
    matching = {
        "encoder": raw,
        "corpora": [load("bundled/SGD")],
        "matching": Matching(negatives=4, dialogues=size.dialogues, max_length=32),
        "settings": shorter(CONTRAST, 8, 5e-4),
        "min_turns": 4,
        "dev": (),
    }
    templates = {
        "recipe": "TaDSE",
        "encoder": raw,
        "settings": shorter(get_recipe("TaDSE").settings, 16, 2e-4),
        "options": {},
        "sources": [Filled("SNIPS", load("bundled/SNIPS", "slots"), limit=size.dialogues)],
    }
    selector = {
        "name": "UMS",
        "encoder": raw,
        "parts": [load("bundled/UbuntuIRC", "selection-10")],
        "settings": shorter(FINE_TUNING, 4, 4e-4, epochs=1),
        "tasks": TASKS,
        "protocol": "paper",
        "limit": size.dialogues,
        "max_length": INPUT,
        "dev": None,
        "probe": None,
        "seeds": (seed,),
    }
    return {
        "DSE": training("DSE", raw, talk, dse, size.dialogues),
        "DialogueCSE": (train_matching, matching),
        "TaDSE": (train_templates, templates),
        "WMDC": training("WMDC", raw, talk, wmdc, size.dialogues),
        "UMS": (train_selector, selector),
    }
