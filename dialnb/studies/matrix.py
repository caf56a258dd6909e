"""The matrix that no paper has: every method from one encoder, on one corpus, with one budget, on every paper's tasks.

The budget is a number of *tokens* (word pieces that go through the encoder), since an example of one method has six
times as many as one of another. A pilot of a few small steps tells how many tokens an example of a method has; its
training then has as many steps as fit. Rates and schedules are those of a method's own notebook in the same profile.

All scores are in percent and come in paired units, numbered by ``seed``: draws of the few examples, or ten groups of
test items that are the same for every method. Their mean is the score. Methods and tasks are listed in the notebook;
the page of advice is written by `dialnb.studies.matrix_guide`.
"""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from dialnb.claims.papers import FLOORS
from dialnb.data import Dataset
from dialnb.evaluation import EncodeOnce, SupportsEncode, each_group, evaluate_blocks, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import item_groups
from dialnb.evaluation.selection import question_answers
from dialnb.examples.readings import Limit
from dialnb.studies import ums

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
    limit: Limit,
) -> DataFrame:
    """DSE's utterance-level test: the reply among the hundred of its block."""
    pairs, once = question_answers(records, limit), EncodeOnce(encoder)
    groups = item_groups(range(len(pairs)), max(1, min(GROUPS, len(pairs) // BLOCK)))
    return each_group(lambda own: evaluate_blocks(once, own, dataset=dataset, seeds=(0,)), pairs, groups)


def replies_in_groups(
    encoder: Any, records: Dataset, dataset: str, limit: Limit, max_length: int, adversarial_seeds: Sequence[int] = ()
) -> DataFrame:
    """The true reply among all of its list; with seeds, of which one was said before (the test of UMS)."""
    items = ums.answer_of(encoder, [records], dataset, limit, adversarial_seeds, ("random",), max_length)["items"]
    if adversarial_seeds:
        items = items[items["metric"] == "Adversarial R10@1"]
    return by_group(items.assign(metric="Top-1"), 100.0)


# --- tables -----------------------------------------------------------------------------------------------------------


def scores(run, table: str, by: Any = "task") -> DataFrame:
    """Scores [method, task] of the methods that answer every task, in the order of the table; floors have no rank."""
    return _methods(run, table).pivot_table("value", "model", by, sort=False).dropna()


def units(run, table: str) -> DataFrame:
    """Scores of a table as [(task, training, unit), method]."""
    return _methods(run, table).pivot_table("value", ["task", "train_seed", "seed"], "model", sort=False)


def _methods(run, table: str) -> DataFrame:
    rows = run.rows(table)
    return rows[~rows["model"].isin(FLOORS)]
