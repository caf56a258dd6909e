"""Synthetic run folders for the tests of the report: what ran, substitutes, rows that did not run, a failed run; and
runs by somebody who means harm, or whose disk was full."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from shared import made_once, session_folder

from dialnb import plots
from dialnb.report import build

LEVELS = {
    "BERT": 35.0,
    "SimCSE-unsup": 40.0,
    "TOD-BERT": 36.0,
    "DSE-dropout": 41.0,
    "DSE": 50.0,
    "NT-Xent (ours)": 49.0,
}


def intent_rows(levels: dict[str, float] = LEVELS, seeds: int = 10, noise: float = 1.0, encoder: str = "mini"):
    """Rows of DSE's T2, of three trainings, whose models differ by what `levels` say."""
    generator, rows = np.random.default_rng(7), []
    for model, level in levels.items():
        for dataset, shift in {"CLINC150": 8, "bundled/BANKING77": -5, "SNIPS": 20}.items():
            for shots in (1, 5):
                for training, seed in product(range(3), range(seeds)):
                    value = level + shift + 3 * shots + noise * generator.normal()
                    row = {"task": "intent", "dataset": dataset, "metric": "Accuracy", "protocol": "code", "seed": seed}
                    row |= {"value": value, "n": 450, "shots": shots, "method": "prototype-code"}
                    rows.append(row | {"model": model, "table": "T2", "encoder": encoder, "train_seed": training})
    return pd.DataFrame(rows)


def epoch_rows() -> pd.DataFrame:
    """Rows of DSE's F3: DSE rises and is flat after epoch 5, DSE-dropout falls."""
    generator, rows = np.random.default_rng(3), []
    for epoch in range(1, 11):
        for seed in range(8):
            for model, value in {"DSE": 40 + 10 * min(epoch, 5) / 5, "DSE-dropout": 42 - 0.8 * epoch}.items():
                row = {"task": "intent", "dataset": "CLINC150", "metric": "Accuracy", "protocol": "code", "seed": seed}
                row |= {"value": value + 0.4 * generator.normal(), "n": 450, "epoch": epoch, "model": model}
                rows.append(row | {"table": "F3", "encoder": "mini"})
    return pd.DataFrame(rows)


def count_rows() -> pd.DataFrame:
    """A count beside the printed one, by naming its column."""
    return pd.DataFrame(
        [{"model": "consecutive pairs after filter", "column": "value", "value": 889_000, "table": "X2"}]
    )


def adversarial_rows() -> pd.DataFrame:
    """Rows of UMS's T4 with the paper's own encoder and data."""
    rows = []
    for model, original, adversarial in (("BERT", 0.82, 0.20), ("UMS_BERT", 0.845, 0.31)):
        for seed in range(3):
            values = {"Original R10@1": original, "Adversarial R10@1": adversarial + 0.002 * seed}
            values |= {"Adversarial first": 0.75 - adversarial, "Drop R10@1": original - adversarial + 0.001 * seed}
            for metric, value in values.items():
                row = {"task": "adversarial selection", "dataset": "Ubuntu-V1", "metric": metric, "protocol": "paper"}
                row |= {"seed": seed, "value": value, "n": 50_000, "ties": "against"}
                rows.append(row | {"model": model, "table": "T4", "encoder": "bert-base-uncased"})
    return pd.DataFrame(rows)


def write_run(folder: Path, slug: str, rows: pd.DataFrame, profile: str = "quick", seed: int = 1, **more) -> Path:
    """A run folder as `dialnb run` leaves it."""
    folder.mkdir(parents=True)
    record = {
        "slug": slug, "profile": profile, "status": "done", "reason": "", "set_by_hand": {},
        "parameters": {"seed": seed, "encoder": "mini"}, "started": "2025-11-02T10:00:00+00:00",
        "updated": f"2025-11-02T10:0{seed}:00+00:00",
        "seconds": 187.4, "determinism": "seeded", "hardware": {"cores": 2, "gpus": []},
        "code": {"commit": "0123456789abcdef", "dirty": False}, "packages": {"python": "3.12.1", "torch": "2.9.0"},
        "data": [{"name": "CLINC150", "variant": "full", "fingerprint": "00", "licence": "CC BY 3.0"}],
        "encoders": [{"name": "mini", "sha256": {}, "licence": "Apache 2.0"}], "licences": ["CC BY 3.0"],
        "stages": [{"name": "train DSE", "seconds": 101.5, "cached": False}], "not_run": [],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record | more), encoding="utf-8")
    rows.to_csv(folder / "results.csv", index=False)
    return folder


