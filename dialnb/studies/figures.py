"""The figures of the studies, each drawn and stored, or the sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from dialnb import plots
from dialnb.errors import DialnbError
from dialnb.evaluation.projection import METHODS
from dialnb.models.encoder import Encoder
from dialnb.studies import tasks
from dialnb.studies.common import rows_of, why
from dialnb.studies.spaces import no_projection, projection_jobs


class Sentence(str):
    """Text that a notebook shows as text, without the quotes of a string."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return self


def absent(run, figure: str, reason: str) -> Sentence:
    """Note that a figure is not drawn, and say so in its place."""
    run.not_run(figure, reason=reason)
    return Sentence(f"Not drawn: {reason}.")


def spaces(run, models: Mapping[str, Encoder], method: str):
    """F1: intents with out-of-scope utterances above, questions with their answers below, a column for each model."""
    figure = "F1" if method == "tsne" else f"F1-{method}"
    if reason := no_projection(run, method):
        return absent(run, figure, reason)
    (scope,) = tasks.scope_data(run.settings.data).values()
    (questions,) = tasks.question_data(run.settings.data).values()
    shown = {name: models[name] for name in _columns(models)}
    try:
        made = run.stage_each(projection_jobs(run, shown, method, scope, questions))
    except DialnbError as error:
        if method == "tsne":
            raise
        return absent(run, figure, why(error))
    frames = [frame.assign(model=name.rpartition(": ")[2]) for name, frame in made.items()]
    return run.figure(
        figure, plots.projection_panels, data=pd.concat(frames, ignore_index=True), rows="part", pair="pair",
        caption=f"{METHODS[method]} of test utterances. Above: some intents, out-of-scope utterances as black circles. "
        "Below: questions joined to their answers, grey dots are responses to other questions.",
        alt="Two rows of scatter plots, a column for each model: coloured intents above, joined pairs below.",
    )  # fmt: skip


def _columns(models: Mapping[str, Encoder]) -> list[str]:
    """TOD-BERT, SimCSE and DSE where they were trained; else what there is to set DSE against."""
    first = [name for name in ("TOD-BERT", "SimCSE-unsup", "DSE") if name in models]
    return first if len(first) == 3 else [name for name in ("BERT", "DSE-dropout", *first) if name in models][-3:]


def epochs(run):
    """F3: four tasks after every epoch."""
    rows = rows_of(run, "F3")
    if rows.empty or rows["epoch"].nunique() < 2:
        return absent(run, "F3", f"the {run.profile} profile trains for a single epoch; 'gpu' scores every epoch")
    return run.figure(
        "F3", plots.scores_by_epoch, data=rows[["task", "model", "epoch", "seed", "value"]],
        caption="Score on four tasks after every epoch: DSE solid, DSE-dropout dashed; the band is the 95 % interval "
        "over draws of test items.",
        alt="Four small line plots of score against epoch for DSE and DSE-dropout.",
    )  # fmt: skip


def sweep(run):
    """Temperature and batch size of DSE against 1-shot intents."""
    rows = rows_of(run, "X-sweep")
    rows = rows[rows["what"] != "loss"] if len(rows) else rows
    if rows.empty:
        return absent(run, "X-sweep", f"the {run.profile} profile has no time for ablations; 'gpu' has")
    data = rows[["what", "at", "seed", "value"]].assign(at=rows["at"].astype(float))
    return run.figure(
        "sweep", plots.sweep, data=data, x="at", panels="what", x_label="{panel}", y_label="1-shot accuracy (%)",
        title="Temperature and batch size of DSE",
        caption="1-shot intent accuracy of DSE against temperature and batch size; the band is the 95 % interval over "
        "few-shot draws.",
        alt="Two line plots with interval bands.",
    )  # fmt: skip
