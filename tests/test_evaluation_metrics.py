"""Metrics: the worked examples, independent references, and what must hold for any input."""

from __future__ import annotations

from inspect import signature
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, f1_score

from dialnb.errors import DataError
from dialnb.evaluation import evaluate_prototypes
from dialnb.evaluation.metrics import (
    COLUMNS,
    accuracy,
    f1_scores,
    pad_lists,
    ranked_labels,
    ranking_metrics,
    tidy_frame,
    tidy_rows,
    top_k,
)
from dialnb.evaluation.similarity import chance, spearman

SCORES = np.array(
    [
        [0.3, 0.9, 0.1, 0.8, 0.2, 0.15, 0.05, 0.4, 0.6, 0.01],
        [0.7, 0.2, 0.95, 0.5, 0.1, 0.3, 0.05, 0.4, 0.6, 0.01],
    ]
)
LABELS = np.zeros((2, 10), int)
LABELS[0, 0] = 1
LABELS[1, [1, 2, 7]] = 1


def test_ranking_metrics_of_the_worked_example():
    first, second = (ranking_metrics(SCORES[[i]], LABELS[[i]])[0] for i in range(2))
    assert first == pytest.approx({"R10@1": 0, "R10@2": 0, "R10@5": 1, "MRR": 0.2, "MAP": 0.2, "P@1": 0})
    assert second["R10@1"] == second["R10@2"] == pytest.approx(1 / 3)
    assert second["R10@5"] == pytest.approx(2 / 3)
    assert second["MAP"] == pytest.approx(0.609524, abs=1e-6)
    both, counts = ranking_metrics(SCORES, LABELS)
    expected = {"R10@1": 1 / 6, "R10@2": 1 / 6, "R10@5": 5 / 6, "MRR": 0.6, "MAP": 0.404762, "P@1": 0.5}
    assert both == pytest.approx(expected, abs=1e-6)
    assert counts == {"n": 2, "without_positive": 0, "all_positive": 0}


def test_chance_of_a_random_order_matches_the_simulated_floors():
    assert chance(30, 70) == pytest.approx((0.460, 0.634), abs=4e-3)
    assert chance(30, 100) == pytest.approx((0.329, 0.519), abs=4e-3)
    first_at = [comb(70 - rank, 29) / comb(70, 30) for rank in range(1, 42)]
    assert chance(30, 70)[1] == pytest.approx(sum(p / rank for rank, p in enumerate(first_at, 1)))
    assert chance(5, 5) == pytest.approx((1, 1))
    order = np.random.default_rng(0).random((20_000, 12))
    labels = np.tile(np.arange(12) < 4, (20_000, 1)).astype(int)
    simulated = ranking_metrics(order, labels)[0]
    assert chance(4, 12) == pytest.approx((simulated["MAP"], simulated["MRR"]), abs=0.006)


def test_f1_counts_absent_classes_as_zero_and_reports_present_ones_apart():
    labels = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    predictions = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]])
    values = f1_scores(labels, predictions)
    assert values == pytest.approx({"Micro-F1": 80, "Macro-F1": 45, "Macro-F1 present": 90})


@given(arrays(bool, (9, 4)), arrays(bool, (9, 4)))
def test_f1_agrees_with_scikit_learn(labels, predictions):
    values = f1_scores(labels, predictions)
    for average in ("micro", "macro"):
        expected = 100 * f1_score(labels, predictions, average=average, zero_division=0)
        assert values[f"{average.title()}-F1"] == pytest.approx(expected)


def test_spearman_of_the_worked_examples():
    assert spearman([1, 2, 3, 4, 5], [0.1, 0.4, 0.3, 0.7, 0.6]) == pytest.approx(80, abs=1e-4)
    assert spearman([5, 5, 1, 4, 2, 1], [0.9, 0.8, 0.2, 0.85, 0.3, 0.1]) == pytest.approx(88.2735, abs=1e-4)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-20, 20)), min_size=2, max_size=40))
def test_spearman_agrees_with_scipy_and_is_nan_where_one_side_is_constant(pairs):
    gold, model = map(list, zip(*pairs))
    if len(set(gold)) == 1 or len(set(model)) == 1:
        assert np.isnan(spearman(gold, model))
    else:
        assert spearman(gold, model) == pytest.approx(100 * spearmanr(gold, model).statistic, abs=1e-9)


lists_without_ties = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.permutations(range(n)),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any),
        st.permutations(range(n)),
    )
)


