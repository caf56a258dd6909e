"""Maps of a space: every point an utterance that shows itself under the mouse, coloured by one column or another.

A map is one notebook output in two forms: an interactive one for JupyterLab (drawn by plotly's extension, which is
installed with it and needs no network; the menus work without a kernel), and a picture for everything else.
"""

from base64 import b64encode
from dataclasses import dataclass
from html import escape
from itertools import product
from textwrap import wrap

from matplotlib.figure import Figure
from pandas import DataFrame, concat
from plotly.subplots import make_subplots

from dialnb import plots
from dialnb.files import Values, read_yaml
from dialnb.plots.style import Look, looks, png, require

PLOTLY = "application/vnd.plotly.v1+json"
OWN = "yours"
"""The label of one's own sentences, which stand out."""
LOOK = read_yaml(__file__, "map.yaml")


def _plain(text: str) -> str:
    """A text that plotly shows as it is; it knows no &quot;."""
    return escape(str(text), quote=False)


@dataclass(frozen=True)
class SpaceMap:
    """Rows of ``panel``, ``projection``, ``x``, ``y``, ``preservation``, ``text``, ``detail`` and the columns named in
    ``colours``: a panel each, side by side, and menus for projection and colour."""

    data: DataFrame
    colours: tuple[str, ...]
    title: str = ""

    def __post_init__(self) -> None:
        needed = ("panel", "projection", "x", "y", "preservation", "text", "detail")
        require(self.data, "a map", (*needed, *self.colours))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Values:
        return self.live() | {"image/png": b64encode(png(self.picture(), 90)).decode()}

    def live(self) -> Values:
        """The interactive form alone: where there is a picture, plotly shows it until the mouse comes near."""
        return {PLOTLY: self.interactive(), "text/plain": self.title or "a map"}

    def picture(self) -> Figure:
        """All colours below each other, all panels and projections beside each other."""
        place = self.data["projection"]
        if self.data["panel"].nunique() > 1:
            place = self.data["panel"] + ", " + place
        rows = [self.data.assign(place=place, row=f"by {by}", label=self.data[by]) for by in self.colours]
        data = concat(rows, ignore_index=True)
        return plots.projection_panels(data, panels="place", rows="row", circles=(OWN,), title=self.title)

    def interactive(self) -> Values:
        """The figure that plotly draws, with a menu of its views: each projection, coloured by each column."""
        panels = list(self.data["panel"].unique())
        views = list(product(self.data["projection"].unique(), self.colours))
        figure = make_subplots(1, len(panels), subplot_titles=panels, horizontal_spacing=0.02)
        for view, (projection, colour) in enumerate(views):
            shown = self.data[self.data["projection"] == projection]
            styles = looks(label for label in shown[colour] if label != OWN) | {OWN: ("white", "o", None)}
            for (label, style), (column, panel) in product(styles.items(), enumerate(panels, 1)):
                points = shown[(shown[colour] == label) & (shown["panel"] == panel)]
                if len(points):
                    trace = {"meta": view, "visible": view == 0, "showlegend": column == 1}
                    figure.add_trace(_trace(points, label, style) | trace, 1, column)
        buttons = []
        for view, (projection, colour) in enumerate(views):
            visible = [trace.meta == view for trace in figure.data]
            captions = {f"annotations[{n}].text": self._caption(panel, projection) for n, panel in enumerate(panels)}
            label = f"{_plain(projection)}, colour: {_plain(colour)}"
            buttons.append({"label": label, "method": "update", "args": [{"visible": visible}, captions]})
        figure.plotly_relayout(buttons[0]["args"][1])
        figure.update_layout(LOOK["layout"], title_text=_plain(self.title), template="none")
        figure.update_layout(updatemenus=[LOOK["menu"] | {"buttons": buttons}])
        figure.update_xaxes(LOOK["axes"]).update_yaxes(LOOK["axes"]).update_annotations(LOOK["captions"])
        return figure.to_plotly_json() | {"config": LOOK["config"]}

    def _caption(self, panel: str, projection: str) -> str:
        shown = self.data[(self.data["panel"] == panel) & (self.data["projection"] == projection)]
        return f"<b>{_plain(panel)}</b>, neighbours preserved: {shown['preservation'].iloc[0]:.2f}"


def _trace(points: DataFrame, label: str, style: Look) -> Values:
    """The points of one label; one's own sentences are rings, and plotly's triangles look smaller than they are."""
    marker = LOOK["own" if label == OWN else "others"] | {"color": style[0], "symbol": LOOK["symbols"][style[1]]}
    if "triangle" in marker["symbol"]:
        marker["size"] = 10
    hover = []
    for text, detail in zip(points["text"], points["detail"]):
        lines = "<br>".join(_plain(line) for line in wrap(text, 60))
        more = _plain(detail).replace("\n", "<br>")
        hover.append(f"<b>{lines}</b><br>{more}")
    return LOOK["trace"] | {
        "name": _plain(label),
        "legendgroup": str(label),
        "x": points["x"].round(3).tolist(),
        "y": points["y"].round(3).tolist(),
        "hovertext": hover,
        "marker": marker,
    }
