"""The matrix that no paper has: every method from one encoder, on one corpus, with one budget, on every paper's tasks.

The budget is a number of *tokens* (word pieces that go through the encoder), since an example of one method has six
times as many as one of another. A pilot of a few small steps tells how many tokens an example of a method has; its
training then has as many steps as fit. Rates and schedules are those of a method's own notebook in the same profile.

All scores are in percent and come in paired units, numbered by ``seed``: draws of the few examples, or ten groups of
test items that are the same for every method. Their mean is the score. Methods and tasks are listed in the notebook;
the page of advice is written by `dialnb.studies.matrix_guide`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from dialnb.claims.papers import FLOORS
from dialnb.data import Dataset, RetrievalQuery
from dialnb.evaluation import (
    EncodeOnce,
    SupportsEncode,
    each_group,
    evaluate_blocks,
    evaluate_retrieval,
    evaluate_similarity,
    tidy_frame,
    tidy_rows,
)
from dialnb.evaluation.sampling import item_groups
from dialnb.examples.readings import Dialogues, Limit, Lists, Sessions, SpokenTemplates, thin
from dialnb.runs.grid import SHARED, Model
from dialnb.studies import dialoguecse, tadse, tasks, ums, wmdc

RAW, UMS = "raw", "UMS"
"""The encoder as it is; and the cross-encoder, which scores replies and gives no vectors."""

ALONE = "Seconds alone"
PILOT, PILOT_DIALOGUES = 6, 600
"""Steps of a pilot (batches of WMDC take turns through three windows), each a quarter of the batch; its dialogues."""

EPOCHS = 100_000.0
"""More than any budget: steps alone end a training."""

GROUPS = 10
BLOCK = 100
"""Replies of a block, so that no group of questions may be smaller."""


# --- methods ----------------------------------------------------------------------------------------------------------


def method(run, name: str, dialogues: Dialogues, steps: int | None = None) -> Model:
    """A method as its own notebook trains it in this profile, but on the dialogues of the matrix and from its encoder.

    The batch is the matrix's own, but for matching groups and for candidates with their contexts, which are many
    sentences each. With ``steps`` the training is as long; without, the model is its pilot.
    """
    match name:
        case "TaDSE":
            s = run.elsewhere("tadse")
            made = tadse.model(name, s, SpokenTemplates(dialogues, run.settings["templates"]), start="", pooling="")
        case "DialogueCSE":
            s = run.elsewhere("dialoguecse")
            spoken = dialoguecse.Corpus("", Sessions(dialogues.corpora, 0, dialogues.limit), None)
            made = dialoguecse.model("DialogueCSE I2", s, spoken, start="")
        case "UMS":
            s = run.elsewhere("ums")
            made = ums.model(dict(s) | {"dev_groups": 0}, dialogues, ums.TASKS)
        case _:
            s = run.elsewhere("wmdc" if name.startswith("WMDC") else "dse")
            made = wmdc.model(name, s, dialogues)
            made = replace(made, watch=None if made.watch and made.watch.keep else made.watch, report=0)
    settings = {key: s[key] for key in SHARED if key in s} | dict(made.settings)
    if name not in ("DialogueCSE", UMS):
        settings["batch_size"] = run.settings["batch_size"]
    settings |= {"epochs": EPOCHS, "steps": None, "max_steps": steps or PILOT}
    batch = settings["batch_size"] or made.printed.batch_size
    if steps is None:
        settings["batch_size"] = max(2, batch // 4)
    elif name == "DialogueCSE":  # a dialogue gives four groups or more
        enough = max(PILOT_DIALOGUES, steps * batch // 4)
        made = replace(made, data=replace(made.data, limit=min(dialogues.limit or enough, enough)))
    own = run.settings["pooling"] == "own" and name in ("SimCSE-unsup", "TaDSE")
    return replace(made, settings=settings, pooling="cls" if own else "")


# --- tasks ------------------------------------------------------------------------------------------------------------


def by_group(items: DataFrame, scale: float = 1.0) -> DataFrame:
    """What each test item scored, as one row for every group of items; a conversation stays within a group."""
    rows = []
    for (dataset, metric), part in items.groupby(["dataset", "metric"], sort=False):
        groups = item_groups(part["group" if "group" in part else "item"].tolist(), GROUPS)
        labels = {"task": "", "dataset": dataset, "protocol": "paper", "n": len(part)}
        for group, value in part["value"].groupby(groups).mean().items():
            rows += tidy_rows({metric: scale * value}, seed=int(group), **labels)
    return tidy_frame(rows)


def blocks_in_groups(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    questions: Limit,
) -> DataFrame:
    """DSE's utterance-level test: the reply among the hundred of its block."""
    pairs, once = tasks.question_answers(records, questions), EncodeOnce(encoder)
    groups = item_groups(range(len(pairs)), max(1, min(GROUPS, len(pairs) // BLOCK)))
    return each_group(lambda own: evaluate_blocks(once, own, dataset=dataset, seeds=(0,)), pairs, groups)


def replies_in_groups(
    encoder: Any,
    records: Dataset,
    dataset: str,
    groups: Limit,
) -> DataFrame:
    """The true reply among a hundred."""
    asked = Lists([records], groups, "test").read()
    items = ums.answers_by(ums.scorer_of(encoder), asked, dataset)["items"]
    return by_group(items.assign(metric="Top-1"), 100.0)


def adversarial_in_groups(
    encoder: Any, records: Dataset, dataset: str, limit: Limit, adversarial_seeds: Sequence[int]
) -> DataFrame:
    """UMS's test: the true reply among ten, one of which was said before."""
    asked = Lists([records], limit, "test").read()
    items = ums.answers_by(ums.scorer_of(encoder), asked, dataset, adversarial_seeds, ("random",))["items"]
    return by_group(items[items["metric"] == "Adversarial R10@1"].assign(metric="Top-1"), 100.0)


def retrieval_in_groups(
    encoder: SupportsEncode, records: Sequence[RetrievalQuery], dataset: str, retrieval_limit: Limit
) -> DataFrame:
    """DialogueCSE's retrieval: sentences of the same intent before others."""
    asked = dialoguecse.thinned(records, retrieval_limit)
    ranked = evaluate_retrieval(encoder, asked, groups=GROUPS, dataset=dataset, max_length=50)
    return ranked[ranked["protocol"] == "paper"]


def similarity_in_groups(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    limit: Limit,
) -> DataFrame:
    """Correlation with human scores."""
    return evaluate_similarity(encoder, thin(records.filter(split="test"), limit), groups=GROUPS, dataset=dataset)


# --- tables -----------------------------------------------------------------------------------------------------------


def scores(run, table: str = "T1", by: Any = "task") -> DataFrame:
    """Scores [method, task] of the methods that answer every task, in the order of the table; floors have no rank."""
    return _methods(run, table).pivot_table("value", "model", by, sort=False).dropna()


def units(run, table: str = "T1") -> DataFrame:
    """Scores of a table as [(task, training, unit), method]."""
    return _methods(run, table).pivot_table("value", ["task", "train_seed", "seed"], "model", sort=False)


def _methods(run, table: str) -> DataFrame:
    rows = run.rows(table)
    return rows[~rows["model"].isin(FLOORS)]
