"""What belongs to DSE alone (Learning Dialogue Representations from Consecutive Utterances): the rates of its profile,
the drawing of pairs, counts, and the four scores after every epoch. Models, tasks and figures are in its notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from dialnb.claims.papers import FLOORS, load_paper
from dialnb.data import Dataset, load
from dialnb.errors import DataError
from dialnb.evaluation import evaluate_blocks, evaluate_candidates, evaluate_prototypes, evaluate_scope
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.vectors import EncodeOnce
from dialnb.examples.pairs import consecutive_pairs, enough_words, unique_sentences
from dialnb.examples.readings import Dialogues, thin
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import SHARED, Model, Task, Watch, agreement
from dialnb.studies import tasks

CHECKPOINTS = {
    "SimCSE-sup": ("princeton-nlp/sup-simcse-bert-base-uncased", "pooler"),
    "PairSupCon": ("aws-ai/pairsupcon-bert-base-uncased", "mean"),
    "DialoGPT": ("microsoft/DialoGPT-medium", "mean"),
    "SimCSE-unsup (public)": ("princeton-nlp/unsup-simcse-bert-base-uncased", "pooler"),
    "TOD-BERT (public)": ("TODBERT/TOD-BERT-JNT-V1", "mean"),
    "DSE (public)": ("aws-ai/dse-bert-base", "mean"),
}
"""Public checkpoints by row: hub id and the pooling that the authors' code uses."""

ENCODERS = {
    "bert-large-uncased": "BERTlarge",
    "roberta-base": "RoBERTabase",
    "roberta-large": "RoBERTalarge",
    "distilbert-base-uncased": "DistilBERTbase",
}
"""The encoders of T10 and T11 by hub id, as printed."""

SHAPES = ("small",)
"""Encoders of T10 and T11 that are made from scratch."""

PRINTED_TASKS = (
    "fine-tuned intents",
    "intents",
    "out-of-scope detection",
    "utterance selection",
    "fine-tuned selection",
    "dialogue selection",
    "action prediction",
)
"""The tasks in the order of Table 1."""

PROBED = {"scope": "out of scope", "questions": "questions", "candidates": "candidates"}
PROBE = "probe"
TOP = ["Top-1", "Top-3", "Top-10"]


def model(recipe: str, s: Mapping[str, Any], dialogues: Dialogues, **changes: Any) -> Model:
    """A model as DSE's notebook trains it in a profile; other notebooks ask for the same.

    The rates of a profile are those of DSE: the other recipes were printed with rates that move small encoders too.
    Every epoch of DSE and DSE-dropout is kept for Figure 3, and of DSE-dropout the first is reported, as in the paper.
    SimCSE comes back as it was when it agreed best with the development pairs of STS-B.
    """
    settings = {name: s[name] for name in SHARED if name in s}
    if recipe.startswith("DSE"):
        settings |= {name: s[name] for name in ("learning_rate", "head_learning_rate", "epochs")}
    if recipe == "DSE-dropout":
        settings["epochs"] = s["dropout_epochs"]
    given: dict[str, Any] = {"settings": settings}
    if recipe in ("DSE", "DSE-dropout"):
        given |= {"watch": Watch(keep=True), "report": int(recipe == "DSE-dropout")}
    if recipe == "SimCSE-unsup":
        pairs = load("bundled/STS-B", "captions", "dev")
        given["watch"] = Watch(agreement, {"pairs": pairs, "pooling": "cls"}, best="Corr")
    return Model(recipe, data=dialogues, **given | changes)


