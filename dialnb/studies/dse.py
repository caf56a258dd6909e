"""What belongs to DSE alone (Learning Dialogue Representations from Consecutive Utterances): the choice of
SimCSE, the drawing of pairs, and the four scores after every epoch. Models, tasks and figures are in its notebook.
"""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from dialnb.data import Utterance, load
from dialnb.evaluation import (
    EncodeOnce,
    evaluate_blocks,
    evaluate_candidates,
    evaluate_prototypes,
    evaluate_scope,
    tidy_frame,
    tidy_rows,
)
from dialnb.evaluation.intent import train_and_test
from dialnb.evaluation.selection import question_answers
from dialnb.examples.pairs import enough_words
from dialnb.examples.readings import Reading, thin
from dialnb.files import Fields
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model, Watch, agreement
from dialnb.studies.shared import NAMES

CHECKPOINTS = NAMES["dse"]["checkpoints"]
"""Public checkpoints by row: hub id and the pooling that the authors' code uses."""

ENCODERS = NAMES["dse"]["encoders"]
"""The encoders of T10 and T11 by hub id, as printed."""

TOP = ["Top-1", "Top-3", "Top-10"]


def model(recipe: str, data: Reading, **fields: Any) -> Model:
    """A row of DSE's tables. Of DSE-dropout the first epoch is reported, as in the paper.

    SimCSE comes back as it was when it agreed best with the development pairs of STS-B, read as it is trained: at the
    first token or, with the option ``pooling``, by the mean.
    """
    if recipe == "DSE-dropout":
        fields = {"watch": Watch(keep=True), "report": 1} | fields
    if recipe == "SimCSE-unsup":
        pooling = fields.get("options", {}).get("pooling", "cls")
        inputs = {"pairs": load("bundled/STS-B", "captions", "dev"), "pooling": pooling}
        fields = {"watch": Watch(agreement, inputs, best="Corr")} | fields
    return Model(recipe, data=data, **fields)


def pair_rows(utterances: Sequence[Utterance], other: Utterance) -> DataFrame:
    """For F2: the utterances of a dialogue and one of another dialogue, and which of them pass the word filter."""
    said = [(0, spoken.speaker, " ".join(spoken.text.split())) for spoken in utterances]
    data = DataFrame([*said, (1, other.speaker, other.text)], columns=["dialogue", "speaker", "text"])
    return data.assign(kept=data["text"].map(enough_words))


def score_four_tasks(encoder: Encoder, records: Fields, dataset: str, probe: int, probe_draws: int) -> DataFrame:
    """Give one score for each of F3's tasks and each draw of ``probe`` test items: its number is the seed of the row.

    ``records`` are the intents by dataset, and scope, questions and candidates.
    """
    once, rows = EncodeOnce(encoder), []
    size, listed = max(probe, 300), records["candidates"].filter(split=("dev", "test"))
    pairs = question_answers(records["questions"], 10 * size)
    parts = {name: train_and_test(part) for name, part in records["intents"].items()}
    train, test = (list(records["scope"].filter(split=split)) for split in ("train", "test"))
    for draw in range(probe_draws):
        few = {"shots": (1,), "seeds": (draw,)}
        accuracies = []
        for name, (known, asked) in parts.items():
            scored = evaluate_prototypes(once, known, thin(asked, probe, draw), dataset=name, **few)
            accuracies.append(scored["value"].mean())
        detected = evaluate_scope(once, train, thin(test, probe, draw), dataset="probe", protocols=["code"], **few)
        blocks = evaluate_blocks(once, thin(pairs, size, draw), dataset="probe", seeds=(draw,))
        ranked = evaluate_candidates(once, thin(listed, min(probe, 100), draw), dataset="probe")
        values = {
            "intents": sum(accuracies) / len(accuracies),
            "out-of-scope": detected.query("protocol == 'code' and metric == 'Ave'")["value"].mean(),
            "utterance selection": blocks[blocks["metric"].isin(TOP)]["value"].mean(),
            "dialogue selection": ranked[ranked["metric"].isin(TOP) & (ranked["ties"] == "against")]["value"].mean(),
        }
        for task, value in values.items():
            rows += tidy_rows({"score": value}, task=task, dataset="probe", protocol="code", n=probe, seed=draw)
    return tidy_frame(rows)
