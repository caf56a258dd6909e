"""What belongs to DialogueCSE alone (Dialogue-based Contrastive Learning of Sentence Embeddings): its corpora and
evaluation sets, its scores, the example of its drawings. Models, tasks and figures are in its notebook.

A corpus has the evaluation sets that its models are scored on: JDDC's dialogues cannot be had, so models trained on
ECD, of the same language and trade, are scored on JDDC too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb import losses
from dialnb.data import Dataset, load
from dialnb.data.corpora import CHINESE
from dialnb.data.levels import find
from dialnb.data.records import MatchingGroup, RetrievalQuery, ScoredPair
from dialnb.errors import DataError
from dialnb.evaluation import geometry
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.projection import project
from dialnb.evaluation.retrieval import evaluate_retrieval
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.evaluation.vectors import SupportsEncode
from dialnb.examples.batches import Batch
from dialnb.examples.matching import (
    build_groups,
    build_retrieval,
    labelled_utterances,
    matching_examples,
    neighbours,
    sessions,
)
from dialnb.examples.readings import Lacking, Sentences, Sessions, thin
from dialnb.models.baselines import Transformed, WordVectors, flow
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model, Watch, agreement
from dialnb.training.objectives_dialogue import MatchingGuidedObjective
from dialnb.training.pretrain import PretrainingRecipe, pretraining_settings

SLUG = "dialoguecse"
CORPORA = {"MDC": ("MDC",), "SGD": ("SGD",), "ECD": ("ECD", "JDDC")}
"""Corpora that are trained on, and the evaluation sets that belong to each."""

MATCHING = ("SiameseBERT-s", "SiameseBERT-m", "DialogueCSE I1", "DialogueCSE I2")
"""The dialogue-based rows of T2: "-s" reads one turn, "-m" several as one sequence."""

REBUILT = {"SGD": "INFORM_INTENT", "MDC": ""}
"""Evaluation sets that are rebuilt from intents, and the dialogue act of the utterances that count (none: all do)."""

LENGTHS = {"MDC": 50, "SGD": 50, "ECD": 50, "JDDC": 100}
"""Tokens of a sentence (Section 5.2)."""

POOLS_INSTEAD = "retrieval pools rebuilt from the intents of its movie and taxi dialogues"
WORDS_INSTEAD = "the encoder's own word vectors instead of GloVe"


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """Dialogues to train on, the text that encoders are adapted to, and scored pairs that choose the best epoch."""

    name: str
    dialogues: Sessions | Lacking
    text: Sentences
    dev: Sequence[ScoredPair] = ()

    @property
    def is_there(self) -> bool:
        return not isinstance(self.dialogues, Lacking)


@dataclass(frozen=True)
class TestSet:
    """Sentences with the pools that they are ranked in, and pairs with human scores, where there are any."""

    queries: Sequence[RetrievalQuery]
    pairs: Sequence[ScoredPair] = ()
    max_length: int = 50
    corpus: str = ""  # that models are trained on
    instead: str = ""  # what stands in for the paper's own set

    __test__ = False  # for pytest

    def texts(self) -> list[str]:
        return [query.text for query in self.queries]


def needed(s: Mapping[str, Any]) -> list[str]:
    """The corpora that a profile trains on: those with an evaluation set that it asks for."""
    return [name for name, tests in CORPORA.items() if any(test in s["corpora"] for test in tests)]


def corpus(run, name: str, s: Mapping[str, Any] | None = None) -> Corpus:
    """Load a corpus at the level of data of a run, as large as the profile ``s`` of this notebook has it."""
    s = s or run.settings
    complete = run.data("ECD complete", SLUG) if name == "ECD" else {}
    parts = list((complete or run.data(name, SLUG)).values())
    if name == "SGD":
        parts = [part.filter(split="train") for part in parts]
    dialogues: Sessions | Lacking = Sessions(parts, shortest(name), s["dialogues"])
    lacking = run.lacking(name, SLUG)
    if lacking and not complete:
        dialogues = Lacking(next(iter(lacking.values())))
    if name != "ECD":
        return Corpus(name, dialogues, Sentences(parts))
    if s["data"] == "bundled":
        text = [load("bundled/DialogueCSE", variant, "dev") for variant in ("jddc-select", "jddc-sts")]
    else:  # all that can be had but the test sentences
        text = [*complete.values(), *(load(part.dataset, part.variant, part.split) for part in CHINESE)]
    return Corpus(name, dialogues, Sentences(text), released(run, "ECD", "pairs", "dev"))


def shortest(corpus: str) -> int:
    """Dialogues of fewer turns are dropped, but not in MDC (Section 5.1)."""
    return 4 if corpus == "ECD" else 0


def released(run, name: str, kind: str, split: str) -> Dataset | list:
    """The authors' evaluation files, of a ``kind``: "retrieval" or "pairs"; nothing where they cannot be had."""
    found = run.data(f"{name} {kind}", SLUG)
    return next(iter(found.values())).filter(split=split) if found else []


