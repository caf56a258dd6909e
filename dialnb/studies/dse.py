"""The experiments of DSE (Learning Dialogue Representations from Consecutive Utterances).

Every function takes the :class:`dialnb.runs.Run` of the notebook, does its work in cached stages and adds tidy rows to
the run's results; the notebook then shows ``run.table(...)``. Rows that a profile leaves out are named with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dialnb.data import Dataset, load
from dialnb.data.corpora import Conversation, collection, utterances_of
from dialnb.data.records import QuestionAnswer
from dialnb.errors import DataError
from dialnb.evaluation import (
    act_tagging_examples,
    evaluate_blocks,
    evaluate_candidates,
    evaluate_nli_probe,
    evaluate_prototypes,
    evaluate_scope,
    finetune_actions,
    finetune_intents,
    finetune_responses,
    geometry,
)
from dialnb.evaluation.projection import project
from dialnb.evaluation.vectors import EncodeOnce
from dialnb.examples.pairs import consecutive_pairs, enough_words, unique_sentences
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.training import TrainingSettings
from dialnb.training.recipes import get_recipe, scaled, train_recipe

INTENTS = {"CLINC150": "full", "BANKING77": None, "SNIPS": "dse", "HWU64": "dse"}
TRAINED = ("DSE", "DSE-dropout", "SimCSE-unsup", "TOD-BERT", "DSE 2-1", "DSE 3-1", "DSE 123-1")
CHECKPOINTS = {
    "SimCSE-sup": "princeton-nlp/sup-simcse-bert-base-uncased",
    "PairSupCon": "aws-ai/pairsupcon-bert-base-uncased",
    "DialoGPT": "microsoft/DialoGPT-medium",
    "DSE-dianli": "the Dialogue-NLI pairs",
}
PROBE = "probe of F3"


# --- data -------------------------------------------------------------------------------------------------------------


def corpus(run) -> list[Dataset]:
    """The dialogue corpora of the profile: what is bundled, or a collection read from its sources."""
    name = run.settings.corpus
    if name == "bundled":
        return [load("bundled/dialogues")]
    return [load(part.dataset, part.variant) for part in collection(name) if part.paired]


def conversations(corpora: Sequence[Dataset], limit: int | None = None, seed: int = 24) -> list[Conversation]:
    """All dialogues with their non-empty utterances, or ``limit`` of them drawn by ``seed``."""
    records = thin([(part.name, record) for part in corpora for record in part], limit, seed)
    return [Conversation(name, utterances_of(record)) for name, record in records]


def count(corpora: list[Dataset], limit: int | None) -> dict[str, int]:
    """Dialogues, utterances, pairs and unique sentences, for the table beside the printed counts."""
    dialogues = [c.utterances for c in conversations(corpora, limit)]
    return {
        "dialogues": len(dialogues),
        "utterances": sum(map(len, dialogues)),
        "consecutive pairs after filter": len(consecutive_pairs(dialogues)),
        "unique sentences for DSE-dropout": len(unique_sentences(dialogues)),
    }


def counts(run, corpora: list[Dataset]) -> pd.DataFrame:
    """T1's companions: our counts beside the printed ones (X2)."""
    found = run.stage("count the corpus", count, corpora=corpora, limit=run.settings.dialogues)
    rows = [
        {"task": "statistics", "metric": "count", "model": k, "column": "value", "value": v, "n": v}
        for k, v in found.items()
    ]
    whole = run.settings.corpus == "todbert" and run.settings.dialogues is None
    substitute = "" if whole else f"{run.settings.corpus} dialogues instead of the TOD-BERT collection"
    run.add(pd.DataFrame(rows), table="X2", dataset=run.settings.corpus, substitute=substitute)
    return run.table("X2")


def intent_sets() -> dict[str, Dataset]:
    """The four public intent datasets in the reading that DSE uses; complete in the bundle."""
    return {name: load(f"bundled/{name}", variant) for name, variant in INTENTS.items()}


