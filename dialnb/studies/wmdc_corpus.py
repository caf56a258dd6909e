"""The data of WMDC counted: the benchmark (T1), frequent utterances (T5, F1), the training corpora (T6, T7), and the
dialogue that F2 is drawn from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims.counts import CORPORA
from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.data.bundle import index
from dialnb.data.corpora import TODBERT, collection, utterances_of
from dialnb.data.levels import find
from dialnb.errors import DataError, Offline
from dialnb.evaluation import diaeval
from dialnb.examples.windows import WINDOWS, cumulative_share, response_frequencies, response_key
from dialnb.losses import inverse_response_frequency
from dialnb.plots.windows import frequency_share, window_pairs
from dialnb.studies.common import left_out, why
from dialnb.studies.training import thin

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


def corpus_tables(run, found: Mapping[str, Any]) -> None:
    """Rows of T5, T6 and T7 and of F1's share, from what was counted; printed rows out of reach say so."""
    s, sizes = run.settings, found["sizes"].set_index("corpus")
    whole = s.corpus != "bundled" and s.count_dialogues is None
    shares = [
        {"dataset": name, "value": top_share(curve), "n": int(sizes["distinct"].get(name, 0))}
        for name, curve in found["curves"].groupby("corpus", sort=False)
    ]
    labels = {"task": "statistics", "metric": "top 1 % share", "protocol": "clean", "seed": 0, "model": "counted"}
    run.add(pd.DataFrame(shares), table="F1", **labels)
    _frequent(run, found["frequencies"]["nine"], whole)
    six, seven = [], []
    for label, row in sizes.iterrows():
        name, remark = CORPORA.get(label.partition("/")[0], ("", "")) if label in _nine() else ("", "")
        part = PARTIAL.get(label, "") if whole else "a bundled part"
        if name:
            said = row["exchanges"] if "exchanges" in remark else row["utterances"]
            domains = {"domains": row["domains"]} if row["domains"] else {}
            six += _cells(name, {"dialogues": row["dialogues"], "utterances": said, **domains}, part)
        if label in SCALING:
            seven += _cells(SCALING[label], {"dialogues": row["dialogues"], "utterances": row["utterances"]}, part)
    seven += _questions(run)
    for table, rows in (("T6", six), ("T7", seven)):
        if rows:
            total = pd.DataFrame(rows).query("column in ('dialogues', 'utterances')").groupby("column")["value"].sum()
            rows += _cells("TOTAL", total.to_dict(), "the parts that can be had")
            run.add(pd.DataFrame(rows), task="statistics", metric="count", table=table)
        if table == "T6":
            run.not_run(table, column="domains", model="TOTAL", reason="domains overlap between corpora")
        far = "out of reach: too large, not public or not redistributable"
        run.not_run(table, reason="not bundled: profile 'gpu'" if s.corpus == "bundled" else far)


def _questions(run) -> list[dict[str, Any]]:
    """AmazonQA's row of T7: every pair is a dialogue of two utterances."""
    try:
        pairs = find(run.settings.data, ("official", "AmazonQA", "official"), ("sources", "AmazonQA", "copies"))
    except Offline as error:
        run.not_run("T7", model="AmazonQA", reason=why(error))
        return []
    part = "" if pairs.variant == "official" else "two product categories"
    return _cells("AmazonQA", {"dialogues": len(pairs), "utterances": 2 * len(pairs)}, part)


def _nine() -> set[str]:
    return {part.label for part in TODBERT}


def _cells(model: str, values: Mapping[str, float], substitute: str) -> list[dict[str, Any]]:
    """Tidy rows of one printed row, the average number of turns among them."""
    every = dict(values) | {"avg_turns": round(values["utterances"] / max(1, values["dialogues"]), 1)}
    return [{"model": model, "column": column, "value": float(value), "n": int(values["dialogues"]),
             "substitute": substitute} for column, value in every.items()]  # fmt: skip


def _frequent(run, frequencies: Mapping[str, int], whole: bool) -> None:
    """T5: the printed ten, then ours that are not among them."""
    printed = [row.labels["model"] for row in load_paper("wmdc").tables["T5"].rows]
    ours = [text for text in list(frequencies)[:10] if text not in printed]
    stand_in = "three quarters of the nine corpora" if whole else NOT_THE_NINE
    rows = [{"model": text, "column": "frequency", "value": float(frequencies.get(text, 0)), "n": len(frequencies),
             "substitute": stand_in} for text in [*printed, *ours]]  # fmt: skip
    run.add(pd.DataFrame(rows), task="statistics", metric="count", table="T5")


def imbalance(run, found: Mapping[str, Any]):
    """F1: the share of a corpus that its most frequent utterances cover."""
    return run.figure(
        "F1", frequency_share, data=found["curves"][["corpus", "top", "share"]].round(6), whole=WHOLE,
        caption="Share of a corpus covered by its most frequent utterances, for every corpus within reach and for all "
        "together; the green mark is the range that the paper claims for the top one percent.",
        alt="Rising curves, one for each corpus, over a logarithmic axis; a mark at one percent from 15 to 30.",
    )  # fmt: skip


# --- the drawing ------------------------------------------------------------------------------------------------------


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


def drawing(run):
    """F2: one response of a bundled dialogue with a context for each window."""
    dialogues = load("bundled/WOZ2.0")
    frequencies = response_frequencies(utterances_of(dialogue) for dialogue in dialogues)
    return run.figure(
        "F2", window_pairs, data=example_windows(dialogues, frequencies),
        caption="Multi-window positive pairs: the same response with the last one, two and three utterances before it. "
        "A dialogue of WOZ 2.0, with frequencies counted there.",
        alt="A dialogue as a column of utterances; three nested brackets at the right lead to the response below.",
    )  # fmt: skip


# --- the benchmark ----------------------------------------------------------------------------------------------------


def benchmark_sizes(data: str, **limits: int | None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """T1: the samples of every dataset of DiaEval within reach that are learned from and scored, and why the others are
    not there."""
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for test in diaeval.BENCHMARK:
        own = {name: limits.get(name) for name in test.settings}
        try:
            sets = test.data(data)
        except Offline as error:
            missing[test.data.__name__] = why(error)
            continue
        for dataset, records in sets.items():
            rows += _benchmark_rows(dataset, records, **own)
    return rows, missing


def _benchmark_rows(dataset: str, records: Dataset, **limits: int | None) -> list[dict[str, Any]]:
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


def benchmark_table(run):
    """T1: our counts beside the printed ones."""
    s = run.settings
    rows, missing = benchmark_sizes(s.data, limit=s.limit, train_limit=s.train_limit, groups=s.groups)
    run.add(pd.DataFrame(rows), task="statistics", metric="count", table="T1")
    for model in ("GSIM", "DSTC2"):
        left_out(run, ["T1"], missing.get("action_data", "not bundled: profile 'gpu'"), model=model)
    alone = "the human-bot part has no training set: it is cross-validated"
    left_out(run, ["T1"], missing.get("contradiction_data", alone), model="DECODE")
    for column in ("train", "val", "labels"):
        left_out(run, ["T1"], "nothing is trained", model="DSTC7-Ubuntu", column=column)
    return run.table("T1")
