"""TaDSE's counts and drawings: what its data hold (T1, T2, T7 to T12), and real examples for F1 and F3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.data.records import IntentUtterance, Slot
from dialnb.examples.templates import Augmentation, make_template
from dialnb.studies.common import left_out, not_in
from dialnb.studies.tadse_models import DATASETS, available, entities, lacking
from dialnb.studies.templates import Filled, statistics_of

BOOKS = {"T8": "NORP", "T9": "ORDINAL", "T10": "ORG", "T11": "LOC"}
TOY = tuple(
    IntentUtterance(f"i need a {food} place in the {area}", "find_restaurant",
                    (Slot("food", food, 9, 9 + len(food)),
                     Slot("area", area, 23 + len(food), 23 + len(food) + len(area))))
    for food, area in (("thai", "north"), ("greek", "south"), ("french", "centre"))
)  # fmt: skip
"""A toy of the size of T2: three utterances of one template, with two slots of three values each."""


# --- data -------------------------------------------------------------------------------------------------------------


def data(run) -> dict[str, Dataset]:
    """The datasets that the profile trains and tests on, by name."""
    s = run.settings
    found = available(run)
    for dataset in found:
        if dataset not in s.datasets:
            lacking(run, dataset, not_in(run))
    return {dataset: records for dataset, records in found.items() if dataset in s.datasets}


def stand_in(dataset: str, records: Dataset) -> str:
    """What our data have in place of the paper's; empty where they are its own."""
    if dataset == "CLINC150":
        return "" if entities() == "spacy_entities" else "entities by rules in place of spaCy"
    said = {"MASSIVE": "slots of the 43 % of training utterances whose annotation is public",
            "HWU64": "the rows of the public copies, about half of the authors' file"}  # fmt: skip
    return "" if records.variant.endswith("official") else said.get(dataset, "")


def statistics(run) -> None:
    """T1, T2, T7 to T12: our counts, of all datasets that can be had."""
    found, rows = available(run), []
    jobs = {f"count {name}": (statistics_of, {"source": Filled(name, records, entities=entities())})
            for name, records in found.items()}  # fmt: skip
    made = {name.removeprefix("count "): result for name, result in run.stage_each(jobs).items()}
    for name, records in found.items():
        line, substitute = made[name]["statistics"], stand_in(name, records)
        rows += _count("T1", name, _first_table(line), substitute)
        if not substitute:
            growth = line["utterances"] / line["orig_utterances"]
            rows.append({"table": "T1", "model": name, "dataset": name, "metric": "growth", "value": growth, "n": 1})
        slots = {slot.name for record in records for slot in record.slots} or set(made[name]["book"])
        test = records.filter(split="test")
        told = {"test": len(test), "entities": len(slots), "intents": len(set(records.column("intent")))}
        rows += _count("T12", name, told, substitute)
    if len(made) == len(DATASETS):
        parts = [result["statistics"] for result in made.values()]
        whole = {key: sum(part[key] for part in parts) for key in parts[0] if key not in ("strategy", "ut_ratio")}
        whole["ut_ratio"] = whole["utterances"] / whole["templates"]
        rows += _count("T1", "Total", _first_table(whole), "as above")
    rows += _count("T2", "toy example", toy_counts(), "")
    rows += book_rows(made["CLINC150"]["book"], stand_in("CLINC150", found["CLINC150"]))
    run.add(pd.DataFrame(rows), task="statistics", seed=0)
    left_out(run, ["T1"], "the k of the dataset: a setting, not a count", column="strategy")
    left_out(run, ["T1"], "not all five datasets are here", model="Total")


def _count(table: str, model: str, values: Mapping[str, float], substitute: str) -> list[dict]:
    common = {"table": table, "model": model, "metric": "count", "substitute": substitute, "n": 1}
    return [common | {"column": column, "value": float(value)} for column, value in values.items()]


def _first_table(line: Mapping) -> dict[str, float]:
    """Counts in the units of T1: thousands, but for the slot types."""
    thousands = {f"{key}_k": round(line[key] / 1000, 1) for key in ("values", "templates", "orig_utterances",
                                                                    "utterances")}  # fmt: skip
    return {"entities": line["entities"], **thousands, "ut_ratio": round(line["ut_ratio"])}


def toy_counts() -> dict[str, int]:
    """T2: three utterances, one template, nine distinct fillings, of which six are new."""
    made = Augmentation(TOY, k=3)
    filled = set(made)
    return {
        "input_sentences": len(TOY), "slot_types": len(made.book),
        "values_per_slot": max(map(len, made.book.values())), "templates": len(set(made.templates)),
        "synthetic_sentences": len(filled - {row.text for row in TOY}), "total": len(filled),
    }  # fmt: skip


def book_rows(book: Mapping[str, Mapping[str, int]], substitute: str, top: int = 5) -> list[dict]:
    """T7 to T11: how often our recogniser finds what the paper lists, and its own most frequent ones below them."""
    mentions = {label: sum(values.values()) for label, values in book.items()}
    counts = {"T7": mentions} | {table: book.get(label, {}) for table, label in BOOKS.items()}
    rows = []
    for table, found in counts.items():
        printed = [row.labels["model"] for row in load_paper("tadse").tables[table].rows]
        frequent = sorted(found, key=found.get, reverse=True)[:top]
        for name in dict.fromkeys([*printed, *frequent]):
            rows += _count(table, name, {"count": found.get(name, 0)}, substitute)
    return rows


def example_rows(train: Sequence[IntentUtterance], intents: Sequence[str]) -> dict[str, IntentUtterance]:
    """For the drawings: of each intent the first short utterance with two slots."""
    fits = [row for row in train if len(row.slots) == 2 and 30 <= len(row.text) <= 52 and row.intent in intents]
    return {intent: next(row for row in fits if row.intent == intent) for intent in intents}


def drawing(intents: Sequence[str] = ("PlayMusic", "BookRestaurant"), each: int = 3) -> pd.DataFrame:
    """For F1 and F3: utterances of SNIPS, their templates with values of the Entity Book, and what these give."""
    rows, train = [], list(load("bundled/SNIPS", "slots", "train"))
    for intent, row in example_rows(train, intents).items():
        made = Augmentation([row, *train], k=each)
        values = [made.top[slot.name] for slot in row.slots]
        rows.append({"intent": intent, "kind": "utterance", "text": row.text})
        others = [other.text for other in train if other.intent == intent and len(other.text) <= 50 and other != row]
        rows += [{"intent": intent, "kind": "other", "text": text} for text in others[:2]]
        rows.append({"intent": intent, "kind": "template", "text": make_template(row)})
        rows += [{"intent": intent, "kind": slot.name, "text": ", ".join(found)}
                 for slot, found in zip(row.slots, values)]  # fmt: skip
        new = [text for text in made[: made.counts[0]] if text != row.text]
        rows += [{"intent": intent, "kind": "filled", "text": text} for text in new[:: max(1, len(new) // each)][:each]]
    return pd.DataFrame(rows)
