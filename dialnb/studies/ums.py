"""What belongs to UMS alone (Utterance Manipulation Strategies for Multi-turn Response Selection): its models in a
profile, what a selector is asked, the special tokens, the drawings. Models, tasks and figures are in its notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb import losses
from dialnb.claims.papers import load_paper
from dialnb.data import Dataset, load
from dialnb.data.records import SelectionGroup, conversation_of
from dialnb.errors import DataError
from dialnb.evaluation import geometry
from dialnb.evaluation.adversarial import build_adversarial, evaluate_adversarial, evaluate_adversarial_items
from dialnb.evaluation.floors import Lexical, chance_rows, lexical_scorer
from dialnb.evaluation.metrics import pad_lists, ranked_labels, tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.evaluation.selection import ScoreOnce, Scorer, cosine_scorer, selection_rows
from dialnb.examples.manipulations import (
    MARKS,
    TASKS,
    Layout,
    Manipulation,
    bare_pieces,
    deletion,
    insertion,
    manipulation_examples,
    search,
)
from dialnb.examples.readings import Lists
from dialnb.models.encoder import Encoder
from dialnb.models.selector import Selector
from dialnb.runs.grid import Model, Watch
from dialnb.tokens import Tokens
from dialnb.training.pretrain import PretrainingRecipe, has_shape, pretraining_settings

MODELS = ("BERT", "ELECTRA", "UMS_BERT", "UMS_ELECTRA", "BERT+", "ELECTRA+", "UMS_BERT+", "UMS_ELECTRA+")
SHORT = {"INS": "insertion", "DEL": "deletion", "SRCH": "search"}
WINDOWS = "UMS_BERT, windows as in the code"
CHINESE = ("Douban", "E-commerce")
CHINESE_TEXT = (
    ("DialogueCSE", "ecd-sessions", None),
    ("E-commerce", "sessions", "train"),
    ("Douban", "copies", "train"),
    ("DialogueCSE", "ecd-select", None),
    ("DialogueCSE", "jddc-select", None),
)
"""What a Chinese encoder from scratch reads: dialogues and sentences of customer service, no dialogue of a test set."""

SENTENCES = 128
"""Tokens of a dialogue that a sentence encoder reads as one text."""

RIGHT, ADVERSARY = "true response", "adversarial candidate (said before)"


# --- models -----------------------------------------------------------------------------------------------------------


def tasks_of(subset: str) -> tuple[str, ...]:
    """The auxiliary tasks of a row of T5.

    >>> tasks_of("INS + SRCH"), tasks_of("None")
    (('insertion', 'search'), ())
    """
    return () if subset == "None" else tuple(SHORT[part] for part in subset.split(" + "))


def from_scratch(shape: str, kind: str, s: Mapping[str, Any], data: Any, start: Encoder | None = None) -> Model:
    """An encoder that is pretrained here: with the words of ``start`` and, where it has that shape, from its weights at
    half the rate, since one from scratch stays at chance in the steps that a run of minutes has; without ``start`` a
    Chinese one with words of its own."""
    usual = pretraining_settings(shape)
    warm = start is not None and has_shape(start.transformer, shape)
    if start is None:
        settings = {"epochs": s["chinese_epochs"], "batch_size": 256}
        options = {"vocabulary": False, "name": f"Chinese {shape}"}
    else:
        settings = {"epochs": s["pretrain_epochs"], "max_steps": s["pretrain_steps"]}
        settings["learning_rate"] = usual.learning_rate * (0.5 if warm else 1)
        options = {"warm": warm, "name": shape}
    language = "Chinese" if start is None else "English"
    made = f"from {start.name}" if warm else f"{shape}, from scratch"
    label = {"encoder": f"{language} {kind} ({made})"}
    return Model(PretrainingRecipe(shape, kind.lower(), settings=usual), "", data, settings, options, labels=label)


def post_training(kind: str, s: Mapping[str, Any], lists: Lists, start: str) -> Model:
    """The "+" of a model: language modelling goes on over the contexts of the corpus it will be trained on."""
    recipe = "replaced tokens" if kind == "ELECTRA" else "next sentences"
    settings = {"batch_size": s["post_batch"], "epochs": s["post_epochs"], "learning_rate": s["post_rate"]}
    return Model(recipe, start, lists, settings | {"chunk": None}, {"max_length": s["max_length"]})


def model(s: Mapping[str, Any], lists: Lists, tasks: Sequence[str], corpus: str = "Ubuntu", **changes: Any) -> Model:
    """A selector as UMS' notebook trains it in a profile; samples of a corpus are small and get more epochs.

    Where the profile has validation lists the epoch that finds most responses in them is kept, else the last one; with
    a ``probe`` so many test lists are scored after every epoch, original and adversarial.
    """
    settings = {name: s[name] for name in ("learning_rate", "head_learning_rate")}
    settings["epochs"] = s["sample_epochs"] if corpus in CHINESE else s["epochs"]
    options = {"max_length": s["max_length"], "tasks": tuple(tasks), "protocol": "paper"} | changes.pop("options", {})
    looked = changes.pop("probe", None)
    inputs: dict[str, Any] = {"seeds": s["adversarial_seeds"]}
    if corpus == "Ubuntu" and s["dev_groups"]:
        inputs["validation"] = Lists(lists.parts, s["dev_groups"], "dev")
    if looked:
        inputs["asked"] = Lists(lists.parts, looked, "test")
    watch = Watch(score_epoch, inputs, best="validation") if len(inputs) > 1 else None
    return Model("UMS", data=lists, settings=settings, options=options, watch=watch, **changes)


def score_epoch(
    model: Selector, seeds: Sequence[int], validation: Lists | None = None, asked: Lists | None = None
) -> pd.DataFrame:
    """Score a selector during its training: the share of validation lists it gets right, and the adversarial test."""
    rows = []
    if validation:
        groups = validation.read()
        right = first_is_right(model.score(groups), groups).mean()
        labels = {"task": "validation", "dataset": "", "protocol": "paper", "n": len(groups)}
        rows.append(tidy_frame(tidy_rows({"validation": right}, **labels)))
    if asked:
        rows.append(evaluate_adversarial(ScoreOnce(model.score), asked.read(), dataset="", seeds=seeds))
    return pd.concat(rows, ignore_index=True)


# --- data -------------------------------------------------------------------------------------------------------------


def has_lists(parts: Sequence[Dataset]) -> bool:
    """Has the corpus lists of candidates to test with? The sample of Douban has none."""
    return bool(len(parts[0].filter(split="test")))


def label(parts: Sequence[Dataset]) -> str:
    """The dataset's name in the results."""
    return parts[0].name.removeprefix("bundled/")


