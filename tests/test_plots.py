"""Figures: drawn from plain frames, labelled, told apart without colour, and the same again from stored data."""

from __future__ import annotations

import io
import lzma
from itertools import product

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from dialnb import plots
from dialnb.errors import DataError
from dialnb.plots.style import BLUE, GREEN, INK, looks, png, smaller
from dialnb.runs.figures import STYLES, redraw, save_figure


@pytest.fixture
def spaces() -> pd.DataFrame:
    """Two models, two kinds of picture: labelled intents, and question-answer pairs among random responses."""
    random, frames = np.random.default_rng(0), []
    pairs = [f"q{i // 3}" if i % 3 < 2 else None for i in range(12)]
    kinds = {
        "intents": (["card_lost", "weather", "out of scope"] * 4, [None] * 12),
        "answers": (["question", "answer", "random response"] * 4, pairs),
    }
    for model, kept in (("SimCSE", 0.81), ("DSE", 0.93)):
        for part, (labels, pairs) in kinds.items():
            places = pd.DataFrame(random.normal(size=(12, 2)), columns=["x", "y"])
            frames.append(places.assign(model=model, part=part, label=labels, pair=pairs, preservation=kept))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def scores() -> pd.DataFrame:
    rows = [
        {"task": task, "model": model, "epoch": epoch, "seed": seed, "value": 50 + epoch * slope + seed}
        for task in ("intents", "scope", "selection", "actions")
        for model, slope in (("DSE", 1), ("DSE-dropout", -1))
        for epoch in (1, 2, 3)
        for seed in (0, 1, 2)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def dialogue() -> pd.DataFrame:
    texts = ["I need a cab tonight.", "Sure, where would you like to go?", "Home.", "Your ride is on the way."]
    rows = [{"dialogue": "a", "speaker": ("user", "system")[i % 2], "text": t} for i, t in enumerate(texts)]
    rows.append({"dialogue": "b", "speaker": "user", "text": "Book me a table for two."})
    data = pd.DataFrame(rows)
    return data.assign(kept=data["text"].str.split().str.len() > 3)


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend(holder) -> list[str]:
    """Entries of all legends of a figure, or of the one of an axes."""
    boxes = holder.legends or [axes.get_legend() for axes in holder.axes if axes.get_legend()]
    return [text.get_text() for box in boxes for text in box.get_texts()]


# --- projections --------------------------------------------------------------------------------------------------


def test_projection_has_a_titled_panel_per_model_with_its_preservation_below(spaces):
    figure = plots.projection_panels(spaces, rows="part", pair="pair")
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == ["SimCSE", "DSE", "", ""]
    assert [axes.get_xlabel()[-4:] for axes in panels] == ["0.81", "0.93"] * 2
    assert [axes.get_ylabel() for axes in panels] == ["intents", "", "answers", ""]
    assert legend(figure) == ["card lost", "weather", "out of scope", "question", "answer", "random response"]


def test_out_of_scope_points_are_open_black_circles(spaces):
    axes = plots.projection_panels(spaces[spaces["part"] == "intents"]).axes[0]
    circles = next(points for points in axes.collections if points.get_label() == "out of scope")
    assert len(circles.get_facecolor()) == 0
    assert to_hex(circles.get_edgecolor()[0]) == INK


def test_questions_are_joined_to_their_answers_and_random_responses_to_nothing(spaces):
    answers = spaces[(spaces["part"] == "answers") & (spaces["model"] == "DSE")]
    lines = plots.projection_panels(answers, pair="pair").axes[0].get_lines()
    ends = {tuple(line.get_xdata()) for line in lines}
    assert ends == {tuple(answers["x"].iloc[i : i + 2]) for i in (0, 3, 6, 9)}


# --- pairs --------------------------------------------------------------------------------------------------------


def test_pairs_with_a_short_utterance_are_drawn_as_dropped(dialogue):
    shown = texts(plots.pair_construction(dialogue).axes[0])
    assert [text for text in shown if "(" in text] == ["positive (1, 2)", "dropped (2, 3)", "dropped (3, 4)"]


def test_the_other_dialogue_of_the_batch_is_the_negative(dialogue):
    figure = plots.pair_construction(dialogue)
    assert "negative" in texts(figure.axes[0])
    assert any(text.replace("\n", " ") == "Book me a table for two." for text in texts(figure.axes[0]))
    assert legend(figure) == ["user", "system", "too short"]
    assert "negative" not in texts(plots.pair_construction(dialogue[dialogue["dialogue"] == "a"]).axes[0])


def test_no_text_of_the_drawing_leaves_its_bubble_or_the_page(dialogue):
    dialogue.loc[[0, 4], "text"] = "Would you perhaps recommend something moderately wonderful near Walthamstow? " * 2
    figure = plots.pair_construction(dialogue)
    figure.draw_without_rendering()
    bubbles = [p.get_window_extent() for p in figure.axes[0].patches if type(p).__name__ == "FancyBboxPatch"]
    drawn = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts}
    for text, box in drawn.items():
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0, text
        if " ".join(text.split()) in {" ".join(said.split()) for said in dialogue["text"]}:
            assert any(b.containsx(box.x0) and b.containsx(box.x1) and b.containsy(box.y1) for b in bubbles), text


