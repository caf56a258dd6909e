"""The experiments of UMS (Utterance Manipulation Strategies for Multi-turn Response Selection).

Every function takes the :class:`dialnb.runs.Run` of the notebook and adds tidy rows to its results. Eight selectors on
three corpora (see ``ums_models``), the adversarial test that all of them meet, and what stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from dialnb.claims.papers import load_paper
from dialnb.data import Dataset
from dialnb.data.records import SelectionGroup
from dialnb.errors import Offline
from dialnb.evaluation.adversarial import build_adversarial
from dialnb.evaluation.floors import chance_rows
from dialnb.studies import common, selectors
from dialnb.studies.common import find, not_in, rows_of, why
from dialnb.studies.selectors import FINE_TUNING, answer
from dialnb.studies.training import Job
from dialnb.studies.ums_models import CHINESE, MODELS, SUBSETS, WINDOWS, Trained, has_lists, language

CORPORA = {
    "Ubuntu": (("official", "Ubuntu-V1", None), ("bundled", "bundled/UbuntuIRC", "selection-10")),
    "Douban": (("official", "Douban", "official"), ("sources", "Douban", "copies")),
    "E-commerce": (("official", "E-commerce", "official"), ("sources", "E-commerce", "copies")),
}


# --- data -------------------------------------------------------------------------------------------------------------


def corpora(run) -> dict[str, list[Dataset]]:
    """The corpora of the profile by their printed names; those that cannot be had say why.

    The sample of E-commerce has 77 training dialogues; a thousand more of them are in the sample that DialogueCSE made
    of the same corpus.
    """
    found = {}
    for name, choices in CORPORA.items():
        try:
            if name not in run.settings.corpora:
                raise Offline(not_in(run))
            found[name] = [find(run.settings.data, *choices)]
        except Offline as error:
            for column in _columns(name):
                run.not_run("T2", column=column, reason=why(error))
            continue
        if name == "E-commerce" and found[name][0].variant == "copies":
            found[name].append(find("sources", ("sources", "DialogueCSE", "ecd-train")))
    if "Douban" in found and not has_lists(found["Douban"]):
        for column in _columns("Douban"):
            run.not_run("T2", column=column, reason="its test set is not in the sample that can be had without asking")
    return found


def _columns(corpus: str) -> list[str]:
    return [column for column in load_paper("ums").tables["T2"].columns if column.startswith(corpus)]


def label(parts: list[Dataset]) -> str:
    """The dataset's name in the results."""
    return parts[0].name.removeprefix("bundled/")


def statistics(groups: Iterable[SelectionGroup]) -> dict[str, float]:
    """T1 of one split: rows, negatives for each positive, utterances of a context."""
    sizes = [(len(g.labels), sum(g.labels), len(g.context)) for g in groups]
    pairs, positive = sum(n for n, _, _ in sizes), sum(p for _, p, _ in sizes)
    turns = sum(n * turns for n, _, turns in sizes) / max(1, pairs)
    return {"pairs": pairs, "pos:neg": (pairs - positive) / max(1, positive), "average turns": round(turns, 2)}


def counts(run, sets: Mapping[str, list[Dataset]]):
    """T1: our numbers beside the printed ones; of "pos:neg" ours is how many negatives there are for a positive."""
    rows = []
    for corpus, parts in sets.items():
        whole = parts[0].variant == "official" or parts[0].name == "Ubuntu-V1"
        instead = "" if whole else f"{label(parts)}: a sample" if corpus in CHINESE else "Ubuntu IRC conversations"
        for split, shown in (("train", "train"), ("dev", "val"), ("test", "test")):
            groups = list(parts[0].filter(split=split))
            for name, value in statistics(groups).items() if groups else ():
                rows.append({"model": name, "column": f"{corpus} {shown}", "value": value, "n": len(groups),
                             "substitute": instead})  # fmt: skip
    run.add(pd.DataFrame(rows), task="statistics", metric="count", table="T1")
    for column in load_paper("ums").tables["T1"].columns:
        reason = "private corpus" if column.startswith("Kakao") else "not in what this profile can reach"
        run.not_run("T1", column=column, reason=reason)
    run.not_run("T3", reason="private corpus")
    return run.table("T1")


# --- tables -----------------------------------------------------------------------------------------------------------