def write_figure(folder: Path) -> None:
    """One figure with everything `dialnb run` keeps of it."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6, 3))
    axes = figure.add_subplot(title="Score per epoch", xlabel="epoch", ylabel="accuracy %")
    axes.plot([1, 2, 3], [40, 44, 46])
    plots.save(figure, folder / "F3")
    pd.DataFrame({"epoch": [1, 2, 3], "score": [40, 44, 46]}).to_csv(folder / "F3.csv", index=False)
    about = {"name": "F3", "caption": "Score per epoch.", "alt": "A line that rises from 40 to 46.", "function": None}
    (folder / "F3.json").write_text(json.dumps(about | {"arguments": {}, "dtypes": {}}), encoding="utf-8")


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
"""A PNG of one point, as notebooks write it."""


def write_notebook(path: Path) -> None:
    """An executed notebook with an equation, a table, and things that would load from outside."""
    outside = '<script src="https://cdn.example.org/x.js"></script><img src="https://example.org/a.png"><b>kept</b>'
    data = nbformat.v4.new_output("display_data", data={"text/html": outside})
    drawn = nbformat.v4.new_output("display_data", data={"image/png": DOT})
    cells = [
        nbformat.v4.new_markdown_cell(
            "# DSE\nThe loss $L = \\frac{1}{2M}\\sum_i l_i$ and `$code$`:\n\n$$\\alpha_{ij} \\ge 0$$"
        ),
        nbformat.v4.new_code_cell(
            "print('hello')", outputs=[nbformat.v4.new_output("stream", text="hello\n"), data, drawn]
        ),
    ]
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), encoding="utf-8")


def write_runs(folder: Path) -> list[Path]:
    """Three runs: DSE with substitutes and gaps, UMS with the paper's encoder, TaDSE failed before it measured."""
    levels = LEVELS | {"TOD-BERT": 40.05}
    rows = pd.concat([intent_rows(levels), epoch_rows(), count_rows()], ignore_index=True)
    gap = {"table": "T2", "model": "PairSupCon", "reason": "public checkpoint; needs the hub"}
    dse = write_run(folder / "dse-quick-seed1", "dse", rows, not_run=[gap])
    write_figure(dse / "figures")
    write_notebook(dse / "notebook.ipynb")
    gpu = {"cores": 16, "gpus": [{"name": "NVIDIA H200", "memory_gb": 140}]}
    ums = write_run(folder / "ums-gpu-seed1", "ums", adversarial_rows(), profile="gpu", hardware=gpu)
    write_figure(ums / "figures")  # the one that the gallery shows
    failed = {"status": "failed", "reason": "DataError: <b>no</b> SNIPS"}
    tadse = write_run(folder / "tadse-smoke-seed1", "tadse", pd.DataFrame(), profile="smoke", **failed)
    return [dse, ums, tadse]


def built_site(factory: pytest.TempPathFactory) -> Path:
    """The report of those runs, built once per test session."""

    def make(folder: Path) -> None:
        build(write_runs(folder / "runs"), folder / "site", {"wmdc": "left out: no notebook yet"})

    return made_once(session_folder(factory) / "synthetic-report", make) / "site"


SCRIPT = '"><img src=x onerror="window.ran = 1"><script>window.ran = 1</script>'
"""A name that runs where it is taken for HTML."""

SECRET = "what only the owner of this machine may read"


