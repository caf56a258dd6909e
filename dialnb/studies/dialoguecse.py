"""The experiments of DialogueCSE (Dialogue-based Contrastive Learning of Sentence Embeddings).

Every function takes the :class:`dialnb.runs.Run` of the notebook, does its work in cached stages and adds tidy rows to
the run's results. The corpora are in ``matching_data``, the stages in ``matching``, sweeps and figures in
``matching_figures``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from dialnb.claims.papers import FLOORS, load_paper
from dialnb.errors import Offline
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.studies import common
from dialnb.studies.common import left_out, not_in, why
from dialnb.studies.matching import (
    ADAPTATION,
    CONTRAST,
    MODELS,
    WORDS,
    Matching,
    adapt,
    pretrain_on,
    score,
    train_matching,
)
from dialnb.studies.matching_data import (
    FAMILIES,
    LENGTHS,
    count,
    development,
    dialogues_of,
    evaluation_of,
    families,
    min_turns,
    released,
    text_of,
)
from dialnb.studies.training import Job
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import PretrainingRecipe, pretraining_settings
from dialnb.training.recipes import scaled

BASELINES = {
    "Avg. GloVe embeddings": ("raw", "words"),
    "BERT-CLS": ("raw", "cls"), "BERT-avg": ("raw", "mean"), "BERT-flow": ("raw", "flow"),
    "BERT-whitening": ("raw", "whitening"), "BERT(adapt)-CLS": ("adapted", "cls"),
    "BERT(adapt)-avg": ("adapted", "mean"), "BERT(adapt)-flow": ("adapted", "flow"),
    "BERT(adapt)-whitening": ("adapted", "whitening"),
}  # fmt: skip
"""The self-supervised rows of T2: which encoder, and how its vectors are made."""

CHANCE = "Chance"
INSTEAD = {
    "MDC": "retrieval pools rebuilt from the intents of its movie and taxi dialogues",
    "JDDC": "trained on dialogues of ECD",
    "words": "the encoder's own word vectors instead of GloVe",
}
"""What stands in for the paper's data, by evaluation set, and for its word vectors."""


# --- data -------------------------------------------------------------------------------------------------------------


def statistics(run):
    """T1: what there is of each corpus beside the printed numbers."""
    s = run.settings
    for family in families(run):
        if family == "SGD":
            left_out(run, ["T1"], "not bundled: profile 'gpu'", column="MDC")
            continue
        try:
            corpora = dialogues_of(family, s.data)
        except Offline as error:
            left_out(run, ["T1"], why(error), column=family)
            continue
        chinese = family == "ECD"
        found = run.stage(f"count {family}", count, corpora=corpora, shortest=min_turns(family), characters=chinese)
        notes = {"words": "characters instead of words"} if chinese else {}
        part = "movie and taxi only" if family == "MDC" else "released sample only"
        _add_counts(run, "T1", family, {name: (n, notes.get(name, part)) for name, n in found.items() if n})
    if "JDDC" in s.corpora:
        every = [q for split in ("dev", "test") for q in released("JDDC", "select", s.data, split)]
        _add_counts(run, "T1", "JDDC", {"intents": (len({q.intent for q in every}), "those of its retrieval set")})
    left_out(run, ["T1"], "its dialogues need registration with their owner", column="JDDC")
    left_out(run, ["T1"], "the released files of ECD name no intents", model="intents", column="ECD")
    left_out(run, ["T1"], "not bundled: profile 'gpu'")
    return run.table("T1")


def sizes(run):
    """X1: the evaluation sets, ours beside those named in the text and those in the released files."""
    s = run.settings
    for name in ("JDDC", "ECD"):
        try:
            counts = {(kind, split): len(released(name, kind, s.data, split))
                      for kind in ("select", "sts") for split in ("test", "dev")}  # fmt: skip
        except Offline as error:
            left_out(run, ["X1"], why(error), column=name)
            continue
        about = {
            "semantic retrieval samples (approx.)": ("select", "test"),
            "sentence pairs (approx.)": ("sts", "test"),
        }
        about |= {f"released {split} {words}": (kind, split) for split in ("test", "dev")
                  for kind, words in (("select", "retrieval"), ("sts", "sentence pairs"))}  # fmt: skip
        _add_counts(run, "X1", name, {label: (counts[key], "") for label, key in about.items()})
    left_out(run, ["X1"], "human scores were never released", model="sentence pairs (approx.)", column="MDC")
    if "MDC" in s.corpora:
        rebuilt = len(evaluation_of(run, "MDC")["queries"])
        _add_counts(run, "X1", "MDC", {"semantic retrieval samples (approx.)": (rebuilt, INSTEAD["MDC"])})
    left_out(run, ["X1"], "never released", column="MDC")
    return run.table("X1")