def tests(run, corpus: str) -> dict[str, TestSet]:
    """The evaluation sets of a corpus that the profile asks for; of those that cannot be had, the reason is noted."""
    found = {}
    for name in [name for name in CORPORA[corpus] if name in run.settings.corpora]:
        lacking = run.lacking(name if name in REBUILT else f"{name} retrieval", SLUG)
        for reason in lacking.values():
            run.note_absent(reason, dataset=name)
        if not lacking and name in REBUILT:
            instead = POOLS_INSTEAD if name == "MDC" else ""
            found[name] = TestSet(rebuilt(run, name), [], LENGTHS[name], corpus, instead)
        elif not lacking:
            queries, pairs = (released(run, name, kind, "test") for kind in ("retrieval", "pairs"))
            found[name] = TestSet(queries, pairs, LENGTHS[name], corpus)
    return found


def rebuilt(run, name: str) -> list[RetrievalQuery]:
    """Rebuild the retrieval set of English dialogues, which was not released, from their intents, once for a run."""
    s = run.settings
    records = find(s.data, ("sources", "MDC", None)) if name == "MDC" else load("bundled/SGD", split="test")
    pools = {"size": s.queries, "positives": 30, "negatives": 70, "act": REBUILT[name], "seed": 24}
    return run.stage(f"rebuild the retrieval set of {name}", rebuild, records=records, **pools)


def rebuild(records: Dataset, size: int, positives: int, negatives: int, act: str, seed: int) -> list[RetrievalQuery]:
    """Make a retrieval set of labelled utterances, those with the dialogue ``act`` only where one is named."""
    dialogues = [replace(d, utterances=tuple(u for u in d.utterances if act in ("", *u.acts))) for d in records]
    return build_retrieval(labelled_utterances(dialogues), size, positives, negatives, seed)


# --- counts -----------------------------------------------------------------------------------------------------------


def count(dialogues: Sessions, characters: bool) -> dict[str, int]:
    """Count dialogues after preprocessing, their turns and words (of Chinese: characters), and intents of users."""
    found = replace(dialogues, limit=None).read()
    intents = {intent for part in dialogues.corpora for _, intent in labelled_utterances(part)}
    said = [text for session in found for text in session]
    words = sum(len("".join(text.split())) if characters else len(text.split()) for text in said)
    return {"dialogues": len(found), "turns": len(said), "words": words, "intents": len(intents)}


def counted(run, corpus: Corpus) -> dict[str, int]:
    """Count a corpus, once for a run."""
    return run.stage(f"count {corpus.name}", count, dialogues=corpus.dialogues, characters=corpus.name == "ECD")


def count_corpora(run, corpora: Mapping[str, Corpus]) -> None:
    """T1: what there is of each corpus that the paper prints."""
    for name, own in corpora.items():
        if not own.is_there:
            run.note_absent(own.dialogues.reason, "T1", column=name)
            continue
        notes = dict.fromkeys(("dialogues", "turns", "words", "intents"), "released sample only")
        if name == "MDC":
            notes = dict.fromkeys(notes, "movie and taxi only")
        if name == "ECD":
            notes["words"] = "characters instead of words"
            run.note_absent("the released files of ECD name no intents", "T1", model="intents", column=name)
        if name != "SGD":  # which stands in for MDC
            numbers = counted(run, own)
            _add_counts(run, "T1", name, {row: (number, notes[row]) for row, number in numbers.items() if number})
    if "JDDC" in run.settings.corpora:
        intents = {q.intent for split in ("dev", "test") for q in released(run, "JDDC", "retrieval", split)}
        _add_counts(run, "T1", "JDDC", {"intents": (len(intents), "those of its retrieval set")})


