"""Projections: seeded, faithful enough to say how faithful, and clear about what they need."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from dialnb.errors import DataError, DialnbError, UnknownName
from dialnb.evaluation.geometry import neighbourhood_preservation
from dialnb.evaluation.projection import project


@pytest.fixture(scope="module")
def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Three directions in eight dimensions, twenty noisy vectors around each."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    return (np.eye(8)[labels] + random.normal(size=(60, 8)) * 0.05).astype(np.float32), labels


@pytest.fixture(scope="module")
def picture(clusters):
    return project(clusters[0], seed=1, perplexity=10)


def test_the_same_seed_gives_the_same_coordinates(clusters, picture):
    assert picture.equals(project(clusters[0], seed=1, perplexity=10))


def test_lengths_do_not_matter_because_the_geometry_is_cosine(clusters, picture):
    doubled = project(clusters[0] * 2, seed=1, perplexity=10)
    np.testing.assert_array_equal(doubled[["x", "y"]], picture[["x", "y"]])


def test_clusters_stay_apart_in_the_picture(clusters, picture):
    _, labels = clusters
    places = picture[["x", "y"]].to_numpy()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.diag(np.full(60, np.inf))
    assert (labels[gaps.argmin(1)] == labels).all()


def test_every_row_carries_the_preservation_of_its_own_picture(clusters, picture):
    expected = neighbourhood_preservation(clusters[0], picture[["x", "y"]].to_numpy())
    assert picture["preservation"].tolist() == pytest.approx([expected] * 60, abs=1e-6)
    assert set(picture["method"]) == {"t-SNE"}


def test_too_few_points_say_how_many_are_needed(clusters):
    with pytest.raises(DataError, match="perplexity 30 and 10 neighbours need at least 31 points, got 25"):
        project(clusters[0][:25], seed=1)


def test_vectors_that_are_not_numbers_are_refused(clusters):
    broken = clusters[0].copy()
    broken[3, 2] = np.nan
    with pytest.raises(DataError, match="finite"):
        project(broken, seed=1, perplexity=10)


def test_an_unknown_method_names_the_known_ones(clusters):
    with pytest.raises(UnknownName, match="tsne, umap"):
        project(clusters[0], "t-snee", seed=1)


def test_a_missing_umap_is_named(clusters, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    monkeypatch.setitem(sys.modules, "umap.umap_", None)
    with pytest.raises(DialnbError, match="umap-learn"):
        project(clusters[0], "umap", seed=1, perplexity=10)


def test_umap_is_seeded_and_keeps_clusters(clusters):
    pytest.importorskip("umap")
    first, second = (project(clusters[0], "umap", seed=3, perplexity=20) for _ in range(2))
    assert first.equals(second)
    assert first["preservation"].iloc[0] > 0.85
    assert set(first["method"]) == {"UMAP"}
