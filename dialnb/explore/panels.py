"""Panels: something shown for the values of a few controls, and shown again whenever they change.

Where nobody sits at the keyboard (papermill, nbconvert) a panel is what it shows for its first values, as plain output.
"""

from collections.abc import Callable, Iterable
from html import escape
from typing import Any, NamedTuple

import IPython
import ipywidgets
from IPython.display import Image, display
from matplotlib.figure import Figure
from pandas import DataFrame
from pandas.io.formats.style import Styler

from dialnb.errors import DataError, DialnbError
from dialnb.plots import style

BEST = "background-color: #d6e8f5; color: #1b1f24; font-weight: bold"
"""How the best of several values stands out, on light and dark pages."""
LEFT = [
    {"selector": "th, td, caption", "props": "text-align: left"},
    {"selector": "caption", "props": "font-weight: bold"},
]
SHARP = 160
"""Dots per inch of a picture in a notebook, for fine screens too."""


class Control(NamedTuple):
    """A menu of options or, without any, a box to write in, which is read when one leaves it."""

    label: str
    value: str
    options: tuple[str, ...] = ()

    def widget(self) -> ipywidgets.DOMWidget:
        if self.options:
            return ipywidgets.Dropdown(value=self.value, options=self.options)
        height = 1.5 * (self.value.count("\n") + 2)
        layout = {"width": "46em", "height": f"{height}em"}
        return ipywidgets.Textarea(self.value, layout=layout, continuous_update=False)


def panel(show: Callable[..., Iterable[Any]], **controls: Control) -> None:
    """Display what ``show`` gives for the values of the controls by name, one thing below the other; where somebody
    sits at the keyboard, below the controls, which it follows."""
    if not live():
        return see(show(**{name: control.value for name, control in controls.items()}))

    def answer(**values: str) -> None:
        try:
            see(show(**values), live=True)
        except DialnbError as error:
            print(error)

    widgets = {name: control.widget() for name, control in controls.items()}
    shown = []
    for name, control in controls.items():
        shown += [ipywidgets.Label(control.label), widgets[name]]
    display(ipywidgets.VBox([*shown, ipywidgets.interactive_output(answer, widgets)]))


def see(things: Iterable[Any], live: bool = False) -> None:
    """Display figures sharply, maps without their picture where they are live, and all else as it is."""
    for thing in things:
        if isinstance(thing, Figure):
            display(Image(style.png(thing, SHARP), width=round(100 * thing.get_figwidth())))
        elif live and hasattr(thing, "live"):
            display(thing.live(), raw=True)
        else:
            display(thing)


def live() -> bool:
    """Does somebody sit in front of this notebook? Front ends let a cell ask for input; papermill does not."""
    kernel = getattr(IPython.get_ipython(), "kernel", None)
    asked = kernel.get_parent("shell") if kernel else None
    return bool(asked and asked["content"].get("allow_stdin"))


def lines_of(text: str, what: str, least: int = 1) -> list[str]:
    """The lines that have something on them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < least:
        raise DataError(f"{what}: expected at least {least}, one a line, but found {len(lines)}")
    return lines


def table(
    frame: DataFrame,
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
