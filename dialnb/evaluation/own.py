"""A score for one's own data: the evaluator that fits what a file holds."""

from pathlib import Path

import torch
from pandas import DataFrame

from dialnb.data import Dataset, SelectionGroup
from dialnb.errors import DataError
from dialnb.evaluation.adversarial import evaluate_adversarial
from dialnb.evaluation.diaeval import evaluate_inference
from dialnb.evaluation.foreign import as_encoder
from dialnb.evaluation.intent import evaluate_knn, evaluate_prototypes
from dialnb.evaluation.metrics import stacked
from dialnb.evaluation.selection import Scorer, cosine_scorer, evaluate_blocks, selection_rows
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode
from dialnb.examples.own import selection_of
from dialnb.files import read_json
from dialnb.models.selector import HEADS, Selector

CANDIDATES = 10


def adversarial_scores(place: str, records: Dataset) -> DataFrame:
    """UMS' adversarial test on lists of replies (or dialogues, from which they are made) of one's own."""
    return evaluate_adversarial(reply_scorer(place), _lists(records), dataset=records.name)


def reply_scorer(place: str) -> Scorer:
    """How a model scores replies: a selector of `dialnb train UMS` or a cross-encoder (a folder of a transformer with a
    classifier) reads them together with the context, an encoder compares both by cosine."""
    if (Path(place) / HEADS).is_file():
        return Selector.load(place).score
    kinds = (read_json(Path(place) / "config.json") or {}).get("architectures") or [""]
    return _cross_scorer(place) if kinds[0].endswith("SequenceClassification") else cosine_scorer(as_encoder(place))


def _cross_scorer(place: str) -> Scorer:
    """The score of a pair is the classifier's one logit, or that of its last class."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(
        place, use_safetensors=True, local_files_only=True
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(place, truncation_side="left", local_files_only=True)
    room = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    @torch.inference_mode()
    def score(groups: list[SelectionGroup]) -> list[list[float]]:
        scores = []
        for group in groups:
            pairs = [" ".join(group.context)] * len(group.candidates), list(group.candidates)
            inputs = tokenizer(*pairs, truncation=True, max_length=room, padding=True, return_tensors="pt")
            scores.append(model(**inputs).logits[:, -1].tolist())
        return scores

    return score


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
            rows = [evaluate_prototypes(once, *parts, dataset=name), evaluate_knn(once, *parts, dataset=name)]
            return stacked(rows)
        case "Dialogue" | "SelectionGroup":
            lists = _lists(records)
            return selection_rows(cosine_scorer(once)(lists), [each.labels for each in lists], dataset=name)
        case "QuestionAnswer":
            return evaluate_blocks(once, list(records), dataset=name, size=min(100, len(records)))
        case "ScoredPair":
            return evaluate_similarity(once, list(records), dataset=name)
        case "InferenceItem":
            return evaluate_inference(once, *_parts(records, ("train", "dev", "test")), dataset=name)
        case kind:
            raise DataError(f"{name} holds nothing that can be scored by itself ({kind})")


def _lists(records: Dataset) -> list[SelectionGroup]:
    """Lists of replies as they are; of dialogues the next utterance among up to ten, as many as there are others."""
    if records.table.kind == "SelectionGroup":
        return list(records)
    turns = [len(record.utterances) - 2 for record in records]
    others = sum(max(0, count) for count in turns) - max(turns)
    return selection_of(records, min(CANDIDATES, max(2, others + 1)))


def _parts(records: Dataset, splits: tuple[str, ...]) -> list[Dataset]:
    parts = [records.filter(split=split) for split in splits]
    if not all(map(len, parts)):
        found = ", ".join(sorted(set(records.column("split"))))
        told = "fill in its column 'split'; where it has none, a fifth of every intent can be held out"
        raise DataError(f"{records.name} should have the splits {', '.join(splits)}, but has {found}: {told}")
    return parts


def summary_own(rows: DataFrame) -> DataFrame:
    """Means over seeds, a row for each file and test, a column for each ``encoder``; ties count against the model."""
    rows = rows[rows["ties"].ne("file")] if "ties" in rows else rows
    tests = rows["task"].str.cat(rows["metric"], ": ")
    for name, words in {"shots": ", shots: {:g}", "k": ", nearest: {:g}"}.items():
        tests += rows[name].map(words.format, na_action="ignore").fillna("") if name in rows else ""
    table = rows.assign(test=tests).pivot_table("value", ["dataset", "test", "n"], "encoder", sort=False)
    return table.rename_axis(columns=None)
