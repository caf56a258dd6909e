"""Panels: something shown for the values of a few controls, and shown anew whenever they change.

Where nobody sits at the keyboard (papermill, nbconvert) a panel is what it shows for its first values, as plain output.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from dialnb.claims.rendering import escaped
from dialnb.errors import DialnbError
from dialnb.plots import style

BEST = "background-color: #d6e8f5; color: #1b1f24; font-weight: bold"
"""How the best of several values stands out, on light and dark pages."""


@dataclass(frozen=True)
class Text:
    """A box to write in."""

    label: str
    value: str

    def widget(self) -> Any:
        import ipywidgets

        layout = ipywidgets.Layout(width="46em", height=f"{1.4 * self.value.count(chr(10)) + 3:.1f}em")
        box = ipywidgets.Textarea(self.value, layout=layout, continuous_update=False)
        return ipywidgets.VBox([ipywidgets.Label(self.label), box])


@dataclass(frozen=True)
class Choice:
    """One of several names."""

    label: str
    value: str
    options: tuple[str, ...]

    def widget(self) -> Any:
        import ipywidgets

        return ipywidgets.Dropdown(options=self.options, value=self.value, description=self.label)


class Panel:
    """``show`` takes the values of the controls by name and returns what is to be seen, one thing below the other."""

    def __init__(self, show: Callable[..., Sequence[Any]], **controls: Text | Choice) -> None:
        self.show, self.controls = show, controls

    def shown(self, live: bool = False, **values: str) -> list[dict[str, Any]]:
        """Outputs, as a notebook stores them, for these values (by default the first ones)."""
        first = {name: control.value for name, control in self.controls.items()}
        return [output(thing, live) for thing in self.show(**first | values)]

    def widget(self) -> Any:
        """The controls above an output that follows them; texts are read when the button is pressed."""
        import ipywidgets

        made = {name: control.widget() for name, control in self.controls.items()}
        texts = {name: box.children[1] for name, box in made.items() if isinstance(self.controls[name], Text)}
        button, area = ipywidgets.Button(description="Show", icon="refresh"), ipywidgets.Output()
        area.outputs = tuple(self.shown(live=True))

        def refresh(_: object = None) -> None:
            button.disabled = True
            try:
                values = {name: texts.get(name, box).value for name, box in made.items()}
                area.outputs = tuple(self.shown(live=True, **values))
            except DialnbError as error:
                area.outputs = ({"output_type": "stream", "name": "stdout", "text": f"{error}\n"},)
            finally:
                button.disabled = False

        for box in (made[name] for name in made if name not in texts):
            box.observe(refresh, "value")
        button.on_click(refresh)
        return ipywidgets.VBox([*made.values(), *([button] if texts else []), area])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if live() and find_spec("ipywidgets"):
            display(self.widget())
            return
        for made in self.shown():
            display(made["data"], raw=True, metadata=made["metadata"])


def live() -> bool:
    """Does somebody sit in front of this notebook? Front ends let a cell ask for input; papermill does not."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    asked = kernel.get_parent("shell") if kernel is not None else None
    return bool((asked or {}).get("content", {}).get("allow_stdin"))


def output(thing: Any, live: bool = False) -> dict[str, Any]:
    """A figure, a table, or anything that can describe itself (for a front end: ``live``), as output of a notebook."""
    if isinstance(thing, Figure):
        return _output({"image/png": png(thing), "text/plain": "a figure"}, {"image/png": {"width": _width(thing)}})
    if hasattr(thing, "_repr_mimebundle_"):
        return _output(thing.live() if live else thing._repr_mimebundle_(), {})
    html = {"text/html": thing._repr_html_()} if hasattr(thing, "_repr_html_") else {}
    return _output(html | {"text/plain": getattr(thing, "data", thing).__repr__()}, {})


def table(frame: pd.DataFrame, caption: str = "", index: bool = False, formats: Any = None) -> Styler:
    """A data frame to be read: texts from the left, what it is above it, numbers in the given formats."""
    left = [("text-align", "left")]
    styles = [{"selector": "th, td", "props": left}, {"selector": "caption", "props": [*left, ("font-weight", "bold")]}]
    shown = escaped(frame, caption, formats).set_table_styles(styles)
    return shown if index else shown.hide(axis="index")


def _output(data: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": metadata}


def _width(figure: Figure) -> int:
    return round(100 * figure.get_figwidth())


def png(figure: Figure, dpi: int = 160) -> str:
    """A figure as a notebook stores pictures, sharp on fine screens too."""
    return b64encode(style.png(figure, dpi)).decode()
