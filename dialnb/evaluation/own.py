"""A score for one's own data: the evaluator that fits what a file holds."""

import warnings
from pathlib import Path

import torch
from pandas import DataFrame

from dialnb.data import Dataset, SelectionGroup
from dialnb.errors import DataError
from dialnb.evaluation.adversarial import build_adversarial, evaluate_adversarial
from dialnb.evaluation.diaeval import evaluate_inference
from dialnb.evaluation.foreign import as_encoder
from dialnb.evaluation.intent import evaluate_knn, evaluate_prototypes
from dialnb.evaluation.metrics import stacked
from dialnb.evaluation.selection import Groups, Scorer, cosine_scorer, evaluate_blocks, selection_rows
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode
from dialnb.examples.own import selection_of
from dialnb.models.encoder import Encoder, default_device, load_parts
from dialnb.models.places import HEADS, download_encoder
from dialnb.models.saving import read_stored, reading
from dialnb.models.selector import Selector

CANDIDATES = 10
LISTS = ("Dialogue", "SelectionGroup")  # records in which replies can be ranked


def encoder_in(name: str, dtype: torch.dtype | None = None) -> SupportsEncode:
    """An encoder that computes in a precision, if it is run by our own pass; others compute as they do."""
    encoder = as_encoder(name)
    if isinstance(encoder, Encoder):
        encoder.dtype = dtype
    return encoder


def reply_scorer(name: str, dtype: torch.dtype | None = None) -> Scorer:
    """How a model scores replies: a selector of `dialnb train UMS` or a cross-encoder (a transformer with a classifier)
    reads them together with the context, any other encoder compares both by cosine. A classifier stays in float32."""
    folder = download_encoder(name)
    if (folder / HEADS).is_file():
        selector = Selector.load(folder)
        selector.encoder.dtype = dtype
        return selector.score
    if "ForSequenceClassification" in str(read_stored(folder / "config.json", dict).get("architectures")):
        return _cross_scorer(folder)
    return cosine_scorer(EncodeOnce(encoder_in(name, dtype)))


def _cross_scorer(folder: Path) -> Scorer:
    """The score of a pair is the classifier's one logit, or that of its last class; the latest words count."""
    with reading(folder):
        model, tokenizer = load_parts(folder, kind="AutoModelForSequenceClassification")
    model.to(default_device())
    tokenizer.truncation_side = "left"
    room = as_encoder((model, tokenizer)).length

    @torch.inference_mode()
    def score(groups: Groups) -> list[list[float]]:
        scores = []
        for group in groups:
            pairs = [[" ".join(group.context), candidate] for candidate in group.candidates]
            inputs = tokenizer(pairs, truncation=True, max_length=room, padding=True, return_tensors="pt")
            scores.append(model(**inputs.to(model.device)).logits[:, -1].tolist())
        return scores

    return score


def adversarial_scores(scorer: Scorer, records: Dataset) -> DataFrame:
    """UMS' adversarial test on lists of replies (or dialogues, from which they are made) of one's own; how many lists
    are left out, and why, is a warning."""
    lists = _lists(records)
    rows = evaluate_adversarial(scorer, lists, dataset=records.name)
    if left_out := build_adversarial(lists).reasons():
        warnings.warn(f"{records.name}: of {len(lists)} lists are left out: {left_out}", stacklevel=2)
    return rows


def evaluate_lists(scorer: Scorer, records: Dataset) -> DataFrame:
    """Tidy rows of listed replies, or of the next utterance of dialogues among up to ten."""
    lists = _lists(records)
    return selection_rows(scorer(lists), [each.labels for each in lists], dataset=records.name)


def evaluate_own(encoder: SupportsEncode, records: Dataset) -> DataFrame:
    """Tidy rows: intents of utterances (few shots, and nearest neighbours), the next utterance of dialogues among up to
    ten, listed responses, answers among a hundred, similarity, inference.

    Utterances need the splits train and test, judged dialogues dev as well; everything else is a test as a whole.
    """
    once = EncodeOnce(encoder)
    name = records.name
    match records.table.kind:
        case "IntentUtterance":
            parts = _parts(records, ("train", "test"))
            if len(set(parts[0].column("intent"))) < 2:
                raise DataError(f"{name} has fewer than two intents to tell apart; is its column 'intent' filled in?")
            return stacked([evaluate_prototypes(once, *parts, dataset=name), evaluate_knn(once, *parts, dataset=name)])
        case kind if kind in LISTS:
            return evaluate_lists(cosine_scorer(once), records)
        case "QuestionAnswer":
            return evaluate_blocks(once, records, dataset=name, size=min(100, len(records)))
        case "ScoredPair":
            return evaluate_similarity(once, records, dataset=name)
        case "InferenceItem":
            return evaluate_inference(once, *_parts(records, ("train", "dev", "test")), dataset=name, groups=1)
        case kind:
            raise DataError(f"{name} holds nothing that can be scored by itself ({kind})")


def _lists(records: Dataset) -> list[SelectionGroup]:
    """Lists of replies as they are; of dialogues the next utterance among up to ten, as many as there are others."""
    kind = records.table.kind
    if kind not in LISTS:
        raise DataError(
            f"the adversarial test takes dialogues or lists of replies, but {records.name} holds {kind} records"
        )
    if kind == "SelectionGroup":
        return list(records)
    turns = [max(0, len(record.utterances) - 2) for record in records]
    others = sum(turns) - max(turns)
    lists = selection_of(records, min(CANDIDATES, max(2, others + 1)))
    if not lists:
        raise DataError(f"{records.name} has no reply to choose: no dialogue has a third turn after two of context")
    return lists


def _parts(records: Dataset, splits: tuple[str, ...]) -> list[Dataset]:
    parts = [records.filter(split=split) for split in splits]
    if not all(map(len, parts)):
        there = ", ".join(sorted(set(records.column("split"))))
        told = "fill in its column 'split'; where it has none, a fifth of every intent can be held out"
        raise DataError(f"{records.name} should have the splits {', '.join(splits)}, but has {there}: {told}")
    return parts


def summary_own(rows: DataFrame) -> DataFrame:
    """Means over seeds, a row for each file and test, a column for each ``encoder``; ties count against the model."""
    rows = rows[rows["ties"].ne("file")] if "ties" in rows else rows
    tests = rows["task"].str.cat(rows["metric"], ": ")
    for name, words in {"shots": ", shots: {:g}", "k": ", nearest: {:g}"}.items():
        tests += rows[name].map(words.format, na_action="ignore").fillna("") if name in rows else ""
    table = rows.assign(test=tests).pivot_table("value", ["dataset", "test", "n"], "encoder", sort=False)
    return table.rename_axis(columns=None)
