"""The experiments of DSE (Learning Dialogue Representations from Consecutive Utterances).

Every function takes the :class:`dialnb.runs.Run` of the notebook, does its work in cached stages and adds tidy rows to
the run's results; the notebook then shows ``run.table(...)``. Rows that a profile leaves out are named with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from dialnb.claims.papers import FLOORS, load_paper, select
from dialnb.data import Dataset, load
from dialnb.errors import DataError, DialnbError, Offline
from dialnb.evaluation.floors import chance_rows
from dialnb.examples.pairs import consecutive_pairs, enough_words, unique_sentences
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.places import encoder_name
from dialnb.studies import common, tasks
from dialnb.studies.common import Task, left_out, rows_of, settings_for, summary, why
from dialnb.studies.curves import ablation_jobs, epoch_jobs
from dialnb.studies.spaces import clusters_of, geometry_of
from dialnb.studies.training import Job, conversations, pretraining, training
from dialnb.training.pretrain import SHAPES
from dialnb.training.recipes import get_recipe

TRAINED = ("DSE", "DSE-dropout", "SimCSE-unsup", "TOD-BERT", "DSE 2-1", "DSE 3-1", "DSE 123-1", "DSE-dianli")
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
    "bert-large-uncased": "BERTlarge", "roberta-base": "RoBERTabase", "roberta-large": "RoBERTalarge",
    "distilbert-base-uncased": "DistilBERTbase",
}  # fmt: skip
"""The encoders of T10 and T11 by hub id, as printed."""

PRINTED = ("BERT", "SimCSE-unsup", "TOD-BERT", "DSE-dropout", "DSE", "DSE-dianli", *CHECKPOINTS)
"""Rows of T7 and T9: the multi-turn variants are not fine-tuned there."""

WORDS, GUESSES = (("TF-IDF", None),), (("Chance", tasks.guessed_intents_of),)
MODEL_TABLES = ("T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "X1", "F1", "F3")
TASKS = (  # the longest first, so that workers end together
    Task("T9", "fine-tuned selection", tasks.finetuned_selection_of, tasks.question_data,
         ("questions", "response_shots", "finetune_seeds", "finetune_rate"), PRINTED,
         (("TF-IDF", tasks.worded_selection_of),)),
    Task("T5", "action prediction", tasks.actions_of, tasks.action_data,
         ("limit", "action_shots", "action_seeds", "finetune_rate"),
         floors=(("Majority", tasks.majority_actions_of),)),
    Task("T7", "fine-tuned intents", tasks.finetuned_intents_of, tasks.intent_data,
         ("limit", "shots", "finetune_seeds", "finetune_rate"), PRINTED, GUESSES),
    Task("T4", "dialogue selection", tasks.candidates_of, tasks.candidate_data, ("groups",), floors=WORDS),
    Task("T3", "out-of-scope detection", tasks.scope_of, tasks.scope_data, ("limit", "shots", "seeds"),
         floors=(("Majority", tasks.rejected_of),)),
    Task("T2", "intents", tasks.intents_of, tasks.intent_data, ("limit", "shots", "seeds"), floors=GUESSES),
    Task("T4", "utterance selection", tasks.blocks_of, tasks.question_data, ("questions",), floors=WORDS),
    Task("X1", "inference probe", tasks.nli_of, tasks.inference_data, ("limit",)),
    Task("F1", "clusters", clusters_of, tasks.scope_data, ("plot_intents", "plot_points", "seeds")),
    Task("X-geometry", "geometry", geometry_of, tasks.intent_data, ("limit",)),
)  # fmt: skip


PRINTED_TASKS = ("fine-tuned intents", "intents", "out-of-scope detection", "utterance selection",
                 "fine-tuned selection", "dialogue selection", "action prediction")  # fmt: skip
"""The tasks in the order of Table 1."""


# --- data -------------------------------------------------------------------------------------------------------------


def settings_table(run) -> pd.DataFrame:
    """T1 as printed, and what this run does of it."""
    s, rows = run.settings, []
    known = {task.name: task for task in TASKS}
    for printed, task in zip(load_paper("dse").tables["T1"].rows, map(known.get, PRINTED_TASKS), strict=True):
        seeds = next((len(s[key]) for key in ("action_seeds", "finetune_seeds", "seeds") if key in task.settings), 1)
        here = f"{', '.join(task.data(s.data))}; seeds: {seeds}" if task.table in s.tables else "left out"
        names = ("datasets", "setting", "seeds")
        rows.append({"task": printed.labels["model"], **dict(zip(names, printed.values, strict=True)), "here": here})
    return pd.DataFrame(rows)


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
    dialogues, cut = ([c.utterances for c in conversations(corpora, limit, tail)] for tail in (False, True))
    return {
        "dialogues": len(dialogues),
        "utterances": sum(map(len, dialogues)),
        "consecutive pairs after filter": len(consecutive_pairs(dialogues)),
        "unique sentences for DSE-dropout": len(unique_sentences(dialogues)),
        "the same with the code's tail quirk: pairs": len(consecutive_pairs(cut)),
    }


def evaluation_sizes(data: str, questions: int | None) -> dict[str, tuple[int, str]]:
    """Items of the evaluation data by their row of X2, and what stands in for the paper's own, if anything."""
    clinc, banking, snips, hwu = (records.filter(split="test") for records in tasks.intent_data(data).values())
    ((candidates, groups),) = tasks.candidate_data(data).items()
    sizes = {
        "Clinc150 test in-scope": (sum(intent != "oos" for intent in clinc.column("intent")), ""),
        "Clinc150 test with out-of-scope": (len(clinc), ""),
        "Bank77 test": (len(banking), ""),
        "Snips test": (len(snips), ""),
        "Hwu64 test": (len(hwu), "" if hwu.variant == "dse-official" else "public copies of HWU64"),
        "DSTC7-Ubuntu evaluation samples": (len(groups), "" if candidates == "DSTC7-Ubuntu" else candidates),
    }
    if data != "bundled":
        sizes |= {
            f"{name} test": (len(part.filter(split="test")), "") for name, part in tasks.action_data(data).items()
        }
        (pairs,) = tasks.question_data(data).values()
        copies = "" if pairs.variant == "official" else "public copies of AmazonQA"
        sizes["AmazonQA pairs available"] = len(pairs), copies
        sizes["AmazonQA pairs evaluated"] = min(len(pairs), questions or len(pairs)), copies
    return sizes


