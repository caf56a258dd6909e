"""Reports of runs by others: damaged files of every kind, hostile drawings, notebooks and texts."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from dialnb.report import build
from tools.audit.drawings import drawings
from tools.audit.made import ACT, DAMAGES, SECRET, copied, make_notebook, make_run
from tools.audit.outcomes import CARD, SOUND, WRONG, Family, Tried

FILES = (
    *("run.json", "results.csv", "notebook.ipynb", "guide.md", "log.txt", "claims.json", "ro-crate-metadata.json"),
    *("tables/training-times.csv", "figures/F1.json", "figures/F1.csv", "figures/F1.png", "figures/F1.svg"),
)
CANARY = "http://127.0.0.1:9"
TEXTS = {
    "script": ACT,
    "handler": "<b onclick='window.ran = 1'>b</b>",
    "link": "<a href=' jav&#x09;ascript:window.ran=1'>a</a> [a](javascript:window.ran=1)",
    "page in a link": "<a href='data:text/html,<script>1</script>'>a</a>",
    "frame": "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "object": "<object data='x.swf'></object><embed src=x>",
    "form": "<form action='https://example.org/'><button>send</button></form>",
    "refresh": f"<meta http-equiv='refresh' content='0;url={CANARY}/'>",
    "base": f"<base href='{CANARY}/'>",
    "sheet": f"<style>@import '{CANARY}/a'; * {{background: url({CANARY}/b)}}</style>",
    "look": f"<b style='background: url({CANARY}/c); position: fixed'>b</b>",
    "picture": f"<img src='{CANARY}/d'> ![a]({CANARY}/e)",
    "drawing": f"<svg onload='window.ran = 1'><image href='{CANARY}/f'/></svg>",
    "mathematics": "$\\text{<img/src=x/onerror=window.ran=1>}$ <math><mtext><script>x=1</script></mtext></math>",
    "mutation": "<noscript><p title='</noscript><img src=x onerror=window.ran=1>'>",
    "template": "{{ 7 * 7 }} {% include '/etc/passwd' %}",
    "40,000 pictures": "<img " * 40_000,
    "9,000 nested div": "<div>" * 9_000,
    "100,000 quotations": "> " * 100_000,
    "escapes": "\x1b[2J\x1b]0;title\x07",
}
TYPES: tuple[Any, ...] = (None, 1e300, "\x1b[2J" + ACT, [[]], {"a": {}})
"""What may stand where something else is expected."""


DRAWING_ACTS = re.compile(r"<[\w:]*script|\bon\w+=|://127|<\?xml-s|@import")


class _Page(HTMLParser):
    """Whatever acts or loads in a page, but for what every page of a report has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.acts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        ours = tag == "script" and values.get("src", "").endswith("report.js")
        if tag in ("script", "iframe", "object", "embed", "form", "base", "svg", "image") and not ours:
            self.acts.append(tag)
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.acts.append("refresh")
        for name, value in values.items():
            plain = re.sub(r"\s", "", value).lower()
            loads = name in ("src", "srcset", "style", "background", "poster") and ("://" in plain or "url(" in plain)
            if name.startswith("on") or plain.startswith(("javascript:", "data:text")) or loads:
                self.acts.append(f"{tag} {name}")


def _acts(site: Path) -> dict[str, str]:
    """What acts, loads or was taken from elsewhere, by the first folder or page of the site that it is in."""
    wrong = {}
    for path in (path for path in site.rglob("*") if path.is_file()):
        data, name = path.read_bytes(), path.relative_to(site).parts[0].removesuffix(".html")
        text = data.decode("utf-8", "replace")
        acts = _Page(text).acts if path.suffix == ".html" else []
        if path.suffix == ".svg" and (b"\0" in data or DRAWING_ACTS.search(text)):
            acts = ["a drawing that acts"]
        if SECRET in text:
            acts = ["a file from elsewhere"]
        if acts:
            wrong[name] = f"{path.name}: {', '.join(acts)[:200]}"
    return wrong


def _reported(folder: Path, faults: Mapping[str, Callable[..., object]]) -> Iterator[Tried]:
    """One report of a run for each fault, and a sound one: which became a card, which has a page."""
    sound = make_run(folder / "sound", profile="sound")
    runs = {f"p{number}": copied(sound, folder / f"p{number}", f"p{number}") for number in range(len(faults))}
    for run, spoil in zip(runs.values(), faults.values(), strict=True):
        spoil(run)
    site, words = folder / "site", io.StringIO()
    try:
        with contextlib.redirect_stderr(words), mock.patch("dialnb.report.pages.FILE_SECONDS", 5):
            index = build([*runs.values(), sound], site).read_text("utf-8")
    except BaseException as error:
        yield from (Tried(fault, WRONG, f"no report: {type(error).__name__}: {error}") for fault in faults)
        return
    wrong = _acts(site)
    everywhere = wrong.get("index", "") or ("" if (site / "wmdc-sound.html").is_file() else "the sound run is lost")
    for (name, run), fault in zip(runs.items(), faults, strict=True):
        page = next(site.glob(f"wmdc-{name}-*.html"), site / f"wmdc-{name}.html")  # its name says what is set by hand
        text = page.read_text("utf-8") if page.is_file() else ""
        detail = everywhere or wrong.get(page.stem, "")
        is_card = bool(re.search(rf"{run.name}</strong> is damaged", index)) or 'class="failed"' in text
        if not detail and not text and not is_card:
            detail = "neither a page nor a card"
        yield Tried(fault, WRONG if detail else CARD if is_card else SOUND, detail)


def damaged_files(folder: Path) -> Iterator[Tried]:
    """Files of a foreign run, damaged."""
    faults = {
        f"{name}: {kind}": lambda run, name=name, spoil=spoil: spoil(run / name)
        for name in FILES
        for kind, spoil in DAMAGES.items()
    }
    return _reported(folder, faults)


def other_types(folder: Path) -> Iterator[Tried]:
    """Entries of a foreign run.json of another type."""

    def changed(name: str, value: object) -> Callable[[Path], object]:
        def change(run: Path) -> None:
            record = json.loads((run / "run.json").read_text("utf-8"))
            profile = {} if name == "profile" else {"profile": record["profile"]}
            (run / "run.json").write_text(json.dumps(record | {name: value} | profile), "utf-8")

        return change

    names: tuple[str, ...] = (
        "slug",
        "status",
        "reason",
        "parameters",
        "stages",
        "set_by_hand",
        "not_run",
        "data",
        "encoders",
        "updated",
    )
    names = (*names, "seconds", "hardware", "code", "packages", "pooled", "licences", "determinism")
    return _reported(folder, {f"{name}: {value!r}": changed(name, value) for name in names for value in TYPES})


def hostile_drawings(folder: Path) -> Iterator[Tried]:
    """Drawings that act."""
    faults = {
        name: lambda run, data=data: (run / "figures" / "F1.svg").write_bytes(data)
        for name, data in drawings(CANARY).items()
    }
    return _reported(folder, faults)


def hostile_texts(folder: Path) -> Iterator[Tried]:
    """Notebooks and pages of advice that act."""
    faults = {}
    for name, text in TEXTS.items():
        faults[f"notebook: {name}"] = lambda run, text=text: make_notebook(run / "notebook.ipynb", text)
        faults[f"guide: {name}"] = lambda run, text=text: (run / "guide.md").write_text(text, "utf-8")
    return _reported(folder, faults)


FAMILIES: tuple[Family, ...] = (damaged_files, other_types, hostile_drawings, hostile_texts)
