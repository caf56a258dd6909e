"""Cross-encoders as stages: post-training on a corpus, training with or without manipulations, scores, special tokens.

What is stored of a selector is its encoder and the weights of its heads; :func:`assemble` puts them together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb.data import Dataset
from dialnb.data.records import MatchingGroup, SelectionGroup, conversation_of
from dialnb.data.store import default_store
from dialnb.evaluation import geometry
from dialnb.evaluation.adversarial import build_adversarial, evaluate_adversarial, evaluate_adversarial_items
from dialnb.evaluation.floors import lexical_scorer
from dialnb.evaluation.metrics import pad_lists, ranked_labels, tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.evaluation.selection import ScoreOnce, Scorer, cosine_scorer, selection_rows
from dialnb.examples.manipulations import TASKS, Layout, bare_pieces, manipulation_examples
from dialnb.examples.posttraining import next_sentence_examples, replaced_token_examples
from dialnb.models.encoder import Encoder
from dialnb.models.selector import Selector
from dialnb.seeding import seeded
from dialnb.studies.training import thin
from dialnb.tokens import Tokens
from dialnb.training import TrainingResult, TrainingSettings, train
from dialnb.training.objectives import NextSentencePrediction
from dialnb.training.objectives_dialogue import ManipulationObjective
from dialnb.training.pretrain import replaced_token_detection

FINE_TUNING = TrainingSettings(batch_size=32, epochs=5, learning_rate=3e-5, schedule="linear", optimiser="adamw",
                               clip=5.0, precision="bfloat16")  # fmt: skip
POST_TRAINING = {
    "BERT": TrainingSettings(batch_size=384, epochs=20, learning_rate=3e-5, clip=5.0, precision="bfloat16"),
    "ELECTRA": TrainingSettings(batch_size=256, epochs=19, learning_rate=3e-5, clip=5.0, precision="bfloat16"),
}
"""As the authors' code has them: two epochs of ten maskings are twenty passes with fresh masks."""

Heads = dict[str, torch.Tensor]


# --- records ----------------------------------------------------------------------------------------------------------


def groups_of(parts: Sequence[Dataset], split: str, limit: int | None = None) -> list[SelectionGroup]:
    """The candidate lists of a split, ``limit`` of them drawn once.

    A sample without a test set keeps every third of its dialogues for looking at, and trains on the others. Rows of
    DialogueCSE (a true response and several others) join the training data as lists of one right and one wrong reply.
    """
    found: list[SelectionGroup] = []
    for number, part in enumerate(parts):
        if part.table.kind == "MatchingGroup":
            found += [_as_selection(f"{part.name}-{i}", row) for i, row in enumerate(part)] if split == "train" else []
        elif len(part.filter(split="test")):
            found += part.filter(split=split)
        elif number == 0 and split in ("train", "test"):
            rows = list(part.filter(split="train"))
            found += [row for i, row in enumerate(rows) if (i % 3 == 0) == (split == "test")]
    return thin(found, limit)


def _as_selection(name: str, row: MatchingGroup) -> SelectionGroup:
    true, wrong = row.labels.index(1), row.labels.index(0)
    return SelectionGroup(name, row.before, (row.candidates[true], row.candidates[wrong]), (1, 0), row.split)


# --- training ---------------------------------------------------------------------------------------------------------