def counts(run, corpora: list[Dataset]):
    """X2: our counts beside the printed ones."""
    s = run.settings
    found = run.stage("count the corpus", count, corpora=corpora, limit=s.dialogues)
    whole = s.corpus == "todbert" and s.dialogues is None
    instead = "" if whole else f"{s.corpus} dialogues instead of the TOD-BERT collection"
    both = {name: (number, instead) for name, number in found.items()} | evaluation_sizes(s.data, s.questions)
    rows = [{"model": name, "value": number, "n": number, "substitute": text} for name, (number, text) in both.items()]
    run.add(pd.DataFrame(rows), task="statistics", metric="count", column="value", table="X2")
    left_out(run, ["X2"], "private data of the authors", model="Appen test")
    if s.data == "bundled":
        left_out(run, ["X2"], "not bundled: profile 'gpu'")
    return run.table("X2")


# --- models -----------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """Every model by its row name, the loss curves of all, and the encoders after each epoch where they were kept."""

    models: dict[str, Encoder]
    curves: pd.DataFrame
    epochs: dict[str, dict[int, Encoder]]


def train_all(run, corpora: list[Dataset]) -> Trained:
    """Train what the profile asks for; "BERT" is the raw encoder, as in the paper's tables.

    Of DSE-dropout the first epoch is reported, as in the paper; the later ones are for Figure 3. So that no worker
    waits, the ablations of the last section are trained beside and the raw encoder is evaluated; with several workers
    every model is evaluated as soon as it is there, and DSE trained from an encoder as soon as that is made.
    """
    s = run.settings
    models: dict[str, Encoder] = {"BERT": load_encoder(s.encoder)}
    jobs = _pretraining(run, models["BERT"], corpora)
    wanted = [name for name in TRAINED if name in s.models]
    for name in wanted:
        try:
            parts = [common.find(s.data, ("sources", "Dialogue-NLI", None))] if name == "DSE-dianli" else corpora
        except Offline as error:
            left_out(run, MODEL_TABLES, why(error), model=name)
            continue
        jobs[f"train {name}"] = training(
            name, models["BERT"], parts, settings_for(s, name), s.dialogues, s.tail_quirk and name != "DSE-dianli"
        )

    def follow(stage: str, result: dict[str, Any]) -> dict[str, Job]:
        kind, _, name = stage.partition(" ") if stage in jobs else ("", "", "")
        if kind == "pretrain":
            return _other_trainings(run, {name: result["encoder"]}, corpora)
        return common.evaluations(run, {name: _reported(name, result)}, _tasks(s))[0] if kind == "train" else {}

    beside, _ = common.evaluations(run, models, _tasks(s))
    made = run.stage_each(jobs | ablation_jobs(run, corpora) | beside, follow if s.workers > 1 else None)
    made = {name.removeprefix("train "): result for name, result in made.items()}
    epochs = {name: made[name]["epochs"] for name in wanted if name in made and made[name]["epochs"]}
    models |= {name: _reported(name, made[name]) for name in wanted if name in made}
    models |= _checkpoints(run)
    for name in TRAINED:
        if name not in wanted:
            left_out(run, MODEL_TABLES, model=name)
    curves = [made[name]["curve"].assign(model=name) for name in wanted if name in made]
    return Trained(models, pd.concat(curves, ignore_index=True), epochs)


