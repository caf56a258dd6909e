"""Choose rates on development data: every recipe at several rates from one start, asked about unseen training text.

    python -m tools.rates -o FOLDER [--encoder ID] [--share 0.35] [--rates RATE ...] [--profile gpu]
    python -m tools.rates --fine-tuning -o FOLDER [--encoder ID]
    python -m tools.rates --matching -o FOLDER [--steps 300] [--rates RATE ...] [--profile gpu]

The development utterances are a fifth of the *training* splits of four intent datasets, and prototypes come from the
rest; an utterance that is tested anywhere, in whatever split of whichever variant, is in neither. Steps are a share of
those of the recorded runs, with the whole schedule within them.

Fine-tuning of intents (Table 7 of DSE) is asked about the same utterances, at multiples of the printed rate, from the
encoder as it comes. The matching models of DialogueCSE are asked about the scored development pairs of ECD. A profile
without ECD is asked to retrieve: utterances of MDC that are not tested, from the best epoch by the same measure, or
those of SGD's development dialogues.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pandas as pd

from dialnb.data import Dataset, load
from dialnb.evaluation.finetuning import INTENTS
from dialnb.evaluation.intent import evaluate_prototypes, finetune_intents
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.examples.readings import Dialogues
from dialnb.models.encoder import load_encoder
from dialnb.runs import Model, Task, start
from dialnb.runs.provenance import provenance
from dialnb.studies import dialoguecse, dse
from dialnb.studies.shared import changed

SETS = {
    "CLINC150": ("full", "plus"),
    "BANKING77": ("",),
    "SNIPS": ("dse", "slots"),
    "HWU64": ("dse", "tadse"),
}
"""The datasets, and the variants of each that have test splits; the first is asked."""

RATES = {
    "DSE": (2900, [3e-6, 1e-5, 3e-5]),
    "DSE-dropout": (900, [1e-6, 3e-6, 1e-5]),
    "SimCSE-unsup": (6000, [1e-6, 3e-6, 1e-5, 3e-5]),
    "SimCSE-unsup, mean": (6000, [1e-6, 3e-6, 1e-5, 3e-5]),
    "TOD-BERT": (3000, [5e-6, 1e-5, 2e-5, 5e-5]),
    "WMDC": (2900, [1e-5, 3e-5, 1e-4]),
}
"""By recipe, and the pooling that it is trained with: steps of a whole training, and the rates that are compared. The
smallest are below those of the recorded sweep, whose best rate was its smallest for each of these."""

MATCHING = {recipe: [3e-6, 1e-5, 3e-5, 1e-4, 3e-4] for recipe in ("DialogueCSE I2", "SiameseBERT-s", "SiameseBERT-m")}
"""Matching models of DialogueCSE, and the rates that are compared."""

MULTIPLES = (1, 3, 10)
"""Of the printed rate of fine-tuning."""


def words(text: str) -> str:
    """What two copies of an utterance share: letters and digits, in lower case."""
    return " ".join("".join(char if char.isalnum() else " " for char in text.lower()).split())


def development(name: str, variants: tuple[str, ...]) -> tuple[list, list]:
    """Training utterances for prototypes, and others to be asked; none is tested anywhere."""
    sets = [load(f"bundled/{name}", variant) if variant else load(f"bundled/{name}") for variant in variants]
    tested = {words(row.text) for rows in sets for row in rows if row.split != "train"}
    rows = {words(row.text): row for row in sets[0] if row.split == "train"}
    rows = {text: row for text, row in rows.items() if text not in tested}
    asked = {text for text in rows if crc32(text.encode()) % 5 == 0}
    return [rows[text] for text in rows if text not in asked], [rows[text] for text in sorted(asked)][:2000]


def dev_intents(encoder, records: Dataset, dataset: str) -> pd.DataFrame:
    """One- and five-shot accuracy on the development utterances."""
    known, asked = development(dataset, SETS[dataset])
    return evaluate_prototypes(encoder, known, asked, dataset=dataset, shots=(1, 5), seeds=range(10))


def fine_tuning(encoder_id: str, out: Path) -> None:
    """Accuracy of fine-tuned intents on the development utterances, 5-shot, by multiple of the printed rate."""
    encoder, rows = load_encoder(encoder_id), []
    for name in ("SNIPS", "HWU64", "BANKING77", "CLINC150"):  # from the shortest to the longest
        known, asked = development(name, SETS[name])
        for times in MULTIPLES:
            began = time.perf_counter()
            options = {"dataset": name, "shots": (5,), "seeds": (0, 1), "recipe": INTENTS.times(times)}
            found = finetune_intents(encoder, known, asked[:500], **options)
            seconds = round(time.perf_counter() - began, 1)
            scores = found.loc[found["metric"] == "Accuracy", "value"].tolist()
            rows.append({"dataset": name, "times": times, "accuracy": scores, "seconds": seconds})
            print(rows[-1], flush=True)
            out.mkdir(parents=True, exist_ok=True)
            content = {"provenance": provenance(), "encoder": encoder_id, "rows": rows}
            (out / "rates-finetuning.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def matching(profile: str, overrides: dict, steps: int, rates: list[float] | None, out: Path) -> None:
    """Agreement with the development pairs of ECD, or retrieval in the development sentences of MDC or SGD, after so
    many steps, by recipe and rate."""
    run = start("dialoguecse", profile, overrides=overrides, out=out)
    name = next(name for name in ("ECD", "MDC", "SGD") if name in run.settings.corpora)
    corpus = dialoguecse.corpus(run, name)
    looks = {} if name == "MDC" else {"watch": None}
    watched = corpus.watch.inputs if corpus.watch else {}
    if name == "ECD":
        task = Task("dev", agreement_of, {name: watched["pairs"]})
    else:
        if name == "SGD":
            spoken = load("bundled/SGD", split="dev")
            queries = dialoguecse.rebuild(spoken, run.settings.queries, dialoguecse.REBUILT[name])
            records = dialoguecse.TestSet(queries, corpus=name)
        else:
            records = watched["records"]
        task = Task("dev", dialoguecse.score, {name: records}, {"limit": None})
    models = {f"BERT, {name}": dialoguecse.start(run.settings, corpus)}
    models[f"BERT(adapt), {name}"] = dialoguecse.model("adaptation", run.settings, corpus)
    for recipe, usual in MATCHING.items():
        for rate in (rates or usual) if run.wants(recipe) else ():
            labels = {"recipe": recipe, "rate": rate}
            model = dialoguecse.model(recipe, run.settings, corpus, labels=labels, **looks)
            settings = {"learning_rate": rate, "max_steps": steps, "epochs": 100}
            models[f"{recipe} {rate:g}"] = changed(model, settings)
    rows = asked_of(run, models, task)
    rows = rows[rows["metric"].isin(["Corr", "MAP"]) & rows["protocol"].eq("paper")]
    table = rows.pivot_table("value", "model", "train_seed", sort=False)
    print(table.assign(mean=table.mean(axis=1)).round(2).to_string())
    run.finish()


def agreement_of(encoder, records: Dataset, dataset: str) -> pd.DataFrame:
    """Spearman's correlation with human scores, by the mean of the tokens."""
    return evaluate_similarity(encoder, records, dataset=dataset, pooling="mean")


