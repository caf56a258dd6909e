"""What belongs to DialogueCSE alone (Dialogue-based Contrastive Learning of Sentence Embeddings): its corpora and
evaluation sets, its scores, the example of its drawings. Models, tasks and figures are in its notebook.

A corpus has the evaluation sets that its models are scored on: JDDC's dialogues cannot be had, so models trained on
ECD, of the same language and trade, are scored on JDDC too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from dialnb import losses
from dialnb.data import Dataset, MatchingGroup, RetrievalQuery, ScoredPair, collection, load
from dialnb.evaluation import SupportsEncode, as_encoder, evaluate_retrieval, evaluate_similarity, geometry, stacked
from dialnb.evaluation.projection import project
from dialnb.examples.matching import build_retrieval, labelled_utterances, neighbours
from dialnb.examples.readings import Lacking, Limit, Sentences, Sessions
from dialnb.files import Fields, Values
from dialnb.models.baselines import Transformed, WordVectors, flow
from dialnb.models.encoder import Encoder
from dialnb.runs.findings import AS_IT_COMES
from dialnb.runs.grid import Model, Watch, agreement
from dialnb.studies.shared import NAMES, from_scratch, shape_of
from dialnb.training.recipes import get_recipe

Queries = Sequence[RetrievalQuery]
SLUG = "dialoguecse"
NAMED = NAMES[SLUG]
TESTS, REBUILT = NAMED["tests"], NAMED["rebuilt"]
"""Evaluation sets by corpus; those that are rebuilt from intents, by the dialogue act of the utterances that count."""

MATCHING = NAMED["matching"]
"""The dialogue-based rows of T2 and their options in a profile: "-s" reads one turn, "-m" several as one sequence. What
the network of these reads is open in the paper: the context alone, or both sides; and what it is asked."""

ADAPTING = ("sentences", "head_steps")
"""The options of stage one."""

OTHER_STARTS = NAMED["starts"]
"""Lines beside the main one, by what they change of a profile; small encoders made here want a larger rate."""

POOLS_INSTEAD = "retrieval pools rebuilt from the intents of its movie and taxi dialogues"
WORDS_INSTEAD = "the encoder's own word vectors instead of GloVe"


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """Dialogues to train on, the text that encoders are adapted to, other text that encoders made here read before, and
    what chooses the best epoch: scored pairs or, of MDC, retrieval among sentences that are not tested."""

    name: str
    dialogues: Sessions | Lacking
    text: Sentences
    before: Sentences | None = None
    watch: Watch | None = None

    @property
    def is_there(self) -> bool:
        return not isinstance(self.dialogues, Lacking)


@dataclass(frozen=True)
class TestSet:
    """Sentences with the pools that they are ranked in, and pairs with human scores, where there are any."""

    queries: Queries
    pairs: Sequence[ScoredPair] = ()
    max_length: int = 50  # tokens of a sentence (Section 5.2)
    corpus: str = ""  # that models are trained on
    instead: str = ""  # what stands in for the paper's own set

    __test__ = False  # for pytest

    def texts(self) -> list[str]:
        return [query.text for query in self.queries]


def needed(s: Fields) -> list[str]:
    """The corpora that a profile trains on: those with an evaluation set that it asks for."""
    return [name for name, tests in TESTS.items() if set(tests) & set(s["corpora"])]


def corpus(run, name: str, s: Fields | None = None) -> Corpus:
    """Load a corpus at the level of data of a run, as large as the profile ``s`` of this notebook has it.

    Dialogues of fewer than four turns are dropped, but not in MDC (Section 5.1). No encoder is adapted to text that it
    was made of: in Chinese one that is made here reads what is not in the dialogues, and is adapted to these.
    """
    s = s or run.settings
    parts = list(run.data(name, SLUG).values())
    lacking = list(run.lacking(name, SLUG).values())
    if name != "ECD":
        parts = [part.filter(split="train") for part in parts] if name == "SGD" else parts
        dialogues = Lacking(lacking[0]) if lacking else Sessions(parts, 0, s["dialogues"])
        before = Sentences([load("bundled/dialogues", split="train")], parts)
        watch = None
        if name == "MDC" and not lacking:
            queries = rebuilt(run, name, s, besides=rebuilt(run, name, s))
            watch = Watch(score, {"records": TestSet(queries), "dataset": "dev", "limit": None}, "MAP", last=True)
        return Corpus(name, dialogues, Sentences(parts), before, watch)
    complete = list(run.data("ECD complete", SLUG).values())
    dialogues = Lacking(lacking[0]) if lacking and not complete else Sessions(complete or parts, 4, s["dialogues"])
    if s["data"] == "bundled":
        text = [load("bundled/DialogueCSE", variant, "dev") for variant in ("jddc-select", "jddc-sts")]
    else:  # all that can be had but the test sentences
        text = [*complete, *(load(part.dataset, part.variant, part.split) for part in collection("chinese"))]
    before = Sentences(text, parts)
    made_here = not s["chinese_encoder"] or s["raw_start"] != AS_IT_COMES
    own = Sentences((complete or parts) if made_here and parts else text)
    pairs = released(run, "ECD", "pairs", "dev")
    watch = Watch(agreement, {"pairs": pairs}, "Corr", last=True) if pairs else None
    return Corpus(name, dialogues, own, before, watch)


def released(run, name: str, kind: str, split: str) -> Dataset | list:
    """The authors' evaluation files, of a ``kind``: "retrieval" or "pairs"; nothing where they cannot be had."""
    found = run.data(f"{name} {kind}", SLUG)
    return next(iter(found.values())).filter(split=split) if found else []