def _reported(name: str, result: Mapping[str, Any]) -> Encoder:
    """The encoder of a model that its rows are about."""
    first = name == "DSE-dropout" and result["epochs"]
    return result["epochs"][1] if first else result["encoder"]


def _pretraining(run, vocabulary: Encoder, corpora: list[Dataset]) -> dict[str, Any]:
    """The encoders of T10 and T11 that are made from scratch; asked for with the first models to fill all workers."""
    s = run.settings
    shapes = [name for name in s.other_encoders if name in SHAPES]
    return {f"pretrain {shape}": pretraining(shape, vocabulary, corpora, s.pretrain_epochs, s.dialogues, s.max_steps,
                                             s.seed) for shape in shapes}  # fmt: skip


def _checkpoints(run) -> dict[str, Encoder]:
    """The public checkpoints of the profile that can be had; the others say why not."""
    found = {}
    for name, (hub, pooling) in CHECKPOINTS.items():
        try:
            if name not in run.settings.checkpoints:
                raise DialnbError(f"public checkpoint {hub}: profile 'paper'")
            found[name] = load_encoder(hub, pooling)
        except DialnbError as error:
            left_out(run, MODEL_TABLES, why(error), model=name)
    return found


def training_times(run, curves: pd.DataFrame) -> pd.DataFrame:
    """Time and memory of every training; where steps were cut, what all of them would take."""
    return common.training_times(run, curves, lambda name: get_recipe(name).settings.epochs)


# --- tables -----------------------------------------------------------------------------------------------------------


def _tasks(s: Mapping[str, Any]) -> list[Task]:
    """The tasks of the tables that the profile asks for, of F1 and of the geometry."""
    return [task for task in TASKS if task.table in (*s["tables"], "F1", "X-geometry")]


def evaluate(run, trained: Trained) -> None:
    """Fill all tables that the profile asks for, and the rows of F1, F3 and of the geometry."""
    s = run.settings
    scores = epoch_jobs(run, trained.epochs)
    rows, made = common.evaluate(run, trained.models, _tasks(s), scores, trained.models["BERT"])
    found = [part.assign(model=model, table=table) for (table, model), part in rows.items()]
    for name in scores:
        model, _, epoch = name.removeprefix("epoch: ").rpartition(" after ")
        found.append(made[name].assign(model=model, table="F3", epoch=int(epoch)))
    joined = pd.concat(found, ignore_index=True)
    if "T3" in s.tables:
        joined.loc[(joined["table"] == "T3") & (joined["shots"] != 1), "table"] = "T8"
    joined["encoder"] = joined["model"].map(lambda name: "none" if name in FLOORS else s.encoder)
    run.add(joined)
    own = joined[(joined["model"] == "BERT") & joined["table"].isin(["T4", "T9", "X1"])]
    run.add(chance_rows(own))
    missing = [table for table in ("T2", "T3", "T4", "T5", "T7", "T9", "X1") if table not in s.tables]
    left_out(run, [*missing, *(["T8"] if "T3" in missing else [])])
    if "T5" in missing:
        left_out(run, ["T6"], column="DA")
    if 5 not in s.shots:
        left_out(run, ["T2", "T8", "T10"])
    _floors(run)