def asked_of(run, models: dict[str, Model], task: Task) -> pd.DataFrame:
    """What all models, trained side by side, answer; written to the folder of the run."""
    run._profiles = replace(run._profiles, parameters={})  # every row is wanted
    trained = run.train(models)
    rows = run.evaluate(trained, [task]).rows
    rows.to_csv(run.folder / "rates.csv", index=False)
    trained.times().to_csv(run.folder / "times.csv", index=False)
    print(trained.times().to_string())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--profile", default="gpu")
    parser.add_argument("--share", type=float, default=0.35, help="of the steps of a whole training")
    parser.add_argument("--set", nargs="*", default=[], help="NAME=VALUE of the profile (JSON)")
    parser.add_argument("--recipes", nargs="*", default=list(RATES))
    parser.add_argument("--rates", nargs="*", type=float, help="compared in place of those of each recipe")
    parser.add_argument("--fine-tuning", action="store_true", help="rates of fine-tuning, nothing else")
    parser.add_argument("--matching", action="store_true", help="rates of DialogueCSE's matching models, nothing else")
    parser.add_argument("--steps", type=int, default=300, help="of every matching model")
    args = parser.parse_args()
    if args.fine_tuning:
        fine_tuning(args.encoder, args.out)
        return
    chosen = {name: json.loads(value) for name, _, value in (each.partition("=") for each in args.set)}
    if args.matching:
        matching(args.profile, chosen, args.steps, args.rates, args.out)
        return
    overrides = {"raw_start": "masked words", **chosen}
    run = start("dse", args.profile, encoder=args.encoder, overrides=overrides, out=args.out)
    dialogues = Dialogues(run.corpus(), run.settings.dialogues)
    models = {"as it comes": Model(start=args.encoder), "raw start": Model()}
    for recipe in args.recipes:
        steps, rates = RATES[recipe]
        for rate in args.rates or rates:
            name, _, pooling = recipe.partition(", ")
            options = {"pooling": pooling} if pooling else {}
            model = dse.model(name, dialogues, options=options, as_in="wmdc" if recipe == "WMDC" else "")
            heads = {"WMDC": 40, "DSE": 100, "DSE-dropout": 100}.get(recipe)
            set_here = {"learning_rate": rate, "max_steps": max(2, round(steps * args.share)), "epochs": 100}
            set_here |= {"head_learning_rate": heads * rate} if heads else {}
            labels = {"recipe": recipe, "rate": rate}
            models[f"{recipe} {rate:g}"] = changed(model, set_here, watch=None, report=0, labels=labels)
    data = {name: load(f"bundled/{name}", SETS[name][0] or None) for name in SETS}
    rows = asked_of(run, models, Task("dev", dev_intents, data))
    table = rows.pivot_table("value", "model", ["shots", "dataset"], sort=False)
    table["mean 1"], table["mean 5"] = table[1].mean(axis=1), table[5].mean(axis=1)
    print(table.round(1).to_string())
    run.finish()


if __name__ == "__main__":
    main()