# --- lines --------------------------------------------------------------------------------------------------------


def test_dropout_is_dashed_and_dse_solid_in_each_of_four_tasks(scores):
    figure = plots.scores_by_epoch(scores)
    assert [axes.get_title() for axes in figure.axes] == ["intents", "scope", "selection", "actions"]
    for axes in figure.axes:
        assert {line.get_label(): line.get_linestyle() for line in axes.get_lines()} == {
            "DSE": "-",
            "DSE-dropout": "--",
        }
    assert legend(figure) == ["DSE", "DSE-dropout", "95 % interval over seeds"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "epoch", "epoch"]


def test_lines_show_means_over_datasets_and_the_interval_of_seeds_alone():
    settings = product((0.1, 1), (0, 2), (("a", 10), ("b", 90)))
    rows = [{"tau": t, "seed": s, "dataset": d, "value": v + s} for t, s, (d, v) in settings]
    axes = plots.sweep(pd.DataFrame(rows), x="tau").axes[0]
    assert axes.get_lines()[0].get_ydata().tolist() == [51, 51]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() - 51 == pytest.approx(12.706, abs=1e-2)  # Student's t with two seeds, not the spread of datasets
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "tau" and axes.get_title() == "Score over tau"


def test_panels_of_different_settings_name_their_own_axis():
    data = pd.DataFrame(
        {"what": ["batch_size"] * 2 + ["temperature"] * 2, "at": [8, 64, 0.05, 1], "value": [1, 2, 3, 4]}
    )
    figure = plots.sweep(data, x="at", panels="what", x_label="{panel}", title="Two settings")
    assert [axes.get_xlabel() for axes in figure.axes] == ["batch size", "temperature"]


def test_one_seed_draws_no_band(scores):
    figure = plots.scores_by_epoch(scores[scores["seed"] == 0])
    assert not any(axes.collections for axes in figure.axes)
    assert legend(figure) == ["DSE", "DSE-dropout"]


def test_training_curves_show_loss_and_rate():
    steps = np.arange(40)
    data = pd.concat(pd.DataFrame({"step": steps, "loss": 2 - steps / 40, "rate": 1e-5, "model": m}) for m in "AB")
    figure = plots.training_curves(data)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "learning\nrate"]
    assert legend(figure) == ["A", "B"]
    assert len(plots.training_curves(data.drop(columns="rate")).axes) == 1
    assert figure.axes[0].get_xscale() == "linear"
    longer = data[data["model"] == data["model"].iloc[0]].assign(
        model="longer", step=lambda rows: 20 * rows["step"] + 1
    )
    assert plots.training_curves(pd.concat([data, longer])).axes[1].get_xscale() == "log", "short ones would be a dot"
    assert figure.axes[0].get_yscale() == "linear"
    tiny = data.assign(loss=data["loss"] * np.where(data["model"] == "A", 1, 1e-4))
    assert plots.training_curves(tiny).axes[0].get_yscale() == "log"
    assert (
        plots.training_curves(tiny.assign(loss=tiny["loss"] - tiny["loss"].min())).axes[0].get_yscale() == "linear"
    ), "no log of 0"


