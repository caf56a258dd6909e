"""What belongs to UMS alone (Utterance Manipulation Strategies for Multi-turn Response Selection): its models, what
a selector is asked, the special tokens, the drawings. Models, tasks and figures are in its notebook.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from dialnb import losses
from dialnb.data import conversation_of
from dialnb.evaluation.adversarial import build_adversarial, evaluate_adversarial, evaluate_adversarial_items
from dialnb.evaluation.floors import Lexical, lexical_scorer
from dialnb.evaluation.metrics import ranked_labels, stacked, tidy_frame, tidy_rows
from dialnb.evaluation.selection import Groups, ScoreOnce, Scorer, as_matrices, cosine_scorer, selection_rows
from dialnb.evaluation.vectors import EncodeOnce
from dialnb.examples.manipulations import (
    MARKS,
    TASKS,
    Input,
    Manipulation,
    deletion,
    input_tokens,
    insertion,
    manipulation_examples,
    search,
)
from dialnb.examples.readings import Corpora, Limit, Lists
from dialnb.files import Fields, Values
from dialnb.models.encoder import Encoder
from dialnb.models.selector import Selector
from dialnb.runs.grid import Model, Watch
from dialnb.studies.shared import NAMES, shape_of

MODELS, TABLES = NAMES["ums"]["models"], NAMES["ums"]["tables"]
"""The rows of the paper; and what of a model's rows a table takes, where it does not take all of response selection."""

SHORT = {"INS": "insertion", "DEL": "deletion", "SRCH": "search"}
CHINESE = ("Douban", "E-commerce")
LEARNED = 0.1
"""The skill in finding replaced tokens from which an ELECTRA counts as learned."""

BATCH = 64


# --- models -----------------------------------------------------------------------------------------------------------


def model(
    s: Fields, lists: Lists, tasks: Sequence[str], corpus: str = "Ubuntu", probe: int = 0, **changes: Any
) -> Model:
    """A row of UMS' tables: a selector, with the options of a profile.

    Where the profile has validation lists the epoch that finds most responses in them is kept, else the last one; with
    a ``probe`` so many test lists are scored after every epoch, original and adversarial.
    """
    options = {name: s[name] for name in ("max_length", "task_weight", "negatives")}
    options |= {"tasks": tuple(tasks), "protocol": "paper"} | changes.pop("options", {})
    watched: Values = {}
    if corpus == "Ubuntu" and s["dev_groups"] != 0:
        watched |= {"validation": Lists(lists.parts, s["dev_groups"], "dev"), "tasks": options["tasks"]}
    if probe:
        watched["asked"] = Lists(lists.parts, probe, "test")
    watch = Watch(score_epoch, watched | {"seeds": s["adversarial_seeds"]}, best="validation") if watched else None
    row = "UMS on a sample" if corpus in CHINESE else ""
    return Model("UMS", data=lists, options=options, watch=watch, row=row, **changes)


def score_epoch(
    model: Selector,
    seeds: Sequence[int],
    validation: Lists | None = None,
    asked: Lists | None = None,
    tasks: Sequence[str] = (),
) -> DataFrame:
    """Score a selector during its training: the share of validation lists it gets right, how well it does the
    auxiliary ``tasks`` on them, and the adversarial test."""
    rows = []
    if validation:
        groups = validation.read()
        share = {"validation": first_is_right(model.score(groups), groups).mean()}
        found = tidy_rows(share, task="validation", dataset="", protocol="paper", n=len(groups))
        inputs = auxiliary_inputs(model, groups)
        for task in tasks:
            values = task_scores(model, task, inputs[task])
            found += tidy_rows(values, task=task, dataset="", protocol="paper", n=len(inputs[task]))
        rows.append(tidy_frame(found))
    if asked:
        rows.append(evaluate_adversarial(ScoreOnce(model.score), asked.read(), dataset="", seeds=seeds))
    return stacked(rows)


# --- scores -----------------------------------------------------------------------------------------------------------


def answer_of(
    encoder: Selector | Encoder | Lexical,
    records: Corpora,
    dataset: str,
    groups: Limit,
    seeds: Sequence[int],
    kinds: Sequence[str],
    max_length: int,
) -> dict[str, DataFrame]:
    """All a model is asked on one test set: ``rows`` of response selection and, with ``seeds``, of the adversarial test
    with each kind of adversary (kinds beyond the first are drawn once); ``items`` of both, with the conversation of
    each as its ``group``; the ``scores`` of every list's right response and adversary.

    A sentence encoder answers by cosine, reading as many tokens as a cross-encoder; a `Lexical` by TF-IDF, on the text
    that a cross-encoder sees.
    """
    asked = Lists(records, groups, "test").read()
    if isinstance(encoder, Lexical):
        scorer = lexical_scorer(encoder.encoder, asked, max_length)
    else:
        scorer = encoder.score if isinstance(encoder, Selector) else cosine_scorer(EncodeOnce(encoder), max_length)
    once = ScoreOnce(scorer)
    scores = once(asked)
    rows = [selection_rows(scores, [group.labels for group in asked], dataset=dataset)]
    right = DataFrame(
        {
            "metric": "R10@1",
            "item": range(len(asked)),
            "value": first_is_right(scores, asked),
            "task": "response selection",
            "protocol": "paper",
            "dataset": dataset,
        }
    )
    items = [right[[any(group.labels) for group in asked]]]
    for kind in kinds if seeds else ():
        main = kind == kinds[0]
        found, each = evaluate_adversarial_items(
            once, asked, dataset=dataset, seeds=seeds if main else seeds[:1], kind=kind
        )
        rows.append(found)
        if main:
            items.append(each)
    joined = stacked(items)
    joined["group"] = [conversation_of(asked[item]) for item in joined["item"]]
    return {
        "rows": stacked(rows),
        "items": joined,
        "scores": right_and_adversary(once, asked, seeds[0]) if seeds else DataFrame(),
    }


