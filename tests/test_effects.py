"""Gains that papers print next to ours: as data frames, and as a figure at the width of a column and of a page."""

from __future__ import annotations

import json

import matplotlib
import pandas as pd
import pytest

from dialnb.claims import MEANINGS, SCHEMA, SIZES, VERDICTS, effects, load_claims, published, verdicts
from dialnb.claims.papers import SLUGS
from dialnb.errors import DialnbError
from dialnb.files import project_root
from tools.effects import COLUMN_WIDTH, PAGE_WIDTH, headlines, printed_and_ours


def test_printed_tables_verdicts_and_effects_come_as_data_frames_from_one_import():
    assert published("tadse", "T3").query("column == 'Average' and model == 'TaDSE'")["value"].item() == 83.64
    frame = verdicts()
    assert set(frame["slug"]) > set(SLUGS) and set(frame["verdict"]) <= set(VERDICTS)
    assert list(frame) == ["slug", *SCHEMA] and len(verdicts("dse")) == len(load_claims("dse"))
    gains = effects()
    assert set(gains["size"]) <= {"", *SIZES} and gains["printed"].notna().all()
    assert gains[gains["slug"] == "ums"]["printed"].abs().max() > 1, "in points, as of the other papers"
    with pytest.raises(DialnbError, match="did you mean 'dse'"):
        verdicts("dsee")


def test_the_schema_beside_the_records_says_what_each_field_is():
    kept = json.loads((project_root() / "papers" / "claims.schema.json").read_text("utf-8"))
    assert kept["items"]["properties"] == {name: {"description": said} for name, said in SCHEMA.items()}
    for path in (project_root() / "papers").glob("*/results/*/claims.json"):
        assert all(list(claim) == list(SCHEMA) for claim in json.loads(path.read_text("utf-8"))), path


def test_about_twenty_five_claims_carry_the_papers_and_are_of_the_papers_own():
    chosen = [claim for slug in SLUGS for claim in load_claims(slug) if claim.headline]
    assert 20 <= len(chosen) <= 30 and not any(claim.ours for claim in chosen)
    assert all(claim.kind == "gain" and len(claim.headline) <= 34 for claim in chosen)


@pytest.mark.parametrize("width", [COLUMN_WIDTH, PAGE_WIDTH])
def test_the_figure_has_a_row_for_each_claim_whose_names_fit_beside_the_axes(width):
    claims = headlines()
    figure = printed_and_ours(claims, width=width)
    (axes,) = figure.axes
    assert figure.get_size_inches()[0] == pytest.approx(width)
    assert len(axes.get_yticks()) == len(claims) + claims["paper"].nunique()
    with matplotlib.rc_context({"figure.dpi": 100}):
        figure.canvas.draw()
    edges = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert min(edge.x0 for edge in edges) >= 0, "no name is cut off"
    assert min(label.get_fontsize() for label in axes.get_yticklabels()) >= 6


def test_ours_are_told_apart_by_form_as_well_as_by_colour():
    rows = [("A", "x", outcome, 2.0, 1.0, 0.5, 1.5) for outcome in ("holds", "does not", "undecided", "not run")]
    data = pd.DataFrame(rows, columns=["paper", "headline", "outcome", "printed", "estimate", "low", "high"])
    (axes,) = printed_and_ours(data).axes
    marks = [line.get_marker() for line in axes.lines if line.get_marker() not in ("None", "")]
    assert sorted(marks) == sorted(["o", "s", "^", "D", "D", "D"])
    assert "not run" in [text.get_text() for text in axes.texts]


def test_the_page_about_the_judge_says_what_each_word_means_as_the_judge_does():
    page = (project_root() / "papers" / "JUDGE.md").read_text("utf-8")
    assert all(f"| *{verdict}* | {meaning} |" in page for verdict, meaning in MEANINGS.items())
    assert all(size.split()[0] in page.lower() for size in SIZES)