@given(lists_without_ties)
def test_ranking_metrics_are_bounded_agree_with_scikit_learn_and_ignore_candidate_order(drawn):
    scores, labels, order = (np.array(part) for part in drawn)
    found = ranking_metrics(scores[None], labels[None], ks=(1, len(scores)))[0]
    n = len(scores)
    assert 1 / n <= found["MRR"] <= 1 and 0 <= found["MAP"] <= 1 and found[f"R{n}@{n}"] == 1
    assert found["MAP"] == pytest.approx(average_precision_score(labels, scores))
    assert found == pytest.approx(ranking_metrics(scores[order][None], labels[order][None], ks=(1, n))[0])
    assert found == pytest.approx(ranking_metrics(scores[None], labels[None], ks=(1, n), ties="file")[0])


@given(lists_without_ties)
def test_monotone_transforms_of_the_scores_change_nothing(drawn):
    scores, labels, _ = (np.array(part) for part in drawn)
    bent = np.exp(scores / 3.0) - 5
    assert ranking_metrics(scores[None], labels[None])[0] == ranking_metrics(bent[None], labels[None])[0]


@given(arrays(np.int8, (4, 6), elements=st.integers(0, 2)), arrays(np.int8, (4, 6), elements=st.integers(0, 1)))
def test_ties_against_the_positive_never_score_higher_than_file_order(scores, labels):
    labels[:, 0] = 1
    against, file = (ranking_metrics(scores, labels, ties=ties)[0] for ties in ("against", "file"))
    assert all(against[metric] <= file[metric] + 1e-12 for metric in against)


def test_a_tied_positive_ranks_behind_every_equal_negative_unless_file_order_decides():
    scores, labels = np.array([[0.5, 0.5, 0.5, 0.1]]), np.array([[1, 0, 0, 0]])
    assert ranked_labels(scores, labels).tolist() == [[0, 0, 1, 0]]
    assert ranked_labels(scores, labels, ties="file").tolist() == [[1, 0, 0, 0]]


def test_lists_without_a_positive_leave_the_denominator_and_full_ones_are_counted():
    scores = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.3]])
    found, counts = ranking_metrics(scores, np.array([[0, 0], [1, 0], [1, 1]]), ks=(1,))
    assert counts == {"n": 2, "without_positive": 1, "all_positive": 1}
    assert found["R2@1"] == pytest.approx((1 + 0.5) / 2)


def test_padding_lists_of_different_length_changes_no_metric():
    scores, labels = [[0.3, 0.2, 0.9], [0.1, 0.4]], [[1, 0, 0], [1, 0]]
    padded, counts = ranking_metrics(
        pad_lists(np.concatenate(scores), [3, 2], -np.inf), pad_lists(np.concatenate(labels), [3, 2], 0)
    )
    alone = [ranking_metrics(np.array([s]), np.array([l]))[0]["MAP"] for s, l in zip(scores, labels)]
    assert padded["MAP"] == pytest.approx(np.mean(alone))
    assert counts["all_positive"] == 0


def test_undefined_inputs_are_refused_with_a_sentence():
    with pytest.raises(DataError, match="NaN score"):
        ranking_metrics(np.array([[np.nan, 1.0]]), np.array([[1, 0]]))
    with pytest.raises(DataError, match="none of the 1 candidate lists has a positive"):
        ranking_metrics(np.ones((1, 2)), np.zeros((1, 2), int))
    with pytest.raises(DataError, match="at least one test item"):
        accuracy(np.array([]), np.array([]))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 99))
def test_top_k_grows_with_k_up_to_one_hundred_percent(ranks, k):
    values = top_k(np.array(ranks), (k, k + 1, 100))
    assert values[f"Top-{k}"] <= values[f"Top-{k + 1}"] <= values["Top-100"] == 100


def test_rows_are_tidy_with_settings_after_the_fixed_columns():
    rows = tidy_rows({"A": 1, "B": 2}, task="t", dataset="d", protocol="code", n={"A": 3, "B": 4}, seed=7, shots=5)
    frame = tidy_frame(rows)
    assert list(frame.columns) == [*COLUMNS, "shots"]
    assert frame[["metric", "value", "n", "seed", "shots"]].values.tolist() == [["A", 1, 3, 7, 5], ["B", 2, 4, 7, 5]]


def test_the_help_of_an_evaluator_shows_that_it_takes_the_name_of_a_dataset():
    assert list(signature(evaluate_prototypes).parameters) == [
        "encoder",
        "records",
        "dataset",
        "limit",
        "train_limit",
        "shots",
        "seeds",
        "forms",
        "encoding",
    ]
