"""A quick score for any encoder: few-shot intent classification on the four bundled datasets of DSE's Table 2."""

from pandas import DataFrame, concat

from dialnb.data import Dataset, load
from dialnb.data.records import IntentUtterance
from dialnb.evaluation.intent import evaluate_prototypes
from dialnb.evaluation.metrics import student_half
from dialnb.evaluation.vectors import Examples, SupportsEncode
from dialnb.examples.readings import Limit, thin

INTENT_SETS = {
    "Clinc150": ("CLINC150", "full"),
    "Bank77": ("BANKING77", None),
    "Snips": ("SNIPS", "dse"),
    "Hwu64": ("HWU64", "standard"),
}


def train_and_test(records: Dataset, limit: Limit = None, split: str = "test") -> tuple[Examples, Examples]:
    """In-scope training utterances, and those of the test (or another) split, of which ``limit`` are kept."""
    parts: dict[str, list[IntentUtterance]] = {"train": [], split: []}
    for record in records.filter(split=tuple(parts)):
        if record.intent != "oos":
            parts[record.split].append(record)
    return parts["train"], thin(parts[split], limit)


def intent_sets() -> dict[str, tuple[Examples, Examples]]:
    """Train and test utterances by the name the paper uses; out-of-scope rows are left out."""
    return {name: train_and_test(load(f"bundled/{source}", variant)) for name, (source, variant) in INTENT_SETS.items()}


def intent_scores(encoder: SupportsEncode, sets: dict[str, tuple[Examples, Examples]]) -> DataFrame:
    """Tidy rows of 1- and 5-shot prototype accuracy, ten seeds, for each of the four datasets (`intent_sets`)."""
    rows = [evaluate_prototypes(encoder, *parts, dataset=name) for name, parts in sets.items()]
    return concat(rows, ignore_index=True)


def intent_summary(rows: DataFrame) -> DataFrame:
    """Mean accuracy per number of shots and dataset, and their average with a 95 % interval over seeds."""
    table = rows.groupby(["shots", "dataset"], sort=False)["value"].mean().unstack()
    by_seed = rows.groupby(["shots", "seed"])["value"].mean().unstack()
    table["Ave"] = table.mean(axis=1)
    table["±"] = by_seed.apply(student_half, axis=1)
    return table
