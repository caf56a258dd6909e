"""Floors: what is reached without training, on the text that models see, as rows and items beside theirs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dialnb.data.records import IntentUtterance, QuestionAnswer, RetrievalQuery, SelectionGroup
from dialnb.evaluation import (
    evaluate_blocks,
    evaluate_candidates,
    evaluate_knn,
    evaluate_prototypes,
    evaluate_retrieval,
)
from dialnb.evaluation.actions import ActionExample, act_matrix
from dialnb.evaluation.floors import Lexical, chance_rows, lexical_scorer
from dialnb.evaluation.linear import probe_texts
from dialnb.evaluation.metrics import f1_scores
from dialnb.evaluation.vectors import EncodeOnce, normalise
from dialnb.models.encoder import load_encoder

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["my old kernel does not boot", "the kernel boots", "a table for two please", "two tables are free", "thanks"]


@pytest.fixture(scope="module")
def mini():
    return load_encoder("mini", device="cpu")


def test_rare_words_weigh_more_and_marks_nothing(mini):
    words = Lexical(mini, TEXTS)
    vectors = words.encode(["kernel [SEP] please", "[SEP]"], max_length=32)
    assert sparse.issparse(vectors) and vectors[1].nnz == 0
    weight = {mini.tokenizer.convert_ids_to_tokens(int(i)): v for i, v in zip(vectors[0].indices, vectors[0].data)}
    assert set(weight) == {"kernel", "please"} and weight["please"] > weight["kernel"]


def test_a_large_source_is_thinned_and_words_it_lost_are_the_rarest(mini, monkeypatch):
    monkeypatch.setattr("dialnb.evaluation.floors.ENOUGH_TEXTS", 2)
    words = Lexical(mini, ["kernel one", "kernel two", "kernel three"])
    kernel, unseen = mini.tokenizer.convert_tokens_to_ids(["kernel", "table"])
    assert words.weights[kernel] == 0 and words.weights[unseen] == pytest.approx(np.log(3))


def test_words_beyond_the_visible_tokens_do_not_count(mini):
    group = SelectionGroup("log:1#2", ("my kernel", "hello " * 60), ("kernel", "two"), (1, 0))
    assert lexical_scorer(mini, [group], 512)([group])[0][0] > 0
    assert lexical_scorer(mini, [group], 32)([group])[0][0] == 0


def test_bm25_asks_with_plain_counts_and_long_texts_pay(mini):
    words = Lexical(mini, TEXTS, "BM25")
    asked = EncodeOnce(words).asking(["kernel"], max_length=32)
    short, long = words.encode(["the kernel boots", "the kernel boots and boots and boots again"], max_length=32)
    assert asked.data.tolist().count(1.0) >= 1
    assert (asked @ short.T).toarray().item() > (asked @ long.T).toarray().item() > 0


def test_words_answer_wherever_an_encoder_is_asked(mini):
    words = Lexical(mini, TEXTS)
    pairs = [
        QuestionAnswer("does the kernel boot", "my old kernel does not boot"),
        QuestionAnswer("a table for two", "two tables are free"),
    ]
    assert evaluate_blocks(words, pairs, dataset="made", size=2, seeds=(0,))["value"].eq(100).all()
    lists = [
        SelectionGroup(str(i), (asked,), TEXTS[:4], (1, 0, 0, 0)) for i, asked in enumerate(["kernel boot", "old"])
    ]
    assert evaluate_candidates(words, lists, dataset="made")["value"].eq(100).all()
    train = [IntentUtterance(text, "boot" if "kernel" in text else "book") for text in TEXTS[:4]]
    test = [IntentUtterance("kernel", "boot"), IntentUtterance("table for two", "book")]
    assert evaluate_prototypes(words, train, test, dataset="made", shots=(1,), seeds=(0,))["value"].eq(100).all()
    assert evaluate_knn(words, train, test, dataset="made")["value"].eq(100).all()
    pool = [
        RetrievalQuery(0, "old kernel", (1,), (2, 3)),
        *(RetrievalQuery(i, TEXTS[i - 1], (), ()) for i in (1, 2, 3)),
    ]
    for floor in ("TF-IDF", "BM25"):
        found = evaluate_retrieval(Lexical(mini, pool, floor), pool, dataset="made")
        assert found.query("protocol == 'paper' and metric == 'MAP'")["value"].item() == 100


def test_sparse_vectors_have_unit_length_as_dense_ones_do():
    dense = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(normalise(sparse.csr_matrix(dense)).toarray(), normalise(dense))


def test_the_majority_answers_with_the_most_frequent_combination():
    train = [ActionExample("", acts) for acts in (("inform", "offer"), ("inform", "offer"), ("inform",))]
    test = [ActionExample("", ("inform", "offer")), ActionExample("", ("request",))]
    acts = ["inform", "offer", "request"]
    learned, gold = (act_matrix(part, acts) for part in (train, test))
    logits, settings = probe_texts(None, [[""] * 3, [], [""] * 2], [learned], f1_scores, 8, "majority")
    assert settings == {"method": "majority"} and (logits > 0).tolist() == [[True, True, False]] * 2
    assert f1_scores(gold, logits > 0)["Micro-F1"] == pytest.approx(100 * 4 / 7)
    numbers = np.array([2, 1, 1, 2, 0])
    assert probe_texts(None, [[""] * 5, [], [""]], [numbers], f1_scores, 8, "majority")[0].argmax(1).tolist() == [1]


def test_chance_follows_from_metric_and_settings_alone():
    rows = pd.DataFrame(
        {
            "metric": ["R10@2", "Top-3", "Top-1", "Adversarial first", "Accuracy", "Accuracy", "Silhouette"],
            "candidates": [np.nan, 100, 101, np.nan, np.nan, np.nan, np.nan],
            "task": ["response selection"] * 3 + ["adversarial selection", "NLI probe", "intent", "clusters"],
            "value": 0.7,
            "model": "BERT",
            "encoder": "mini",
        }
    )
    found = chance_rows(rows)
    assert found["value"].tolist() == pytest.approx([0.2, 3, 100 / 101, 0.1, 50])
    assert set(found["model"]) == {"Chance"} and set(found["encoder"]) == {"none"}
