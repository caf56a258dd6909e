"""The tour: it runs headless with plain outputs, its panels answer, and its maps are what plotly can draw."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import plotly.graph_objects as go
import pytest
import shared
import tiny
from IPython.display import Image

import dialnb
from dialnb import explore
from dialnb.data import Utterance
from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.explore import panels
from dialnb.explore.maps import OWN, PLOTLY, SpaceMap
from dialnb.explore.panels import Control

TOUR = Path(__file__).resolve().parent.parent / "notebooks" / "00_tour.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"


# --- the notebook -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, list[dict]]:
    """The outputs of the tour by the source of the cell, when papermill has run it from an encoder of one layer."""
    done = tmp_path_factory.mktemp("tour") / "done.ipynb"
    chosen = ["-p", "profile", "smoke", "-p", "encoder", str(shared.small_encoder(tmp_path_factory))]
    shared.papermill(TOUR, done, *chosen, DIALNB_OFFLINE=1, DIALNB_CACHE=shared.smoke_cache(tmp_path_factory))
    cells = json.loads(done.read_text(encoding="utf-8"))["cells"]
    return {"".join(cell["source"]): cell["outputs"] for cell in cells if cell["cell_type"] == "code"}


def of_cell(outputs: dict[str, list[dict]], words: str) -> list[dict]:
    return next(found for source, found in outputs.items() if words in source)


def test_headless_the_tour_shows_plain_outputs_and_no_widgets(outputs):
    shown = [output for found in outputs.values() for output in found]
    assert not [output for output in shown if output.get("name") == "stderr"]
    assert not [output for output in shown if WIDGET in output.get("data", {})]
    cells = ("explore.neighbours", "space.map", "space.compare", "def made_of", "\n    preferred", "evaluate_own")
    kinds = {words: [sorted(output["data"])[0] for output in of_cell(outputs, words)] for words in cells}
    assert kinds["explore.neighbours"] == kinds["\n    preferred"] == kinds["evaluate_own"] == ["text/html"]
    assert kinds["space.map"] == [PLOTLY]
    assert kinds["space.compare"][:2] == [PLOTLY, "text/html"]
    assert kinds["def made_of"] == ["image/png", "text/html", "image/png", "text/html", "image/png"]


def test_every_map_has_a_picture_for_those_who_cannot_draw_it(outputs):
    for words in ("space.map", "space.compare"):
        assert {PLOTLY, "image/png"} <= set(of_cell(outputs, words)[0]["data"])


def test_all_five_methods_are_trained_and_asked(outputs):
    said = "".join("".join(output["text"]) for output in of_cell(outputs, "explore.train"))
    table = "".join(of_cell(outputs, "\n    preferred")[0]["data"]["text/html"])
    for method in ("DSE", "DialogueCSE", "TaDSE", "WMDC", "UMS"):
        assert re.search(rf"^{method}: (trained in|found again)", said, re.MULTILINE) and f">{method}</th>" in table
    assert "★" in table


# --- panels -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch) -> list:
    """What is displayed, in place of a front end."""
    things: list = []
    monkeypatch.setattr(panels, "display", lambda thing, **how: things.append(thing))
    return things


@pytest.fixture
def widgets(monkeypatch, shown):
    """Make a panel as it is where somebody sits at the keyboard; returns its labels, controls and output."""

    def made(draw, *arguments, **named):
        monkeypatch.setattr(panels, "live", lambda: True)
        draw(*arguments, **named)
        return shown.pop().children

    return made


def echo() -> None:
    def show(words: str, how: str) -> list:
        if not words:
            raise DataError("write something")
        return [f"{how} {words}"]

    explore.panel(show, words=Control("Words:", "hello"), how=Control("how", "plain", ("plain", "loud")))


def test_a_panel_follows_its_boxes_and_menus(widgets, shown):
    label, box, _, menu, _ = widgets(echo)
    assert label.value == "Words:" and shown == ["plain hello"]
    menu.value = "loud"
    box.value = "bye"
    assert shown[1:] == ["loud hello", "loud bye"]


def test_a_panel_says_what_is_wrong_and_goes_on(widgets, shown, capsys):
    _, box, *_ = widgets(echo)
    box.value = ""
    assert capsys.readouterr().out.endswith("write something\n")
    box.value = "again"
    assert shown == ["plain hello", "plain again"]


def test_where_nobody_sits_a_panel_is_what_it_shows_first(shown):
    echo()
    assert shown == ["plain hello"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_front_end_is_known_by_letting_cells_ask(monkeypatch, asked):
    kernel = SimpleNamespace(get_parent=lambda channel: {"content": {"allow_stdin": asked}})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    assert panels.live() is asked


def test_outside_a_notebook_nobody_is_there():
    assert not panels.live()


# --- maps -------------------------------------------------------------------------------------------------------------


def drawn(panels: tuple[str, ...] = ("raw",)) -> SpaceMap:
    rows = []
    for place in panels:
        for shift, projection in enumerate(("t-SNE", "UMAP")):
            for i, intent in enumerate(("weather", "music", "weather", OWN)):
                corpus = OWN if intent == OWN else "CLINC150"
                rows.append((place, projection, i + shift, 2.0 * i, 0.5, f"text <{i}>", "told", intent, corpus))
    columns = ["panel", "projection", "x", "y", "preservation", "text", "detail", "intent", "corpus"]
    return SpaceMap(pd.DataFrame(rows, columns=columns), ("intent", "corpus"), "A map")


@pytest.mark.parametrize("panels", [("raw",), ("raw", "DSE")])
def test_plotly_accepts_a_map(panels):
    made = drawn(panels).interactive()
    json.dumps(made)
    figure = go.Figure(data=made["data"], layout=made["layout"])
    assert len(figure.data) == 2 * len(panels) * (3 + 2), "of each projection, by intent and by corpus"
    assert {trace.xaxis for trace in figure.data} == {"x", "x2"} if len(panels) == 2 else {"x"}


def test_the_menu_of_a_map_changes_colour_and_place():
    made = drawn().interactive()
    (menu,) = made["layout"]["updatemenus"]
    views = {}
    for button in menu["buttons"]:
        visible = button["args"][0]["visible"]
        views[button["label"]] = [trace for trace, on in zip(made["data"], visible) if on]
    names = {label: [trace["name"] for trace in traces] for label, traces in views.items()}
    intents, corpora = ["weather", "music", OWN], ["CLINC150", OWN]
    assert names == {
        "t-SNE, colour: intent": intents,
        "t-SNE, colour: corpus": corpora,
        "UMAP, colour: intent": intents,
        "UMAP, colour: corpus": corpora,
    }
    assert [trace for trace in made["data"] if trace["visible"]] == views["t-SNE, colour: intent"]
    before, after = views["t-SNE, colour: intent"], views["UMAP, colour: intent"]
    assert [[x + 1 for x in trace["x"]] for trace in before] == [trace["x"] for trace in after]


def test_a_point_tells_its_text_whatever_signs_are_in_it():
    hover = drawn().interactive()["data"][0]["hovertext"]
    assert hover == ["<b>text &lt;0&gt;</b><br>told", "<b>text &lt;2&gt;</b><br>told"]


def test_a_map_is_a_picture_too_and_only_interactive_where_somebody_looks(shown):
    assert set(drawn()._repr_mimebundle_()) == {PLOTLY, "image/png", "text/plain"}
    panels.see([drawn()], live=True)
    assert [set(thing) for thing in shown] == [{PLOTLY, "text/plain"}]
    with pytest.raises(DataError, match="a map needs the column"):
        SpaceMap(drawn().data.drop(columns="text"), ("intent",))


# --- dialogues and candidates -----------------------------------------------------------------------------------------


def test_a_pasted_dialogue_is_read_with_and_without_names():
    named = explore.parse("\n Customer: hi there\nAgent: hello: you\n")
    assert [(u.speaker, u.text) for u in named.utterances] == [("user", "hi there"), ("system", "hello: you")]
    plain = explore.parse("hi there\nnote: this\nbye")
    assert [u.speaker for u in plain.utterances] == ["user", "system", "user"]
    assert plain.utterances[1].text == "note: this"
    with pytest.raises(DataError, match="the dialogue: expected at least 2, one a line, but found 1"):
        explore.parse("hello\n")


@pytest.fixture(scope="module")
def tour(tmp_path_factory) -> dict:
    """What the tour's cells about dialogues define, before any method was trained."""
    known = {"dialnb": dialnb, "explore": explore, "pd": pd, "load": dialnb.load, "encoders": {}}
    known["selector"] = SimpleNamespace(score=by_length)
    cells = [cell for cell in json.loads(TOUR.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    asked = [cell for cell in cells if cell["id"].startswith(("tour-14", "tour-15")) or cell["id"] == "tour-17"]
    path = tmp_path_factory.mktemp("cells") / "tour.py"
    path.write_text("\n".join("".join(cell["source"]) for cell in asked), encoding="utf-8")
    return runpy.run_path(str(path), known)


@pytest.mark.parametrize(
    "text",
    [
        "hi\nyou",
        "a: ☎ naïve\nb: pay $5 or $\\frac {x}",
        "word " * 90 + "\nok",
        "\n".join(f"line {i}" for i in range(30)),
    ],
)
def test_every_method_makes_something_of_any_dialogue(text, shown, tour):
    panels.see(tour["made_of"](text))
    assert [isinstance(thing, Image) for thing in shown] == [True, False, True, False, True]


def test_templates_of_a_dialogue_have_slots_that_are_filled_again(tour):
    rows = tour["template_table"]([Utterance("user", "a table for monday please"), Utterance("system", "ok")]).data
    assert rows["template"].tolist() == ["a table for {DATE} please", "ok"]
    assert " / " in rows["filled again"][0] and rows["filled again"][1] == "(no slot)"


def by_length(groups: list[SelectionGroup]) -> list[list[float]]:
    return [[float(len(text)) for text in group.candidates] for group in groups]


def test_the_preferred_candidate_of_each_method_has_a_star(tour, monkeypatch):
    short = lambda groups: [[-score for score in row] for row in by_length(groups)]  # noqa: E731
    monkeypatch.setitem(tour["preferred"].__globals__, "scorers", {"long": by_length, "short": short})
    shown = tour["preferred"]("hi\nyou", "no\ncertainly")[0].data
    assert shown["long"].tolist() == ["2.00", "9.00 ★"] and shown["short"].tolist() == ["-2.00 ★", "-9.00"]


def test_neighbours_and_similarities_of_own_sentences(shown):
    encoder = tiny.encoder(vocabulary=128)
    cosines = explore.similarities(encoder, ["book a table", "book a table", "bye"]).data
    assert cosines.loc["1. book a table", 2] == 1 and list(cosines.columns) == [1, 2, 3]
    explore.neighbours({"raw": encoder}, ["book a table", "bye"], 64)
    near = shown[0].data
    assert near["your sentence"].tolist() == ["book a table", "", "", "bye", "", ""]
    assert near["similarity"].is_monotonic_decreasing or near["similarity"].between(-1, 1.001).all()
