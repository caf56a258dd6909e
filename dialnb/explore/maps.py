"""Maps of a space: every point an utterance that shows itself under the mouse, coloured by one column or another.

A map is one notebook output in two forms: an interactive one for JupyterLab (drawn by plotly's extension, which is
installed with it and needs no network; the menus work without a kernel), and a picture for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from html import escape as escape_all
from textwrap import wrap
from typing import Any

import pandas as pd

from dialnb import plots
from dialnb.explore.panel import png
from dialnb.plots.style import INK, LINE, STYLE, looks, require

escape = partial(escape_all, quote=False)  # plotly shows &quot; as it is written
PLOTLY = "application/vnd.plotly.v1+json"
OWN = "yours"
"""The label of one's own sentences, which stand out."""

SYMBOLS = {"s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
           "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon", "h": "hexagon"}  # fmt: skip


@dataclass(frozen=True)
class SpaceMap:
    """Rows of ``panel``, ``projection``, ``x``, ``y``, ``preservation``, ``text``, ``detail`` and the columns named in
    ``colours``: a panel each, side by side, and menus for projection and colour."""

    data: pd.DataFrame
    colours: tuple[str, ...]
    title: str = ""

    def __post_init__(self) -> None:
        needed = ("panel", "projection", "x", "y", "preservation", "text", "detail")
        require(self.data, "a map", (*needed, *self.colours))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.live() | {"image/png": png(self.picture(), 90)}

    def live(self) -> dict[str, Any]:
        """The interactive form alone: where there is a picture, plotly shows it until the mouse comes near."""
        return {PLOTLY: self.interactive(), "text/plain": self.title or "a map"}

    def picture(self) -> Any:
        """All colours below each other, all panels and projections beside each other."""
        several = self.data["panel"].nunique() > 1
        place = self.data["panel"] + ", " + self.data["projection"] if several else self.data["projection"]
        shown = [self.data.assign(place=place, row=f"by {colour}", label=self.data[colour]) for colour in self.colours]
        return plots.projection_panels(
            pd.concat(shown, ignore_index=True), panels="place", rows="row", circles=(OWN,), title=self.title
        )

    def interactive(self) -> dict[str, Any]:
        """The figure that plotly draws."""
        panels, projections = (list(dict.fromkeys(self.data[name])) for name in ("panel", "projection"))
        traces, places, owner = [], [], []
        for colour in self.colours:
            style = looks(label for label in self.data[colour] if label != OWN) | {OWN: (INK, "o", None)}
            for label, (tint, marker, _) in style.items():
                for number, panel in enumerate(panels, 1):
                    points = self.data[(self.data["panel"] == panel) & (self.data[colour] == label)]
                    by = [points[points["projection"] == projection] for projection in projections]
                    if len(points):
                        traces.append(
                            _trace(by[0], label, number, _look(label, tint, marker), colour == self.colours[0])
                        )
                        places.append([(part["x"].round(3).tolist(), part["y"].round(3).tolist()) for part in by])
                        owner.append(colour)
        recolour = [_button(f"colour: {c}", {"visible": [own == c for own in owner]}) for c in self.colours]
        move = [
            _button(projection, {"x": [p[i][0] for p in places], "y": [p[i][1] for p in places]},
                    {f"annotations[{n}].text": self._caption(panel, projection) for n, panel in enumerate(panels)})
            for i, projection in enumerate(projections)
        ]  # fmt: skip
        captions = [self._caption(panel, projections[0]) for panel in panels]
        layout = _layout(captions, [recolour, move], self.title)
        return {"data": traces, "layout": layout, "config": {"displayModeBar": False, "scrollZoom": True}}

    def _caption(self, panel: str, projection: str) -> str:
        shown = self.data[(self.data["panel"] == panel) & (self.data["projection"] == projection)]
        return f"<b>{escape(panel)}</b>, neighbours preserved: {shown['preservation'].iloc[0]:.2f}"


def _look(label: str, tint: str, marker: str) -> dict[str, Any]:
    """The marker of a label; plotly's triangles look smaller than they are."""
    if label == OWN:
        return {"color": "white", "symbol": "circle", "size": 11, "line": {"width": 2, "color": INK}}
    size = 10 if "triangle" in SYMBOLS[marker] else 8
    return {"color": tint, "symbol": SYMBOLS[marker], "size": size, "line": {"width": 0.5, "color": "white"}}


def _trace(points: pd.DataFrame, label: str, panel: int, look: dict[str, Any], visible: bool) -> dict[str, Any]:
    """The points of one label in one panel; the names of a panel beside the first stand there already."""
    said = ["<br>".join(map(escape, wrap(text, 60))) for text in points["text"]]
    more = points["detail"].map(escape).str.replace("\n", "<br>")
    hover = [f"<b>{text}</b><br>{detail}" for text, detail in zip(said, more)]
    axis = "" if panel == 1 else str(panel)
    return {
        "type": "scatter", "mode": "markers", "name": escape(str(label)), "legendgroup": str(label),
        "showlegend": panel == 1, "x": points["x"].round(3).tolist(), "y": points["y"].round(3).tolist(),
        "xaxis": f"x{axis}", "yaxis": f"y{axis}", "hovertext": hover, "hoverinfo": "text", "marker": look,
        "visible": visible,
    }  # fmt: skip


def _button(label: str, traces: dict[str, Any], layout: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"label": escape(label), "method": "update", "args": [traces, layout or {}]}


def _layout(captions: list[str], menus: list[list[dict[str, Any]]], title: str) -> dict[str, Any]:
    width = 1 / len(captions)
    layout: dict[str, Any] = {
        "height": 520, "autosize": True, "margin": {"l": 10, "r": 10, "t": 90, "b": 40}, "hovermode": "closest",
        "dragmode": "pan", "paper_bgcolor": "white", "plot_bgcolor": "white",
        "font": {"family": STYLE["font.family"] + ", sans-serif", "color": INK},
        "title": {"text": escape(title), "x": 0.01}, "hoverlabel": {"bgcolor": "white", "align": "left"},
        "legend": {"itemsizing": "constant"},
        "updatemenus": [
            {"buttons": buttons, "x": 0.22 * place, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
            for place, buttons in enumerate(menus) if len(buttons) > 1
        ],
        "annotations": [
            {"text": text, "x": (place + 0.5) * width, "xref": "paper", "xanchor": "center", "y": -0.02,
             "yref": "paper", "yanchor": "top", "showarrow": False}
            for place, text in enumerate(captions)
        ],
    }  # fmt: skip
    frame = {"showticklabels": False, "showgrid": False, "zeroline": False, "showline": True, "mirror": True}
    for number in range(len(captions)):
        end = "" if number == 0 else str(number + 1)
        domain = [number * width + 0.01 * (number > 0), (number + 1) * width - 0.01 * (number + 1 < len(captions))]
        layout[f"xaxis{end}"] = {**frame, "linecolor": LINE, "domain": domain, "anchor": f"y{end}"}
        layout[f"yaxis{end}"] = {**frame, "linecolor": LINE, "anchor": f"x{end}"}
    return layout
