"""A quick score for any encoder: few-shot intent classification on the four bundled datasets of DSE's Table 2."""

from collections.abc import Mapping

from pandas import DataFrame

from dialnb.data import Dataset, load
from dialnb.evaluation.intent import evaluate_prototypes
from dialnb.evaluation.metrics import stacked, student_half
from dialnb.evaluation.vectors import SupportsEncode

INTENT_SETS = {
    "Clinc150": ("CLINC150", "full"),
    "Bank77": ("BANKING77", None),
    "Snips": ("SNIPS", "dse"),
    "Hwu64": ("HWU64", "standard"),
}


def intent_sets() -> dict[str, Dataset]:
    """The datasets by the name the paper uses."""
    return {name: load(f"bundled/{source}", variant) for name, (source, variant) in INTENT_SETS.items()}


def intent_scores(encoder: SupportsEncode, sets: Mapping[str, Dataset]) -> DataFrame:
    """Tidy rows of 1- and 5-shot prototype accuracy, ten seeds, for each of the four datasets (`intent_sets`)."""
    return stacked(evaluate_prototypes(encoder, records, dataset=name) for name, records in sets.items())


def intent_summary(rows: DataFrame) -> DataFrame:
    """Mean accuracy per number of shots and dataset, and their average with a 95 % interval over seeds."""
    table = rows.groupby(["shots", "dataset"], sort=False)["value"].mean().unstack()
    by_seed = rows.groupby(["shots", "seed"])["value"].mean().unstack()
    table["Ave"] = table.mean(axis=1)
    table["±"] = by_seed.apply(student_half, axis=1)
    return table
