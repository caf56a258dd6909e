"""TaDSE's figures, each drawn and stored, or the sentence that says why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from dialnb import plots
from dialnb.data import Dataset
from dialnb.errors import DialnbError
from dialnb.evaluation.projection import METHODS
from dialnb.studies.common import rows_of, why
from dialnb.studies.figures import absent
from dialnb.studies.spaces import no_projection
from dialnb.studies.tadse import GEOMETRY, RATIOS
from dialnb.studies.tadse_models import ALIGNED, PAIR, Model, best, entities, single
from dialnb.studies.templates import project_intents

MUSIC = ("PlayMusic", "AddToPlaylist")
PANELS = {
    "F4": ("SNIPS", {"SimCSE": ("SimCSE", 0.0), "TaDSE": (PAIR, 0.0), "TaDSE, compressed 0.5": (PAIR, 0.5)}),
    "F9-F10": ("ATIS", {"SimCSE on the same data": ("L_u", 0.0), "TaDSE, compressed 0.2": (PAIR, 0.2)}),
}
"""Dataset of each figure, and its panels: the model and the ratio that it is compressed by."""


def losses(run):
    """F2: what each loss pulls together and pushes apart."""
    rows = [
        ("L_u", "u", "u⁺", "u⁺ⱼ", "an utterance and itself under other dropout"),
        ("L_t", "t", "t⁺", "t⁺ⱼ", "a template and itself under other dropout"),
        ("L_pair", "t", "u", "uⱼ", "a template and the utterance that fills it"),
    ]
    data = pd.DataFrame(rows, columns=["loss", "anchor", "positive", "negative", "text"])
    return run.figure(
        "F2", plots.template_losses, data=data,
        caption="The three losses: anchor and positive come closer, the rest of the batch (index j) is pushed apart.",
        alt="Three small graphs: an anchor joined to its positive by a thick line and to a negative by a dashed one.",
    )  # fmt: skip


def training(run, losses: pd.DataFrame):
    """Loss curves of the models that read all datasets; of all models where there are none."""
    several = losses[~losses["model"].str.contains(" on |rate ")]
    return run.figure(
        "training", plots.training_curves, data=several if len(several) else losses,
        caption="Training loss of the models that read all datasets; different losses do not compare.",
        alt="Loss against training step, one line per model.",
    )  # fmt: skip


def spaces(run, figure: str, sets: Mapping[str, Dataset], models: Mapping[str, Model], method: str):
    """F4 (SNIPS, with the music intents and where they meet) or F9 and F10 (ATIS, its frequent intents)."""
    s, (dataset, panels) = run.settings, PANELS[figure]
    name = figure if method == "tsne" else f"{figure}-{method}"
    if reason := _why_not(run, dataset, sets, method):
        return absent(run, name, reason)
    jobs = {}
    for shown, (loss, ratio) in panels.items():
        model = models["SimCSE" if loss == "SimCSE" else single(loss, dataset, best(dataset))]
        jobs[f"{METHODS[method]} of {dataset}: {shown}"] = project_intents, {
            **model._asdict(), "records": sets[dataset], "dataset": dataset, "ratio": ratio, "method": method,
            "limit": s.limit, "seed": s.seed, "entities": entities(),
        }  # fmt: skip
    try:
        made = run.stage_each(jobs)
    except DialnbError as error:
        if method == "tsne":
            raise
        return absent(run, name, why(error))
    frames = [frame.assign(model=stage.partition(": ")[2]) for stage, frame in made.items()]
    data = pd.concat(frames, ignore_index=True)
    data["label"] = data["label"].str.removeprefix("atis_")
    frequent = [label for label, _ in Counter(data["label"]).most_common(7)]
    music = dataset == "SNIPS"
    told = " The square is where the two music intents meet most, drawn larger below." if music else ""
    return run.figure(
        name, plots.highlighted_panels, data=data, highlight=list(MUSIC if music else frequent), zoom=music,
        title=f"{METHODS[method]} of the test utterances of {dataset}",
        caption=f"{METHODS[method]} of the test utterances of {dataset}.{told}",
        alt="Scatter plots of utterances side by side, one for each model, some intents in colour.",
    )  # fmt: skip


def _why_not(run, dataset: str, sets: Mapping[str, Dataset], method: str = "tsne") -> str:
    if dataset not in sets:
        return f"{dataset} is not part of this run; 'gpu' has it"
    if "F4" not in run.settings.tables:
        return f"left out of the {run.profile} profile"
    return no_projection(run, method)


def geometry(run, figure: str, sets: Mapping[str, Dataset]):
    """F5 (ATIS) and F8 (SNIPS): uniformity against alignment, plain and compressed."""
    if reason := _why_not(run, GEOMETRY[figure], sets):
        return absent(run, figure, reason)
    rows = rows_of(run, "X-geometry")
    rows = rows[(rows["dataset"] == GEOMETRY[figure]) & rows["metric"].isin(["Alignment", "Uniformity"])]
    short = {PAIR: "L_pair", ALIGNED: "L_pair, M_A"}
    names = rows["model"].replace(short).where(rows["compression"] == 0, None)
    names = names.fillna(
        rows["model"].replace({PAIR: "λ", ALIGNED: "M_A, λ"}) + rows["compression"].map(" = {:g}".format)
    )
    data = rows.assign(model=names).pivot_table("value", "model", "metric", sort=False).reset_index()
    data = data.rename(columns=str.lower)
    return run.figure(
        figure, plots.uniformity_alignment, data=data, title=f"Test utterances of {GEOMETRY[figure]}",
        caption=f"Uniformity and alignment of the test utterances of {GEOMETRY[figure]} (lower is better for both). "
        f"L_pair: all three losses; M_A: with the alignment layer; λ: compressed by {', '.join(map(str, RATIOS))}.",
        alt="Scatter plot of alignment against uniformity, one named marker for each model.",
    )  # fmt: skip


def neighbours(run):
    """F6: accuracy against the number of neighbours."""
    rows = rows_of(run, "F6")
    if rows.empty:
        return absent(run, "F6", f"left out of the {run.profile} profile")
    dataset = rows["dataset"].iloc[0]
    return run.figure(
        "F6", plots.sweep, data=rows[["model", "k", "value"]], x="k", line="model", x_label="neighbours k",
        y_label="accuracy (%)", title=f"Accuracy on {dataset}",
        caption=f"Nearest-neighbour accuracy on {dataset} against the number of neighbours.",
        alt="Two lines of accuracy against k, for SimCSE and TaDSE.",
    )  # fmt: skip


def epochs(run):
    """F7: accuracy over long training, with and without the alignment layer."""
    rows = rows_of(run, "F7")
    if rows.empty or rows["epoch"].nunique() < 2:
        return absent(run, "F7", f"the {run.profile} profile does not train that long; 'gpu' does")
    return run.figure(
        "F7", plots.scores_by_epoch, data=rows[["dataset", "model", "epoch", "value"]], panels="dataset",
        dashed=[PAIR], y_label="accuracy (%)", title="Accuracy after each epoch",
        caption="Nearest-neighbour accuracy after every epoch: solid with the alignment layer, dashed without.",
        alt="Lines of accuracy against epoch for models with and without the alignment layer.",
    )  # fmt: skip


def compression(run):
    """Beyond the paper: the whole range of compression, with gold and with retrieved templates."""
    rows = rows_of(run, "X-compression")
    if rows.empty or rows["compression"].nunique() < 3:
        return absent(run, "X-compression", f"left out of the {run.profile} profile")
    data = rows.assign(
        model=rows["model"].str.removeprefix("L_u + "), panel=rows["dataset"] + ", " + rows["template"] + " templates"
    )
    return run.figure(
        "compression", plots.sweep, data=data[["panel", "model", "compression", "value"]], x="compression",
        line="model", panels="panel", log_x=False, x_label="compression λ", y_label="accuracy (%)",
        title="Accuracy over compression",
        caption="Accuracy against the share of the template, for models named by what they have besides L_u. Templates "
        "of test utterances are gold, which takes their annotation, or retrieved: the nearest of the training set.",
        alt="Lines of accuracy against compression, one for each model, a panel for each kind of template.",
    )  # fmt: skip


def noise(run):
    """Beyond the paper: slots filled with values of the wrong type."""
    rows = rows_of(run, "X-noise")
    if rows.empty:
        return absent(run, "X-noise", f"the {run.profile} profile has no time for ablations; 'gpu' has")
    return run.figure(
        "noise", plots.sweep, data=rows[["model", "mistaken", "value"]], x="mistaken", line="model", log_x=False,
        x_label="share of slots with a wrong type", y_label="accuracy (%)", title="Wrong entities on purpose",
        caption=f"Accuracy on {rows['dataset'].iloc[0]} when a share of the slots gets values of another type.",
        alt="Two lines of accuracy against the share of wrong entities.",
    )  # fmt: skip


def rates(run):
    """Beyond the paper: learning rates that move the encoder."""
    rows = rows_of(run, "X-rates")
    if rows.empty:
        return absent(run, "X-rates", f"the {run.profile} profile has no time for ablations; 'gpu' has")
    return run.figure(
        "rates", plots.sweep, data=rows[["rate", "value"]], x="rate", x_label="learning rate",
        y_label="accuracy (%)", title=f"Learning rates on {rows['dataset'].iloc[0]}",
        caption="Accuracy of the model with all three losses against its learning rate.",
        alt="A line of accuracy against learning rate.",
    )  # fmt: skip
