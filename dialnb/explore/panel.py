"""Panels: something shown for the values of a few controls, and shown again whenever they change.

Where nobody sits at the keyboard (papermill, nbconvert) a panel is what it shows for its first values, as plain output.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import IPython
import ipywidgets
import pandas as pd
from IPython.display import Image, display
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from dialnb.errors import DialnbError
from dialnb.plots import style

BEST = "background-color: #d6e8f5; color: #1b1f24; font-weight: bold"
"""How the best of several values stands out, on light and dark pages."""
LEFT = [
    {"selector": "th, td, caption", "props": "text-align: left"},
    {"selector": "caption", "props": "font-weight: bold"},
]
SHARP = 160
"""Dots per inch of a picture in a notebook, for fine screens too."""


@dataclass(frozen=True)
class Control:
    """A menu of options or, without any, a box to write in, which is read when one leaves it."""

    label: str
    value: str
    options: tuple[str, ...] = ()

    def widget(self) -> ipywidgets.DOMWidget:
        if self.options:
            return ipywidgets.Dropdown(value=self.value, options=self.options)
        lines = self.value.count("\n") + 2
        layout = {"width": "46em", "height": f"{1.5 * lines}em"}
        return ipywidgets.Textarea(self.value, layout=layout, continuous_update=False)


class Panel:
    """``show`` takes the values of the controls by name and returns what is to be seen, one thing below the other."""

    def __init__(self, show: Callable[..., Sequence[Any]], **controls: Control) -> None:
        self.show, self.controls = show, controls

    def widget(self) -> ipywidgets.VBox:
        """Labels and controls, above an output that follows them."""

        def answer(**values: str) -> None:
            try:
                self._display(values, live=True)
            except DialnbError as error:
                print(error)

        widgets = {name: control.widget() for name, control in self.controls.items()}
        rows = []
        for name, control in self.controls.items():
            rows += [ipywidgets.Label(control.label), widgets[name]]
        return ipywidgets.VBox([*rows, ipywidgets.interactive_output(answer, widgets)])

    def _display(self, values: dict[str, str], live: bool) -> None:
        for thing in self.show(**values):
            if isinstance(thing, Figure):
                width = round(100 * thing.get_figwidth())
                display(Image(style.png(thing, SHARP), width=width))
            elif live and hasattr(thing, "live"):
                display(thing.live(), raw=True)
            else:
                display(thing)

    def _ipython_display_(self) -> None:
        if live():
            display(self.widget())
        else:
            self._display({name: control.value for name, control in self.controls.items()}, live=False)


def live() -> bool:
    """Does somebody sit in front of this notebook? Front ends let a cell ask for input; papermill does not."""
    kernel = getattr(IPython.get_ipython(), "kernel", None)
    asked = kernel.get_parent("shell") if kernel else None
    return bool(asked and asked["content"].get("allow_stdin"))


def table(
    frame: pd.DataFrame,
    caption: str = "",
    index: bool = False,
    formats: Any = None,
) -> Styler:
    """A data frame to be read: texts from the left, what it is above it, numbers in the given formats."""
    shown = frame.style.format(formats, escape="html").set_table_styles(LEFT)  # pandas' own is not escaped
    for axis in (0, 1):
        shown = shown.format_index(escape="html", axis=axis)
    shown = shown.set_caption(escape(caption)) if caption else shown
    return shown if index else shown.hide(axis="index")
