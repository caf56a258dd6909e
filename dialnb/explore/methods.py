"""One small model of every method from the same encoder, for looking around: trained in seconds, kept as stages.

They show what a method does to a space, not how good it is; the papers' notebooks train longer, on more.
"""

from __future__ import annotations

from typing import NamedTuple

from dialnb.data import load
from dialnb.errors import UnknownName
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.selection import Scorer, cosine_scorer
from dialnb.examples.readings import Dialogues, Filled, Lists, Sessions, Templates
from dialnb.files import say
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model, job_of
from dialnb.runs.stages import StageCache, default_stages, fresh_since

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
    raw = as_trainable(encoder)
    cache = StageCache(default_stages(), fresh_since(), say)
    made = {}
    for name, model in models(size_of(profile)).items():
        made[name], record = cache.run(f"train {name}", *job_of({}, model, raw, seed))
        say(f"{name}: {'found again' if record.cached else f'trained in {record.seconds:.0f} s'}")
    selector = made.pop("UMS")
    encoders = {RAW: raw} | {name: result["encoder"] for name, result in made.items()}
    scorers = {name: cosine_scorer(own) for name, own in encoders.items()}
    return Methods(encoders, scorers | {"UMS": selector["selector"].score})


def models(size: Size) -> dict[str, Model]:
    """The methods: the printed recipes with fewer and larger steps, and less memory."""
    talk = Dialogues([load("bundled/dialogues")], size.dialogues)
    spoken = Sessions([load("bundled/SGD")], 4, size.dialogues)
    templates = Templates([Filled("SNIPS", load("bundled/SNIPS", "slots"), limit=size.dialogues)])
    lists = Lists([load("bundled/UbuntuIRC", "selection-10")], size.dialogues)
    fast = {"head_learning_rate": 1e-2}
    matching, selecting = {"negatives": 4, "max_length": 32}, {"max_length": INPUT}
    chosen = {  # recipe, data, batch, rate, options
        "DSE": ("DSE", talk, 32, 4e-4, {}),
        "DialogueCSE": ("DialogueCSE I2", spoken, 8, 5e-4, matching),
        "TaDSE": ("TaDSE", templates, 16, 2e-4, {}),
        "WMDC": ("WMDC", talk, 24, 5e-4, {}),
        "UMS": ("UMS", lists, 4, 4e-4, selecting),
    }
    made = {}
    for name, (recipe, data, batch, rate, options) in chosen.items():
        settings = {"max_steps": size.steps, "precision": "float32", "batch_size": batch, "learning_rate": rate}
        settings |= fast if name in ("DSE", "WMDC") else {}
        made[name] = Model(recipe, data=data, settings=settings, options=options)
    return made
