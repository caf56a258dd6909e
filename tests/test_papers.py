"""The published tables: complete, rectangular, and true to their own averages except where the file says so."""

from __future__ import annotations

import copy
import statistics

import pandas as pd
import pytest
import yaml

from dialnb.errors import DataError, UnknownName
from dialnb.papers import SLUGS, check_averages, load_paper, parse_paper, project_root, published

AVERAGES_WITH_CHECKS = {"dse", "tadse", "wmdc"}


@pytest.fixture(params=SLUGS)
def paper(request):
    return load_paper(request.param)


def raw_paper(slug: str) -> dict:
    return yaml.safe_load((project_root() / "papers" / slug / "paper.yaml").read_text(encoding="utf-8"))


def test_every_folder_of_papers_is_a_known_paper_and_every_paper_has_a_folder():
    assert {path.parent.name for path in (project_root() / "papers").glob("*/paper.yaml")} == set(SLUGS)


def test_a_paper_knows_its_own_slug_title_and_venue(paper):
    assert paper.slug in SLUGS and paper.name.lower() == paper.slug
    assert paper.title and paper.venue and paper.tables


def test_figure_ids_are_unique(paper):
    ids = [figure["id"] for figure in paper.figures]
    assert len(ids) == len(set(ids))


def test_no_two_rows_of_a_results_table_carry_the_same_labels(paper):
    for table in paper.tables.values():
        if table.kind == "results":
            labels = [tuple(sorted(row.labels.items())) for row in table.rows]
            assert len(labels) == len(set(labels)), table.id


def test_result_cells_are_numbers_within_the_range_of_their_unit(paper):
    for table in paper.tables.values():
        if table.kind == "results":
            top = 1 if table.unit == "fraction" else 100
            values = [value for row in table.rows for value in row.values if value is not None]
            assert values and all(isinstance(value, (int, float)) and 0 <= value <= top for value in values), table.id


def test_average_checks_name_columns_that_exist(paper):
    for table in paper.tables.values():
        for check in table.average_checks:
            assert {check["column"], *check["over"]} <= set(table.columns), table.id


@pytest.mark.parametrize("slug", SLUGS)
def test_printed_averages_hold_within_rounding_unless_listed_as_a_mismatch(slug):
    checks = check_averages(slug)
    assert (slug in AVERAGES_WITH_CHECKS) == (len(checks) > 0)
    listed = {str(mismatch["where"]): mismatch for mismatch in load_paper(slug).mismatches}
    off = checks[~checks.agrees.astype(bool)]
    assert set(off["where"]) <= set(listed)
    for row in off.itertuples():
        assert listed[row.where]["claim"] == (None if pd.isna(row.printed) else row.printed)
        assert listed[row.where]["computed"] == pytest.approx(row.computed, abs=0.005)


def test_a_changed_cell_is_caught_by_its_average(monkeypatch):
    raw = raw_paper("tadse")
    raw["tables"][2]["rows"][0]["values"][0] += 1
    monkeypatch.setattr("dialnb.papers.load_paper", lambda slug: parse_paper(raw, "changed copy"))
    assert list(check_averages("tadse").query("~agrees")["where"]) == ["T3 BERT Average"]


def test_the_average_rows_of_the_adversarial_table_are_the_means_of_the_four_models_above():
    frame = published("ums", "T4")
    for (_, _), cells in frame.groupby(["approach", "column"]):
        models, average = cells[cells.model != "Avg"].value, cells[cells.model == "Avg"].value.item()
        assert len(models) == 4 and average == pytest.approx(statistics.mean(models), abs=0.0011)


def test_the_summary_table_of_dse_follows_from_its_other_tables():
    summary = published("dse", "T6").pivot(index="model", columns="column", values="value")
    intents = published("dse", "T2").query("column == 'Ave'").groupby("model").value.mean()
    for model in ("TOD-BERT", "DSE"):
        assert summary.loc[model, "IC"] == pytest.approx(intents[model], abs=0.0051)


def test_published_rows_are_tidy_and_leave_out_absent_cells():
    frame = published("dse", "T3")
    assert list(frame.columns) == ["paper", "table", "threshold", "model", "type", "column", "value", "unit"]
    assert len(frame) == 18 * 5 - 1
    assert frame.value.dtype == float
    best = frame[frame.column == "Ave"].sort_values("value").iloc[-1]
    assert (best.model, best.threshold, best.value) == ("DSE", "mean-std", 63.51)


def test_every_table_can_be_read_as_tidy_rows(paper):
    for table in paper.tables.values():
        cells = sum(value is not None for row in table.rows for value in row.values)
        assert len(published(paper.slug, table.id)) == cells


def test_unknown_papers_and_tables_are_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'tadse'"):
        load_paper("tatse")
    with pytest.raises(UnknownName, match="table of ums 'T9'"):
        published("ums", "T9")


def test_a_ragged_row_a_doubled_id_and_a_missing_field_are_errors_that_say_where():
    good = raw_paper("wmdc")
    ragged, doubled, missing = copy.deepcopy(good), copy.deepcopy(good), copy.deepcopy(good)
    ragged["tables"][1]["rows"][0]["values"].pop()
    doubled["tables"][1]["id"] = "T1"
    del missing["venue"]
    with pytest.raises(DataError, match=r"here.yaml, table T2, row .*'BERT'.*expected 6 values.*found 5"):
        parse_paper(ragged, "here.yaml")
    with pytest.raises(DataError, match="unique"):
        parse_paper(doubled, "here.yaml")
    with pytest.raises(DataError, match="expected the field 'venue'"):
        parse_paper(missing, "here.yaml")
