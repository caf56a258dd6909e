"""The notebooks of the papers in their smallest profile.

Each runs once, headless and from an encoder of one layer; its tables, figures and claims are looked at, and JupyterLab
shows what came out of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jupyterlab_in_browser
import nbformat
import pandas as pd
import pytest
import shared
from jupyterlab_in_browser import assert_all_is_well, look_through, menu, open_notebook

from dialnb.claims.papers import load_paper

browser, lab = jupyterlab_in_browser.browser, jupyterlab_in_browser.lab  # fixtures


class Expected(NamedTuple):
    """What the smoke run of a notebook shows: tables and figures that are left out, and claims that are judged."""

    tables_left_out: set[str]
    figures: set[str]
    judged: set[str]


PAPERS = {
    "dse": Expected({"T1"}, {"F1", "F2", "geometry", "training"},
                    {"raw-intents", "out-of-scope", "utterance-selection"}),
    "dialoguecse": Expected(set(), {"F1", "F2", "geometry", "matching", "spaces", "training"},
                            {"i2-over-siamese-mdc", "over-self-supervised-mdc", "mean-over-cls-mdc"}),
    "ums": Expected(set(), {"F1", "F2", "F3", "F4", "geometry", "terms", "training"},
                    {"related-not-next", "baselines-collapse", "original-gain", "adversarial-gain", "larger-gain-bert",
                     "smaller-drop", "fewer-fooled", "corpora"}),
    "tadse": Expected(set(), {"F1", "F2", "F3", "F4", "F6", "F8", "compression", "training"},
                      {"over-simcse", "template-loss", "pair-loss", "alignment-layer", "compression", "clusters",
                       "compression-alignment", "every-k", "growth", "toy", "count-snips"}),
    "wmdc": Expected(set(), {"F1", "F2", "frequent-tsne", "geometry", "training"},
                     {"imbalance", "actions", "inference", "retrieval"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory) -> Callable[[str], Path]:
    """A function that gives the run folder of `dialnb run SLUG --profile smoke`; each paper runs once."""

    @cache
    def run(slug: str) -> Path:
        out = tmp_path_factory.mktemp(slug) / "runs"
        command = ["run", slug, "--profile", "smoke", "--out", out, "--encoder", shared.small_encoder(tmp_path_factory)]
        code, said = shared.dialnb(*command, DIALNB_CACHE=shared.smoke_cache(tmp_path_factory))
        assert code == 0, said[-6000:]
        return next(out.iterdir())

    return run


@pytest.fixture(scope="module", params=PAPERS)
def done(request, folder_of) -> tuple[str, Path]:
    """A paper and the folder of its run."""
    return request.param, folder_of(request.param)


def test_what_the_whole_training_would_take_is_projected_from_the_steps_that_ran(done):
    times = pd.read_csv(done[1] / "tables" / "training-times.csv")
    assert len(times) and (times["printed steps"] >= times["steps"]).all() and (times["projected hours"] >= 0).all()


def test_every_printed_table_is_written_with_a_reason_for_each_row_that_did_not_run(done):
    slug, folder = done
    shown = set(load_paper(slug).tables) - PAPERS[slug].tables_left_out
    assert {path.stem for path in (folder / "tables").glob("*.csv")} == {*shown, "training-times"}
    for table in shown:
        rows = pd.read_csv(folder / "tables" / f"{table}.csv")
        missing = rows[rows["status"] == "not run"]
        unsaid = missing[missing["note"] == "not part of this run"]
        assert unsaid.empty, f"{table}: {unsaid[['model', 'column']].to_dict('records')[:3]}"


def test_no_claim_is_left_undecided_for_rows_that_cannot_be_told_apart(done):
    slug, folder = done
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    assert not [claim["id"] for claim in claims if "one row per seed" in claim["reason"]]
    measured = {claim["id"] for claim in claims if claim["verdict"] != "not run" or claim["qualifier"]}
    assert PAPERS[slug].judged <= measured  # so small a run may be below its floors, and then says so


def test_figures_come_with_the_data_they_were_drawn_from(done):
    slug, folder = done
    names = {path.stem for path in (folder / "figures").glob("*.png")}
    assert names == PAPERS[slug].figures == {path.stem for path in (folder / "figures").glob("*.csv")}


def test_the_executed_notebook_shows_its_figures(done):
    slug, folder = done
    cells = json.loads((folder / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = sum("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", ()))
    assert shown == len(PAPERS[slug].figures)


def test_projections_carry_coordinates_and_how_far_they_can_be_trusted(done):
    slug, folder = done
    name, column, parts = {
        "dse": ("F1", "part", {"intents", "questions and answers"}),
        "dialoguecse": ("spaces", "part", {"SGD"}),
        "ums": ("F4", "task", {"insertion", "deletion", "search"}),
        "tadse": ("F4", "model", {"SimCSE", "TaDSE", "TaDSE, compressed 0.5"}),
        "wmdc": ("frequent-tsne", "label", {"most frequent", "frequent", "seen once"}),
    }[slug]
    plane = pd.read_csv(folder / "figures" / f"{name}.csv")
    assert set(plane[column]) == parts and plane["preservation"].between(0, 1).all()


def test_figures_that_are_not_drawn_say_why(done):
    slug, folder = done
    reasons = {entry["table"]: entry["reason"] for entry in json.loads((folder / "run.json").read_text())["not_run"]}
    absent = {"dse": ("F3", "F1-umap"), "dialoguecse": ("F3", "T3", "T4", "X-sides", "spaces-umap"),
              "ums": ("epochs", "F4-umap"), "tadse": ("F7", "F4-umap"),
              "wmdc": ("F3", "F4", "F5", "frequent-umap")}[slug]  # fmt: skip
    assert all("smoke" in reasons[name] for name in absent)
    assert slug != "dse" or ("SICK" in reasons["X1"] and "ANLI" in reasons["X-anli"])


@pytest.mark.slow
def test_jupyterlab_shows_what_came_out_of_all_papers(folder_of, browser, lab):
    """Their notebooks are one page, since opening a page takes longer than looking at it."""
    folders = [folder_of(slug) for slug in PAPERS]
    whole, *others = (nbformat.read(folder / "notebook.ipynb", as_version=4) for folder in folders)
    whole.cells += [cell for other in others for cell in other.cells]
    for number, cell in enumerate(whole.cells):
        cell.id = f"cell-{number}"
    nbformat.write(whole, lab.project / "notebooks" / "executed.ipynb")
    open_notebook(browser, lab, "notebooks/executed.ipynb")
    shown = look_through(browser, "executed", *folders)
    menu(browser, "Kernel", "Shut Down Kernel")
    assert_all_is_well(browser, shown)
    assert shown["tables"] >= sum(len(list((folder / "tables").glob("*.csv"))) for folder in folders)