def _floors(run) -> None:
    """What rejecting everything and nothing reaches, as rows of T3 and T8 under both thresholds."""
    rows = select(run.results, {"table": ["T3", "T8"], "protocol": "floor", "model": "BERT"})
    for threshold in ("mean-std", "mean") if len(rows) else ():
        named = "floor: " + rows["threshold"].astype(str)
        run.add(rows.assign(model=named, protocol="code", threshold=threshold))


def scope_protocols(run, table: str = "T3") -> pd.DataFrame:
    """Out-of-scope detection under the three protocols, beyond what the paper prints."""
    return summary(run, table, ["protocol", "threshold", "model"], ["metric"], protocol=["code", "paper", "clean"])


def selection_modes(run) -> pd.DataFrame:
    """Dialogue-level selection with 101 and 100 candidates, ties against the true response or by file order."""
    metric = ["Top-1", "Top-3", "Top-10"]
    columns = ["candidates", "ties", "metric"]
    return summary(run, "T4", ["dataset", "model"], columns, metric=metric, ties=["against", "file"])


def action_readings(run) -> pd.DataFrame:
    """Both readings of action prediction: the labelled utterance in the input (code) or not (clean)."""
    return summary(run, "T5", ["model"], ["dataset", "protocol", "shots", "metric"])


def other_encoders(run, corpora: list[Dataset]) -> None:
    """T10 and T11: raw encoders and their DSE versions; this run's own, those of the profile, the printed four."""
    s = run.settings
    for table, origin in {"T10": "T2", "T11": "T4"}.items():
        own = rows_of(run, origin)
        own = own[own["model"].isin(("BERT", "DSE", *FLOORS))] if len(own) else own
        if len(own):
            names = {"BERT": encoder_name(s.encoder), "DSE": f"{encoder_name(s.encoder)}-DSE"}
            variants = own["model"].map({"BERT": "raw", "DSE": "DSE"})
            run.add(own.assign(model=own["model"].replace(names), variant=variants), table=table)
    raw = _raw_encoders(run, corpora)
    made = run.stage_each(_other_trainings(run, raw, corpora))
    for name, encoder in raw.items():
        shown = ENCODERS.get(name, name)
        models = {shown: encoder, f"{shown}-DSE": made[f"train DSE from {name}"]["encoder"]}
        targets = {"T2": "T10", "T4": "T11"}
        chosen = [task._replace(table=targets[task.table]) for task in TASKS if task.table in targets]
        rows, _ = common.evaluate(run, models, chosen)
        for (table, model), found in rows.items():
            run.add(found, table=table, model=model, encoder=name, variant="raw" if model == shown else "DSE")


def _other_trainings(run, raw: Mapping[str, Encoder], corpora: list[Dataset]) -> dict[str, Job]:
    """DSE from every further encoder."""
    s = run.settings
    return {
        f"train DSE from {name}": training(
            "DSE", encoder, corpora, settings_for(s, "DSE", **({"batch_size": 512} if "large" in name else {})),
            s.dialogues, s.tail_quirk,
        )
        for name, encoder in raw.items()
    }  # fmt: skip


def _raw_encoders(run, corpora: list[Dataset]) -> dict[str, Encoder]:
    """Encoders besides the run's own that can be had, made from scratch or loaded; the others say why not."""
    s, found = run.settings, {}
    made = run.stage_each(_pretraining(run, load_encoder(s.encoder), corpora))
    for name in s.other_encoders:
        try:
            scratch = made.get(f"pretrain {name}")
            found[encoder_name(name)] = scratch["encoder"] if scratch else load_encoder(name)
        except DialnbError as error:
            for model in (ENCODERS.get(name, name), f"{ENCODERS.get(name, name)}-DSE"):
                left_out(run, ("T10", "T11"), why(error), model=model)
    reasons = {shown: f"needs the encoder {name} from the hub: profile 'paper'" for name, shown in ENCODERS.items()
               if name not in s.other_encoders}  # fmt: skip
    if "small" not in s.other_encoders:
        reasons["small"] = "made from scratch in the 'gpu' profile"
    for name, reason in reasons.items():
        for model in (name, f"{name}-DSE"):
            left_out(run, ("T10", "T11"), reason, model=model)
    return found


def geometry_table(run) -> pd.DataFrame:
    """Uniformity and alignment, one row a model and dataset, for the scatter plot."""
    own = rows_of(run, "X-geometry")
    return own.pivot_table(index=["model", "dataset"], columns="metric", values="value", sort=False).reset_index()