def first_is_right(scores: Sequence[Sequence[float]], groups: Groups) -> np.ndarray:
    """Of each list: the share of its right responses that ranks first, ties against it."""
    matrix, labels = as_matrices(scores, [group.labels for group in groups])
    return ranked_labels(matrix, labels)[:, 0] / np.maximum(labels.sum(1), 1)


def right_and_adversary(scorer: Scorer, asked: Groups, seed: int) -> DataFrame:
    """Scores of the right response and of the adversarial candidate of each dialogue, and which utterance that is."""
    made = build_adversarial(asked, seed)
    rows = []
    for entry, group, scores in zip(made.index, made.groups, scorer(made.groups), strict=True):
        rows.append(
            {
                "item": entry.dialogue,
                "utterance": entry.utterance,
                "response": scores[group.labels.index(1)],
                "adversary": scores[entry.candidate],
            }
        )
    return DataFrame(rows)


# --- special tokens ---------------------------------------------------------------------------------------------------


@torch.inference_mode()
def vectors_at_marks(selector: Selector, inputs: Sequence[Input]) -> list[torch.Tensor]:
    """Last-layer vectors [marks, d] of each input at its special tokens; one for response selection has [CLS] alone."""
    vectors = []
    for start in range(0, len(inputs), BATCH):
        part = inputs[start : start + BATCH]
        states, packed = selector.encoder.hidden(input_tokens(part))
        for number, one in enumerate(part):
            places = torch.as_tensor(one.marks, device=states.device)
            vectors.append(states[packed.places(torch.full_like(places, number), places)].float())
    return vectors


def auxiliary_inputs(selector: Selector, groups: Groups) -> dict[str, list[Input]]:
    """What each task makes of dialogues by the paper's windows, drawn once."""
    examples = manipulation_examples(selector.encoder, groups, selector.max_length)
    rng = np.random.default_rng(24)
    inputs: dict[str, list[Input]] = {task: [] for task in TASKS}
    for row in np.flatnonzero(examples.labels == 1):
        for drawn in examples.draw(int(row), rng):
            inputs[drawn.task].append(examples.write(drawn))
    return inputs


@torch.inference_mode()
def task_scores(selector: Selector, task: str, inputs: Sequence[Input]) -> dict[str, float]:
    """How well an auxiliary task is done: accuracy beside chance, loss, and skill (1 - loss / that of knowing the
    number of marks alone)."""
    head, hits, losses_of, usual = selector.heads[task], [], [], []
    for vectors, one in zip(vectors_at_marks(selector, inputs), inputs, strict=True):
        logits, count = head(vectors).squeeze(-1)[None], len(one.marks)
        known, target = torch.ones_like(logits), torch.tensor([one.target], device=logits.device)
        hits.append(int(logits.argmax()) == one.target)
        losses_of.append(float(losses.manipulation_task_loss(logits, known, target)))
        usual.append(np.log(count) - (count - 1) / count * np.log(max(1, count - 1)))
    chance = np.mean([1 / len(one.marks) for one in inputs])
    found = {"accuracy": np.mean(hits), "chance": chance, "loss": np.mean(losses_of)}
    return found | {"skill": 1 - found["loss"] / np.mean(usual)}


@torch.inference_mode()
def selector_geometry(
    encoder: Selector,
    records: Corpora,
    dataset: str,
    groups: int,
) -> DataFrame:
    """Uniformity of the [CLS] vectors of test inputs, and alignment of those with equal label (right or wrong)."""
    asked = Lists(records, groups, "test").read()
    examples = manipulation_examples(encoder.encoder, asked, encoder.max_length, tasks=())
    vectors = []
    for start in range(0, len(examples), BATCH):
        tokens = examples.selections(range(len(examples))[start : start + BATCH])
        vectors.append(encoder.encoder.embed(tokens, "cls").float().cpu())
    return shape_of(torch.cat(vectors).numpy(), examples.labels.tolist(), dataset=dataset)


# --- drawings ---------------------------------------------------------------------------------------------------------


def manipulation_rows(texts: Sequence[str], foreign: str, seed: int) -> DataFrame:
    """For F2: the utterances of a dialogue, and what the three tasks make of them."""
    rng, places = np.random.default_rng(seed), list(range(len(texts)))
    rows = [("dialogue", "", text, "utterance") for text in texts[:-1]]
    rows.append(("dialogue", "", texts[-1], "response"))
    for made in (insertion(places, rng), deletion(places, len(texts), rng), search(places, rng)):
        rows += [(made.task, *part) for part in drawn(made, [*texts, foreign])]
    return DataFrame(rows, columns=["column", "mark", "text", "kind"])


def drawn(made: Manipulation, texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Mark, text and kind of every part of an auxiliary input; the marks of an insertion stand between utterances."""
    mark, right = MARKS[made.task], "foreign" if made.task == "deletion" else "target"
    between = made.task == "insertion"
    rows = []
    for place, number in enumerate(made.context):
        kind = right if place == made.target else "utterance"
        if between:
            rows += [(mark, "", kind), ("", texts[number], "utterance")]
        else:
            rows.append((mark, texts[number], kind))
    if between:
        rows.append((mark, "", right if made.target == len(made.context) else "utterance"))
    if made.second is not None:
        rows.append(("", texts[made.second], "given"))
    return rows