def example_dialogue() -> pd.DataFrame:
    """For F2: the first bundled dialogue of six to eight utterances of which the word filter drops one or two, and the
    opening of another one as a negative."""
    dialogues = load("bundled/dialogues")
    for record in dialogues:
        said = [" ".join(u.text.split()) for u in record.utterances]
        short = [not enough_words(text) for text in said]
        if 6 <= len(said) <= 8 and 1 <= sum(short[1:-1]) <= 2 and max(map(len, said)) < 70:
            other = next(d for d in dialogues if d.domains != record.domains).utterances[0]
            speakers = [u.speaker for u in (*record.utterances, other)]
            rows = {"dialogue": [0] * len(said) + [1], "speaker": speakers, "text": [*said, other.text]}
            return pd.DataFrame(rows | {"kept": [*(not flag for flag in short), True]})
    raise DataError("no dialogue of the corpus suits the drawing of pairs")


def count(corpora: list[Dataset], limit: int | None) -> dict[str, int]:
    """Dialogues, utterances, pairs and unique sentences; pairs also with the lines lost that DSE's code loses."""
    whole, cut = ([talk.utterances for talk in Dialogues(corpora, limit, tail).read()] for tail in (False, True))
    return {
        "dialogues": len(whole),
        "utterances": sum(map(len, whole)),
        "consecutive pairs after filter": len(consecutive_pairs(whole)),
        "unique sentences for DSE-dropout": len(unique_sentences(whole)),
        "the same with the code's tail quirk: pairs": len(consecutive_pairs(cut)),
    }


def evaluation_sizes(run) -> dict[str, tuple[int, str]]:
    """Items of the evaluation data by their row of X2, and what stands in for the paper's own, if anything."""
    clinc, banking, snips, hwu = (records.filter(split="test") for records in run.data("intents").values())
    ((candidates, groups),) = run.data("candidates").items()
    sizes = {
        "Clinc150 test in-scope": (sum(intent != "oos" for intent in clinc.column("intent")), ""),
        "Clinc150 test with out-of-scope": (len(clinc), ""),
        "Bank77 test": (len(banking), ""),
        "Snips test": (len(snips), ""),
        "Hwu64 test": (len(hwu), "" if hwu.variant == "dse-official" else "public copies of HWU64"),
        "DSTC7-Ubuntu evaluation samples": (len(groups), "" if candidates == "DSTC7-Ubuntu" else candidates),
    }
    if run.settings.data != "bundled":
        for name, part in run.data("actions").items():
            sizes[f"{name} test"] = len(part.filter(split="test")), ""
        (pairs,) = run.data("questions").values()
        copies = "" if pairs.variant == "official" else "public copies of AmazonQA"
        sizes["AmazonQA pairs available"] = len(pairs), copies
        sizes["AmazonQA pairs evaluated"] = min(len(pairs), run.settings.questions or len(pairs)), copies
    return sizes


def score_four_tasks(
    encoder: Encoder, records: Mapping[str, Any], dataset: str, probe: int, probe_draws: int
) -> pd.DataFrame:
    """Give one score for each of F3's tasks and each draw of ``probe`` test items: its number is the seed of the row.

    ``records`` are the intents by dataset, and scope, questions and candidates.
    """
    once, rows = EncodeOnce(encoder), []
    size, listed = max(probe, 300), records["candidates"].filter(split=("dev", "test"))
    pairs = tasks.question_answers(records["questions"], 10 * size)
    parts = {name: tasks.train_and_test(part) for name, part in records["intents"].items()}
    train, test = (list(records["scope"].filter(split=split)) for split in ("train", "test"))
    for draw in range(probe_draws):
        few = {"shots": (1,), "seeds": (draw,)}
        accuracies = []
        for name, (known, asked) in parts.items():
            scored = evaluate_prototypes(once, known, thin(asked, probe, draw), dataset=name, **few)
            accuracies.append(scored["value"].mean())
        detected = evaluate_scope(once, train, thin(test, probe, draw), dataset=PROBE, protocols=["code"], **few)
        blocks = evaluate_blocks(once, thin(pairs, size, draw), dataset=PROBE, seeds=(draw,))
        ranked = evaluate_candidates(once, thin(listed, min(probe, 100), draw), dataset=PROBE)
        values = {
            "intents": sum(accuracies) / len(accuracies),
            "out-of-scope": detected.query("protocol == 'code' and metric == 'Ave'")["value"].mean(),
            "utterance selection": blocks[blocks["metric"].isin(TOP)]["value"].mean(),
            "dialogue selection": ranked[ranked["metric"].isin(TOP) & (ranked["ties"] == "against")]["value"].mean(),
        }
        for task, value in values.items():
            rows += tidy_rows({"score": value}, task=task, dataset=PROBE, protocol="code", n=probe, seed=draw)
    return tidy_frame(rows)