def count_tests(run, rebuilt: Mapping[str, TestSet]) -> None:
    """X1: the authors' evaluation files, and the retrieval set that is rebuilt for MDC."""
    for name in ("JDDC", "ECD"):
        for reason in run.lacking(f"{name} retrieval", SLUG).values():
            run.note_absent(reason, "X1", column=name)
        numbers = {}
        for split in ("test", "dev"):
            for kind, row in (("retrieval", "retrieval"), ("pairs", "sentence pairs")):
                numbers[f"released {split} {row}"] = len(released(run, name, kind, split)), ""
        numbers["semantic retrieval samples (approx.)"] = numbers["released test retrieval"]
        numbers["sentence pairs (approx.)"] = numbers["released test sentence pairs"]
        _add_counts(run, "X1", name, {row: number for row, number in numbers.items() if number[0]})
    if "MDC" in rebuilt:
        size = len(rebuilt["MDC"].queries)
        _add_counts(run, "X1", "MDC", {"semantic retrieval samples (approx.)": (size, POOLS_INSTEAD)})


def _add_counts(run, table: str, column: str, numbers: Mapping[str, tuple[int, str]]) -> None:
    rows = [{"model": row, "value": n, "n": n, "substitute": note} for row, (n, note) in numbers.items()]
    if rows:
        run.add(pd.DataFrame(rows), task="statistics", metric="count", column=column, table=table)


# --- models -----------------------------------------------------------------------------------------------------------


def start(s: Mapping[str, Any], corpus: Corpus) -> Model:
    """What a corpus starts from: the encoder of the run or, in Chinese, that of the profile or one from scratch."""
    if corpus.name != "ECD":
        return Model()
    if s["chinese_encoder"]:
        return Model(start=s["chinese_encoder"])
    settings = {"epochs": s["pretrain_epochs"], "batch_size": s["pretrain_batch"], "max_steps": s["pretrain_steps"]}
    recipe = PretrainingRecipe("mini", settings=pretraining_settings("mini"))
    options = {"vocabulary": False, "name": "mini-chinese"}
    return Model(recipe, data=corpus.text, settings=settings | {"seed": s["seed"]}, options=options)


def model(recipe: str, s: Mapping[str, Any], corpus: Corpus, **changes: Any) -> Model:
    """A model as DialogueCSE's notebook trains it in a profile; other notebooks ask for the same.

    Stage one, "adaptation", continues the pre-training of "BERT, CORPUS"; the others go on from there, with the lower
    half of the layers frozen. In Chinese the epoch that agrees best with the development pairs comes back.
    """
    if recipe == "adaptation":
        settings = {"epochs": s["adapt_epochs"], "learning_rate": s["adapt_learning_rate"]}
        settings |= {"batch_size": s["adapt_batch"], "max_steps": s["adapt_steps"]}
        options = {"sentences": s["sentences"], "head_steps": s["head_steps"]}
        begin = f"BERT, {corpus.name}"
        return Model(recipe, data=corpus.text, **{"start": begin, "settings": settings, "options": options} | changes)
    options = {"negatives": s["negatives"]}
    if recipe != "SiameseBERT-s":
        options["turns"] = s["turns"]
    if recipe.startswith("DialogueCSE"):
        options["temperature"] = s["temperature"]
    given = {"start": f"BERT(adapt), {corpus.name}", "labels": {"model": recipe}}
    given["settings"] = {"epochs": s["epochs"], "learning_rate": s["learning_rate"], "freeze": -2}
    if len(corpus.dev):
        given["watch"] = Watch(agreement, {"pairs": corpus.dev}, best="Corr", last=True)
    options |= changes.pop("options", {})
    return Model(recipe, data=corpus.dialogues, options=options, **given | changes)


def usual(run, corpus: Corpus, what: str) -> Any:
    """The value that a setting has in the main models; of the number of dialogues, all there are."""
    if what != "dialogues":
        return "both" if what == "sides" else run.settings[what]
    there = counted(run, corpus)["dialogues"]
    return min(there, run.settings.dialogues or there)


def unusual(run, corpus: Corpus, what: str, values: Sequence[Any]) -> list[Any]:
    """The values of a sweep that need models of their own; there cannot be more dialogues than all."""
    if not values:
        return []
    main = usual(run, corpus, what)
    return [value for value in values if (value < main if what == "dialogues" else value != main)]


def vary(recipe: str, s: Mapping[str, Any], corpus: Corpus, what: str, value: Any) -> Model:
    """A model of the notebook with one thing changed, which is a column of its rows."""
    labels = {"model": recipe, what: value}
    if what != "dialogues":
        return model(recipe, s, corpus, options={what: value}, labels=labels)
    return model(recipe, s, replace(corpus, dialogues=replace(corpus.dialogues, limit=value)), labels=labels)


# --- evaluation -------------------------------------------------------------------------------------------------------