def rebuilt(run, name: str, s: Fields, besides: Queries = ()) -> list[RetrievalQuery]:
    """Rebuild the retrieval set of English dialogues, which was not released, from their intents, once for a run;
    ``besides`` it, a second one of other sentences, to choose by."""
    return run.stage(
        f"rebuild the {'development' if besides else 'retrieval'} set of {name}",
        rebuild,
        records=load(*NAMED["rebuilt from"][name]),
        size=s["queries"],
        act=REBUILT[name],
        besides=besides,
    )


def rebuild(records: Dataset, size: int, act: str, besides: Queries = ()) -> list[RetrievalQuery]:
    """Make a retrieval set of labelled utterances, those with the dialogue ``act`` only where one is named, and of none
    that is in another set."""
    taken = {query.text for query in besides}
    said = [each for each in labelled_utterances(records, act) if " ".join(each[0].split()) not in taken]
    return build_retrieval(said, size, seed=24)


# --- models -----------------------------------------------------------------------------------------------------------


def start(s: Fields, corpus: Corpus) -> Model:
    """What a corpus starts from: the encoder of its language, as it comes or made a language model again; where the
    profile names no Chinese one, one from scratch."""
    encoder = s["chinese_encoder"] if corpus.name == "ECD" else s["encoder"]
    settings = {"batch_size": s["pretrain_batch"], "max_steps": s["pretrain_steps"]}
    if not s["raw_start_per_seed"]:
        settings["seed"] = s["seed"]  # one encoder for all seeds of the trainings
    if not encoder:
        settings["epochs"] = s["pretrain_epochs"]
        return from_scratch("mini", corpus.before, settings, own_words=True, name="mini-chinese")
    if s["raw_start"] == AS_IT_COMES:
        return Model(start=encoder)
    return Model(s["raw_start"], encoder, corpus.before, settings)


def model(recipe: str, s: Fields, corpus: Corpus, **changes: Any) -> Model:
    """A row of DialogueCSE's tables, with the options of a profile.

    Stage one, "adaptation", continues the pre-training of "BERT, CORPUS"; the others go on from there, with the lower
    half of the layers frozen. The epoch that is best on the development set of the corpus comes back.
    """
    if recipe == "adaptation":
        given: Values = {"data": corpus.text, "start": f"BERT, {corpus.name}"}
    else:
        given = {
            "data": corpus.dialogues,
            "start": f"BERT(adapt), {corpus.name}",
            "settings": {"freeze": "half"},
            "row": f"{get_recipe(recipe).family} on {corpus.name}",
            "labels": {"model": recipe},
            "watch": corpus.watch,
        }
    options = {name: s[name] for name in MATCHING.get(recipe, ADAPTING)} | changes.pop("options", {})
    return Model(recipe, options=options, **given | changes)


# --- evaluation -------------------------------------------------------------------------------------------------------


def view(
    encoder: Encoder,
    how: str,
    flow_steps: int = 200,
    seed: int = 0,
    words: Callable | None = None,
) -> tuple[SupportsEncode, str]:
    """The encoder as a baseline of T2 reads it, and its pooling: ``words``, from texts to vectors, or else its own word
    vectors, ``[CLS]``, the mean of the tokens, or the mean through a transformation of the space."""
    if how == "words":
        return as_encoder(words or WordVectors(encoder)), "mean"
    ways: dict[str, Callable[..., Any]] = {
        "flow": partial(flow, steps=flow_steps, seed=seed),
        "whitening": geometry.whiten,
    }
    return (Transformed(encoder, ways[how]), "mean") if how in ways else (encoder, how)