def test_corpora_have_panels_with_steps_of_their_own_and_one_legend():
    steps = np.arange(40)
    data = [pd.DataFrame({"step": n * steps, "loss": 2.0, "model": m, "on": n}) for n in (1, 9) for m in "ABCD"]
    figure = plots.training_curves(pd.concat(data).assign(rate=1e-5), panels="on")
    first, second, *_ = figure.axes
    assert (first.get_title(), second.get_title()) == ("1", "9") and first.get_xlim()[1] < second.get_xlim()[1]
    assert first.get_ylim() == second.get_ylim() and legend(figure) == list("ABCD")


def test_the_mean_of_a_loss_lies_on_the_loss_where_that_falls_fast():
    steps = np.arange(1, 5001)
    long = pd.DataFrame({"step": steps, "loss": 1000 / steps, "model": "long"})
    losses = plots.training_curves(pd.concat([long, long.head(10).assign(model="short")])).axes[0]
    assert losses.get_xscale() == losses.get_yscale() == "log"
    every, mean = (line.get_ydata() for line in losses.lines[:2])
    assert np.allclose(mean, every, rtol=0.4)


def test_rows_of_panels_with_the_same_labels_are_explained_once():
    rows = [(0.0, 0.0, "m", part, label) for part in ("a", "b", "c") for label in ("x", "z" if part == "c" else "y")]
    figure = plots.projection_panels(pd.DataFrame(rows, columns=["x", "y", "model", "part", "label"]), rows="part")
    explained = [[text.get_text() for text in axes.get_legend().texts] for axes in figure.axes if axes.get_legend()]
    assert explained == [["x", "y"], ["x", "z"]]


def test_a_legend_below_is_no_wider_than_its_figure():
    steps = np.arange(3)
    names = [f"a rather long name of model {i} on a corpus" for i in range(5)]
    data = pd.concat(pd.DataFrame({"step": steps, "loss": 2.0 - steps, "model": name}) for name in names)
    figure = plots.training_curves(data)
    figure.draw_without_rendering()
    (below,) = figure.legends
    assert below.get_window_extent().width <= figure.bbox.width and legend(figure) == names


def test_a_legend_below_names_the_lines_of_every_panel_once():
    rows = [(panel, model, x, 1.0) for panel, model in (("a", "A"), ("a", "B"), ("b", "B"), ("b", "C")) for x in (1, 2)]
    figure = plots.sweep(
        pd.DataFrame(rows, columns=["panel", "model", "x", "value"]), x="x", line="model", panels="panel"
    )
    assert legend(figure) == ["A", "B", "C"]


# --- uniformity and alignment -------------------------------------------------------------------------------------


def test_every_point_of_a_space_is_in_the_legend_with_a_mark_of_its_own():
    data = pd.DataFrame(np.random.default_rng(2).normal(size=(9, 2)), columns=["uniformity", "alignment"])
    data["model"] = [f"model {i}" for i in range(9)]
    figure = plots.uniformity_alignment(data)
    assert legend(figure) == data["model"].tolist()
    marks = {
        (to_hex(points.get_facecolor()[0]), points.get_paths()[0].vertices.tobytes())
        for points in figure.axes[0].collections
    }
    assert len(marks) == 9
    several = plots.uniformity_alignment(pd.concat([data.assign(part=part) for part in "ab"]), panels="part")
    assert legend(several) == data["model"].tolist() and [axes.get_title() for axes in several.axes] == ["a", "b"]


# --- all of them --------------------------------------------------------------------------------------------------

