"""What belongs to WMDC and DiaEval alone (Dialogue Representation Learning: A New Benchmark and Weighted Contrastive
Learning Approach): its models in a profile, counts of corpora and benchmark, scores of the sweeps, the geometry.
Models, tasks and figures are in its notebook.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims.counts import CORPORA
from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.data.bundle import index
from dialnb.data.corpora import TODBERT, collection, utterances_of
from dialnb.errors import DataError
from dialnb.evaluation import diaeval, geometry
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.examples.readings import Dialogues, thin
from dialnb.examples.windows import WINDOWS, context_length, cumulative_share, response_frequencies, response_key
from dialnb.losses import inverse_response_frequency
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model, Task, Trained
from dialnb.studies import dse

CHECKPOINTS = {
    "SimCSE-BERT-sup": "princeton-nlp/sup-simcse-bert-base-uncased",
    "SimCSE-RoBERTa-sup": "princeton-nlp/sup-simcse-roberta-base",
    "SimCSE-BERT-unsup (public)": "princeton-nlp/unsup-simcse-bert-base-uncased",
    "SimCSE-RoBERTa-unsup (public)": "princeton-nlp/unsup-simcse-roberta-base",
    "TOD-JNT-BERT (public)": "TODBERT/TOD-BERT-JNT-V1",
    "DSE-BERT (public)": "aws-ai/dse-bert-base",
    "DSE-RoBERTa (public)": "aws-ai/dse-roberta-base",
}
"""Public checkpoints by row; all are mean-pooled, as everything in DiaEval is."""


VARIANTS = {
    "inverse square root": ("WMDC, inverse square root", {}),
    "duplicates masked": ("WMDC, masked", {}),
    "weights normalised": ("WMDC", {"normalise_weights": True}),
    "window 3 alone": ("WMDC {3}", {}),
}
"""Other choices than the paper's, by name: recipe and options of the loss. All but the last have windows 1 to 3."""


HEAD = 40
"""The rate of the heads is forty times that of the encoder."""

WHOLE = "all corpora"
NOT_THE_NINE = "other corpora than the paper's nine"
POINTS = 120
SCALING = {
    "MetaLWOZ": "MetaLWOZ", "Self-dialogue": "Self-Dialog", "Taskmaster/tm1-delexicalised": "TaskMaster1",
    "Taskmaster/tm3-shard": "TaskMaster3", "SGD": "Schema", "MultiWOZ": "MWOZ", "MDC": "MSR-E2E",
    "TopicalChat": "TopicChat", "KVRET": "SMD", "Frames": "Frames", "WOZ2.0": "WOZ", "CamRest676": "CamRest676",
}  # fmt: skip
"""Rows of T7 by the corpora within reach."""

PARTIAL = {
    "Self-dialogue": "one topic", "Taskmaster/tm1-delexicalised": "2,000 dialogues, values replaced by slot names",
    "Taskmaster/tm3-shard": "one of 55 shards", "MultiWOZ": "dev and test", "MDC": "movie and taxi",
    "TopicalChat": "dev and test", "KVRET": "one dialogue is missing",
}  # fmt: skip
"""What there is of a corpus where not all of it can be had."""

BENCHMARK = {"DSTC2": "DSTC2", "GSIM": "GSIM", "CI-ToD": "IC-TOD", "DECODE": "DECODE", "DSTC7-Ubuntu": "DSTC7-Ubuntu",
             "UbuntuIRC": "DSTC7-Ubuntu"}  # fmt: skip
"""Rows of T1 by dataset."""


def model(recipe: str, s: Mapping[str, Any], dialogues: Dialogues, sweep: bool = False, **changes: Any) -> Model:
    """A model as WMDC's notebook trains it in a profile; the baselines are those of DSE's notebook.

    The points of a sweep may have fewer steps, all of them the same number.
    """
    if not recipe.startswith("WMDC"):
        return dse.model(recipe, s, dialogues, **changes)
    rate = s["wmdc_learning_rate"]
    settings = {"learning_rate": rate, "head_learning_rate": rate and HEAD * rate, "epochs": s["wmdc_epochs"]}
    if sweep and s["sweep_steps"]:
        settings["max_steps"] = s["sweep_steps"]
    return Model(recipe, data=dialogues, settings=settings, **changes)


