"""The models of UMS: eight selectors by their printed names, the subsets of T5, and the encoders they start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.examples.manipulations import TASKS
from dialnb.examples.readings import Sentences
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.runs.grid import make_encoder
from dialnb.studies import common
from dialnb.studies.common import left_out
from dialnb.studies.selectors import FINE_TUNING, POST_TRAINING, post_train, train_selector
from dialnb.studies.sentence_encoders import ENGLISH, sentence_steps
from dialnb.studies.training import Job, Step, in_order, pretraining
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import SHAPES, PretrainingRecipe, has_shape, pretraining_settings
from dialnb.training.recipes import scaled

MODELS = ("BERT", "ELECTRA", "UMS_BERT", "UMS_ELECTRA", "BERT+", "ELECTRA+", "UMS_BERT+", "UMS_ELECTRA+")
SHORT = {"INS": "insertion", "DEL": "deletion", "SRCH": "search"}
SUBSETS = tuple(row.labels["model"] for row in load_paper("ums").tables["T5"].rows)
"""The rows of T5: "None", "INS", ... "INS + DEL + SRCH"."""

WINDOWS = "UMS_BERT, windows as in the code"
CHINESE = ("Douban", "E-commerce")
CHINESE_TEXT = (
    ("DialogueCSE", "ecd-sessions", None), ("E-commerce", "sessions", "train"), ("Douban", "copies", "train"),
    ("DialogueCSE", "ecd-select", None), ("DialogueCSE", "jddc-select", None),
)  # fmt: skip
"""What a Chinese encoder from scratch reads: dialogues and sentences of customer service, no dialogue of a test set."""


class Trained(NamedTuple):
    """What every training stage gave, by (corpus, model); the loss curves on Ubuntu; the names of the encoders; and the
    sentence encoders of the other papers, the raw one first."""

    models: dict[tuple[str, str], dict[str, Any]]
    curves: pd.DataFrame
    names: dict[tuple[str, str], str]
    sentence: dict[str, Encoder]


def parse(model: str) -> tuple[str, bool, tuple[str, ...]]:
    """Encoder, post-training and auxiliary tasks of a printed model.

    >>> parse("UMS_ELECTRA+")
    ('ELECTRA', True, ('insertion', 'deletion', 'search'))
    """
    plain = model.removeprefix("UMS_")
    return plain.removesuffix("+"), plain.endswith("+"), TASKS if plain != model else ()


def tasks_of(subset: str) -> tuple[str, ...]:
    """The auxiliary tasks of a row of T5."""
    return () if subset == "None" else tuple(SHORT[part] for part in subset.split(" + "))


def fine_tuning(s: Mapping[str, Any], corpus: str) -> TrainingSettings:
    """Printed settings with the profile's changes; samples of a corpus are small and get more epochs."""
    names = ("batch_size", "learning_rate", "head_learning_rate", "max_steps", "precision", "chunk")
    epochs = s["sample_epochs"] if corpus in CHINESE else s["epochs"]
    return scaled(FINE_TUNING, seed=s["seed"], epochs=epochs, **{name: s[name] for name in names})


def post_training(s: Mapping[str, Any], kind: str) -> TrainingSettings:
    """The same for the "+" models."""
    own = {"batch_size": s["post_batch"], "epochs": s["post_epochs"], "learning_rate": s["post_rate"]}
    return scaled(POST_TRAINING[kind], seed=s["seed"], precision=s["precision"], max_steps=s["max_steps"], **own)


def train_all(run, sets: Mapping[str, list[Dataset]]) -> Trained:
    """Encoders, post-training, and every selector that the profile asks for."""
    s = run.settings
    known, steps, names = _encoders(run, sets)
    wanted = {
        (corpus, model): parse(model)
        for corpus, parts in sets.items()
        for model in MODELS
        if model in s.models and (has_lists(parts) or model == "UMS_BERT+")
    }
    for subset in s.subsets:
        wanted["Ubuntu", subset] = (*parse(s.ablation)[:2], tasks_of(subset))
    if s.code_windows:
        wanted["Ubuntu", WINDOWS] = ("BERT", False, TASKS)
    steps += [_post(s, sets, corpus, kind) for corpus, kind in
              dict.fromkeys((corpus, kind) for (corpus, _), (kind, plus, _) in wanted.items() if plus)]  # fmt: skip
    for (corpus, model), (kind, plus, tasks) in wanted.items():
        source = (corpus, f"{kind}+") if plus else (language(corpus), kind)
        steps.append(Step(_named(corpus, model), source, _selector_job(s, sets[corpus], corpus, model, tasks)))
    others, places = sentence_steps(run, known[ENGLISH])
    made = in_order(run, known, others + steps)
    models = {place: made[_named(*place)] for place in wanted if _named(*place) in made}
    for model in MODELS:
        if ("Ubuntu", model) not in models:
            missing = parse(model)[0] == "ELECTRA" and not s.electra
            reason = "needs an ELECTRA encoder, which is made in the 'gpu' profile" if missing else ""
            left_out(run, ["T2", "T4", *(["X-epochs"] if s.probe else [])], reason, model=model)
    if not s.subsets:
        left_out(run, ["T5"])
    curves = {model: made[_named("Ubuntu", model)]["curve"] for model in s.models if ("Ubuntu", model) in models}
    joined = pd.concat([curve.assign(model=model) for model, curve in curves.items()], ignore_index=True)
    sentence = {"raw": known[ENGLISH]} | {method: made[name]["encoder"] for method, name in places.items()}
    return Trained(models, joined, names, sentence)


