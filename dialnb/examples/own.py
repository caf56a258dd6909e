"""What the methods train on, made of one's own dialogues or utterances (`dialnb.data.from_csv`)."""

from collections.abc import Iterable

import numpy as np

from dialnb.data import Conversation, Dataset, Dialogue, IntentUtterance, SelectionGroup, all_said
from dialnb.data.readers.irc import build_selection
from dialnb.errors import DataError
from dialnb.examples.recogniser import with_entities
from dialnb.examples.templates import Augmentation


def conversations_of(records: Dataset) -> list[Conversation]:
    """For DSE, SimCSE, TOD-BERT and WMDC; an utterance alone has no neighbours, but is a sentence."""
    _expect(records)
    return [Conversation(records.name, said) for said in all_said(records) if said]


def augmentation_of(records: Dataset) -> Augmentation:
    """For TaDSE: every utterance with its slots, or with recognised entities where the file has none, and its template
    filled with the three most frequent values of every slot."""
    _expect(records)
    said = [part for record in records for part in getattr(record, "utterances", (record,))]
    rows = [IntentUtterance(one.text, one.intent, tuple(slot for slot in one.slots if slot.start >= 0)) for one in said]
    return Augmentation(rows if any(row.slots for row in rows) else with_entities(rows), 3)


def selection_of(dialogues: Iterable[Dialogue], candidates: int = 2) -> list[SelectionGroup]:
    """For UMS, and for testing: every turn from the third on, its context, itself and turns of other dialogues."""
    found: dict[str, list[Dialogue]] = {}
    for dialogue in dialogues:
        found.setdefault(dialogue.split, []).append(dialogue)
    parts = [build_selection(own, candidates, np.random.default_rng(0)) for own in found.values()]
    return [group for part in parts for group in part]


def _expect(records: Dataset) -> None:
    if records.table.kind not in ("Dialogue", "IntentUtterance"):
        raise DataError(
            f"training takes dialogues or utterances, but {records.name} holds {records.table.kind} records"
        )


def count_examples(records: Dataset) -> dict[str, int]:
    """How many training examples each method makes of dialogues, by its name."""
    from dialnb.examples.matching import build_groups, sessions
    from dialnb.examples.pairs import consecutive_pairs, unique_sentences
    from dialnb.examples.windows import WINDOWS

    said = list(all_said(records))
    return {
        "SimCSE: sentences": len(unique_sentences(said)),
        "DSE: pairs of neighbours": len(consecutive_pairs(said)),
        "DialogueCSE: responses with their context": len(build_groups(sessions(records), 1)),
        "TaDSE: utterances and filled templates": len(augmentation_of(records)),
        "WMDC: responses in windows of 1 to 3": sum(max(0, len(one) - window) for one in said for window in WINDOWS),
        "UMS: contexts with a right and a wrong response": len(selection_of(records)),
    }