def statistics(groups: Iterable[SelectionGroup]) -> dict[str, float]:
    """T1 of one split: rows, negatives for each positive, utterances of a context."""
    sizes = [(len(g.labels), sum(g.labels), len(g.context)) for g in groups]
    pairs, positive = sum(n for n, _, _ in sizes), sum(p for _, p, _ in sizes)
    turns = sum(n * turns for n, _, turns in sizes) / max(1, pairs)
    return {"pairs": pairs, "pos:neg": (pairs - positive) / max(1, positive), "average turns": round(turns, 2)}


def count_rows(sets: Mapping[str, list[Dataset]]) -> pd.DataFrame:
    """T1: of "pos:neg" ours is how many negatives there are for a positive."""
    rows = []
    for corpus, parts in sets.items():
        whole = parts[0].variant == "official" or parts[0].name == "Ubuntu-V1"
        instead = "" if whole else f"{label(parts)}: a sample" if corpus in CHINESE else "Ubuntu IRC conversations"
        for split, shown in (("train", "train"), ("dev", "val"), ("test", "test")):
            groups = list(parts[0].filter(split=split))
            counts = {"column": f"{corpus} {shown}", "n": len(groups), "substitute": instead}
            for name, value in statistics(groups).items() if groups else ():
                rows.append({"model": name, "value": value, **counts})
    return pd.DataFrame(rows).assign(task="statistics", metric="count", table="T1")


def adversarial_index(parts: Sequence[Dataset], limit: int | None, seeds: Sequence[int]) -> pd.DataFrame:
    """Which candidate of which dialogue became which utterance, for every seed; ``attrs`` say what was left out."""
    asked, frames, left_out = Lists(parts, limit, "test").read(), [], {}
    for seed in seeds:
        made = build_adversarial(asked, seed)
        frames.append(made.frame().assign(seed=seed, id=[asked[entry.dialogue].id for entry in made.index]))
        left_out[str(seed)] = made.left_out
    table = pd.concat(frames, ignore_index=True)
    table.attrs["left_out"] = left_out
    return table


# --- scores -----------------------------------------------------------------------------------------------------------