def has_lists(parts: list[Dataset]) -> bool:
    """Has the corpus lists of candidates to test with? The sample of Douban has none."""
    return bool(len(parts[0].filter(split="test")))


def _named(corpus: str, model: str) -> str:
    return f"train {model}" if corpus == "Ubuntu" else f"train {model} on {corpus}"


def language(corpus: str) -> str:
    """The language whose encoders read a corpus."""
    return "Chinese" if corpus in CHINESE else "English"


def _encoders(run, sets: Mapping[str, list[Dataset]]) -> tuple[dict, list[Step], dict[tuple[str, str], str]]:
    """Encoders that are there, steps that make the others, and what each is called in the results.

    An ELECTRA of the shape of the run's own encoder starts from its weights: one from scratch, in the steps that a run
    of minutes has, stays at chance in response selection.
    """
    s = run.settings
    known, steps = {ENGLISH: load_encoder(s.encoder)}, []
    chosen = {ENGLISH: s.encoder, ("English", "ELECTRA"): s.electra}
    if set(CHINESE) & set(sets):
        chosen |= {("Chinese", "BERT"): s.chinese, ("Chinese", "ELECTRA"): s.chinese_electra}
    for place, name in chosen.items():
        language, kind = place
        if place == ENGLISH or not name:
            continue
        if name not in SHAPES:
            known[place] = load_encoder(name)
            continue
        warm = language == "English" and has_shape(known[ENGLISH].transformer, name)
        chosen[place] = f"{language} {kind} ({f'from {known[ENGLISH].name}' if warm else f'{name}, from scratch'})"
        if language == "English":
            job = pretraining(name, known[ENGLISH], common.corpus(run), s.pretrain_epochs, s.dialogues,
                              s.pretrain_steps, s.seed, "electra", warm)  # fmt: skip
        else:
            texts = [load(*part) for part in CHINESE_TEXT]
            settings = scaled(pretraining_settings(name), epochs=s.chinese_epochs, batch_size=256, seed=s.seed)
            recipe = PretrainingRecipe(name, "bert" if kind == "BERT" else "electra", settings=settings)
            given = {"recipe": recipe, "encoder": None, "data": Sentences(texts), "warm": False}
            job = make_encoder, given | {"name": f"Chinese {name}"}
        steps.append(Step(f"pretrain {language} {kind}", ENGLISH, lambda _, job=job: job, place))
    return known, steps, chosen


def _post(s, sets: Mapping[str, list[Dataset]], corpus: str, kind: str) -> Step:
    inputs = {"kind": kind, "parts": sets[corpus], "settings": post_training(s, kind), "limit": s.train_groups,
              "max_length": s.max_length}  # fmt: skip
    where = "" if corpus == "Ubuntu" else f" on {corpus}"
    return Step(f"post-train {kind}{where}", (language(corpus), kind),
                lambda encoder: (post_train, {"encoder": encoder, **inputs}), (corpus, f"{kind}+"))  # fmt: skip


def _selector_job(s, parts: list[Dataset], corpus: str, model: str, tasks: tuple[str, ...]) -> Callable[[Encoder], Job]:
    curve = corpus == "Ubuntu" and model in MODELS
    inputs = {
        "name": model, "parts": parts, "settings": fine_tuning(s, corpus), "tasks": tasks,
        "protocol": "code" if model == WINDOWS else "paper", "limit": s.train_groups, "max_length": s.max_length,
        "dev": s.dev_groups if corpus == "Ubuntu" else None, "probe": s.probe if curve else None,
        "seeds": s.adversarial_seeds,
    }  # fmt: skip
    return lambda encoder: (train_selector, {"encoder": encoder, **inputs})