def reject_floors(rows: pd.DataFrame) -> pd.DataFrame:
    """What rejecting everything and nothing reaches, as rows of T3 and T8 under both thresholds."""
    floors = rows[rows["protocol"].eq("floor") & rows["model"].eq("BERT")]
    parts = []
    for threshold in ("mean-std", "mean"):
        named = "floor: " + floors["threshold"].astype(str)
        parts.append(floors.assign(model=named, protocol="code", threshold=threshold))
    return pd.concat(parts, ignore_index=True)


def settings_table(run, asked: Sequence[Task]) -> pd.DataFrame:
    """T1 as printed, and what this run does of it."""
    rows, known = [], {task.title: task for task in asked}
    for printed, title in zip(load_paper("dse").tables["T1"].rows, PRINTED_TASKS, strict=True):
        task, here = known[title], "left out"
        if run.wants(task.table):
            lists = [task.values(run.settings).get(name) for name in ("action_seeds", "finetune_seeds", "seeds")]
            seeds = next((len(draws) for draws in lists if draws), 1)
            here = f"{', '.join(run.datasets(task))}; seeds: {seeds}"
        cells = dict(zip(("datasets", "setting", "seeds"), printed.values, strict=True))
        rows.append({"task": printed.labels["model"], **cells, "here": here})
    return pd.DataFrame(rows)


def count_data(run, dialogues: Dialogues) -> None:
    """X2: count the corpus and the test sets."""
    s = run.settings
    counted = run.stage("count the corpus", count, corpora=list(dialogues.corpora), limit=s.dialogues)
    whole = s.corpus == "todbert" and s.dialogues is None
    instead = "" if whole else f"{s.corpus} dialogues instead of the TOD-BERT collection"
    both = {name: (number, instead) for name, number in counted.items()} | evaluation_sizes(run)
    rows = [{"model": name, "value": number, "n": number, "substitute": text} for name, (number, text) in both.items()]
    run.add(pd.DataFrame(rows), task="statistics", metric="count", column="value", table="X2")


def as_encoder_rows(rows: pd.DataFrame, encoder: str) -> pd.DataFrame:
    """Rows of the raw encoder, of DSE and of the floors, as T10 and T11 name them."""
    kept = rows[rows["model"].isin(("BERT", "DSE", *FLOORS))]
    names = {"BERT": encoder, "DSE": f"{encoder}-DSE"}
    return kept.assign(model=kept["model"].replace(names), variant=kept["model"].map({"BERT": "raw", "DSE": "DSE"}))


def changed(model: Model, settings: Mapping[str, Any], **fields: Any) -> Model:
    """A model with other settings of its training, or other fields."""
    return replace(model, settings=dict(model.settings) | settings, **fields)


def show_batch(pairs: Sequence[tuple[str, str]], cosines, weights, loss) -> pd.DataFrame:
    """A batch as a table: each pair, its cosine, and its hardest negative with that one's cosine and weight."""
    hardest = weights.argmax(1).tolist()
    rows = []
    for row, ((query, response), other) in enumerate(zip(pairs, hardest)):
        entry = {"query": query, "response": response, "cosine": float(cosines[row, row])}
        entry |= {"hardest negative": pairs[other][1], "its cosine": float(cosines[row, other])}
        rows.append(entry | {"its weight": float(weights[row, other])})
    return pd.DataFrame(rows).round(2).rename_axis(f"loss {float(loss):.3f}")