def answer_of(
    encoder: Selector | Encoder | Lexical, records: Sequence[Dataset], dataset: str, groups: int | None,
    seeds: Sequence[int], kinds: Sequence[str], max_length: int,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """All a model is asked on one test set: ``rows`` of response selection and, with ``seeds``, of the adversarial test
    with each kind of adversary (kinds beyond the first are drawn once); ``items`` of both, with the conversation of
    each as its ``group``; the ``scores`` of every list's right response and adversary.

    A sentence encoder answers by cosine; a `Lexical` by TF-IDF, on the text that a cross-encoder sees.
    """
    asked = Lists(records, groups, "test").read()
    match encoder:
        case Selector():
            scorer: Scorer = encoder.score
        case Lexical():
            scorer = lexical_scorer(encoder.encoder, asked, max_length)
        case _:
            scorer = cosine_scorer(encoder, SENTENCES)
    return answers_by(scorer, asked, dataset, seeds, kinds)


def answers_by(
    scorer: Scorer,
    asked: Sequence[SelectionGroup],
    dataset: str,
    seeds: Sequence[int] = (),
    kinds: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """What a way of scoring candidates answers; see `answer_of`."""
    once = ScoreOnce(scorer)
    scores = once(asked)
    talks = [conversation_of(group) for group in asked]
    right = pd.DataFrame({"metric": "R10@1", "item": range(len(asked)), "value": first_is_right(scores, asked)})
    right = right[[any(group.labels) for group in asked]]
    items = [right.assign(task="response selection", protocol="paper", dataset=dataset)]
    rows = [selection_rows(scores, [group.labels for group in asked], dataset=dataset)]
    for number, kind in enumerate(kinds if seeds else ()):
        drawn_by = seeds if number == 0 else seeds[:1]
        found, each = evaluate_adversarial_items(once, asked, dataset=dataset, seeds=drawn_by, kind=kind)
        rows.append(found)
        items += [each] if number == 0 else []
    joined = pd.concat(items, ignore_index=True)
    joined = joined.assign(group=[talks[item] for item in joined["item"]])
    pairs = right_and_adversary(once, asked, seeds[0]) if seeds else pd.DataFrame()
    return {"rows": pd.concat(rows, ignore_index=True), "items": joined, "scores": pairs}


def first_is_right(scores: Sequence[Sequence[float]], groups: Sequence[SelectionGroup]) -> np.ndarray:
    """Of each list: the share of its right responses that ranks first, ties against it."""
    sizes = [len(group.labels) for group in groups]
    labels = pad_lists(np.concatenate([group.labels for group in groups]), sizes, 0)
    matrix = pad_lists(np.concatenate([np.asarray(row, np.float64) for row in scores]), sizes, -np.inf)
    return ranked_labels(matrix, labels)[:, 0] / np.maximum(labels.sum(1), 1)


def right_and_adversary(scorer: Scorer, asked: Sequence[SelectionGroup], seed: int) -> pd.DataFrame:
    """Scores of the right response and of the adversarial candidate of each dialogue, and which utterance that is."""
    made = build_adversarial(asked, seed)
    rows = [
        {"item": entry.dialogue, "utterance": entry.utterance, "response": row[group.labels.index(1)],
         "adversary": row[entry.candidate]}
        for entry, group, row in zip(made.index, made.groups, scorer(made.groups), strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def tables_of(model: str, s: Mapping[str, Any], corpus: str = "Ubuntu") -> dict[str, str]:
    """The tables that a model's rows belong to, and its name there; T5 takes none and all tasks from the models."""
    tables = {"T2": model} if model in MODELS else {}
    if corpus != "Ubuntu":
        return tables
    if model in MODELS:
        tables |= {"T4": model, "X-adversaries": model}
    if model in ("BERT", "UMS_BERT", WINDOWS):
        tables["X-windows"] = model
    if s["subsets"]:
        subsets = [row.labels["model"] for row in load_paper("ums").tables["T5"].rows]
        twins = {s["ablation"]: subsets[0], f"UMS_{s['ablation']}": subsets[-1]} | {
            name: name for name in subsets[1:-1]
        }
        tables |= {"T5": twins[model]} if model in twins else {}
    return tables


def rows_for(table: str, rows: pd.DataFrame) -> pd.DataFrame:
    """What of a model's rows a table takes."""
    selection = rows["task"].eq("response selection")
    if table in ("T2", "T5"):
        return rows[selection].dropna(axis="columns", how="all")
    if "adversary" not in rows:
        return rows.iloc[:0]
    random, paper = rows["adversary"].eq("random"), rows["protocol"].eq("paper")
    chosen = {
        "T4": ~selection & random,
        "X-adversaries": ~selection & paper,
        "X-encoders": ~selection,
        "X-windows": (selection | random) & paper,
    }
    return rows[chosen[table]]


def keep_answer(run, answer, corpus: str = "Ubuntu") -> None:
    """Put the rows and items of one answer into every table that they belong to."""
    model, s = answer.rows["model"].iloc[0], run.settings
    floor = model == "TF-IDF"
    tables = tables_of(model, s, corpus) if not floor else dict.fromkeys(("T2", "T4", "X-adversaries"), model)
    tables |= {"T5": model} if floor and s["subsets"] else {}
    for table, name in tables.items():
        rows = rows_for(table, answer.rows).assign(model=name, table=table)
        task = "response selection" if table in ("T2", "T5") else "adversarial selection"
        items = answer.more["items"]
        items = items[items["task"] == task].assign(model=name, table=table)
        if table in ("X-windows", "X-adversaries") and not floor:
            items = items.iloc[:0]
        if floor:
            rows, items = (pd.concat([part, chance_rows(part)], ignore_index=True) for part in (rows, items))
            rows = rows.assign(encoder="none")
        if len(rows):
            run.add(rows)
        if len(items):
            run.add_items(items)


# --- special tokens ---------------------------------------------------------------------------------------------------


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
    encoder: Selector, records: Sequence[Dataset], dataset: str, dialogues: int, method: str, seed: int
) -> pd.DataFrame:
    """F4: the special tokens of test dialogues in a plane, the right one of each input apart from the others."""
    planes = []
    for task, (vectors, right) in mark_vectors(encoder, Lists(records, dialogues, "test").read()).items():
        labels = np.where(right, "target", "other")
        plane = project(vectors, method, seed=seed).assign(task=task, corpus=dataset, label=labels)
        planes.append(plane.sort_values("label", kind="stable"))  # the others first, so that targets lie on top
    return pd.concat(planes, ignore_index=True)


@torch.inference_mode()
def geometry_of(encoder: Selector, records: Sequence[Dataset], dataset: str, groups: int) -> pd.DataFrame:
    """Uniformity of the [CLS] vectors of test inputs, and alignment of those with equal label (right or wrong)."""
    asked = Lists(records, groups, "test").read()
    texts = list(dict.fromkeys(text for group in asked for text in (*group.context, *group.candidates)))
    pieces = dict(zip(texts, bare_pieces(encoder.encoder, texts)))
    layout = Layout.of(encoder.encoder, encoder.max_length)
    inputs, labels = [], []
    for group in asked:
        context = [pieces[said] for said in group.context]
        inputs += [layout.selection(context, pieces[candidate]) for candidate in group.candidates]
        labels += group.labels
    vectors = []
    for start in range(0, len(inputs), 64):
        part = inputs[start : start + 64]
        tokens = Tokens.from_lists([each.ids for each in part], [each.types for each in part])
        vectors.append(encoder.encoder.embed(tokens, "cls").float().cpu())
    matrix = torch.cat(vectors).numpy()
    values = {"uniformity": geometry.uniformity(matrix), "alignment": geometry.alignment(matrix, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(matrix)))


# --- drawings ---------------------------------------------------------------------------------------------------------


def first_fooled(plain: pd.DataFrame, trained: pd.DataFrame) -> tuple[int, bool]:
    """The first dialogue where the plain model prefers the adversary and the other does not; if there is none, the one
    where the other gains most. And whether it was found by the first rule."""
    both = plain.merge(trained, on=["item", "utterance"], suffixes=("_plain", "_ums"))
    fooled = both[both["adversary_plain"] > both["response_plain"]]
    found = fooled[fooled["response_ums"] > fooled["adversary_ums"]]
    if len(found):
        return int(found["item"].iloc[0]), True
    gain = both["response_ums"] - both["adversary_ums"] - both["response_plain"] + both["adversary_plain"]
    return int(both["item"].iloc[int(gain.argmax())]), False


def example_rows(group: SelectionGroup, item: int, scores: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """F1: the end of a test dialogue, its true response and the adversarial candidate, with the scores of models."""
    said = next(iter(scores.values())).set_index("item")["utterance"][item]
    last = max(0, len(group.context) - 4)
    shown = [*([group.context[said], "…"] if said < last else []), *group.context[last:]]
    rows = [("context", text, "", np.nan) for text in shown]
    texts = {RIGHT: group.candidates[group.labels.index(1)], ADVERSARY: group.context[said]}
    for part, column in ((RIGHT, "response"), (ADVERSARY, "adversary")):
        for name, scored in scores.items():
            rows.append((part, texts[part], name, scored.set_index("item")[column][item]))
    return pd.DataFrame(rows, columns=["part", "text", "model", "score"])


def manipulation_example() -> pd.DataFrame:
    """For F2: five short neighbouring utterances of a test dialogue, and what the three tasks make of them."""
    groups = list(load("bundled/UbuntuIRC", "selection-10").filter(split="test"))
    spoken = ([*group.context, group.candidates[0]][-5:] for group in groups)
    suits = [len(set(said)) == 5 and all(16 <= len(text) <= 60 for text in said) for said in spoken]
    if not any(suits):
        raise DataError("no test dialogue suits the drawing of the manipulations")
    group = groups[suits.index(True)]
    said = [*group.context, group.candidates[0]][-5:]
    other = next(g for g in groups if 16 <= len(g.context[0]) <= 60 and g.id[:4] != group.id[:4])
    texts, rng = [*said, other.context[0]], np.random.default_rng(4)
    rows = [("dialogue", "", text, "response" if i == 4 else "utterance") for i, text in enumerate(said)]
    five = list(range(5))
    for made in (insertion(five, rng), deletion(five, 5, rng), search(five, rng)):
        rows += [(made.task, *part) for part in drawn(made, texts)]
    return pd.DataFrame(rows, columns=["column", "mark", "text", "kind"])


def drawn(made: Manipulation, texts: list[str]) -> list[tuple[str, str, str]]:
    """Mark, text and kind of every part of an auxiliary input; the marks of an insertion stand between utterances."""
    mark, right = MARKS[made.task], "foreign" if made.task == "deletion" else "target"
    kinds = [right if i == made.target else "utterance" for i in range(len(made.context) + 1)]
    if made.task == "insertion":
        rows = [row for n, kind in zip(made.context, kinds) for row in ((mark, "", kind), ("", texts[n], "utterance"))]
        rows.append((mark, "", kinds[-1]))
    else:
        rows = [(mark, texts[n], kind) for n, kind in zip(made.context, kinds)]
    return rows if made.second is None else [*rows, ("", texts[made.second], "given")]


def beside_baseline(rows: pd.DataFrame) -> pd.DataFrame:
    """F3: how often the adversarial candidate is ranked first, every baseline beside its UMS model."""
    rows = rows[rows["metric"].eq("Adversarial first") & rows["protocol"].eq("paper") & rows["model"].isin(MODELS)]
    plain = rows["model"].str.removeprefix("UMS_")
    order = [name for name in ("BERT", "BERT+", "ELECTRA", "ELECTRA+") if name in set(plain)]
    data = rows[["seed", "value"]].assign(model=plain, approach=np.where(plain == rows["model"], "baseline", "UMS"))
    return data.sort_values("model", key=lambda column: column.map(order.index), kind="stable").reset_index(drop=True)


@torch.inference_mode()
def show_terms(selector: Selector, inputs: Sequence[tuple[str, Any, int]]) -> pd.DataFrame:
    """One line for each input (task, what was written, which mark is right): its text, the probability of every mark,
    and its term of the loss."""
    rows = []
    for task, written, target in inputs:
        states, packed = selector.encoder.hidden(Tokens.from_lists([written.ids], [written.types]))
        places = torch.as_tensor(written.marks if task != "selection" else [0])
        logits = selector.heads[task](states[packed.places(torch.zeros_like(places), places)]).squeeze(-1).float()[None]
        if task == "selection":
            loss = losses.manipulation_loss(logits[0], torch.ones(1), {})
        else:
            loss = losses.manipulation_task_loss(
                logits, torch.ones_like(logits, dtype=torch.bool), torch.tensor([target])
            )
        shown = " ".join(selector.encoder.tokenizer.convert_ids_to_tokens(written.ids.tolist()))
        odds = ", ".join(f"{value:.2f}" for value in logits.sigmoid()[0].tolist())
        rows.append({"task": task, "input": shown[:160], "probabilities": odds, "right": target, "loss": float(loss)})
    return pd.DataFrame(rows).round(3)
