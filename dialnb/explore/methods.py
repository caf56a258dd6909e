"""One small model of every method from the same encoder, for looking around: trained in seconds, kept as stages; and
how each does on a file of one's own, of which small examples come with the package.

They show what a method does to a space, not how good it is; the papers' notebooks train longer, on more.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pandas.io.formats.style import Styler

from dialnb.data import Dataset, load
from dialnb.errors import check_known
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.own import evaluate_own, summary_own
from dialnb.evaluation.selection import Scorer, cosine_scorer
from dialnb.examples.own import count_examples
from dialnb.examples.readings import Dialogues, Filled, Lists, Reading, Sessions, Templates
from dialnb.explore.panel import BEST, table
from dialnb.files import read_yaml, say
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model, job_of
from dialnb.runs.stages import default_cache

RAW = "raw"
"""The encoder as it is, among the methods."""

TOUR = read_yaml(__file__, "methods.yaml")


class Size(NamedTuple):
    """How much the tour does: training steps, dialogues to draw them from, utterances of each intent and corpus on the
    map, and its projections."""

    steps: int
    dialogues: int
    points: int
    projections: list[str]


class Methods(NamedTuple):
    """Sentence encoders by method, the raw one first, and all methods as scorers of candidate responses."""

    encoders: dict[str, Encoder]
    scorers: dict[str, Scorer]


def size_of(profile: str) -> Size:
    """The size of a profile."""
    check_known("profile of the tour", profile, TOUR["sizes"])
    return Size(**TOUR["sizes"][profile])


def train_methods(encoder: Encoder | str = "mini", profile: str = "quick", seed: int = 1) -> Methods:
    """DSE, DialogueCSE, TaDSE, WMDC and UMS, a few steps each, from ``encoder``; found again when asked for again."""
    raw = as_trainable(encoder)
    cache = default_cache()
    made = {}
    for name, model in models(size_of(profile)).items():
        made[name], record = cache.run(f"train {name}", *job_of({}, model, raw, seed))
        say(f"{name}: {'found again' if record.cached else f'trained in {record.seconds:.0f} s'}")
    selector = made.pop("UMS")
    encoders = {RAW: raw} | {name: result["encoder"] for name, result in made.items()}
    scorers = {name: cosine_scorer(own) for name, own in encoders.items()}
    return Methods(encoders, scorers | {"UMS": selector["selector"].score})


def models(size: Size) -> dict[str, Model]:
    """The methods as `methods.yaml` has them, on bundled data."""
    data: dict[str, Reading] = {
        "talk": Dialogues([load("bundled/dialogues")], size.dialogues),
        "sessions": Sessions([load("bundled/SGD")], 4, size.dialogues),
        "templates": Templates([Filled("SNIPS", load("bundled/SNIPS", "slots"), limit=size.dialogues)]),
        "lists": Lists([load("bundled/UbuntuIRC", "selection-10")], size.dialogues),
    }
    made = {}
    for name, method in TOUR["methods"].items():
        settings = {"max_steps": size.steps, "precision": "float32"} | method["settings"]
        options = method.get("options", {})
        made[name] = Model(method["recipe"], data=data[method["data"]], settings=settings, options=options)
    return made


SHOWN = ("R10@1", "R10@5", "MRR", "Accuracy")


def example(name: str) -> Path:
    """The path of an example: ``utterances.csv`` (with intents and slots) or ``dialogues.csv`` (with speakers)."""
    folder = Path(__file__).resolve().parent.parent / "assets" / "examples"
    check_known("example", name, [entry.name for entry in folder.iterdir()])
    return folder / name


def examples_of(file: Dataset) -> Styler:
    """How many examples each method makes of the dialogues of a file."""
    return table(pd.DataFrame({"examples": count_examples(file)}), index=True)


def score_own(methods: Methods, *files: Dataset) -> Styler:
    """What every sentence encoder reaches on one's own files: a row for each test, a column for each method."""
    rows = [evaluate_own(own, file).assign(encoder=name) for name, own in methods.encoders.items() for file in files]
    found = pd.concat(rows, ignore_index=True)
    found = found[found["metric"].isin(SHOWN)]
    return table(summary_own(found), index=True, formats="{:.3g}").highlight_max(axis=1, props=BEST)