def train_and_test(records: Dataset, limit: int | None = None) -> tuple[list, list]:
    """In-scope training utterances, and test utterances, of which ``limit`` are kept."""
    train, test = ([r for r in records.filter(split=split) if r.intent != "oos"] for split in ("train", "test"))
    return train, thin(test, limit)


def thin(items: Sequence, limit: int | None, seed: int = 24) -> list:
    """``limit`` of the items in their order, drawn once by ``seed``; all of them for None."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in np.sort(np.random.default_rng(seed).choice(len(items), limit, replace=False))]


def questions_of(data: str) -> dict[str, Dataset]:
    """AmazonQA from its sources; of bundled data, questions in dialogues and the replies to them stand in."""
    return {"AmazonQA": load("AmazonQA")} if data == "sources" else {"bundled questions": load("bundled/dialogues")}


def question_answers(records: Dataset, limit: int | None) -> list[QuestionAnswer]:
    """The pairs of a question-answer dataset, or of a dialogue corpus: every question with the reply to it."""
    if records.name == "AmazonQA":
        return thin(records, limit)
    pairs = dict.fromkeys(
        (first, second)
        for c in conversations([records])
        for first, second in zip(c.utterances, c.utterances[1:])
        if first.endswith("?") and enough_words(first) and enough_words(second)
    )
    return [QuestionAnswer(*pair) for pair in thin(list(pairs), limit)]


def actions_of_data(data: str) -> dict[str, Dataset]:
    """DSTC2 and GSIM from their sources; of bundled data, STAR's wizard actions stand in."""
    return {n: load(n) for n in ("DSTC2", "GSIM")} if data == "sources" else {"STAR": load("bundled/STAR")}


# --- training ---------------------------------------------------------------------------------------------------------


def settings_for(run, recipe: str) -> TrainingSettings:
    """The recipe's printed settings with the profile's changes; ``None`` in the profile leaves the printed value."""
    s = run.settings
    changes = {
        "batch_size": s.batch_size, "learning_rate": s.learning_rate, "head_learning_rate": s.head_learning_rate,
        "epochs": s.dropout_epochs if recipe in ("DSE-dropout", "SimCSE-unsup") else s.epochs,
        "max_steps": s.max_steps, "precision": s.precision, "chunk": s.chunk,
    }  # fmt: skip
    return scaled(get_recipe(recipe).settings, seed=s.seed, **changes)


def train_model(
    recipe: str, encoder: str, corpora: list[Dataset], limit: int | None, settings: TrainingSettings,
    probe: int | None, sets: dict[str, dict[str, Dataset]], folder: Path,
) -> dict:  # fmt: skip
    """One trained model; with ``probe`` the four tasks of F3 are scored after every epoch on so many test items."""
    model = load_encoder(encoder)

    def score(epoch: int, current: Encoder) -> None:
        path = folder / f"epoch-{epoch}.csv"
        probe_scores(current, probe, sets).assign(epoch=epoch).to_csv(path, index=False)

    on_epoch = score if probe else None
    result = train_recipe(recipe, model, conversations(corpora, limit), settings, folder, folder, on_epoch=on_epoch)
    scored = [pd.read_csv(path) for path in sorted(folder.glob("epoch-*.csv"))]
    model.name = recipe
    return {"encoder": model.eval(), "curve": result.curve, "training": result,
            "epochs": pd.concat(scored) if scored else pd.DataFrame()}  # fmt: skip


def probe_scores(encoder: Encoder, limit: int, sets: dict[str, dict[str, Dataset]]) -> pd.DataFrame:
    """One score for each of the four tasks of F3, on a fixed sample of ``limit`` test items."""
    intents = intents_of(encoder, sets["T2"], limit, (1,), range(3))
    scope = scope_of(encoder, sets["T3"], limit, (1,), range(3)).query("protocol == 'code' and metric == 'Ave'")
    blocks = blocks_of(encoder, sets["T4"], max(limit, 300))
    candidates = candidates_of(encoder, sets["T4b"], min(limit, 100)).query("protocol == 'paper' and ties == 'against'")
    top = ("Top-1", "Top-3", "Top-10")
    scores = {
        "intents": intents["value"].mean(),
        "out-of-scope": scope["value"].mean(),
        "utterance selection": blocks[blocks["metric"].isin(top)]["value"].mean(),
        "dialogue selection": candidates[candidates["metric"].isin(top)]["value"].mean(),
    }
    return pd.DataFrame(
        [{"task": task, "dataset": PROBE, "metric": "score", "protocol": "code", "seed": 0, "value": v, "n": limit}
         for task, v in scores.items()]
    )  # fmt: skip