NEEDS = {
    plots.projection_panels: ("x", "y", "model", "label"),
    plots.pair_construction: ("dialogue", "speaker", "text", "kept"),
    plots.scores_by_epoch: ("task", "model", "epoch", "value"),
    plots.training_curves: ("model", "step", "loss"),
    plots.uniformity_alignment: ("model", "uniformity", "alignment"),
}


@pytest.mark.parametrize(("draw", "columns"), NEEDS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_missing_columns_and_empty_data_are_sentences(draw, columns):
    with pytest.raises(DataError, match=f"{draw.__name__} needs the column.* {columns[-1]}; the data has"):
        draw(pd.DataFrame(columns=list(columns[:-1])))
    with pytest.raises(DataError, match="no rows"):
        draw(pd.DataFrame(columns=list(columns)))


def test_every_kind_is_told_apart_without_colour():
    kinds = looks(f"intent {i}" for i in range(10)).values()
    assert len({marker for _, marker, _ in kinds}) == 10
    lines = [(colour, dashes) for colour, _, dashes in looks(f"method {i}" for i in range(50)).values()]
    assert len(set(lines)) == 50, "a line without markers, such as that of a rate, is known by colour and dashes"


def test_figures_are_drawn_again_from_stored_data_to_the_same_bytes(tmp_path, spaces, dialogue):
    folder = tmp_path / "figures"
    words = {"caption": "a caption", "alt": "what is seen"}
    save_figure(folder, "F1", plots.projection_panels, spaces, arguments={"rows": "part", "pair": "pair"}, **words)
    save_figure(folder, "F2", plots.pair_construction, dialogue, arguments={}, **words)
    packed = folder / "F2.csv.xz"  # as large data are kept in the repository
    packed.write_bytes(lzma.compress((folder / "F2.csv").read_bytes()))
    (folder / "F2.csv").unlink()
    written, fixed = redraw(tmp_path, ["png", "svg"], out=tmp_path / "again")
    assert len(written) == 4 and not fixed
    assert all(path.read_bytes() == (folder / path.name).read_bytes() for path in written)


def test_a_figure_called_by_itself_has_the_style_of_the_project_and_slides_are_larger(scores):
    plain = plots.scores_by_epoch(scores)
    with matplotlib.rc_context(plots.STYLE | STYLES["slides"]):
        slides = plots.scores_by_epoch(scores)
    assert plain.axes[0].title.get_fontsize() == plots.STYLE["font.size"]
    assert slides.axes[0].yaxis.label.get_fontsize() == 16
    assert slides.get_figwidth() > plain.get_figwidth()


def test_a_light_band_keeps_its_hue_in_a_stored_picture():
    random = np.random.default_rng(0)
    settings = product("ABCDE", ("I2", "Siamese-s", "Siamese-m"), (1, 2, 3, 4), range(3))
    data = pd.DataFrame(settings, columns=["panel", "model", "turns", "seed"])
    data["value"] = 60 + 2 * random.normal(size=len(data))
    drawn = png(plots.sweep(data, x="turns", line="model", panels="panel"))
    before, after = (np.asarray(Image.open(io.BytesIO(each)).convert("RGB"), int) for each in (drawn, smaller(drawn)))
    shades, counts = np.unique(before.reshape(-1, 3), axis=0, return_counts=True)
    for shade in shades[counts > 0.005 * counts.sum()]:  # the bands and where they overlap
        stored = after[(before == shade).all(axis=2)][0]
        assert np.abs((stored - stored.mean()) - (shade - shade.mean())).max() < 6, (shade, stored)
        assert np.abs(stored - shade).max() < 4, (shade, stored)
    bands = [255 - 0.16 * (255 - 255 * np.array(to_rgb(colour))) for colour in (BLUE, GREEN)]
    blue, green = (after[np.abs(before - band).max(axis=2) < 2][0] for band in bands)
    assert blue[2] > blue[1] and green[1] > green[2], "two models, two bands"