def nested(corpora: Sequence[Dataset], part: float, seed: int = 24) -> list[Dataset]:
    """``part`` of every corpus: the same dialogues are in every larger part."""
    found = []
    for records in corpora:
        order = np.random.default_rng(seed).permutation(len(records))
        found.append(records.take(order[: max(1, round(part * len(records)))]))
    return found


# --- corpora ----------------------------------------------------------------------------------------------------------


def named_corpora(name: str) -> dict[str, Dataset]:
    """Every dialogue corpus of a collection by its label: all bundled ones, or those that can be reached."""
    if name == "bundled":
        parts = [(n, v) for n, entry in index().items() if entry["corpus"] for v in entry["variants"]]
        return {f"{n}/{v}" if v.startswith("tm") else n: load(f"bundled/{n}", v or None) for n, v in parts}
    return {part.label: load(part.dataset, part.variant) for part in collection(name) if part.paired}


def count_corpora(corpora: dict[str, Dataset], limit: int | None, rare: int, draws: int, pairs: int) -> dict[str, Any]:
    """Sizes of every corpus, how its utterances are distributed (F1), the most frequent ones of all and of the nine
    corpora of TOD-BERT (T5), ``rare`` of those that occur once, and ``pairs`` of context and response in each draw."""
    nine = {part.label for part in TODBERT}
    sizes, curves, every, own, dialogues = [], [], Counter(), Counter(), []
    for label, records in corpora.items():
        kept = [records[i] for i in thin(range(len(records)), limit)] if limit else records
        said, speakers, domains = [], Counter(), set()
        for dialogue in kept:
            said.append(utterances_of(dialogue))
            speakers.update(u.speaker for u in dialogue.utterances)
            domains.update(re.sub(r"_\d+$", "", domain) for domain in dialogue.domains)  # SGD numbers its services
        found = response_frequencies(said)
        every += found
        own += found if label in nine else Counter()
        sizes.append({"corpus": label, "dialogues": len(said), "utterances": sum(map(len, said)),
                      "exchanges": speakers["user"], "domains": len(domains), "distinct": len(found)})  # fmt: skip
        curves.append(share_curve(found).assign(corpus=label))
        dialogues += said
    curves.append(share_curve(every).assign(corpus=WHOLE))
    frequencies = {"every": dict(every.most_common(500)), "nine": dict((own or every).most_common(500))}
    once = thin([text for text, count in every.items() if count == 1 and text], rare)
    sample = sample_pairs(dialogues, draws, pairs)
    return {"sizes": pd.DataFrame(sizes), "curves": pd.concat(curves, ignore_index=True), "frequencies": frequencies,
            "rare": once, "pairs": sample}  # fmt: skip