def thinned(queries: Sequence[RetrievalQuery], limit: int | None) -> Sequence[RetrievalQuery]:
    """Keep ``limit`` of the queries with all their candidates, which are then no queries themselves."""
    if limit is None or limit >= len(queries):
        return queries
    asked = thin(queries, limit)
    chosen = {query.id for query in asked}
    needed = chosen.union(*((*query.positives, *query.negatives) for query in asked))
    kept = []
    for query in queries:
        if query.id in needed:
            kept.append(query if query.id in chosen else replace(query, positives=(), negatives=()))
    return kept


def view(encoder: Encoder, how: str, flow_steps: int = 200, seed: int = 0) -> tuple[SupportsEncode, str]:
    """The encoder as a baseline of T2 reads it, and its pooling: its word vectors, ``[CLS]``, the mean of the tokens,
    or the mean through a transformation of the space."""
    if how == "words":
        return WordVectors(encoder), "mean"
    if how == "flow":
        return Transformed(encoder, partial(flow, steps=flow_steps, seed=seed)), "mean"
    if how == "whitening":
        return Transformed(encoder, geometry.whiten), "mean"
    return encoder, how


def score(
    encoder: Encoder,
    records: TestSet,
    dataset: str,
    limit: int | None,
    how: str = "mean",
    trained: bool = False,
    **flow: int,
) -> pd.DataFrame:
    """MAP and MRR and, where there are human scores, Corr; rows say what stands in for the paper's data."""
    seen, pooling = view(encoder, how, **flow)
    encoding = {"dataset": dataset, "max_length": records.max_length, "pooling": pooling}
    rows = evaluate_retrieval(seen, thinned(records.queries, limit), **encoding)
    rows = rows[rows["protocol"] != "floor"]
    if len(records.pairs):
        rows = pd.concat([rows, evaluate_similarity(seen, thin(records.pairs, limit), **encoding)], ignore_index=True)
    notes = [WORDS_INSTEAD] if how == "words" else []
    if records.instead:
        notes.append(records.instead)
    if trained and dataset == "JDDC":
        notes.append(f"trained on dialogues of {records.corpus}")
    return rows.assign(substitute="; ".join(notes))


def chance(encoder: SupportsEncode, records: TestSet, dataset: str, limit: int | None, **_: Any) -> pd.DataFrame:
    """MAP and MRR of a random order of the same pools."""
    rows = evaluate_retrieval(encoder, thinned(records.queries, limit), dataset=dataset)
    return rows[rows["protocol"] == "floor"].assign(protocol="paper", substitute="")


def by_intent(queries: Sequence[RetrievalQuery], intents: int, points: int) -> tuple[list[str], list[str]]:
    """Texts and labels of the ``intents`` most frequent classes, ``points`` of each; no text twice."""
    texts: dict[str, list[str]] = {}
    for query in queries:
        if query.intent and query.text not in (known := texts.setdefault(query.intent, [])):
            known.append(query.text)
    chosen = sorted(texts, key=lambda name: (-len(texts[name]), name))[:intents]
    pairs = [(text, name) for name in chosen for text in texts[name][:points]]
    return [text for text, _ in pairs], [name for _, name in pairs]