def evaluate(run, trained: Trained, sets: Mapping[str, list[Dataset]]) -> dict[str, pd.DataFrame]:
    """Ask every model everything and fill T2, T4 and T5 and the tables beyond the paper; scores by model, for F1."""
    s, jobs = run.settings, {}
    asked = {place: made for place, made in trained.models.items() if place[0] != "Douban" or has_lists(sets["Douban"])}
    for (corpus, model), made in asked.items():
        inputs = _inputs(s, made, sets[corpus]) | {"dataset": label(sets[corpus]), "groups": s.groups}
        tested = corpus == "Ubuntu" and model in (*MODELS, WINDOWS)
        kinds = {"seeds": s.adversarial_seeds if tested else (), "kinds": ("random", *s.adversaries)}
        jobs[f"answer: {model} on {corpus}"] = answer, inputs | kinds
    for name, encoder in trained.sentence.items():
        jobs[f"answer: sentence encoder {name}"] = answer, {
            "encoder": encoder, "heads": None, "max_length": 128, "parts": sets["Ubuntu"],
            "dataset": label(sets["Ubuntu"]), "groups": s.groups, "seeds": s.adversarial_seeds,
            "kinds": ("random", *s.adversaries),
        }  # fmt: skip
    jobs |= {
        f"geometry: {model}": (selectors.geometry_of, _inputs(s, made, sets["Ubuntu"])
                               | {"dataset": label(sets["Ubuntu"]), "groups": min(s.groups or 800, 800) // 4})
        for (corpus, model), made in trained.models.items() if corpus == "Ubuntu" and model in MODELS
    }  # fmt: skip
    jobs |= word_jobs(s, trained, sets)
    found = run.stage_each(jobs)
    for corpus in dict.fromkeys(corpus for corpus, _ in asked):
        _fill_floors(run, found[f"answer: TF-IDF on {corpus}"])
    for corpus, model in asked:
        _fill(run, corpus, model, found[f"answer: {model} on {corpus}"], trained)
    for name in trained.sentence:
        rows = found[f"answer: sentence encoder {name}"]["adversarial"]
        run.add(rows, table="X-encoders", model=name)
        run.add(rows[rows["protocol"] == "paper"], table="X-adversaries", model=name)
    for (corpus, model), made in trained.models.items():
        if corpus == "Ubuntu" and model in MODELS:
            run.add(found[f"geometry: {model}"], table="X-geometry", model=model)
            epochs = made["epochs"]
            if len(epochs) and s.probe:
                rows = epochs[epochs["metric"] != "validation"].assign(dataset=label(sets["Ubuntu"]))
                run.add(rows, table="X-epochs", model=model, encoder=_encoder_of(model, corpus, trained))
    store_index(run, sets["Ubuntu"])
    return {model: found[f"answer: {model} on Ubuntu"]["scores"] for corpus, model in asked if corpus == "Ubuntu"}


def _inputs(s, made: Mapping[str, Any], parts: list[Dataset]) -> dict[str, Any]:
    return {"encoder": made["encoder"], "heads": made["heads"], "max_length": s.max_length, "parts": parts}


def _encoder_of(model: str, corpus: str, trained: Trained) -> str:
    kind = "ELECTRA" if "ELECTRA" in model else "BERT"
    return trained.names[language(corpus), kind]


def _fill(run, corpus: str, model: str, found: Mapping[str, pd.DataFrame], trained: Trained) -> None:
    """Rows and items of one model in the tables they belong to."""
    s, tables = run.settings, {}
    if model in MODELS:
        tables = {"T2": model}
    if corpus == "Ubuntu" and s.subsets:
        twins = {s.ablation: SUBSETS[0], f"UMS_{s.ablation}": SUBSETS[-1]} | {name: name for name in SUBSETS[1:-1]}
        tables |= {"T5": twins[model]} if model in twins else {}
    encoder = _encoder_of(s.ablation if model in SUBSETS else model, corpus, trained)
    selection, items = found["selection"], found["items"]
    for table, name in tables.items():
        run.add(selection, table=table, model=name, encoder=encoder)
        run.add_items(items[items["task"] == "response selection"], table=table, model=name)
    rows = found["adversarial"]
    if len(rows) and model in MODELS:
        run.add(rows[rows["adversary"] == "random"], table="T4", model=model, encoder=encoder)
        run.add_items(items[items["task"] == "adversarial selection"], table="T4", model=model)
        run.add(rows[rows["protocol"] == "paper"], table="X-adversaries", model=model, encoder=encoder)
    if len(rows) and model in ("BERT", "UMS_BERT", WINDOWS):
        both = pd.concat([selection, rows[rows["adversary"] == "random"]])
        run.add(both[both["protocol"] == "paper"], table="X-windows", model=model, encoder=encoder)


def word_jobs(s, trained: Trained, sets: Mapping[str, list[Dataset]]) -> dict[str, Job]:
    """The stages of the floor: TF-IDF over the word pieces of each corpus' models, as far as these see them."""
    jobs = {}
    for (corpus, _), made in trained.models.items():
        if has_lists(sets[corpus]):
            jobs[f"answer: TF-IDF on {corpus}"] = (
                selectors.answer_by_words,
                {
                    "encoder": made["encoder"],
                    "max_length": s.max_length,
                    "parts": sets[corpus],
                    "dataset": label(sets[corpus]),
                    "groups": s.groups,
                    "kinds": ("random", *s.adversaries),
                    "seeds": s.adversarial_seeds if corpus == "Ubuntu" else (),
                },
            )
    return jobs


def floor_rows(found: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows and items of TF-IDF and of chance, for every table that has models to hold against them."""
    rows, items = [], []
    for task, tables in (("response selection", ("T2", "T5")), ("adversarial selection", ("T4", "X-adversaries"))):
        for table in tables:
            scored = found["selection" if task == "response selection" else "adversarial"]
            if len(scored):
                kept = scored if table != "T4" else scored[scored["adversary"] == "random"]
                rows.append(kept.assign(table=table))
                items.append(found["items"][found["items"]["task"] == task].assign(table=table))
    words = [pd.concat(parts, ignore_index=True).assign(model="TF-IDF") for parts in (rows, items)]
    return tuple(pd.concat([part, chance_rows(part)], ignore_index=True) for part in words)


def _fill_floors(run, found: Mapping[str, pd.DataFrame]) -> None:
    rows, items = floor_rows(found)
    known = {"T2", "T4", "X-adversaries", *(["T5"] if run.settings.subsets else [])}
    run.add(rows[rows["table"].isin(known)], encoder="none")
    run.add_items(items[items["table"].isin(known)])


def store_index(run, parts: list[Dataset]) -> None:
    """Which candidate of which dialogue became which utterance, for every seed, as a file of the run."""
    s = run.settings
    asked = selectors.groups_of(parts, "test", s.groups)
    sets = {seed: build_adversarial(asked, seed) for seed in s.adversarial_seeds}
    frames = [
        made.frame().assign(seed=seed, id=[asked[e.dialogue].id for e in made.index]) for seed, made in sets.items()
    ]
    pd.concat(frames, ignore_index=True).to_csv(run.folder / "adversarial-index.csv", index=False)
    run.note(adversarial_left_out={str(seed): made.left_out for seed, made in sets.items()})


def adversarial_table(run, table: str = "X-encoders") -> pd.DataFrame:
    """Original, adversarial, drop and adversary first, for models that the paper does not print."""
    wanted = ["Original R10@1", "Adversarial R10@1", "Drop R10@1", "Adversarial first"]
    found = rows_of(run, table)
    found = found[found["protocol"].eq("paper") & found["adversary"].eq("random")] if len(found) else found
    return _wide(found, ["model"], ["metric"]).reindex(columns=wanted)


def adversaries_table(run) -> pd.DataFrame:
    """R10@1 and the share of adversaries ranked first, for each kind of adversarial utterance."""
    found = rows_of(run, "X-adversaries")
    found = found[found["metric"].isin(["Adversarial R10@1", "Adversarial first"])] if len(found) else found
    return _wide(found, ["model"], ["metric", "adversary"])


def windows_table(run) -> pd.DataFrame:
    """The windows of the paper and the chained ones of its code."""
    found = rows_of(run, "X-windows")
    wanted = ["R10@1", "MRR", "Adversarial R10@1", "Adversarial first"]
    return _wide(found[found["metric"].isin(wanted)] if len(found) else found, ["model"], ["metric"])


def ties_table(run) -> pd.DataFrame:
    """What it is worth to break ties in file order, where the right response comes first."""
    found = rows_of(run, "T2")
    found = found[found["metric"].isin(["R10@1", "MRR"])] if len(found) else found
    return _wide(found, ["dataset", "model"], ["metric", "ties"])


def _wide(rows: pd.DataFrame, index: list[str], columns: list[str]) -> pd.DataFrame:
    return rows.pivot_table("value", index, columns, sort=False).round(3) if len(rows) else pd.DataFrame()


def training_times(run, trained: Trained) -> pd.DataFrame:
    """Time and memory of every training; where steps were cut, what all printed epochs would take."""
    return common.training_times(run, trained.curves, lambda _: FINE_TUNING.epochs)