def train_all(run, corpora: list[Dataset]) -> dict[str, Encoder]:
    """Every model of the profile by its row name; "BERT" is the raw encoder, as in the paper's tables."""
    s = run.settings
    models = {"BERT": load_encoder(s.encoder)}
    sets = {table: TASKS[table].data(s.data) for table in ("T2", "T3", "T4", "T4b")}
    for name in s.models:
        probe = s.probe if name in ("DSE", "DSE-dropout") else None
        done = run.stage(
            f"train {name}", train_model, recipe=name, encoder=s.encoder, corpora=corpora, limit=s.dialogues,
            settings=settings_for(run, name), probe=probe, sets=sets if probe else {},
        )  # fmt: skip
        models[name] = done["encoder"]
        run.curves = pd.concat([getattr(run, "curves", None), done["curve"].assign(model=name)])
        if len(done["epochs"]):
            run.add(done["epochs"], model=name, table="F3")
    left_out = [name for name in TRAINED if name not in s.models]
    for name in left_out:
        _everywhere(run, name, f"left out of the {run.profile} profile to keep its time; it runs with 'gpu'")
    for name, what in CHECKPOINTS.items():
        why = "needs the Dialogue-NLI data" if name == "DSE-dianli" else f"public checkpoint {what}: profile 'paper'"
        _everywhere(run, name, why)
    return models


