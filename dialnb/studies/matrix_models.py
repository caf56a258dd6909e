"""The methods of the five papers from one encoder, on one corpus, with one budget.

The budget is a number of *tokens* (word pieces that go through the encoder), since an example of one method has six
times as many as one of another. A pilot of a few small steps tells how many tokens an example of a method has; its
training then has as many steps as fit. What was really read is in the table of costs.

Every method starts from the same weights, in one stage, and reads nothing but the dialogues: TaDSE makes its templates
of entities that rules find in them, UMS its candidates of replies of other dialogues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dialnb.data import Dataset
from dialnb.data.records import IntentUtterance, SelectionGroup
from dialnb.examples.manipulations import TASKS, manipulation_examples
from dialnb.examples.readings import Sentences, Sessions
from dialnb.examples.recogniser import rules, with_entities
from dialnb.examples.templates import Augmentation
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from dialnb.runs.grid import job_of, train_model
from dialnb.studies import dialoguecse, ums_models
from dialnb.studies.common import left_out, settings_for
from dialnb.studies.selectors import kept
from dialnb.studies.sentence_encoders import elsewhere
from dialnb.studies.tadse_models import template_settings
from dialnb.studies.templates import train_templates
from dialnb.studies.training import Job, conversations, thin, training
from dialnb.studies.wmdc_sweeps import wmdc_settings
from dialnb.training import TrainingResult, TrainingSettings, train
from dialnb.training.objectives_dialogue import ManipulationObjective
from dialnb.training.recipes import scaled

RAW = "raw"
PAPERS = {
    "SimCSE-unsup": "dse", "TOD-BERT": "dse", "DSE": "dse", "DSE-dropout": "dse", "DSE 2-1": "dse", "DSE 3-1": "dse",
    "DSE 123-1": "dse", "WMDC": "wmdc", "WMDC w/o IRF": "wmdc", "TaDSE": "tadse", "DialogueCSE": "dialoguecse",
    "UMS": "ums",
}  # fmt: skip
"""Every method, and the paper whose profile its rates are taken from."""

UMS = "UMS"
"""The cross-encoder: it scores replies and gives no vectors."""

PILOT, PILOT_DIALOGUES = 6, 600
"""Steps of a pilot (batches of WMDC take turns through three windows), each a quarter of the batch; its dialogues."""

WARM_UP = 10
"""Steps before a training is timed alone."""

EPOCHS = 100_000.0
"""More than any budget: steps alone end a training."""

FILLS = 3
"""Values that a slot of a template is filled with, one slot at a time: utterances of dialogues may name dozens."""

CLS = ("SimCSE-unsup", "TaDSE")
"""Methods whose authors read [CLS] in every test."""


class Trained(NamedTuple):
    """Sentence encoders by method, the raw one first; what training gave of the selector (None: not trained); all loss
    curves; and steps, tokens, seconds and memory of every training."""

    models: dict[str, Encoder]
    selector: dict[str, Any] | None
    curves: pd.DataFrame
    costs: pd.DataFrame


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_of(run, method: str, encoder: Encoder) -> TrainingSettings:
    """Rates, schedule and heads as the method's own notebook has them in this profile; the batch is the matrix's own,
    but for matching groups and for candidates with their contexts, which are many sentences each."""
    other = elsewhere(run, PAPERS[method])
    s, batch = other.settings, {"batch_size": run.settings.batch_size}
    match PAPERS[method]:
        case "dse":
            return settings_for(s, method, **batch)
        case "wmdc":
            return scaled(wmdc_settings(s, recipe=method), **batch)
        case "tadse":
            return template_settings(s, method, False, **batch)
        case "dialoguecse":
            model = dialoguecse.model("DialogueCSE I2", s, dialoguecse.Corpus("SGD", Sessions([]), Sentences([])))
            return job_of(s, model, encoder, run.settings.seed)[1]["settings"]
        case _:
            return ums_models.fine_tuning(s, "Ubuntu")


def job(
    run, method: str, encoder: Encoder, corpora: Sequence[Dataset], limit: int | None, pilot: TrainingResult | None
) -> Job:
    """The stage that trains a method on ``limit`` of the dialogues for as many steps as its ``pilot`` tells; without
    one, the stage that is its pilot."""
    own = settings_of(run, method, encoder)
    steps = PILOT if pilot is None else steps_for(run.settings.tokens, own.batch_size, pilot)
    batch = max(2, own.batch_size // 4) if pilot is None else own.batch_size
    settings = replace(own, batch_size=batch, max_steps=steps, epochs=EPOCHS)
    given = {"encoder": encoder, "corpora": list(corpora), "settings": settings}
    match method:
        case "TaDSE":
            return train_on_templates, given | {"limit": limit, "most": run.settings.templates}
        case "DialogueCSE":
            enough = max(PILOT_DIALOGUES, steps * settings.batch_size // 4)  # a dialogue gives four groups or more
            sessions = Sessions(given.pop("corpora"), 0, min(limit or enough, enough))
            return train_model, given | {"recipe": "DialogueCSE I2", "data": sessions, "options": {}, "watch": None}
        case "UMS":
            length = elsewhere(run, "ums").settings.max_length
            return train_on_replies, given | {"limit": limit, "max_length": length}
        case _:
            function, inputs = training(method, encoder, corpora, settings, limit)
            return function, inputs | {"keep_epochs": False}


# --- training ---------------------------------------------------------------------------------------------------------


def train_all(run, corpora: Sequence[Dataset]) -> Trained:
    """A pilot of every method, then every method with the steps that its budget buys."""
    s, raw = run.settings, load_encoder(run.settings.encoder)
    wanted = [method for method in PAPERS if method in s.methods]
    few = min(PILOT_DIALOGUES, s.dialogues or PILOT_DIALOGUES)
    pilots = run.stage_each({f"pilot {m}": job(run, m, raw, corpora, few, None) for m in wanted})
    told = {m: pilots[f"pilot {m}"]["training"] for m in wanted}
    made = run.stage_each({f"train {m}": job(run, m, raw, corpora, s.dialogues, told[m]) for m in wanted})
    made = {method: made[f"train {method}"] for method in wanted}
    for method in PAPERS:
        if method not in wanted:
            left_out(run, ("T1", "T2", "T3", "T4", "T5"), model=method)
    models = {RAW: raw} | {method: made[method]["encoder"] for method in wanted if method != UMS}
    if s.pooling == "own":
        for method in set(CLS) & set(models):
            models[method].pooling = "cls"
    curves = [made[method]["curve"].assign(model=method) for method in wanted]
    alone = {m: tokens_a_second(run, m, raw, corpora, few) for m in wanted if s.timed_steps}
    costs = pd.DataFrame([{"model": m, **cost(made[m]["training"], alone.get(m))} for m in wanted])
    return Trained(models, made.get(UMS), pd.concat(curves, ignore_index=True), costs)


def steps_for(tokens: int, batch_size: int, pilot: TrainingResult) -> int:
    """The steps of a batch that a budget of tokens buys, where an example has as many as in the pilot; at least one."""
    return max(1, round(tokens / (batch_size * pilot.tokens_per_second / pilot.examples_per_second)))


def cost(result: TrainingResult, alone: float | None = None) -> dict[str, float]:
    """What a training took, and the seconds it would take at the pace of one that runs ``alone`` (tokens a second).
    A training that was interrupted counts only what it did after it went on, so tokens and seconds are brought to all
    of its steps."""
    share = (result.steps - result.resumed_at) / result.steps or 1.0
    seconds = result.seconds / share
    tokens = result.tokens_per_second * seconds
    return {"steps": result.steps, "tokens": tokens, "seconds": seconds, "memory": result.peak_memory_gb} | (
        {"tokens a second": alone, "seconds alone": tokens / alone} if alone else {}
    )


def tokens_a_second(run, method: str, encoder: Encoder, corpora: Sequence[Dataset], limit: int) -> float:
    """The pace of a training while nothing else runs: of ``timed_steps`` whole batches, after some to warm up."""
    function, given = job(run, method, encoder, corpora, limit, None)
    whole = replace(given["settings"], batch_size=settings_of(run, method, encoder).batch_size)
    for name, steps in (("warm up", WARM_UP), ("time", run.settings.timed_steps)):
        settings = replace(whole, max_steps=steps)
        found = run.stage(f"{name} {method}", function, **given | {"settings": settings})
    return found["training"].tokens_per_second


@dataclass(frozen=True)
class SpokenTemplates:
    """Distinct utterances of dialogues with the entities that rules find in them, as a source of templates."""

    corpora: Sequence[Dataset]
    limit: int | None
    most: int | None

    def augmentation(self) -> Augmentation:
        said = dict.fromkeys(text for c in conversations(self.corpora, self.limit) for text in c.utterances)
        rows = [IntentUtterance(text, "") for text in thin(list(said), self.most)]
        return Augmentation(with_entities(rows, rules), FILLS, fill="one_at_a_time")


def train_on_templates(
    encoder: Encoder, corpora: list[Dataset], settings: TrainingSettings, limit: int | None, most: int | None,
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """TaDSE on the utterances of dialogues, ``most`` of them."""
    return train_templates("TaDSE", encoder, [SpokenTemplates(corpora, limit, most)], settings, {}, folder)


def reply_lists(dialogues: Sequence[Sequence[str]], seed: int = 24) -> list[SelectionGroup]:
    """Each dialogue of three utterances or more, cut at a random place: what was said before, the true reply, and one
    of another dialogue that is not the same."""
    long = [said for said in dialogues if len(said) > 2]
    rng, found = np.random.default_rng(seed), []
    for number, said in enumerate(long):
        at, other = int(rng.integers(2, len(said))), long[(number + int(rng.integers(1, len(long)))) % len(long)]
        wrong = other[int(rng.integers(len(other)))]
        if wrong != said[at]:
            found.append(SelectionGroup(str(number), tuple(said[:at]), (said[at], wrong), (1, 0), "train"))
    return found


def train_on_replies(
    encoder: Encoder, corpora: list[Dataset], settings: TrainingSettings, limit: int | None, max_length: int,
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """UMS: response selection together with insertion, deletion and search, on lists made of the dialogues."""
    selector = Selector(encoder, max_length, seed=settings.seed)
    groups = reply_lists([c.utterances for c in conversations(corpora, limit)])
    examples = manipulation_examples(selector.encoder, groups, max_length, folder, tasks=TASKS, protocol="paper")
    result = train(selector.encoder, ManipulationObjective(selector.heads, TASKS), examples, settings, folder, name=UMS)
    return kept(selector, UMS, result) | {"max_length": max_length}
