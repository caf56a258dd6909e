"""Scores over training and over settings: Figure 3 of DSE, and the ablations beyond the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dialnb.data import Dataset
from dialnb.errors import TrainingError
from dialnb.evaluation import evaluate_blocks, evaluate_candidates, evaluate_prototypes, evaluate_scope
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.vectors import EncodeOnce
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.studies import tasks
from dialnb.studies.common import rows_of, settings_for
from dialnb.studies.training import Job, thin, train_model
from dialnb.training import TrainingSettings

PROBE = "probe"
TOP = ["Top-1", "Top-3", "Top-10"]


# --- score after every epoch ------------------------------------------------------------------------------------------


def epoch_jobs(run, epochs: Mapping[str, Mapping[int, Encoder]]) -> dict[str, Job]:
    """The stages that score four tasks after every epoch, where the profile has a ``probe``."""
    s = run.settings
    if not s.probe:
        return {}
    (scope,) = tasks.scope_data(s.data).values()
    (questions,) = tasks.question_data(s.data).values()
    (groups,) = tasks.candidate_data(s.data).values()
    inputs = {"intents": tasks.intent_data(s.data), "scope": scope, "questions": questions, "groups": groups,
              "items": s.probe, "draws": s.probe_draws}  # fmt: skip
    return {
        f"epoch: {model} after {epoch}": (score_four_tasks, {"encoder": encoder, **inputs})
        for model, kept in epochs.items()
        for epoch, encoder in kept.items()
    }


def score_four_tasks(
    encoder: Encoder, intents: dict[str, Dataset], scope: Dataset, questions: Dataset, groups: Dataset, items: int,
    draws: int,
) -> pd.DataFrame:  # fmt: skip
    """One score for each of F3's tasks and each draw of ``items`` test items: its number is the seed of the row."""
    once, rows = EncodeOnce(encoder), []
    size, listed = max(items, 300), groups.filter(split=("dev", "test"))
    pairs = tasks.question_answers(questions, 10 * size)
    parts = {name: tasks.train_and_test(records) for name, records in intents.items()}
    train, test = (list(scope.filter(split=split)) for split in ("train", "test"))
    for draw in range(draws):
        few = {"shots": (1,), "seeds": (draw,)}
        accuracies = [
            evaluate_prototypes(once, known, thin(asked, items, draw), dataset=name, **few)["value"].mean()
            for name, (known, asked) in parts.items()
        ]
        detected = evaluate_scope(once, train, thin(test, items, draw), dataset=PROBE, protocols=["code"], **few)
        blocks = evaluate_blocks(once, thin(pairs, size, draw), dataset=PROBE, seeds=(draw,))
        ranked = evaluate_candidates(once, thin(listed, min(items, 100), draw), dataset=PROBE)
        values = {
            "intents": sum(accuracies) / len(accuracies),
            "out-of-scope": detected.query("protocol == 'code' and metric == 'Ave'")["value"].mean(),
            "utterance selection": blocks[blocks["metric"].isin(TOP)]["value"].mean(),
            "dialogue selection": ranked[ranked["metric"].isin(TOP) & (ranked["ties"] == "against")]["value"].mean(),
        }
        for task, value in values.items():
            rows += tidy_rows({"score": value}, task=task, dataset=PROBE, protocol="code", n=items, seed=draw)
    return tidy_frame(rows)


# --- ablations --------------------------------------------------------------------------------------------------------


def ablations(s: Mapping[str, Any]) -> list[tuple[str, float | str, TrainingSettings, dict[str, Any]]]:
    """(what, value, settings, options of the loss) of every point; the printed point belongs to each row of them."""
    base, printed = settings_for(s, "DSE", epochs=s["sweep_epochs"]), {"temperature": 0.05, "form": "code"}
    points = [("temperature", t, base, printed | {"temperature": t}) for t in s["sweep_temperatures"]]
    points += [("batch_size", b, settings_for(s, "DSE", epochs=s["sweep_epochs"], batch_size=b), printed)
               for b in s["sweep_batches"]]  # fmt: skip
    return points + [("loss", form, base, printed | {"form": form}) for form in s["loss_forms"]]


def label(settings: TrainingSettings, options: Mapping[str, Any]) -> str:
    """The name of a point: equal settings are trained once, whichever row of points they belong to."""
    return f"ablation: temperature {options['temperature']:g}, batch {settings.batch_size}, {options['form']} loss"


def ablation_jobs(run, corpora: list[Dataset]) -> dict[str, Job]:
    """The stages that train and score every point."""
    s = run.settings
    shared = {"encoder": load_encoder(s.encoder), "corpora": corpora, "limit": s.dialogues, "tail": s.tail_quirk,
              "sets": tasks.intent_data(s.data), "test_limit": s.limit, "seeds": s.seeds}  # fmt: skip
    return {
        label(settings, options): (ablation_point, shared | {"settings": settings, "options": options})
        for _, _, settings, options in ablations(s)
    }


def ablate(run, corpora: list[Dataset]) -> pd.DataFrame:
    """Beyond the paper: temperature, batch size and form of DSE's loss, each scored by its 1-shot intents."""
    points, made = ablations(run.settings), run.stage_each(ablation_jobs(run, corpora))
    for what, value, settings, options in points:
        rows = made[label(settings, options)]
        if rows.empty:
            run.not_run("X-sweep", model=f"{what} {value}", reason="its loss became infinite or not a number")
        else:
            run.add(rows, model="DSE", table="X-sweep", what=what, at=str(value))
    return rows_of(run, "X-sweep")


def ablation_point(
    encoder: Encoder, corpora: list[Dataset], settings: TrainingSettings, limit: int | None, tail: bool,
    options: dict[str, Any], sets: dict[str, Dataset], test_limit: int | None, seeds, folder: Path,
) -> pd.DataFrame:  # fmt: skip
    """DSE trained with one thing changed, and its 1-shot intent accuracy; no rows where the loss left all bounds."""
    try:
        model = train_model("DSE", encoder, corpora, settings, limit, tail, options, False, None, folder)["encoder"]
    except TrainingError:
        return tidy_frame([])
    rows = [tasks.intents_of(model, records, name, test_limit, (1,), seeds) for name, records in sets.items()]
    return pd.concat(rows).query("method == 'prototype-code'")