def _everywhere(run, model: str, reason: str) -> None:
    for table in ("T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "X1"):
        run.not_run(table, model=model, reason=reason)


# --- tables -----------------------------------------------------------------------------------------------------------


def intents_of(encoder: Encoder, sets: dict[str, Dataset], limit: int | None, shots, seeds) -> pd.DataFrame:
    forms = ("code", "cosine")
    return pd.concat(
        evaluate_prototypes(
            encoder, *train_and_test(d, limit), dataset=name, shots=shots, seeds=seeds, forms=forms
        )
        for name, d in sets.items()
    )  # fmt: skip


def scope_of(encoder: Encoder, sets: dict[str, Dataset], limit: int | None, shots, seeds) -> pd.DataFrame:
    ((name, records),) = sets.items()
    train, test = list(records.filter(split="train")), thin(records.filter(split="test"), limit)
    return evaluate_scope(encoder, train, test, dataset=name, shots=shots, seeds=seeds)


def blocks_of(encoder: Encoder, sets: dict[str, Dataset], questions: int | None) -> pd.DataFrame:
    ((name, records),) = sets.items()
    return evaluate_blocks(encoder, question_answers(records, questions), dataset=name)


def candidates_of(encoder: Encoder, sets: dict[str, Dataset], groups: int | None) -> pd.DataFrame:
    ((name, records),) = sets.items()
    chosen, once = thin(records.filter(split="test"), groups), EncodeOnce(encoder)
    return pd.concat(evaluate_candidates(once, chosen, dataset=name, protocol=p) for p in ("code", "paper"))


def finetuned_intents_of(
    encoder: Encoder, sets: dict[str, Dataset], limit: int | None, shots, finetune_seeds
) -> pd.DataFrame:
    return pd.concat(
        finetune_intents(encoder, *train_and_test(d, limit), dataset=name, shots=shots, seeds=finetune_seeds)
        for name, d in sets.items()
    )


def actions_of(
    encoder: Encoder, sets: dict[str, Dataset], limit: int | None, action_shots, finetune_seeds
) -> pd.DataFrame:
    rows = []
    for name, dialogues in sets.items():
        for inside in (True, False):  # the tagged utterance in the input, as in the authors' data; and history only
            train, test = (
                act_tagging_examples(dialogues.filter(split=split), target_in_input=inside)
                for split in ("train", "test")
            )
            found = finetune_actions(
                encoder, train, thin(test, limit), dataset=name, shots=action_shots, seeds=finetune_seeds
            )
            rows.append(found if inside else found.assign(protocol="clean"))
    return pd.concat(rows)


def finetuned_selection_of(
    encoder: Encoder, sets: dict[str, Dataset], questions: int | None, response_shots, finetune_seeds
) -> pd.DataFrame:
    ((name, records),) = sets.items()
    pairs = question_answers(records, questions)
    half = len(pairs) // 2
    return finetune_responses(
        encoder, pairs[:half], pairs[half:], dataset=name, shots=response_shots, seeds=finetune_seeds
    )


def nli_of(encoder: Encoder, sets: dict[str, Dataset], limit: int | None) -> pd.DataFrame:
    ((name, records),) = sets.items()
    return evaluate_nli_probe(encoder, thin(nli_triples(records), limit), dataset=name)


def nli_triples(records: Dataset) -> list[tuple[str, str, str]]:
    """(anchor, entailment, contradiction) from NLI pairs that share a premise."""
    by_premise: dict[str, dict[str, str]] = {}
    for item in records:
        by_premise.setdefault(item.utterances[0], {}).setdefault(item.label, item.utterances[1])
    return [
        (premise, said["entailment"], said["contradiction"])
        for premise, said in by_premise.items()
        if {"entailment", "contradiction"} <= said.keys()
    ]


class Task(NamedTuple):
    """One table's evaluation: what its stages are called, the function, its datasets and the settings it takes."""

    name: str
    function: Callable[..., pd.DataFrame]
    data: Callable[[str], dict[str, Dataset]]
    settings: tuple[str, ...]


TASKS = {
    "T2": Task("intents", intents_of, lambda _: intent_sets(), ("limit", "shots", "seeds")),
    "T3": Task("out-of-scope detection", scope_of, lambda _: {"CLINC150": load("bundled/CLINC150", "plus")},
               ("limit", "shots", "seeds")),
    "T4": Task("utterance selection", blocks_of, questions_of, ("questions",)),
    "T4b": Task("dialogue selection", candidates_of,
                lambda _: {"UbuntuIRC": load("bundled/UbuntuIRC", "selection-100")}, ("groups",)),
    "T5": Task("action prediction", actions_of, actions_of_data, ("limit", "action_shots", "finetune_seeds")),
    "T7": Task("fine-tuned intents", finetuned_intents_of, lambda _: intent_sets(),
               ("limit", "shots", "finetune_seeds")),
    "T9": Task("fine-tuned selection", finetuned_selection_of, questions_of,
               ("questions", "response_shots", "finetune_seeds")),
    "X1": Task("NLI probe", nli_of, lambda _: {"ANLI": load("ANLI")}, ("limit",)),
}  # fmt: skip


def evaluate(run, models: dict[str, Encoder], table: str):
    """Run one table's evaluation on every model, in stages, and give the table with the published numbers beside."""
    s = run.settings
    if table not in s.tables:
        run.not_run(table, reason=f"left out of the {run.profile} profile to keep its time; it runs with 'gpu'")
        return run.table(table)
    for task in [task for key, task in TASKS.items() if key.startswith(table)]:
        inputs = {"sets": task.data(s.data), **{key: getattr(s, key) for key in task.settings}}
        for model, encoder in models.items():
            rows = run.stage(f"{task.name}: {model}", task.function, encoder=encoder, **inputs)
            if table == "T3":
                run.add(rows[rows["shots"] == 1], model=model, table="T3")
                run.add(rows[rows["shots"] != 1], model=model, table="T8")
            else:
                run.add(rows, model=model, table=table)
    return run.table(table)


# --- figures ----------------------------------------------------------------------------------------------------------


def embed_intents(
    encoder: Encoder, records: Dataset, method: str, intents: int, points: int, outside: int, seed: int,
) -> pd.DataFrame:  # fmt: skip
    """F1, left: ``points`` utterances of ``intents`` classes and ``outside`` out-of-scope ones, in a plane."""
    records = list(records.filter(split="test"))
    rng = np.random.default_rng(24)
    labels = sorted({r.intent for r in records} - {"oos"})
    chosen = [labels[i] for i in rng.choice(len(labels), intents, replace=False)]
    kept = [r for label in chosen for r in [x for x in records if x.intent == label][:points]]
    kept += thin([r for r in records if r.intent == "oos"], outside)
    vectors = encoder.encode([r.text for r in kept], normalize=True)
    inside = np.array([r.intent != "oos" for r in kept])
    labels = ["out of scope" if r.intent == "oos" else r.intent for r in kept]
    silhouette = _silhouette(vectors[inside], [r.intent for r in kept if r.intent != "oos"])
    plane = project(vectors, method, seed=seed)
    plane = plane.assign(label=labels, text=[r.text for r in kept], silhouette=silhouette)
    return plane


def _silhouette(vectors: np.ndarray, labels: Sequence[str]) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(vectors, labels, metric="cosine"))