def score(
    encoder: Encoder,
    records: TestSet,
    dataset: str,
    limit: Limit,
    how: str = "mean",
    trained: bool = False,
    groups: int = 1,
    **given: Any,
) -> DataFrame:
    """MAP and MRR and, where there are human scores, Corr, for each of so many groups of test items; rows say what
    stands in for the paper's data."""
    seen, pooling = view(encoder, how, **given)
    encoding = {"dataset": dataset, "groups": groups, "max_length": records.max_length, "pooling": pooling}
    rows = evaluate_retrieval(seen, records.queries, limit=limit, **encoding)
    rows = rows[rows["protocol"] != "floor"]
    if len(records.pairs):
        rows = stacked([rows, evaluate_similarity(seen, records.pairs, limit=limit, **encoding)])
    elsewhere = f"trained on dialogues of {records.corpus}" if trained and dataset == "JDDC" else ""
    own_words = how == "words" and not given.get("words")
    notes = own_words * WORDS_INSTEAD, records.instead, elsewhere
    return rows.assign(substitute="; ".join(filter(None, notes)))


def chance(
    encoder: SupportsEncode,
    records: TestSet,
    dataset: str,
    limit: Limit,
    groups: int = 1,
    **_: Any,
) -> DataFrame:
    """MAP and MRR of a random order of the same pools."""
    rows = evaluate_retrieval(encoder, records.queries, limit=limit, groups=groups, dataset=dataset)
    return rows[rows["protocol"] == "floor"].assign(protocol="paper", substitute="")


def by_intent(queries: Queries, intents: int, points: int) -> tuple[list[str], list[str]]:
    """Texts and labels of the ``intents`` most frequent classes, ``points`` of each; no text twice."""
    named = DataFrame([(query.intent, query.text) for query in queries], columns=["label", "text"])
    named = named[named["label"] != ""].drop_duplicates()
    sizes = named["label"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    parts = [named[named["label"] == label].head(points) for label in sizes.index[:intents]]
    chosen = stacked([named.head(0), *parts])
    return chosen["text"].tolist(), chosen["label"].tolist()


def sentence_geometry(
    encoder: Encoder, records: TestSet, dataset: str, geometry_sentences: int, how: str = "mean", **given: Any
) -> DataFrame:
    """Uniformity and alignment by intent of some sentences of the 50 most frequent intents."""
    texts, labels = by_intent(records.queries, 50, max(2, geometry_sentences // 50))
    seen, pooling = view(encoder, how, **given)
    return shape_of(seen.encode(texts, max_length=records.max_length, pooling=pooling), labels, dataset=dataset)


def plane_of(
    encoder: Encoder, records: TestSet, dataset: str, method: str, plot_intents: int, plot_points: int, seed: int
) -> DataFrame:
    """Sentences of some intents in a plane; names in scripts that the figure's letters lack become numbers."""
    texts, labels = by_intent(records.queries, plot_intents, plot_points)
    numbers = {name: f"{dataset} intent {i}" for i, name in enumerate(dict.fromkeys(labels), 1)}
    shown = [name if name.isascii() else numbers[name] for name in labels]
    vectors = encoder.encode(texts, max_length=records.max_length)
    return project(vectors, method, seed=seed).assign(part=dataset, label=shown)


# --- the method on one example ----------------------------------------------------------------------------------------


@torch.no_grad()
def token_states(encoder: Encoder, texts: Sequence[str]) -> list[torch.Tensor]:
    """Vectors of all tokens of each text: [tokens, width]."""
    states, packed = encoder.hidden(encoder.tokenize(texts))
    parts = states.float().cpu().split(packed.lengths.tolist())
    return [parts[place] for place in packed.rank.tolist()]


def matching_of(encoder: Encoder, records: MatchingGroup, dataset: str) -> DataFrame:
    """The matching matrix of each context turn with the true response, one row a pair of tokens."""
    before, after = neighbours(records)
    texts = [*before[::-1], *after, records.candidates[0]]
    *turns, response = token_states(encoder, texts)
    *words, answer = (encoder.tokenizer.convert_ids_to_tokens(ids.tolist()) for ids in encoder.tokenize(texts))
    parts = []
    for number, (turn, named) in enumerate(zip(turns, words), 1):
        given = turn, torch.ones(len(turn)), response, torch.ones(len(response))
        matrix = losses.matching_matrix(*given).numpy()
        row, column = np.indices(matrix.shape).reshape(2, -1)
        part = {"turn": number, "row": row, "word": np.take(named, row), "column": column}
        parts.append(DataFrame(part | {"response": np.take(answer, column), "value": matrix.ravel().astype(float)}))
    return stacked(parts)