def sample_pairs(dialogues: Sequence[Sequence[str]], draws: int, size: int) -> pd.DataFrame:
    """``draws`` disjoint samples of a context of three utterances and its response, one pair a dialogue."""
    longest = max(WINDOWS)
    said = [utterances for utterances in dialogues if len(utterances) > longest]
    rng = np.random.default_rng(24)
    order = rng.permutation(len(said))
    size, rows = min(size, len(order) // draws), []
    for number, place in enumerate(order[: draws * size]):
        k = int(rng.integers(longest, len(said[place])))
        rows.append({"draw": number // size, "context": list(said[place][k - longest : k]), "response": said[place][k]})
    return pd.DataFrame(rows)


def share_curve(frequencies: Counter[str]) -> pd.DataFrame:
    """Points of F1: the most frequent utterances, in percent of the distinct ones, and the share that they cover.

    >>> share_curve(Counter({"yes": 98, "no": 1, "maybe": 1}))["share"].round(1).tolist()
    [98.0, 99.0, 100.0]
    """
    covered = cumulative_share(frequencies)
    ranks = np.unique(np.geomspace(1, len(covered), POINTS).round().astype(np.int64))
    ranks = np.unique(np.append(ranks, max(1, round(len(covered) / 100))))
    return pd.DataFrame({"top": 100 * ranks / len(covered), "share": 100 * covered[ranks - 1]})


def top_share(curve: pd.DataFrame, percent: float = 1.0) -> float:
    """The share that the top ``percent`` of the distinct utterances cover, at the nearest point of the curve."""
    return float(curve.iloc[(curve["top"] - percent).abs().to_numpy().argmin()]["share"])


def corpus_rows(run, found: Mapping[str, Any]) -> None:
    """Keep the rows of T5, T6 and T7 and of F1's share, from what was counted."""
    s, sizes = run.settings, found["sizes"].set_index("corpus")
    whole = s.corpus != "bundled" and s.count_dialogues is None
    shares = []
    for name, curve in found["curves"].groupby("corpus", sort=False):
        shares.append({"dataset": name, "value": top_share(curve), "n": int(sizes["distinct"].get(name, 0))})
    labels = {"task": "statistics", "metric": "top 1 % share", "protocol": "clean", "seed": 0, "model": "counted"}
    run.add(pd.DataFrame(shares), table="F1", **labels)
    counts = {"task": "statistics", "metric": "count"}
    run.add(_frequent(found["frequencies"]["nine"], whole), table="T5", **counts)
    six, seven = [], []
    for label, row in sizes.iterrows():
        nine = label in {part.label for part in TODBERT}
        name, remark = CORPORA.get(label.partition("/")[0], ("", "")) if nine else ("", "")
        part = PARTIAL.get(label, "") if whole else "a bundled part"
        if name:
            said = row["exchanges"] if "exchanges" in remark else row["utterances"]
            domains = {"domains": row["domains"]} if row["domains"] else {}
            six += _cells(name, {"dialogues": row["dialogues"], "utterances": said, **domains}, part)
        if label in SCALING:
            seven += _cells(SCALING[label], {"dialogues": row["dialogues"], "utterances": row["utterances"]}, part)
    for pairs in run.data("questions").values():  # every pair is a dialogue of two utterances
        part = "" if pairs.variant == "official" else "two product categories"
        seven += _cells("AmazonQA", {"dialogues": len(pairs), "utterances": 2 * len(pairs)}, part)
    for table, rows in (("T6", six), ("T7", seven)):
        if rows:
            total = pd.DataFrame(rows).query("column in ('dialogues', 'utterances')").groupby("column")["value"].sum()
            rows += _cells("TOTAL", total.to_dict(), "the parts that can be had")
            run.add(pd.DataFrame(rows), table=table, **counts)
        if s.corpus != "bundled":
            run.note_absent("out of reach: too large, not public or not redistributable", table)


def _cells(model: str, values: Mapping[str, float], substitute: str) -> list[dict[str, Any]]:
    """Tidy rows of one printed row, the average number of turns among them."""
    every = dict(values) | {"avg_turns": round(values["utterances"] / max(1, values["dialogues"]), 1)}
    return [{"model": model, "column": column, "value": float(value), "n": int(values["dialogues"]),
             "substitute": substitute} for column, value in every.items()]  # fmt: skip


def _frequent(frequencies: Mapping[str, int], whole: bool) -> pd.DataFrame:
    """T5: the printed ten, then ours that are not among them."""
    printed = [row.labels["model"] for row in load_paper("wmdc").tables["T5"].rows]
    ours = [text for text in list(frequencies)[:10] if text not in printed]
    stand_in = "three quarters of the nine corpora" if whole else NOT_THE_NINE
    rows = []
    for text in [*printed, *ours]:
        row = {"model": text, "column": "frequency", "value": float(frequencies.get(text, 0))}
        rows.append(row | {"n": len(frequencies), "substitute": stand_in})
    return pd.DataFrame(rows)


def example_windows(records: Iterable, frequencies: Mapping[str, int], before: int = 4) -> pd.DataFrame:
    """For F2: the first dialogue whose utterances are short and whose utterance ``before + 1`` is a frequent one."""
    for dialogue in records:
        part = dialogue.utterances[: before + 1]
        counts = [frequencies.get(response_key(u.text), 1) for u in part]
        if len(part) == before + 1 and counts[-1] >= 10 and all(8 < len(u.text) < 90 for u in part[:-1]):
            weights = inverse_response_frequency(counts).tolist()
            return pd.DataFrame({"speaker": [u.speaker for u in part], "text": [" ".join(u.text.split()) for u in part],
                                 "frequency": counts, "weight": weights})  # fmt: skip
    raise DataError("no dialogue of the corpus suits the drawing of windows")


# --- the benchmark ----------------------------------------------------------------------------------------------------


def benchmark_rows(dataset: str, records: Dataset, **limits: int | None) -> list[dict[str, Any]]:
    """Items by split and the number of labels, of what the tasks ask for."""
    stand_in = {"UbuntuIRC": "UbuntuIRC in place of DSTC7-Ubuntu", "STAR": "a quarter of STAR, labelled turns"}
    instead = stand_in.get(dataset, "")
    if records.table.kind == "Dialogue":
        parts = diaeval.asked_actions(records, dataset, **limits)
        found = {split: len(part.examples) for split, part in parts.items()}
        labels = len(diaeval.act_names(records, dataset))
        if dataset in diaeval.UNIVERSAL and records.variant != "official":
            instead = "the turns whose acts are known"
    elif records.table.kind == "InferenceItem":
        found = {split: len(part) for split, part in diaeval.asked_items(records, dataset, **limits).items()}
        labels = len(set(records.column("label")))
    else:
        found, labels = {"test": len(diaeval.asked_lists(records, **limits))}, None
    if dataset == "CI-ToD" and records.variant != "official":
        instead = "the weather part of train is missing"
    if dataset == "DECODE":
        instead = "official files, not the printed sizes" if records.variant == "main" else "human-bot part"
    if dataset == "Dialogue-NLI":
        instead = "the other reading of DECODE: every tenth row"
    if any(limits.values()):
        instead = "; ".join(filter(None, [instead, "a sample of them"]))
    values = {"train": found.get("train"), "val": found.get("dev"), "test": found.get("test"), "labels": labels}
    return [{"model": BENCHMARK.get(dataset, dataset), "column": column, "value": float(value), "n": value,
             "substitute": instead} for column, value in values.items() if value]  # fmt: skip


def benchmark_sizes(run, asked: Iterable[Task]) -> pd.DataFrame:
    """T1: the samples of every dataset of DiaEval within reach that are learned from and scored."""
    rows = []
    for task in asked:
        for dataset, records in run.datasets(replace(task, table="T1")).items():
            rows += benchmark_rows(dataset, records, **task.values(run.settings))
    return pd.DataFrame(rows).assign(task="statistics", metric="count", table="T1")


# --- scores -----------------------------------------------------------------------------------------------------------

SCORES = {"T2": ("action prediction", "Micro-F1"), "T3": ("dialogue inference", "Accuracy"),
          "T4": ("response retrieval", "Top-3")}  # fmt: skip
"""What the ablation of the paper averages: micro-F1, accuracy and TOP@3."""


def task_scores(rows: pd.DataFrame, *labels: str) -> pd.DataFrame:
    """The score of each task and model: its metric, averaged over its datasets, for every group of test dialogues.

    ``labels`` are further columns that tell models apart.
    """
    if rows.empty:
        return pd.DataFrame(columns=["value", "model", *labels])
    kept = diaeval.printed_rows(rows)
    kept = kept[kept["protocol"] == "paper"]
    parts = []
    for table, (task, metric) in SCORES.items():
        part = kept[(kept["table"] == table) & (kept["metric"] == metric)]
        groups = part.groupby(["model", *labels, "seed"], sort=False, dropna=False)
        values = groups.agg(value=("value", "mean"), n=("n", "sum")).reset_index()
        parts.append(values.assign(task=task, metric=metric, dataset="DiaEval", protocol="paper"))
    return pd.concat(parts, ignore_index=True)


def average_of_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """The three scores and their mean as a fourth ``task``, for the figures."""
    keys = [name for name in rows if name not in ("task", "metric", "value", "n")]
    mean = rows.groupby(keys, dropna=False)["value"].mean().reset_index().assign(task="average of the three")
    return pd.concat([rows, mean], ignore_index=True)


def without_shared(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores without what all points share in a group of test dialogues, since some groups are harder than others.

    Intervals then show how sure the differences between points are; means stay as they are.
    """
    shared = rows.groupby(["task", "seed"])["value"].transform("mean") - rows.groupby("task")["value"].transform("mean")
    return rows.assign(value=rows["value"] - shared)


def figure_data(rows: pd.DataFrame, x: str, line: str = "") -> pd.DataFrame:
    """Scores over ``x`` for a figure: with their mean, and without what all points share; none for a single point."""
    if rows.empty or rows[x].nunique() < 2:
        return rows.iloc[:0]
    columns = ["task", "metric", "model", x, *([line] if line else []), "seed", "value"]
    return without_shared(average_of_tasks(rows[columns]))


# --- shape of the space -----------------------------------------------------------------------------------------------


def geometry_of(encoder: Encoder, records: pd.DataFrame) -> pd.DataFrame:
    """Uniformity and anisotropy of distinct responses, alignment of responses with their contexts, in every draw."""
    rows, mark = [], f" {diaeval.separator_of(encoder)} "
    for draw, part in records.groupby("draw"):
        contexts, responses = [mark.join(said) for said in part["context"]], part["response"].tolist()
        before = encoder.encode(contexts, max_length=context_length(max(WINDOWS)), truncate="left")
        after, alone = (encoder.encode(texts, max_length=64) for texts in (responses, list(dict.fromkeys(responses))))
        values = {
            "Uniformity": geometry.uniformity(alone),
            "Anisotropy": geometry.anisotropy(alone),
            "Alignment": geometry.alignment(np.concatenate([before, after]), [*range(len(part))] * 2),
        }
        labels = {"task": "geometry", "dataset": "responses", "protocol": "clean", "n": len(alone)}
        rows += tidy_rows(values, seed=int(draw), **labels)
    return tidy_frame(rows)


def frequent_places(
    encoder: Encoder, records: Mapping[str, list[str]], method: str, seed: int, shared: bool
) -> pd.DataFrame:
    """Frequent utterances and some that occur once, in a plane; with their texts where these may be ``shared``."""
    frequent, rare = records["frequent"], records["rare"]
    plane, half = project(encoder.encode([*frequent, *rare]), method, seed=seed), len(frequent) // 2
    labels = ["most frequent"] * half + ["frequent"] * (len(frequent) - half) + ["seen once"] * len(rare)
    return plane.assign(label=labels, text=[*frequent, *rare] if shared else "")


def add_scores(run, table: str, scores: pd.DataFrame, columns: Sequence[str]) -> None:
    """Keep the scores of points in a table, with the ``columns`` that tell them apart there."""
    if len(scores):
        kept = ["model", *columns, "seed", "value", "n", "task", "metric", "dataset", "protocol"]
        run.add(scores[kept], table=table)


def printed_encoder(row: str) -> str:
    """The encoder that a public checkpoint of a row comes from."""
    return "roberta-base" if "RoBERTa" in row else "bert-base-uncased"


def joined(first: Trained, second: Trained) -> Trained:
    """Models of two trainings together."""
    return Trained(first.models | second.models, first.results | second.results)
