"""Few-shot splits, prototypes, nearest neighbours and out-of-scope detection."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from evaluation_standins import TableEncoder, WordEncoder
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from dialnb.data.records import IntentUtterance
from dialnb.errors import DataError
from dialnb.evaluation.intent import evaluate_knn, evaluate_prototypes, knn_predictions, prototype_predictions
from dialnb.evaluation.metrics import COLUMNS
from dialnb.evaluation.sampling import few_shot_split, response_blocks, response_split
from dialnb.evaluation.scope import OUT, detect, evaluate_scope, scope_metrics, thresholds
from dialnb.evaluation.vectors import normalise

# --- few-shot splits ---------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 99))
def test_a_split_draws_up_to_two_k_per_label_and_gives_the_larger_half_to_training(labels, shots, seed):
    split = few_shot_split(labels, shots, seed)
    taken = [*split.train, *split.validation]
    assert len(set(taken)) == len(taken)
    for label, available in Counter(labels).items():
        drawn = min(2 * shots, available)
        assert sum(labels[row] == label for row in split.train) == (drawn + 1) // 2
        assert sum(labels[row] == label for row in split.validation) == drawn // 2


def test_a_split_follows_pythons_random_stream_label_by_label_in_order_of_appearance():
    labels = ["b", "a", "b", "b", "a", "b", "c"]
    random.seed(3)
    expected = [random.sample(rows, n) for rows, n in (([0, 2, 3, 5], 2), ([1, 4], 2), ([6], 1))]
    split = few_shot_split(labels, 1, seed=3)
    assert split.train.tolist() == [expected[0][0], expected[1][0], 6]
    assert split.validation.tolist() == [expected[0][1], expected[1][1]]


def test_a_split_leaves_the_global_random_stream_alone_and_repeats():
    labels = ["a", "b"] * 20
    random.seed(0)
    before = random.getstate()
    first, second = few_shot_split(labels, 3, 5), few_shot_split(labels, 3, 5)
    assert random.getstate() == before and (first.train == second.train).all()
    assert set(first.train.tolist()) != set(few_shot_split(labels, 3, 6).train.tolist())


def test_multilabel_splits_skip_examples_taken_for_an_earlier_act():
    everything = [("inform", "request")] * 6
    split = few_shot_split(everything, 3, seed=0)
    assert len(split.train) + len(split.validation) == 6
    mixed = [("inform",)] * 5 + [("inform", "request")] * 5 + [("request",)] * 5
    for seed in range(10):
        split = few_shot_split(mixed, 2, seed)
        taken = [*split.train, *split.validation]
        assert len(taken) == len(set(taken)) <= 8


def test_response_blocks_are_a_shuffle_cut_into_full_blocks():
    blocks = response_blocks(1030, seed=1)
    assert blocks.shape == (10, 100) and len(np.unique(blocks)) == 1000
    assert (response_blocks(1030, seed=1) == blocks).all() and (response_blocks(1030, seed=2) != blocks).any()
    with pytest.raises(DataError, match="99 pairs do not fill one block of 100"):
        response_blocks(99)


def test_response_splits_are_disjoint():
    split = response_split(1000, 500, seed=0)
    assert len(split.train) == 500 and len(split.validation) == 100
    assert not set(split.train) & set(split.validation)
    with pytest.raises(DataError, match="there are only 599"):
        response_split(599, 500, seed=0)


# --- prototypes and neighbours -----------------------------------------------------------------------------------


def test_prototype_forms_disagree_on_the_worked_example():
    support = np.array([[1, 0], [0, 1], [0.6, 0.8], [0.6, 0.8]])
    query = np.array([[1, 0.98]])
    assert prototype_predictions(query, support, np.array([0, 0, 1, 1]), "code").tolist() == [1]
    assert prototype_predictions(query, support, np.array([0, 0, 1, 1]), "cosine").tolist() == [0]


def test_with_one_shot_both_forms_agree():
    generator = np.random.default_rng(0)
    queries, support, labels = generator.normal(size=(200, 6)), generator.normal(size=(9, 6)), np.arange(9)
    first, second = (prototype_predictions(queries, support, labels, form) for form in ("code", "cosine"))
    assert (first == second).all()


def _intents(n: int, seed: int, labels: str = "abcd") -> list[IntentUtterance]:
    generator = random.Random(seed)
    rows = []
    for _ in range(n):
        label = generator.choice(labels)
        words = [f"{label}{generator.randrange(6)}" for _ in range(3)] + [f"noise{generator.randrange(9)}"]
        rows.append(IntentUtterance(" ".join(words), label))
    return rows


def test_ten_seeds_of_one_and_five_shots_cost_one_pass_over_the_texts():
    encoder = WordEncoder()
    asked: list[str] = []
    plain = encoder.encode
    encoder.encode = lambda texts, **kw: asked.extend(texts) or plain(texts, **kw)
    train, test = _intents(80, 0), _intents(50, 1)
    frame = evaluate_prototypes(encoder, train, test, dataset="toy", forms=("code", "cosine"))
    assert len(asked) <= len({u.text for u in train}) + len({u.text for u in test})
    assert list(frame.columns[:7]) == list(COLUMNS) and len(frame) == 2 * 10 * 2
    assert set(frame.protocol) == {"code", "paper"} and (frame.n == 50).all()
    means = frame[frame.protocol == "code"].groupby("shots").value.mean()
    assert 25 < means[1] < means[5] <= 100


def test_prototypes_equal_a_float64_reference_run_by_hand():
    train, test, encoder = _intents(60, 2), _intents(30, 3), WordEncoder()
    split = few_shot_split([u.intent for u in train], 5, 4)
    unit = [normalise(encoder.encode([u.text for u in part]).astype(float)) for part in (train, test)]
    right = 0
    for vector, utterance in zip(unit[1], test):
        scores = {}
        for label in "abcd":
            rows = [row for row in split.train if train[row].intent == label]
            scores[label] = vector @ unit[0][rows].mean(0)
        right += max(scores, key=scores.get) == utterance.intent
    frame = evaluate_prototypes(encoder, train, test, dataset="toy", shots=(5,), seeds=(4,))
    assert frame.value.item() == pytest.approx(100 * right / 30)


def test_knn_agrees_with_scikit_learn_for_one_neighbour():
    generator = np.random.default_rng(0)
    references, labels = generator.normal(size=(400, 5)), generator.integers(0, 7, 400)
    queries = generator.normal(size=(60, 5))
    expected = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(references, labels).predict(queries)
    assert (knn_predictions(queries, references, labels)[1] == expected).all()


def test_knn_takes_the_most_frequent_label_and_breaks_ties_by_similarity():
    angles = np.radians([1, 2, 3, 4, 5, 6])
    references, labels = np.stack([np.cos(angles), np.sin(angles)], 1), np.array([7, 5, 5, 7, 3, 3])
    votes = knn_predictions(np.array([[1.0, 0.0]]), references, labels, ks=(1, 2, 3, 4, 6))
    assert {k: int(v[0]) for k, v in votes.items()} == {1: 7, 2: 7, 3: 5, 4: 7, 6: 7}


def test_knn_rows_name_k():
    frame = evaluate_knn(WordEncoder(), _intents(60, 0), _intents(30, 1), dataset="toy")
    assert frame.k.tolist() == [1] and (frame.value > 50).all()


# --- out-of-scope detection --------------------------------------------------------------------------------------

SCORES = np.array(
    [[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.2, 0.3, 0.5], [0.4, 0.45, 0.35], [0.7, 0.6, 0.5], [0.1, 0.2, 0.95]]
)
SCOPE_LABELS = np.array([0, 1, 2, OUT, OUT, 2])


@pytest.mark.parametrize(
    ("rows", "name", "threshold", "predicted", "values"),
    [
        ("raw", "mean-std", 0.528105, [0, 1, OUT, OUT, 0, 2], (0.666667, 0.75, 0.666667, 0.5, 0.645833)),
        ("raw", "mean", 0.716667, [0, 1, OUT, OUT, OUT, 2], (0.833333, 0.75, 0.833333, 1, 0.854167)),
        ("normalised", "mean-std", 0.697187, [0, 1, 2, OUT, OUT, 2], (1, 1, 1, 1, 1)),
        ("normalised", "mean", 0.833095, [0, 1, OUT, OUT, OUT, 2], (0.833333, 0.75, 0.833333, 1, 0.854167)),
    ],
)
def test_out_of_scope_metrics_of_the_worked_example(rows, name, threshold, predicted, values):
    scores = normalise(SCORES) if rows == "normalised" else SCORES
    found = thresholds(scores.max(1))[name]
    assert found == pytest.approx(threshold, abs=1e-6)
    predictions = detect(scores, np.arange(3), found)
    assert predictions.tolist() == predicted
    metrics = scope_metrics(predictions, SCOPE_LABELS)
    assert list(metrics.values()) == pytest.approx([100 * v for v in values], abs=1e-4)


def test_a_sample_exactly_at_the_threshold_is_rejected():
    assert detect(np.array([[0.5, 0.2], [0.2, 0.6]]), np.arange(2), 0.5).tolist() == [OUT, 1]


def _scope_data() -> tuple[list[IntentUtterance], list[IntentUtterance]]:
    train = _intents(60, 0) + [IntentUtterance(f"odd{i} odd{i + 1}", "oos") for i in range(12)]
    test = _intents(45, 1) + [IntentUtterance(f"odd{i} weird{i}", "oos") for i in range(10)]
    return train, test


def _values(frame, **where) -> dict[str, float]:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.groupby("metric").value.mean().to_dict()


def test_scope_rows_hold_three_protocols_two_thresholds_and_the_trivial_floors():
    frame = evaluate_scope(WordEncoder(), *_scope_data(), dataset="toy", seeds=range(2))
    assert len(frame) == 2 * 2 * (3 * 2 + 2) * 5
    always = _values(frame, protocol="floor", threshold="always-reject")
    never = _values(frame, protocol="floor", threshold="never-reject")
    assert always["OOS-Accuracy"] == pytest.approx(100 * 10 / 55) and always["OOS-Recall"] == 100
    assert always["In-Accuracy"] == 0 and never["OOS-Recall"] == 0
    assert never["OOS-Accuracy"] == pytest.approx(100 * 45 / 55)
    assert frame.set_index("metric").n.to_dict() == {
        "Accuracy": 55, "In-Accuracy": 45, "OOS-Accuracy": 55, "OOS-Recall": 10, "Ave": 55
    }  # fmt: skip


def test_the_clean_threshold_does_not_read_the_test_set_while_the_others_do(monkeypatch):
    train, test = _scope_data()
    kept = test[:20] + test[-10:-5]
    decisions: list[tuple[int, ...]] = []

    def recorded(predictions, labels):
        decisions.append(tuple(predictions[: len(kept)].tolist()))
        return scope_metrics(predictions, labels)

    monkeypatch.setattr("dialnb.evaluation.scope.scope_metrics", recorded)
    outcomes = {}
    for protocol in ("clean", "paper", "code"):
        outcomes[protocol] = set()
        for extra in ([], [IntentUtterance("zz yy xx", "oos")] * 40, kept[:1] * 60):
            decisions.clear()
            evaluate_scope(WordEncoder(), train, kept + extra, dataset="toy", seeds=(0,), protocols=(protocol,))
            outcomes[protocol].add(tuple(decisions))
    assert len(outcomes["clean"]) == 1
    assert len(outcomes["paper"]) == len(outcomes["code"]) == 3


@pytest.mark.parametrize("protocol", ["code", "paper"])
@pytest.mark.parametrize("dim", [3, 4, 6])
def test_scope_protocols_equal_a_float64_reference_run_by_hand(protocol, dim):
    (train, test), encoder = _scope_data(), WordEncoder(dim)
    split = few_shot_split([u.intent for u in train], 5, 0)
    support, queries = (normalise(encoder.encode([u.text for u in part]).astype(float)) for part in (train, test))
    labels = ["a", "b", "c", "d"] + ["oos"] * (protocol == "code")
    means = [support[[row for row in split.train if train[row].intent == label]].mean(0) for label in labels]
    scores = queries @ np.array(means).T
    if protocol == "code":
        scores /= np.linalg.norm(scores, axis=1, keepdims=True)
    best = scores.max(1)
    predicted = [labels[i] if b > best.mean() - best.std() else "oos" for i, b in zip(scores.argmax(1), best)]
    right = np.mean([p == u.intent for p, u in zip(predicted, test)])
    frame = evaluate_scope(encoder, train, test, dataset="toy", shots=(5,), seeds=(0,), protocols=(protocol,))
    assert _values(frame, protocol=protocol, threshold="mean-std")["Accuracy"] == pytest.approx(100 * right)


def test_the_code_protocol_can_reject_by_its_own_prototype():
    table = {
        "a1": [1, 0, 0],
        "a2": [1, 0.1, 0],
        "o1": [0, 0, 1],
        "o2": [0, 0.1, 1],
        "x": [0, 0.05, 1],
        "y": [1, 0.05, 0],
    }
    train = [IntentUtterance(text, "a" if text.startswith("a") else "oos") for text in ("a1", "a2", "o1", "o2")]
    test = [IntentUtterance("x", "oos"), IntentUtterance("y", "a")]
    frame = evaluate_scope(TableEncoder(table), train, test, dataset="toy", shots=(1,), seeds=(0,))
    assert _values(frame, protocol="code", threshold="mean-std")["OOS-Recall"] == 100


def test_scope_says_what_is_missing():
    train, test = _scope_data()
    inside = [u for u in train if u.intent != "oos"]
    with pytest.raises(DataError, match="no training label is 'oos'"):
        evaluate_scope(WordEncoder(), inside, test, dataset="toy")
    assert len(evaluate_scope(WordEncoder(), inside, test, dataset="toy", protocols=("paper", "clean")))
    with pytest.raises(DataError, match="both in-scope and out-of-scope"):
        evaluate_scope(WordEncoder(), train, [u for u in test if u.intent != "oos"], dataset="toy")
