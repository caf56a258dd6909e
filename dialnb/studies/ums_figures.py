"""The figures of UMS: an example, the three manipulations, who falls for the adversary, special tokens, epochs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from dialnb import plots
from dialnb.claims.papers import FLOORS
from dialnb.data import Dataset, load
from dialnb.errors import DataError, DialnbError
from dialnb.evaluation.projection import METHODS
from dialnb.examples.manipulations import MARKS, Manipulation, deletion, insertion, search
from dialnb.studies.common import rows_of, why
from dialnb.studies.figures import absent
from dialnb.studies.selectors import groups_of, project_marks
from dialnb.studies.spaces import no_projection
from dialnb.studies.ums_models import Trained, parse

RIGHT, ADVERSARY = "true response", "adversarial candidate (said before)"


def first_fooled(plain: pd.DataFrame, trained: pd.DataFrame) -> tuple[int, bool]:
    """The first dialogue where the plain model prefers the adversary and the other does not; if there is none, the one
    where the other gains most. And whether it was found by the first rule."""
    both = plain.merge(trained, on=["item", "utterance"], suffixes=("_plain", "_ums"))
    fooled = both[both["adversary_plain"] > both["response_plain"]]
    found = fooled[fooled["response_ums"] > fooled["adversary_ums"]]
    if len(found):
        return int(found["item"].iloc[0]), True
    gain = both["response_ums"] - both["adversary_ums"] - both["response_plain"] + both["adversary_plain"]
    return int(both["item"].iloc[int(gain.argmax())]), False


def example(run, parts: list[Dataset], scores: Mapping[str, pd.DataFrame]):
    """F1: the end of a test dialogue, its true response and the adversarial candidate, with the scores of both."""
    if not {"BERT", "UMS_BERT"} <= scores.keys():
        return absent(run, "F1", "it needs BERT and UMS_BERT")
    item, by_rule = first_fooled(scores["BERT"], scores["UMS_BERT"])
    group = groups_of(parts, "test", run.settings.groups)[item]
    said = scores["BERT"].set_index("item")["utterance"][item]
    last = max(0, len(group.context) - 4)
    shown = [*([group.context[said], "…"] if said < last else []), *group.context[last:]]
    rows = [("context", text, "", np.nan) for text in shown]
    texts = {RIGHT: group.candidates[group.labels.index(1)], ADVERSARY: group.context[said]}
    for part, column in ((RIGHT, "response"), (ADVERSARY, "adversary")):
        for model in ("BERT", "UMS_BERT"):
            rows.append((part, texts[part], model, scores[model].set_index("item")[column][item]))
    rule = "The first test dialogue where BERT prefers what was said before and UMS_BERT does not."
    return run.figure(
        "F1", plots.scored_replies, data=pd.DataFrame(rows, columns=["part", "text", "model", "score"]),
        caption=rule if by_rule else "No test dialogue has BERT fooled and UMS_BERT not: the one where UMS gains most.",
        alt="A dialogue, and bars for the scores of its true response and of an utterance that was said before.",
    )  # fmt: skip


def manipulation_example() -> pd.DataFrame:
    """For F2: five short neighbouring utterances of a test dialogue, and what the three tasks make of them."""
    groups = list(load("bundled/UbuntuIRC", "selection-10").filter(split="test"))
    spoken = ([*group.context, group.candidates[0]][-5:] for group in groups)
    suits = [len(set(said)) == 5 and all(16 <= len(text) <= 60 for text in said) for said in spoken]
    if not any(suits):
        raise DataError("no test dialogue suits the drawing of the manipulations")
    group = groups[suits.index(True)]
    said = [*group.context, group.candidates[0]][-5:]
    other = next(g for g in groups if 16 <= len(g.context[0]) <= 60 and g.id[:4] != group.id[:4])
    texts, rng = [*said, other.context[0]], np.random.default_rng(4)
    rows = [("dialogue", "", text, "response" if i == 4 else "utterance") for i, text in enumerate(said)]
    five = list(range(5))
    for made in (insertion(five, rng), deletion(five, 5, rng), search(five, rng)):
        rows += [(made.task, *part) for part in drawn(made, texts)]
    return pd.DataFrame(rows, columns=["column", "mark", "text", "kind"])


def drawn(made: Manipulation, texts: list[str]) -> list[tuple[str, str, str]]:
    """Mark, text and kind of every part of an auxiliary input; the marks of an insertion stand between utterances."""
    mark, right = MARKS[made.task], "foreign" if made.task == "deletion" else "target"
    kinds = [right if i == made.target else "utterance" for i in range(len(made.context) + 1)]
    if made.task == "insertion":
        rows = [row for n, kind in zip(made.context, kinds) for row in ((mark, "", kind), ("", texts[n], "utterance"))]
        rows.append((mark, "", kinds[-1]))
    else:
        rows = [(mark, texts[n], kind) for n, kind in zip(made.context, kinds)]
    return rows if made.second is None else [*rows, ("", texts[made.second], "given")]


def adversary_first(run):
    """F3: how often the adversarial candidate is ranked first, every baseline beside its UMS model."""
    rows = rows_of(run, "T4")
    rows = rows[rows["metric"].eq("Adversarial first") & rows["protocol"].eq("paper") & ~rows["model"].isin(FLOORS)]
    plain = rows["model"].str.removeprefix("UMS_")
    order = [name for name in ("BERT", "BERT+", "ELECTRA", "ELECTRA+") if name in set(plain)]
    data = rows[["seed", "value"]].assign(model=plain, approach=np.where(plain == rows["model"], "baseline", "UMS"))
    data = data.sort_values("model", key=lambda column: column.map(order.index), kind="stable")
    return run.figure(
        "F3", plots.grouped_bars, data=data.reset_index(drop=True), bar="approach", y_label="share of dialogues",
        title="Adversary ranked first",
        caption="Share of test dialogues whose adversarial candidate is ranked first (lower is better); whiskers are "
        "95 % intervals over three adversarial sets.",
        alt="Pairs of bars, a baseline and its UMS model, for every encoder.",
    )  # fmt: skip


def marks(run, trained: Trained, sets: Mapping[str, list[Dataset]], method: str):
    """F4: special tokens of UMS_BERT+ (of UMS_BERT where that is missing), a row for each task, a column a corpus."""
    s, figure = run.settings, "F4" if method == "tsne" else f"F4-{method}"
    if reason := no_projection(run, method):
        return absent(run, figure, reason)
    shown = {}
    for corpus in sets:
        model = next((m for m in ("UMS_BERT+", "UMS_BERT", "UMS_ELECTRA") if (corpus, m) in trained.models), None)
        if model is not None and parse(model)[2]:
            shown[corpus] = model
    if not shown:
        return absent(run, figure, "no model with all three tasks was trained")
    jobs = {}
    for corpus, model in shown.items():
        made = trained.models[corpus, model]
        jobs[f"{METHODS[method]} of special tokens: {corpus}"] = project_marks, {
            "encoder": made["encoder"], "heads": made["heads"], "max_length": s.max_length, "parts": sets[corpus],
            "dataset": corpus, "dialogues": s.plot_dialogues, "method": method, "seed": s.seed,
        }  # fmt: skip
    try:
        planes = list(run.stage_each(jobs).values())
    except DialnbError as error:
        return absent(run, figure, why(error))
    names = ", ".join(dict.fromkeys(shown.values()))
    return run.figure(
        figure, plots.projection_panels, data=pd.concat(planes, ignore_index=True), panels="corpus", rows="task",
        title=f"{METHODS[method]} of the special tokens of {names}",
        caption=f"{METHODS[method]} of last-layer vectors at the special tokens of test dialogues ({names}): the right "
        "one of each input in orange, the others in blue.",
        alt="A grid of scatter plots: tasks down, corpora across, target tokens in orange.",
    )  # fmt: skip


def epochs(run):
    """R10@1 on both test sets after every epoch, baselines dashed."""
    rows = rows_of(run, "X-epochs")
    if rows.empty or rows["epoch"].nunique() < 2:
        return absent(run, "X-epochs", f"the {run.profile} profile does not score epochs; 'gpu' does")
    rows = rows[rows["metric"].isin(["Original R10@1", "Adversarial R10@1"]) & rows["protocol"].eq("paper")]
    return run.figure(
        "epochs", plots.scores_by_epoch, data=rows[["metric", "model", "epoch", "seed", "value"]], panels="metric",
        dashed=[name for name in dict.fromkeys(rows["model"]) if not name.startswith("UMS")], y_label="R10@1",
        title="Both test sets after each epoch of training",
        caption="R10@1 on the original and the adversarial test set after every epoch: baselines dashed, UMS solid; "
        "the band is the 95 % interval over adversarial sets.",
        alt="Two line plots of recall against epoch for every model.",
    )  # fmt: skip


def geometry(run):
    """Uniformity and alignment of [CLS] vectors."""
    own = rows_of(run, "X-geometry")
    data = own.pivot_table(index="model", columns="metric", values="value", sort=False).reset_index()
    return run.figure(
        "geometry", plots.uniformity_alignment, data=data, title="[CLS] vectors of test inputs",
        caption="Uniformity of the [CLS] vectors of (context, candidate) inputs, and alignment of those with the same "
        "label; lower is better for both.",
        alt="Scatter plot of alignment against uniformity, one marker per model.",
    )  # fmt: skip