def projections(run, models: dict[str, Encoder], method: str) -> pd.DataFrame:
    """Coordinates of F1's left panels of models side by side; the silhouette of the classes is kept as a result."""
    s = run.settings
    frames, records = [], load("bundled/CLINC150", "full")
    for name in [m for m in ("TOD-BERT", "SimCSE-unsup", "BERT", "DSE-dropout", "DSE") if m in models][-3:]:
        frame = run.stage(
            f"{method} of intents: {name}", embed_intents, encoder=models[name], method=method, records=records,
            intents=s.plot_intents, points=s.plot_points, outside=s.plot_outside, seed=s.seed,
        )  # fmt: skip
        frames.append(frame.assign(model=name))
        value = 100 * frame["silhouette"].iloc[0]
        row = {"task": "clusters", "dataset": "CLINC150", "metric": "Silhouette", "protocol": "clean", "seed": s.seed}
        run.add(pd.DataFrame([{**row, "value": value, "n": len(frame)}]), model=name, table="F1")
    return pd.concat(frames, ignore_index=True)


def geometry_of(encoder: Encoder, sets: dict[str, Dataset], limit: int | None) -> pd.DataFrame:
    """Uniformity and alignment of the test utterances of each intent dataset (lower is better for both)."""
    rows = []
    for name, records in sets.items():
        _, test = train_and_test(records, limit)
        vectors = encoder.encode([r.text for r in test])
        labels = [r.intent for r in test]
        values = {"uniformity": geometry.uniformity(vectors), "alignment": geometry.alignment(vectors, labels)}
        rows += [{"task": "geometry", "dataset": name, "metric": metric, "protocol": "clean", "seed": 0, "value": value,
                  "n": len(test)} for metric, value in values.items()]  # fmt: skip
    return pd.DataFrame(rows)


def measure_geometry(run, models: dict[str, Encoder]) -> pd.DataFrame:
    """Uniformity and alignment of every model, one row a dataset and model, for the scatter plot."""
    for name, encoder in models.items():
        rows = run.stage(
            f"geometry: {name}", geometry_of, encoder=encoder, sets=intent_sets(), limit=run.settings.limit
        )
        run.add(rows, model=name, table="X-geometry")
    own = run.results[run.results["table"] == "X-geometry"]
    return own.pivot_table(index=["model", "dataset"], columns="metric", values="value", sort=False).reset_index()


def sweep(run, corpora: list[Dataset]) -> pd.DataFrame:
    """Beyond the paper: temperature and batch size of DSE, each with its 1-shot intent accuracy."""
    s = run.settings
    base = settings_for(run, "DSE")
    for what, values in (("temperature", s.sweep_temperatures), ("batch_size", s.sweep_batches)):
        for value in values:
            settings = replace(base, batch_size=value) if what == "batch_size" else base
            temperature = value if what == "temperature" else 0.05
            rows = run.stage(
                f"sweep {what} {value}", sweep_point, encoder=s.encoder, corpora=corpora, limit=s.dialogues,
                settings=settings, temperature=temperature, sets=intent_sets(), test_limit=s.limit, seeds=s.seeds,
            )  # fmt: skip
            run.add(rows, model="DSE", table="X-sweep", what=what, at=float(value))
    own = run.results[run.results["table"] == "X-sweep"] if "table" in run.results else pd.DataFrame()
    return own