def geometry_of(
    encoder: Encoder, records: TestSet, dataset: str, geometry_sentences: int, how: str = "mean", **flow: int
) -> pd.DataFrame:
    """Uniformity and alignment by intent of some sentences of the 50 most frequent intents."""
    texts, labels = by_intent(records.queries, 50, max(2, geometry_sentences // 50))
    seen, pooling = view(encoder, how, **flow)
    vectors = seen.encode(texts, max_length=records.max_length, pooling=pooling)
    values = {"uniformity": geometry.uniformity(vectors), "alignment": geometry.alignment(vectors, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(texts)))


def plane_of(
    encoder: Encoder, records: TestSet, dataset: str, method: str, plot_intents: int, plot_points: int, seed: int
) -> pd.DataFrame:
    """Sentences of some intents in a plane; names in scripts that the figure's letters lack become numbers."""
    texts, labels = by_intent(records.queries, plot_intents, plot_points)
    numbers = {name: f"{dataset} intent {i}" for i, name in enumerate(dict.fromkeys(labels), 1)}
    shown = [name if name.isascii() else numbers[name] for name in labels]
    vectors = encoder.encode(texts, max_length=records.max_length)
    return project(vectors, method, seed=seed).assign(part=dataset, label=shown)


# --- the method on one example ----------------------------------------------------------------------------------------


def example_group() -> MatchingGroup:
    """The first group of the bundled dialogues whose response and three context turns are short enough to draw."""
    for group in build_groups(sessions(load("bundled/SGD", split="train")[:300]), 9):
        before, after = neighbours(group)
        said = [*before, *after, group.candidates[0]]
        if len(said) == 4 and after and all(5 <= len(text.split()) <= 9 and len(text) < 45 for text in said):
            return group
    raise DataError("no group of the bundled dialogues suits the drawing")


def shapes_of(encoder: Encoder, group: MatchingGroup) -> pd.DataFrame:
    """For F1: the texts of a group with their roles, numbers of tokens and width of vectors."""
    before, after = neighbours(group)
    roles = [*(f"u{i - len(before)}" for i in range(len(before))), *(f"u+{i + 1}" for i in range(len(after)))]
    texts = [*before[::-1], *after, *group.candidates[:2]]
    data = pd.DataFrame({"role": [*roles, "response", "negative"], "text": texts})
    return data.assign(tokens=encoder.tokenize(texts, 50).lengths, width=encoder.dim)


def token_vectors(encoder: Encoder, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of all tokens, padded: [1, texts, tokens, width], and where there are any: [1, texts, tokens]."""
    with torch.no_grad():
        states, packed = encoder.hidden(encoder.tokenize(texts))
    parts = states.float().cpu().split(packed.lengths.tolist())
    parts = [parts[place] for place in packed.rank.tolist()]
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(part)) for part in parts], batch_first=True)
    return padded[None], mask[None]


def matching_of(encoder: Encoder, records: MatchingGroup) -> pd.DataFrame:
    """The matching matrix of each context turn with the true response, one row a pair of tokens."""
    before, after = neighbours(records)
    texts = [*before[::-1], *after, records.candidates[0]]
    words = [encoder.tokenizer.convert_ids_to_tokens(ids.tolist()) for ids in encoder.tokenize(texts)]
    vectors, mask = (part[0] for part in token_vectors(encoder, texts))
    parts = [(tokens[real.bool()], real[real.bool()]) for tokens, real in zip(vectors, mask)]
    rows = []
    for number, turn in enumerate(words[:-1]):
        matrix = losses.matching_matrix(*parts[number], *parts[-1]).numpy()
        for i, j in np.ndindex(matrix.shape):
            rows.append((number + 1, i, turn[i], j, words[-1][j], float(matrix[i, j])))
    return pd.DataFrame(rows, columns=["turn", "row", "word", "column", "response", "value"])


def loop_loss(encoder: Encoder, objective: MatchingGuidedObjective, batch: Batch) -> torch.Tensor:
    """The loss candidate by candidate: the context encoded again for each of them, full matching matrices."""
    rows = []
    for turns, candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        similarity = []
        for candidate in candidates:
            states, packed = encoder.hidden(batch.tokens["texts"][[*turns[turns >= 0], candidate]])
            parts = states.split(packed.lengths.tolist())
            *context, response = (parts[place] for place in packed.rank.tolist())
            everything = torch.ones(len(response), device=response.device)
            seen = []
            for turn in context:
                matrix = losses.matching_matrix(turn, turn.new_ones(len(turn)), response, everything)
                seen.append((matrix @ response).mean(0))
            aware = torch.stack(seen)
            weights = 1 / len(seen) if objective.attention is None else objective.attention(aware).softmax(0)
            similarity.append(torch.cosine_similarity(response.mean(0), (weights * aware).sum(0), dim=0))
        rows.append(-(torch.stack(similarity) / objective.temperature).log_softmax(0)[0])
    return torch.stack(rows).mean()


def compare_speed(encoder: Encoder, groups: int) -> dict[str, float]:
    """Seconds of one step on bundled dialogues (the better of two), the way models are trained and as a loop over
    candidates, and how far the two losses are apart."""
    examples = matching_examples(encoder, build_groups(sessions(load("bundled/SGD", split="train")[:50])))
    batch = examples.batch(np.arange(groups), np.random.default_rng(0))
    objective = MatchingGuidedObjective(encoder.dim).to(encoder.device)
    ways = {"packed": lambda: objective.terms(encoder, batch)["matching"]}
    ways["naive"] = lambda: loop_loss(encoder, objective, batch)
    seconds, values = {}, {}
    for name, way in ways.items():
        took = []
        for _ in range(2):
            began = time.perf_counter()
            loss = way()
            loss.backward()
            values[name] = loss.item()
            took.append(time.perf_counter() - began)
        seconds[name] = min(took)
    row = {f"{name} (s)": value for name, value in seconds.items()}
    row["times faster"] = seconds["naive"] / seconds["packed"]
    return row | {"difference": abs(values["packed"] - values["naive"])}
