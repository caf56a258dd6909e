"""A small run, complete and sound, for faults to be made in; and what is done to its files."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from matplotlib.figure import Figure

from dialnb import plots

SECRET = "this file lies outside of the run"
ACT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


def make_run(folder: Path, slug: str = "wmdc", profile: str = "quick", seed: int = 1) -> Path:
    """A run folder with everything that a report reads."""
    (folder / "figures").mkdir(parents=True)
    (folder / "tables").mkdir()
    record: dict[str, Any] = {
        "slug": slug,
        "profile": profile,
        "status": "done",
        "reason": "",
        "set_by_hand": {},
        "not_run": [],
    }
    record |= {"parameters": {"seed": seed, "encoder": "mini"}, "updated": "2025-11-02T10:00:00+00:00", "seconds": 1.5}
    stage = {"name": "train BERT", "seconds": 1.0, "cached": False, "key": "0" * 32}
    record |= {"stages": [stage], "encoders": [{"name": "mini", "sha256": {}}], "data": [{"name": "CLINC150"}]}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    rows = pd.DataFrame([{"model": "BERT", "table": "T2", "value": value} for value in (1.0, 2.0)])
    rows.assign(seed=[0, 1], n=10).to_csv(folder / "results.csv", index=False)
    for name in ("claims.json", "ro-crate-metadata.json"):
        (folder / name).write_text("[]", encoding="utf-8")
    (folder / "guide.md").write_text("# Pick BERT\n", encoding="utf-8")
    (folder / "log.txt").write_text("cell 1\n", encoding="utf-8")
    (folder / "tables" / "training-times.csv").write_text("model,seconds\nBERT,1\n", encoding="utf-8")
    make_notebook(folder / "notebook.ipynb", "<b>kept</b>")
    figure = Figure(figsize=(2, 2))
    figure.add_subplot().plot([1, 2])
    plots.save(figure, folder / "figures" / "F1")
    (folder / "figures" / "F1.csv").write_text("x\n1\n", encoding="utf-8")
    about: dict[str, Any] = {
        "name": "F1",
        "caption": "A line.",
        "alt": "It rises.",
        "function": None,
        "arguments": {},
        "dtypes": {},
    }
    (folder / "figures" / "F1.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def copied(run: Path, folder: Path, profile: str = "quick") -> Path:
    """The same run in another folder, under another profile."""
    shutil.copytree(run, folder)
    record = json.loads((folder / "run.json").read_text("utf-8"))
    (folder / "run.json").write_text(json.dumps(record | {"profile": profile}), encoding="utf-8")
    return folder


def make_notebook(path: Path, html: str) -> None:
    """A notebook that shows and says this, in every way in which notebooks show and say something."""
    kinds = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "text/plain", "application/javascript")
    outputs = [nbformat.v4.new_output("display_data", data={kind: html}) for kind in kinds]
    outputs.append(nbformat.v4.new_output("stream", text=html))
    picture = base64.b64encode(html.encode()).decode()
    outputs.append(nbformat.v4.new_output("display_data", data={"image/png": picture}))
    cells = [nbformat.v4.new_markdown_cell(html), nbformat.v4.new_raw_cell(html)]
    cells.append(nbformat.v4.new_code_cell("1", outputs=outputs))
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), encoding="utf-8")


def _anew(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def _outside(path: Path) -> None:
    secret = path.parents[2] / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    _anew(path).symlink_to(secret)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one letter": _flip,
    "zeros": lambda path: path.write_bytes(bytes(1_000)),
    "no text": lambda path: path.write_bytes(bytes(range(256)) * 4),
    "UTF-16": lambda path: path.write_bytes(path.read_bytes().decode("latin-1").encode("utf-16")),
    "[]": lambda path: path.write_text("[]"),
    "null": lambda path: path.write_text("null"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "script": lambda path: path.write_text(ACT),
    "escapes": lambda path: path.write_text('{"slug": "\\u001b[2J", "name": "\\u001b]0;x\\u0007"}'),
    "missing": _anew,
    "folder": lambda path: _anew(path).mkdir(),
    "pipe": lambda path: os.mkfifo(_anew(path)),
    "device": lambda path: _anew(path).symlink_to("/dev/zero"),
    "loop": lambda path: _anew(path).symlink_to(path.name),
    "outside": _outside,
    "20 GB": lambda path: os.truncate(path, 20 * 2**30),
}
"""What is done to a file, by name."""