def hostile_run(folder: Path) -> Path:
    """A run whose every text runs script where it is taken for HTML, and whose names lead out of the report."""
    rows = intent_rows({"BERT": 35.0, "DSE": 50.0}, seeds=2, encoder=SCRIPT).assign(substitute=SCRIPT)
    strange = rows[rows.dataset == "SNIPS"].assign(dataset=SCRIPT)
    rows = pd.concat([rows, rows[rows.model == "DSE"].assign(model=SCRIPT), strange], ignore_index=True)
    run = write_run(
        folder,
        "dse",
        rows,
        profile=f"../../../{SCRIPT}",
        status="failed",
        reason=SCRIPT,
        parameters={"seed": 1, "encoder": SCRIPT},
        set_by_hand={"encoder": SCRIPT, SCRIPT: SCRIPT, "models": "$(ran)"},
        hardware={"cores": 2, "gpus": [{"name": SCRIPT}]},
        code={"commit": SCRIPT},
        packages={"torch": SCRIPT},
        data=[{"name": SCRIPT, "variant": SCRIPT}],
        encoders=[{"name": SCRIPT}],
        licences=[SCRIPT],
        determinism=SCRIPT,
        stages=[{"name": SCRIPT, "seconds": 1.0, "cached": False}],
        updated=SCRIPT,
        started=SCRIPT,
        not_run=[{"table": "T2", "model": "PairSupCon", "reason": SCRIPT}],
    )
    write_figure(run / "figures")
    about = json.loads((run / "figures/F3.json").read_text(encoding="utf-8"))
    (run / "figures/F3.json").write_text(json.dumps(about | {"caption": SCRIPT, "alt": SCRIPT}), encoding="utf-8")
    for name in ("F4", "F5"):  # a drawing that acts when it is opened, and a name that is a path
        for suffix in ("png", "csv"):
            (run / f"figures/{name}.{suffix}").write_bytes((run / f"figures/F3.{suffix}").read_bytes())
    drawing = '<svg xmlns="http://www.w3.org/2000/svg"><script>window.ran = 1</script></svg>'
    (run / "figures/F4.svg").write_text(drawing, encoding="utf-8")
    (run / "figures/F4.json").write_text(json.dumps(about | {"name": "F4"}), encoding="utf-8")
    (run / "figures/F5.json").write_text(json.dumps(about | {"name": "../../../escaped"}), encoding="utf-8")
    (run / "guide.md").write_text(f"{SCRIPT}\n\n[text](javascript:window.ran=1) ![p](https://example.org/p.png)")
    acts = (
        f"<b onmouseover='window.ran = 1' onclick='window.ran = 1'>kept</b>{SCRIPT}"
        "<a href='javascript:window.ran=1'>a</a>"
        "<a href=' jav&#x09;ascript:window.ran=1'>b</a><a href='data:text/html,<script>1</script>'>c</a>"
        "<svg onload='window.ran = 1'><script>window.ran = 1</script></svg>"
        "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>"
        "<math><mtext><table><mglyph><style><img src=x onerror='window.ran = 1'></style></table></mtext></math>"
        "<style>@import url(https://example.org/a.css); body { display: none; }</style>"
        "<base href='https://example.org/'>"
        "<form action='https://example.org/'><button onclick='window.ran = 1'>send</button></form>"
        "<meta http-equiv='refresh' content='0;url=https://example.org/'><object data='x.swf'></object>"
    )
    kinds = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "text/plain", "application/javascript")
    outputs = [nbformat.v4.new_output("display_data", data={kind: acts}) for kind in kinds]
    outputs.append(nbformat.v4.new_output("stream", text=acts))
    equations = "$\\text{<img/src=x/onerror=window.ran=1>}$ and $$\\left( <img/src=x/onerror=window.ran=1>$$"
    text = f"# Title {SCRIPT}\n\n{acts}\n\n[link](javascript:window.ran=1) {equations}"
    cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell(acts, outputs=outputs)]
    cells.append(nbformat.v4.new_raw_cell(acts))
    (run / "notebook.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), encoding="utf-8")
    return run


def damaged_runs(folder: Path) -> dict[str, Path]:
    """Runs by what is wrong with them, each besides being sound."""
    names = ("cut", "bare", "outside", "linked", "numbers", "stranger", "<img src=x onerror='window.ran = 1'>")
    runs = {name: folder / name for name in names}
    for number, (name, path) in enumerate(runs.items()):
        write_run(path, "wmdc", pd.DataFrame([{"model": "BERT", "table": "T2", "value": 1.0}]), profile=f"p{number}")
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        changed = {"bare": {"slug": "wmdc"}, "stranger": record | {"slug": "../nobody"}}
        changed["outside"] = record | {"parameters": {"seed": "/../../../../escaped"}}
        (path / "run.json").write_text(json.dumps(changed.get(name, record)), encoding="utf-8")
    for name in (names[0], names[-1]):
        (runs[name] / "run.json").write_text('{"slug": "wmdc", "pro', encoding="utf-8")
    (runs["numbers"] / "results.csv").write_bytes(b"model,value\nBERT,\xff\xfe\x00")
    (folder / "secret.txt").write_text(SECRET, encoding="utf-8")
    (runs["linked"] / "log.txt").symlink_to(folder / "secret.txt")
    return runs


def partly_damaged_run(folder: Path) -> Path:
    """A run with a notebook that was cut and with figures that are empty; its results are sound."""
    run = write_run(folder, "ums", adversarial_rows(), profile="gpu")
    (run / "notebook.ipynb").write_text('{"cells": [{"cell_type": "mark', encoding="utf-8")
    write_figure(run / "figures")
    (run / "figures/F1.json").write_text("", encoding="utf-8")
    about = json.loads((run / "figures/F3.json").read_text(encoding="utf-8"))
    (run / "figures/F2.json").write_text(json.dumps(about | {"name": "F2"}), encoding="utf-8")
    (run / "figures/F2.png").write_bytes(b"")
    return run


def hostile_site(factory: pytest.TempPathFactory) -> Path:
    """The report of all these, built once per test session."""

    def make(folder: Path) -> None:
        runs = [hostile_run(folder / "runs" / "hostile"), *damaged_runs(folder / "runs").values()]
        build([*runs, partly_damaged_run(folder / "runs" / "partly")], folder / "site")

    return made_once(session_folder(factory) / "hostile-report", make) / "site"