def sweep_point(
    encoder: str, corpora: list[Dataset], limit: int | None, settings: TrainingSettings, temperature: float,
    sets: dict[str, Dataset], test_limit: int | None, seeds, folder: Path,
) -> pd.DataFrame:  # fmt: skip
    model = load_encoder(encoder)
    train_recipe(
        "DSE", model, conversations(corpora, limit), settings, folder, folder, options={"temperature": temperature}
    )
    return intents_of(model.eval(), sets, test_limit, (1,), seeds)


def example_dialogue(corpora: Sequence[Dataset]) -> pd.DataFrame:
    """For F2: the first real dialogue of six to eight utterances of which the word filter drops one or two, and the
    opening of another one as a negative."""
    for record in corpora[0]:
        said = [" ".join(u.text.split()) for u in record.utterances]
        short = [not enough_words(text) for text in said]
        if 6 <= len(said) <= 8 and 1 <= sum(short[1:-1]) <= 2 and max(map(len, said)) < 70:
            other = next(d for d in corpora[0] if d.domains != record.domains).utterances[0]
            speakers = [u.speaker for u in (*record.utterances, other)]
            rows = {"dialogue": [0] * len(said) + [1], "speaker": speakers, "text": [*said, other.text]}
            return pd.DataFrame(rows | {"kept": [*(not flag for flag in short), True]})
    raise DataError("no dialogue of the corpus suits the drawing of pairs")


def other_encoders(run) -> None:
    """T10 and T11: the raw encoder and its DSE version as rows of a substitute encoder; the printed four by hub id."""
    printed = ("BERTlarge", "RoBERTabase", "RoBERTalarge", "DistilBERTbase")
    for table in ("T10", "T11"):
        for name in printed:
            for model in (name, f"{name}-DSE"):
                run.not_run(table, model=model, reason="needs that checkpoint from the hub: profile 'paper'")
    source = {"T10": "T2", "T11": "T4"}
    for table, origin in source.items():
        own = run.results[(run.results["table"] == origin) & run.results["model"].isin(("BERT", "DSE"))]
        variant = own["model"].map({"BERT": "raw", "DSE": "DSE"})
        model = own["model"].map({"BERT": run.settings.encoder, "DSE": f"{run.settings.encoder}-DSE"})
        run.add(own.drop(columns="table").assign(variant=variant, model=model), table=table)


def figure_epochs(run):
    """F3, or the reason why there is none."""
    from dialnb import plots

    rows = run.results[run.results["table"] == "F3"]
    if rows.empty or rows["epoch"].nunique() < 2:
        run.not_run("F3", reason=f"the {run.profile} profile trains for a single epoch; 'gpu' scores every epoch")
        return "Figure 3 needs several epochs: run the 'gpu' profile."
    return run.figure(
        "F3", plots.scores_by_epoch, data=rows[["task", "model", "epoch", "value"]],
        caption="Score on four tasks after every epoch: DSE solid, DSE-dropout dashed.",
        alt="Four small line plots of score against epoch for DSE and DSE-dropout.",
    )  # fmt: skip


def figure_sweep(run, corpora: list[Dataset]):
    """The sweep's figure, or the reason why there is none."""
    from dialnb import plots

    rows = sweep(run, corpora)
    if rows.empty:
        run.not_run("X-sweep", reason=f"the {run.profile} profile has no time for sweeps; 'gpu' has")
        return "The sweep is left out of this profile: run 'gpu'."
    return run.figure(
        "sweep", plots.sweep, data=rows[["what", "at", "value", "seed"]], x="at", panels="what", x_label="{panel}",
        y_label="1-shot accuracy (%)", title="Temperature and batch size of DSE",
        caption="1-shot intent accuracy of DSE against temperature and batch size.",
        alt="Two line plots with interval bands.",
    )  # fmt: skip