def post_train(
    encoder: Encoder, kind: str, parts: list[Dataset], settings: TrainingSettings, limit: int | None, max_length: int,
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """The "+" of a model: language modelling goes on over the contexts of the corpus it will be trained on."""
    groups, selector = groups_of(parts, "train", limit), Selector(encoder, max_length, seed=settings.seed)
    own, cache = selector.encoder, default_store().tokens
    replaced = kind == "ELECTRA"
    examples = (replaced_token_examples if replaced else next_sentence_examples)(own, groups, max_length, cache)
    with seeded(settings.seed):
        objective = replaced_token_detection(own) if replaced else NextSentencePrediction(own)
    result = train(own, objective, examples, settings, folder, name=f"{kind}+")
    own.name = f"{kind}+"
    return {"encoder": own.eval(), "curve": result.curve, "training": result}


def train_selector(
    name: str, encoder: Encoder, parts: list[Dataset], settings: TrainingSettings, tasks: tuple[str, ...],
    protocol: str, limit: int | None, max_length: int, dev: int | None, probe: int | None, seeds: tuple[int, ...],
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """A selector (without ``tasks``: plain response selection), its curve, and its scores after every epoch.

    With ``dev`` the epoch that finds most responses in so many validation lists is kept, else the last one. With
    ``probe`` so many test lists are scored after every epoch, original and adversarial.
    """
    selector = Selector(encoder, max_length, seed=settings.seed)
    examples = manipulation_examples(
        selector.encoder,
        groups_of(parts, "train", limit),
        max_length,
        default_store().tokens,
        tasks=tasks,
        protocol=protocol,
    )
    validation, asked = (groups_of(parts, *part) if part[1] else [] for part in (("dev", dev), ("test", probe)))
    best, found = folder / "best", folder / "epochs.csv"

    def after(epoch: int, _: object) -> None:
        before = pd.read_csv(found) if found.is_file() else pd.DataFrame({"epoch": []})
        before, rows = before[before["epoch"] < epoch], []
        if validation:
            right = _first_is_right(selector.score(validation), validation).mean()
            rows = tidy_rows({"validation": right}, task="validation", dataset="", protocol="paper", n=len(validation))
            earlier = before.loc[before["metric"] == "validation", "value"] if len(before) else before["epoch"]
            if not (earlier >= right).any():
                selector.save(best)
        scored = evaluate_adversarial(ScoreOnce(selector.score), asked, dataset="", seeds=seeds) if asked else None
        now = pd.concat([tidy_frame(rows), scored]) if rows or asked else None
        if now is not None:
            pd.concat([before, now.assign(epoch=epoch)], ignore_index=True).to_csv(found, index=False)

    watched = after if validation or asked else None
    objective = ManipulationObjective(selector.heads, tasks)
    result = train(selector.encoder, objective, examples, settings, folder, on_epoch=watched, name=name)
    chosen = Selector.load(best, selector.encoder.device) if best.is_dir() else selector
    epochs = pd.read_csv(found) if found.is_file() else pd.DataFrame()
    return kept(chosen, name, result) | {"epochs": epochs}


def kept(selector: Selector, name: str, result: TrainingResult) -> dict[str, Any]:
    """What a stage keeps of a trained selector; `assemble` makes one of it again."""
    selector.encoder.name = name
    heads = {key: value.detach().cpu() for key, value in selector.heads.state_dict().items()}
    return {"encoder": selector.encoder.eval(), "heads": heads, "curve": result.curve, "training": result}


def _first_is_right(scores: Sequence[Sequence[float]], groups: Sequence[SelectionGroup]) -> np.ndarray:
    """Of each list: the share of its right responses that ranks first, ties against it."""
    sizes = [len(group.labels) for group in groups]
    labels = pad_lists(np.concatenate([group.labels for group in groups]), sizes, 0)
    matrix = pad_lists(np.concatenate([np.asarray(row, np.float64) for row in scores]), sizes, -np.inf)
    return ranked_labels(matrix, labels)[:, 0] / np.maximum(labels.sum(1), 1)


def assemble(encoder: Encoder, heads: Heads, max_length: int) -> Selector:
    """The selector whose parts a stage has stored."""
    selector = Selector(encoder, max_length)
    selector.heads.load_state_dict(heads)
    return selector.eval()


# --- scores -----------------------------------------------------------------------------------------------------------


def answer(
    encoder: Encoder, heads: Heads | None, max_length: int, parts: list[Dataset], dataset: str, groups: int | None,
    seeds: tuple[int, ...], kinds: tuple[str, ...],
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """All a model is asked on one test set: ``selection`` rows and, with ``seeds``, ``adversarial`` ones of each kind
    of adversary (kinds beyond the first are drawn once); ``items`` of both, with the conversation of each as its
    ``group``; the ``scores`` of every list's right response and adversary. Without heads, a sentence encoder answers by
    cosine.
    """
    asked = groups_of(parts, "test", groups)
    plain: Scorer = cosine_scorer(encoder, max_length) if heads is None else assemble(encoder, heads, max_length).score
    return _answers(plain, asked, dataset, seeds, kinds)


def answer_by_words(
    encoder: Encoder,
    max_length: int,
    parts: list[Dataset],
    dataset: str,
    groups: int | None,
    seeds: tuple[int, ...],
    kinds: tuple[str, ...],
) -> dict[str, pd.DataFrame]:
    """The same of TF-IDF, on the text that a cross-encoder with these word pieces sees: the floor of every model."""
    asked = groups_of(parts, "test", groups)
    return _answers(lexical_scorer(encoder, asked, max_length), asked, dataset, seeds, kinds)


def _answers(
    plain: Scorer, asked: Sequence[SelectionGroup], dataset: str, seeds: tuple[int, ...], kinds: tuple[str, ...]
) -> dict[str, pd.DataFrame]:
    scorer = ScoreOnce(plain)
    scores = scorer(asked)
    found = {"selection": selection_rows(scores, [g.labels for g in asked], dataset=dataset)}
    talks = [conversation_of(group) for group in asked]
    right = pd.DataFrame({"metric": "R10@1", "item": range(len(asked)), "value": _first_is_right(scores, asked)})
    right = right[[any(g.labels) for g in asked]]
    items = [right.assign(task="response selection", protocol="paper", dataset=dataset)]
    rows = []
    for number, kind in enumerate(kinds if seeds else ()):
        drawn = seeds if number == 0 else seeds[:1]
        made = evaluate_adversarial_items(scorer, asked, dataset=dataset, seeds=drawn, kind=kind)
        rows.append(made[0])
        items += [made[1]] if number == 0 else []
    found["adversarial"] = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
    found["scores"] = _right_and_adversary(scorer, asked, seeds[0]) if seeds else pd.DataFrame()
    joined = pd.concat(items, ignore_index=True)
    return found | {"items": joined.assign(group=[talks[item] for item in joined["item"]])}


def _right_and_adversary(scorer: Scorer, asked: Sequence[SelectionGroup], seed: int) -> pd.DataFrame:
    """Scores of the right response and of the adversarial candidate of each dialogue, and which utterance that is."""
    made = build_adversarial(asked, seed)
    rows = [
        {"item": entry.dialogue, "utterance": entry.utterance, "response": row[group.labels.index(1)],
         "adversary": row[entry.candidate]}
        for entry, group, row in zip(made.index, made.groups, scorer(made.groups), strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


# --- spaces -----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def mark_vectors(selector: Selector, groups: Sequence[SelectionGroup], seed: int = 24) -> dict[str, tuple]:
    """Last-layer vectors [m, d] of the special tokens of each task, and which of them is the right one.

    Test dialogues become auxiliary inputs by the paper's windows, drawn once by ``seed``.
    """
    examples = manipulation_examples(selector.encoder, groups, selector.max_length, protocol="paper")
    rng, rows = np.random.default_rng(seed), np.flatnonzero(examples.labels == 1)
    made: dict[str, list] = {task: [] for task in TASKS}
    for drawn in (manipulation for row in rows for manipulation in examples.draw(int(row), rng)):
        numbers = drawn.context if drawn.second is None else [*drawn.context, drawn.second]
        written = examples.layout.manipulation(drawn, [examples.pieces[i] for i in numbers])
        if written is not None:
            made[drawn.task].append(written)
    found = {}
    for task, inputs in made.items():
        vectors, right = [], []
        for start in range(0, len(inputs), 64):
            part = inputs[start : start + 64]
            states, packed = selector.encoder.hidden(Tokens.from_lists([i.ids for i in part], [i.types for i in part]))
            for number, one in enumerate(part):
                at = torch.as_tensor(one.marks, device=states.device)
                vectors.append(states[packed.places(torch.full_like(at, number), at)].float().cpu().numpy())
                right += [place == one.target for place in range(len(one.marks))]
        found[task] = np.concatenate(vectors), np.array(right)
    return found


def project_marks(
    encoder: Encoder, heads: Heads, max_length: int, parts: list[Dataset], dataset: str, dialogues: int, method: str,
    seed: int,
) -> pd.DataFrame:  # fmt: skip
    """F4: the special tokens of test dialogues in a plane, the right one of each input apart from the others."""
    selector, groups = assemble(encoder, heads, max_length), groups_of(parts, "test", dialogues)
    planes = []
    for task, (vectors, right) in mark_vectors(selector, groups).items():
        labels = np.where(right, "target", "other")
        plane = project(vectors, method, seed=seed).assign(task=task, corpus=dataset, label=labels)
        planes.append(plane.sort_values("label", kind="stable"))  # the others first, so that targets lie on top
    return pd.concat(planes, ignore_index=True)


@torch.inference_mode()
def geometry_of(
    encoder: Encoder, heads: Heads, max_length: int, parts: list[Dataset], dataset: str, groups: int
) -> pd.DataFrame:
    """Uniformity of the [CLS] vectors of test inputs, and alignment of those with equal label (right or wrong)."""
    selector, asked = assemble(encoder, heads, max_length), groups_of(parts, "test", groups)
    texts = list(dict.fromkeys(text for group in asked for text in (*group.context, *group.candidates)))
    pieces = dict(zip(texts, bare_pieces(selector.encoder, texts)))
    layout = Layout.of(selector.encoder, selector.max_length)
    inputs = [layout.selection([pieces[u] for u in g.context], pieces[c]) for g in asked for c in g.candidates]
    labels = [label for group in asked for label in group.labels]
    vectors = [
        selector.encoder.embed(Tokens.from_lists([i.ids for i in part], [i.types for i in part]), "cls").float().cpu()
        for part in (inputs[start : start + 64] for start in range(0, len(inputs), 64))
    ]
    matrix = torch.cat(vectors).numpy()
    values = {"uniformity": geometry.uniformity(matrix), "alignment": geometry.alignment(matrix, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(matrix)))
