"""One small model of every method from the same encoder, for looking around: trained in seconds, kept as stages.

They show what a method does to a space, not how good it is; the papers' notebooks train longer, on more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from dialnb.data import load
from dialnb.errors import UnknownName
from dialnb.evaluation.selection import Scorer, cosine_scorer
from dialnb.examples.manipulations import TASKS
from dialnb.examples.readings import Sessions
from dialnb.files import say
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.runs.grid import train_model
from dialnb.runs.stages import StageCache, default_stages, fresh_since
from dialnb.studies.selectors import FINE_TUNING, assemble, train_selector
from dialnb.studies.templates import Filled, train_templates
from dialnb.studies.training import Job, training
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
    talk, steps = [load("bundled/dialogues")], {"max_steps": size.steps, "precision": "float32", "seed": seed}
    dse = replace(get_recipe("DSE").settings, batch_size=32, learning_rate=4e-4, head_learning_rate=1e-2, **steps)
    wmdc = replace(get_recipe("WMDC").settings, batch_size=24, learning_rate=5e-4, head_learning_rate=1e-2, **steps)
    tadse = replace(get_recipe("TaDSE").settings, batch_size=16, learning_rate=2e-4, **steps)
    matching = replace(get_recipe("DialogueCSE").settings, batch_size=8, learning_rate=5e-4, **steps)
    manipulation = replace(FINE_TUNING, batch_size=4, learning_rate=4e-4, epochs=1, **steps)
    snips = load("bundled/SNIPS", "slots")
    turns = Sessions([load("bundled/SGD")], 4, size.dialogues)
    return {
        "DSE": training("DSE", raw, talk, dse, size.dialogues),
        "DialogueCSE": (train_model, {"recipe": "DialogueCSE I2", "encoder": raw, "data": turns, "settings": matching,
                                      "options": {"negatives": 4, "max_length": 32}, "watch": None}),
        "TaDSE": (train_templates, {"recipe": "TaDSE", "encoder": raw, "settings": tadse, "options": {},
                                    "sources": [Filled("SNIPS", snips, limit=size.dialogues)]}),
        "WMDC": training("WMDC", raw, talk, wmdc, size.dialogues),
        "UMS": (train_selector, {"name": "UMS", "encoder": raw, "parts": [load("bundled/UbuntuIRC", "selection-10")],
                                 "settings": manipulation, "tasks": TASKS, "protocol": "paper",
                                 "limit": size.dialogues, "max_length": INPUT, "dev": None, "probe": None,
                                 "seeds": (seed,)}),
    }  # fmt: skip
