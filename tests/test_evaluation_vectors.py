"""Vectors: blocked products against brute force, geometry against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_standins import TableEncoder
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from dialnb.errors import DataError
from dialnb.evaluation import geometry, vectors
from dialnb.evaluation.similarity import evaluate_nli_probe

UNIT = np.array([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]])


def test_alignment_and_uniformity_of_the_worked_example():
    assert geometry.alignment(UNIT[:3], [0, 0, 1]) == pytest.approx(0.4, abs=1e-9)
    assert geometry.uniformity(UNIT[:3]) == pytest.approx(-1.499775, abs=1e-6)
    assert geometry.alignment(UNIT, [0, 0, 1, 1]) == pytest.approx(0.4, abs=1e-9)
    assert geometry.uniformity(UNIT) == pytest.approx(-1.015692, abs=1e-6)


@settings(max_examples=25)
@given(st.integers(2, 40), st.integers(1, 7), st.integers(0, 10_000))
def test_geometry_follows_its_definition_for_any_scale_block_and_number_of_points(n, block, seed):
    generator = np.random.default_rng(seed)
    points, labels = generator.normal(size=(n, 5)), generator.integers(0, 3, n)
    labels[:2] = 0
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    squared = ((unit[:, None] - unit[None]) ** 2).sum(2)
    upper = np.triu(np.ones((n, n), bool), 1)
    scaled = points * generator.uniform(0.1, 9, (n, 1))
    same = upper & (labels[:, None] == labels[None])
    assert geometry.alignment(scaled, labels) == pytest.approx(squared[same].mean())
    assert geometry.uniformity(scaled, block) == pytest.approx(np.log(np.exp(-2 * squared[upper]).mean()))


def test_geometry_refuses_what_it_cannot_define():
    with pytest.raises(DataError, match="no two vectors share a label"):
        geometry.alignment(UNIT[:2], ["a", "b"])
    with pytest.raises(DataError, match="at least two vectors"):
        geometry.uniformity(UNIT[:1])
    with pytest.raises(DataError, match="1 of 4 vectors hold NaN"):
        geometry.uniformity(np.where(np.arange(4)[:, None] == 1, np.nan, UNIT))


def test_whitened_vectors_have_unit_covariance():
    raw = np.random.default_rng(0).normal(size=(300, 6)) @ np.random.default_rng(1).normal(size=(6, 6)) + 3
    white = geometry.whiten(raw)
    assert np.allclose(white.mean(0), 0, atol=1e-5) and np.allclose(white.T @ white / len(white), np.eye(6), atol=1e-4)
    flat = np.hstack([raw, np.ones((300, 1))])
    assert geometry.whiten(flat).shape == (300, 6)


def test_neighbourhood_preservation_is_one_for_a_copy_and_lower_for_noise():
    generator = np.random.default_rng(0)
    angles = generator.uniform(0, 2 * np.pi, 80)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    assert geometry.neighbourhood_preservation(circle, circle) == pytest.approx(1)
    assert geometry.neighbourhood_preservation(circle, generator.normal(size=(80, 2))) < 0.7


@pytest.mark.parametrize(("count", "k"), [(3, 3), (300, 7), (1000, 1), (1000, 3)])
def test_nearest_agrees_with_scikit_learn_whatever_the_block(count, k, monkeypatch):
    generator = np.random.default_rng(count)
    queries, references = generator.normal(size=(50, 8)), generator.normal(size=(count, 8))
    expected = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(references)
    distances, indices = expected.kneighbors(queries)
    for elements in (1, 4096, 1 << 20):
        monkeypatch.setattr(vectors, "BLOCK_ELEMENTS", elements)
        similarities, found = vectors.nearest(queries, references, k)
        assert (found == indices).all() and np.allclose(similarities, 1 - distances)


def test_nearest_in_float32_finds_what_float64_brute_force_finds():
    generator = np.random.default_rng(3)
    queries, references = (generator.normal(size=(n, 32)).astype(np.float32) for n in (40, 3000))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries.astype(float), references.astype(float))]
    exact = unit[0] @ unit[1].T
    similarities, found = vectors.nearest(queries, references, 5)
    assert np.allclose(np.take_along_axis(exact, found, 1), -np.sort(-exact, 1)[:, :5], atol=1e-6)
    assert np.allclose(similarities, -np.sort(-exact, 1)[:, :5], atol=1e-6)


@pytest.mark.parametrize("count", [20, 2000])
def test_equal_neighbours_come_in_order_of_their_index(count):
    references = np.tile([[0.0, 1.0]], (count, 1))
    references[[4, 11, 17]] = [1.0, 0.0]
    _, found = vectors.nearest(np.array([[2.0, 0.0]]), references, 5)
    assert found.tolist() == [[4, 11, 17, 0, 1]]


def test_neighbours_are_real_references_even_if_all_of_them_point_away():
    references = np.random.default_rng(0).normal(size=(700, 3)) * 0.1 + [1, 0, 0]
    similarities, found = vectors.nearest(np.array([[-1.0, 0, 0]]), references, 2)
    assert found.max() < 700 and (similarities < 0).all()


def test_nearest_refuses_more_neighbours_than_there_are():
    with pytest.raises(DataError, match="5 neighbours among 4 references"):
        vectors.nearest(UNIT, UNIT, 5)


def test_each_distinct_text_is_encoded_once_and_blank_ones_become_a_full_stop():
    encoder = TableEncoder({"a": [1, 0], "b": [0, 1], ".": [1, 1]})
    found = vectors.encode(encoder, ["a", "b", "a", "", "  "], max_length=9)
    assert encoder.asked == ["a", "b", "."] and encoder.settings == [{"max_length": 9}]
    assert found.tolist() == [[1, 0], [0, 1], [1, 0], [1, 1], [1, 1]]


def test_pair_scores_are_the_same_for_equal_vectors_wherever_they_stand(monkeypatch):
    generator = np.random.default_rng(0)
    points = generator.normal(size=(9, 37)).astype(np.float32)
    rows, columns = generator.integers(0, 9, 500), generator.integers(0, 9, 500)
    whole = vectors.pair_scores(points, points, rows, columns)
    monkeypatch.setattr(vectors, "BLOCK_ELEMENTS", 74 * 13)
    assert (vectors.pair_scores(points, points, rows, columns) == whole).all()
    for pair in {(r, c) for r, c in zip(rows, columns)}:
        assert len(set(whole[(rows == pair[0]) & (columns == pair[1])])) == 1


def test_the_nli_probe_counts_strict_wins_of_the_entailment():
    encoder = TableEncoder({"a": [1, 0], "near": [0.9, 0.1], "far": [0, 1]})
    frame = evaluate_nli_probe(
        encoder, [("a", "near", "far"), ("a", "far", "near"), ("a", "near", "near")], dataset="NLI"
    )
    assert frame.value.item() == pytest.approx(100 / 3) and frame.n.item() == 3


def test_encode_once_asks_for_each_text_and_setting_a_single_time():
    from dialnb.evaluation.vectors import EncodeOnce

    asked = []

    class Counting:
        def encode(self, texts, **settings):
            asked.extend((text, settings.get("max_length")) for text in texts)
            return np.array([[len(text), settings.get("max_length", 0)] for text in texts], np.float32).reshape(-1, 2)

    once = EncodeOnce(Counting())
    assert once.encode(["ab", "c", "ab"], max_length=4).tolist() == [[2, 4], [1, 4], [2, 4]]
    assert once.encode(["c", "dd"], max_length=4).tolist() == [[1, 4], [2, 4]]
    assert once.encode(["c"], max_length=8).tolist() == [[1, 8]]
    assert once.encode([], max_length=4).shape == (0, 2)
    assert asked == [("ab", 4), ("c", 4), ("dd", 4), ("c", 8)]


def test_what_was_encoded_before_is_not_asked_again_not_even_an_empty_question():
    asked = []

    class Encoder:
        def encode(self, texts, **settings):
            asked.append(list(texts))
            return np.array([[len(text), 1.0] for text in texts]).reshape(-1, 2)

    once = vectors.EncodeOnce(Encoder())
    assert np.array_equal(once.encode(["a", "bb"]), once.encode(["a", "bb"]))
    assert once.encode([]).shape == (0, 2) and asked == [["a", "bb"], []]