def _add_counts(run, table: str, column: str, found: dict[str, tuple[int, str]]) -> None:
    rows = [{"model": name, "value": number, "n": number, "substitute": note} for name, (number, note) in found.items()]
    run.add(pd.DataFrame(rows), task="statistics", metric="count", column=column, table=table)


# --- models -----------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """Encoders by family (raw), by family and seed (adapted), by family, model and seed (matching), and all curves."""

    raw: dict[str, Encoder]
    adapted: dict[tuple[str, int], Encoder]
    models: dict[tuple[str, str, int], Encoder]
    curves: pd.DataFrame


def encoder_name(run, family: str) -> str:
    """How rows call the encoder that a family starts from."""
    return (run.settings.chinese_encoder or "mini-chinese") if family == "ECD" else run.settings.encoder


def contrast_settings(run, encoder: Encoder, seed: int) -> TrainingSettings:
    """The printed settings with the profile's changes; the lower half of the layers is frozen."""
    s = run.settings
    own = {name: s[name] for name in ("batch_size", "epochs", "max_steps", "learning_rate", "precision")}
    return scaled(CONTRAST, seed=seed, freeze=encoder.transformer.config.num_hidden_layers // 2, **own)


def train_all(run) -> Trained:
    """The encoders from scratch and adapted (stage one), then every matching model of T2 (stage two), for each seed."""
    s = run.settings
    raw = {family: load_encoder(s.encoder) for family in families(run) if family != "ECD"}
    jobs = _pretraining(run) | adaptation(run, raw)
    made = run.stage_each(jobs)
    if "ECD" in families(run):
        raw["ECD"] = made["pretrain a Chinese encoder"]["encoder"] if not s.chinese_encoder else \
            load_encoder(s.chinese_encoder)  # fmt: skip
        made |= run.stage_each(adaptation(run, {"ECD": raw["ECD"]}))
    adapted = {(f, seed): made[f"adapt to {f}, seed {seed}"]["encoder"] for f in raw for seed in s.train_seeds}
    wanted, jobs = [name for name in MODELS if name in s.models], {}
    for family in raw:
        for name in wanted:
            jobs |= matching_jobs(run, adapted, family, Matching(name), f"train {name}")
    trained = run.stage_each(jobs)
    models = {(f, name, seed): trained[f"train {name}, {f}, seed {seed}"]["encoder"]
              for f in raw for name in wanted for seed in s.train_seeds
              if f"train {name}, {f}, seed {seed}" in trained}  # fmt: skip
    for name in MODELS:
        if name not in wanted:
            left_out(run, ("T2", "F2", "F3", "X-geometry"), model=name)
    curves = [result["curve"].assign(model=name.removeprefix("train ")) for name, result in (made | trained).items()]
    return Trained(raw, adapted, models, pd.concat(curves, ignore_index=True))


def _pretraining(run) -> dict[str, Job]:
    """A character-level encoder from scratch, where the profile names no Chinese one."""
    s = run.settings
    if "ECD" not in families(run) or s.chinese_encoder:
        return {}
    changes = {"epochs": s.pretrain_epochs, "batch_size": s.pretrain_batch, "max_steps": s.pretrain_steps}
    recipe = PretrainingRecipe("mini", settings=scaled(pretraining_settings("mini"), seed=s.seed, **changes))
    inputs = {"corpora": text_of("ECD", s.data), "recipe": recipe, "name": "mini-chinese"}
    return {"pretrain a Chinese encoder": (pretrain_on, inputs)}


def adaptation(run, raw: dict[str, Encoder]) -> dict[str, Job]:
    """Stage one of every family and seed."""
    s, jobs = run.settings, {}
    own = {"epochs": s.adapt_epochs, "learning_rate": s.adapt_learning_rate, "batch_size": s.adapt_batch}
    own |= {"max_steps": s.adapt_steps, "precision": s.precision}
    for family, encoder in raw.items():
        shared = {"encoder": encoder, "corpora": text_of(family, s.data), "limit": s.sentences, "max_length": 50}
        shared |= {"head_steps": s.head_steps}
        for seed in s.train_seeds:
            settings = scaled(ADAPTATION, seed=seed, **own)
            jobs[f"adapt to {family}, seed {seed}"] = adapt, shared | {"settings": settings}
    return jobs


def matching_jobs(
    run, adapted: dict[tuple[str, int], Encoder], family: str, matching: Matching, name: str, function=train_matching,
    **more: Any,
) -> dict[str, Job]:  # fmt: skip
    """The stages that train one model of a family, a seed each; none where there are no dialogues, with the reason."""
    s = run.settings
    try:
        corpora = dialogues_of(family, s.data)
    except Offline as error:
        for column in _columns(FAMILIES[family]):
            left_out(run, ["T2"], why(error), model=matching.model, column=column)
        return {}
    matching = replace(matching, dialogues=matching.dialogues or s.dialogues, max_length=LENGTHS[family])
    shared = {"corpora": corpora, "matching": matching, "min_turns": min_turns(family)} | more
    return {
        f"{name}, {family}, seed {seed}": (function, shared | {
            "encoder": adapted[family, seed], "dev": development(family, s.data),
            "settings": contrast_settings(run, adapted[family, seed], seed)})
        for seed in s.train_seeds
    }  # fmt: skip


def first_curves(run, curves: pd.DataFrame) -> pd.DataFrame:
    """The loss curves of the matching models of the first seed, named by model and corpus."""
    end = f", seed {run.settings.train_seeds[0]}"
    own = curves[curves["model"].str.endswith(end) & curves["model"].str.startswith(tuple(MODELS))]
    return own.assign(model=own["model"].str.removesuffix(end))


def training_times(run, curves: pd.DataFrame) -> pd.DataFrame:
    """Time and memory of the matching models of the first seed; where steps were cut, what all of them would take."""
    end = f", seed {run.settings.train_seeds[0]}"
    own = first_curves(run, curves)
    return common.training_times(run, own.assign(model=own["model"] + end), lambda _: CONTRAST.epochs)


# --- tables -----------------------------------------------------------------------------------------------------------


def evaluate(run, trained: Trained) -> None:
    """T2: every row on every evaluation set; and what a random order gives."""
    s, jobs, rows = run.settings, {}, []
    tests = {name: evaluation_of(run, name) for name in s.corpora}
    for family, names in families(run).items():
        for name in names:
            for row, encoder, how, seed in _scored(run, trained, family):
                inputs = {"encoder": encoder, "how": how, "dataset": name, "seed": seed, **tests[name]}
                inputs |= {"flow_steps": s.flow_steps} if how == "flow" else {}
                jobs[f"score {row} on {name}, seed {seed}"] = score, inputs
    for name, found in run.stage_each(jobs).items():
        row, _, rest = name.removeprefix("score ").rpartition(" on ")
        dataset = rest.partition(",")[0]
        family = next(f for f, names in FAMILIES.items() if dataset in names)
        encoder = "none" if row in FLOORS else encoder_name(run, family)
        labels = {"model": row, "encoder": encoder, "substitute": instead(row, dataset)}
        repeats = s.train_seeds if row in _steady() else found["train_seed"].unique()
        rows += [found.assign(train_seed=seed, **labels) for seed in repeats]
    joined = pd.concat(rows, ignore_index=True)
    floors = joined[(joined["protocol"] == "floor") & (joined["model"] == "BERT-avg")]
    floors = floors.assign(model=CHANCE, protocol="paper", substitute="", encoder="none")
    run.add(pd.concat([joined[joined["protocol"] != "floor"], floors]), table="T2")
    _absent_columns(run)


def _scored(run, trained: Trained, family: str) -> Iterable[tuple[str, Encoder, str, int]]:
    """(row of T2, encoder, how its vectors are made, seed) of a family; a row that no seed changes comes once."""
    seeds = run.settings.train_seeds
    yield WORDS, trained.raw[family], WORDS, seeds[0]
    for row, (origin, how) in BASELINES.items():
        for seed in seeds[:1] if row in _steady() else seeds:
            yield row, trained.raw[family] if origin == "raw" else trained.adapted[family, seed], how, seed
    for (own, row, seed), encoder in trained.models.items():
        if own == family:
            yield row, encoder, "mean", seed


def _steady() -> list[str]:
    """Rows that are the same whatever the seed: nothing in them is trained."""
    return [WORDS, *(row for row, (origin, how) in BASELINES.items() if origin == "raw" and how != "flow")]


def instead(row: str, dataset: str) -> str:
    parts = [INSTEAD["words"]] if BASELINES.get(row, ("", ""))[1] == "words" else []
    if dataset == "MDC" or (dataset == "JDDC" and row in MODELS):
        parts.append(INSTEAD[dataset])
    return "; ".join(parts)


def _absent_columns(run) -> None:
    """Why columns of the results tables are empty."""
    corpora, reason = run.settings.corpora, not_in(run)
    absent = [name for name in ("MDC", "JDDC", "ECD") if name not in corpora]
    for column in _columns([name for name in absent if not (name == "MDC" and "SGD" in corpora)]):
        left_out(run, ["T2"], reason, column=column)
    for column in ("JDDC Corr", "ECD Corr"):
        left_out(run, ["T2"], "a random order correlates with nothing", model=CHANCE, column=column)


def _columns(corpora: Iterable[str]) -> list[str]:
    """The columns of T2 that belong to some corpora."""
    return [column for column in load_paper("dialoguecse").tables["T2"].columns if column.split()[0] in corpora]
