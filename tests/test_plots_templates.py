"""TaDSE's drawings and panels: what a reader must find in them, and what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from shared import from_notebook

from dialnb import plots
from dialnb.errors import DataError


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pd.DataFrame:
    """What the notebook draws."""
    return from_notebook("tadse", tmp_path_factory.mktemp("notebook"), "drawing").drawing()


def words(figure) -> str:
    return " ".join(text.get_text().replace("\n", " ") for axes in figure.axes for text in axes.texts)


def test_the_drawing_of_clusters_shows_utterances_templates_and_fillings(data):
    shown = words(plots.template_clusters(data))
    assert all(intent in shown for intent in data["intent"].unique())
    for text in data[data["kind"].isin(["utterance", "template", "filled"])]["text"]:
        assert text in shown


def test_the_system_shows_the_values_of_the_entity_book_and_all_losses(data):
    shown = words(plots.template_system(data))
    assert all(
        part in shown for part in ("music_item: song", "{SLOT}", "L_u", "L_t", "L_pair", "M_A", "λ t + (1 − λ) u")
    )


def points(seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    labels = ["PlayMusic", "AddToPlaylist", "GetWeather"] * 20
    frames = [
        pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), "label": labels, "model": name})
        for name in ("SimCSE", "TaDSE")
    ]
    return pd.concat(frames, ignore_index=True).assign(method="t-SNE", preservation=0.9)


def test_the_square_lies_where_the_highlighted_intents_meet_and_not_at_a_chance_pair():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal((0, 0), 1, (40, 2)), rng.normal((1, 0), 1, (40, 2)), [[30, 30], [30, 30]]])
    labels = ["PlayMusic"] * 40 + ["AddToPlaylist"] * 40 + ["PlayMusic", "AddToPlaylist"]
    data = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "label": labels, "model": "SimCSE"})
    figure = plots.highlighted_panels(data, highlight=["PlayMusic", "AddToPlaylist"])
    (x0, x1), (y0, y1) = (getattr(figure.axes[1], f"get_{axis}lim")() for axis in "xy")
    inside = data[data["x"].between(x0, x1) & data["y"].between(y0, y1)]
    assert (inside["label"].value_counts() == 40).all() and len(inside) == 80


def test_without_zoom_there_is_one_row_and_a_legend_for_the_others():
    figure = plots.highlighted_panels(points(), highlight=["GetWeather"], zoom=False)
    assert len(figure.axes) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GetWeather", "other intents"]


@pytest.mark.parametrize("draw", [plots.template_clusters, plots.template_system, plots.template_losses])
def test_missing_columns_are_named(draw):
    with pytest.raises(DataError, match=f"{draw.__name__} needs the column"):
        draw(pd.DataFrame({"text": ["a"]}))
