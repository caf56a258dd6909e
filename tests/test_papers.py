"""The published tables: complete, true to their own averages except where the file says so, and ours beside them."""

from __future__ import annotations

import copy
import io
import statistics
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
import yaml

from dialnb.claims.comparison import Estimate, _mean, compare_table
from dialnb.claims.papers import (
    FLOORS,
    SLUGS,
    STUDIES,
    Paper,
    load_cells,
    load_paper,
    parse_paper,
    published,
    select,
)
from dialnb.errors import DataError, UnknownName
from dialnb.files import project_root

AVERAGES_WITH_CHECKS = {"dse", "tadse", "wmdc"}


@pytest.fixture(params=SLUGS)
def paper(request):
    return load_paper(request.param)


def check_averages(paper: Paper) -> pd.DataFrame:
    """Every printed average next to the mean of the printed cells it averages.

    One row per average: where, printed, computed, agrees. An average agrees when it lies within half a unit of its last
    printed digit; `where` is spelled as in the paper's `mismatches`, for example "T5 DSE-dropout Ave".
    """
    rows = []
    for table in paper.tables.values():
        for check in table.average_checks:
            for row in table.rows:
                cells = dict(zip(table.columns, row.values, strict=True))
                parts = [Decimal(str(cells[name])) for name in check["over"]]
                computed, printed = sum(parts) / len(parts), cells[check["column"]]
                half_unit = Decimal(5).scaleb(-1 - table.digits)
                agrees = printed is not None and abs(Decimal(str(printed)) - computed) <= half_unit
                labels = [row.labels[name] for name in ("setting", "threshold", "model") if name in row.labels]
                where = " ".join([table.id, *labels, check["column"]])
                rows.append({"where": where, "printed": printed, "computed": float(computed), "agrees": agrees})
    return pd.DataFrame(rows, columns=["where", "printed", "computed", "agrees"])


def raw_paper(slug: str) -> dict:
    return yaml.safe_load((project_root() / "papers" / slug / "paper.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("where", ["named", "here", "above", "nowhere"])
def test_the_project_is_the_one_named_or_around_the_working_folder_or_that_of_the_package(where, tmp_path, monkeypatch):
    for name in ("mine", "other"):
        (tmp_path / name / "papers" / "dse").mkdir(parents=True)
        (tmp_path / name / "papers" / "dse" / "paper.yaml").touch()
    mine = tmp_path / "mine"
    if where == "named":
        monkeypatch.setenv("DIALNB_PROJECT", str(mine))
    monkeypatch.chdir({"named": tmp_path / "other", "here": mine, "above": mine / "papers", "nowhere": tmp_path}[where])
    assert project_root() == (Path(__file__).resolve().parents[1] if where == "nowhere" else mine)


def test_every_folder_of_papers_is_a_known_paper_and_every_paper_has_a_folder():
    assert {path.parent.name for path in (project_root() / "papers").glob("*/paper.yaml")} == set(STUDIES)


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
    checks = check_averages(load_paper(slug))
    assert (slug in AVERAGES_WITH_CHECKS) == (len(checks) > 0)
    listed = {str(mismatch["where"]): mismatch for mismatch in load_paper(slug).mismatches}
    off = checks[~checks.agrees.astype(bool)]
    assert set(off["where"]) <= set(listed)
    for row in off.itertuples():
        assert listed[row.where]["claim"] == (None if pd.isna(row.printed) else row.printed)
        assert listed[row.where]["computed"] == pytest.approx(row.computed, abs=0.005)


def test_a_changed_cell_is_caught_by_its_average():
    raw = raw_paper("tadse")
    raw["tables"][2]["rows"][0]["values"][0] += 1
    changed = check_averages(parse_paper(raw, "changed copy"))
    assert list(changed.query("~agrees")["where"]) == ["T3 BERT Average"]


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


def intents(
    models: dict[str, float], datasets=("CLINC150", "BANKING77"), encoder: str = "bert-base-uncased", seeds: int = 3
):
    """Rows of DSE's T2 for some models and datasets."""
    made = []
    for model, level in models.items():
        for dataset in datasets:
            for shots in (1, 5):
                for seed in range(seeds):
                    row = {"task": "intent", "dataset": dataset, "metric": "Accuracy", "protocol": "code", "seed": seed}
                    row |= {"value": level + shots + seed, "n": 100, "shots": shots, "method": "prototype-code"}
                    made.append(row | {"model": model, "table": "T2", "encoder": encoder})
    return pd.DataFrame(made)


def cell(comparison, column: str, **labels) -> pd.Series:
    rows = comparison.rows[comparison.rows.column == column]
    for name, text in labels.items():
        rows = rows[rows[name] == text]
    assert len(rows) == 1
    return rows.iloc[0]


def test_ours_stands_beside_the_printed_value_with_interval_and_difference():
    found = cell(compare_table("dse", "T2", intents({"DSE": 60.0})), "Clinc150", model="DSE", setting="1-shot")
    assert (found.published, found.ours, found.seeds, found.n, found.status) == (62.53, 62.0, 3, 100, "ran")
    assert found.difference == pytest.approx(62.0 - 62.53)
    assert found.half == pytest.approx(4.303 / 3**0.5, abs=0.001)  # Student's t with 2 degrees of freedom, sd 1


def test_an_average_over_columns_is_the_same_to_the_last_digit_in_every_process():
    """Draws that have names were added in the order of a set, which differs from process to process."""
    names = [f"draw {number}" for number in range(40)]
    parts = [Estimate(by_replicate={(1, name): 0.1 * row + 0.7**row for row, name in enumerate(names)})] * 2
    assert [name for _, name in _mean(parts).by_replicate] == names


@pytest.mark.parametrize("column", ["Clinc150", "Ave"])
def test_trainings_that_were_scored_on_the_same_draws_are_no_further_draws(column):
    def half(*levels: float, draws: int = 3) -> float:
        parts = [intents({"DSE": level}, seeds=draws).assign(train_seed=seed) for seed, level in enumerate(levels)]
        table = compare_table("dse", "T2", pd.concat(parts, ignore_index=True))
        return cell(table, column, model="DSE", setting="1-shot").half

    over_draws = 4.303 / 3**0.5  # Student's t with 2 degrees of freedom, sd 1
    assert [half(60.0), half(60.0, 60.0), half(60.0, 60.0, 60.0)] == pytest.approx([over_draws] * 3, abs=0.001)
    over_trainings = 4.303 * 2 / 3**0.5
    assert half(58.0, 60.0, 62.0) == pytest.approx((over_draws**2 + over_trainings**2) ** 0.5, abs=0.001)
    over_items = half(60.0, draws=1)  # where nothing else varies
    assert half(60.0, 60.0, draws=1) == pytest.approx(over_items, rel=1e-3) and over_items > 1
    assert half(58.0, 60.0, 62.0, draws=1) > half(60.0, draws=1)


def test_draws_are_told_apart_by_words_and_numbers_alike():
    levels = {0: 58.0, 1: 62.0}
    numbers = pd.concat([intents({"DSE": level}).assign(train_seed=seed) for seed, level in levels.items()])
    mixed = numbers.assign(seed=numbers["seed"].astype(object).replace(0, "first"))
    halves = [
        cell(compare_table("dse", "T2", rows), "Clinc150", model="DSE", setting="1-shot").half
        for rows in (numbers, mixed)
    ]
    assert halves[0] > 0 and halves[1] == pytest.approx(halves[0])


def test_an_average_is_compared_with_the_papers_over_the_columns_that_ran():
    found = cell(compare_table("dse", "T2", intents({"DSE": 60.0})), "Ave", model="DSE", setting="1-shot")
    assert (found.published, found.same) == (52.70, pytest.approx((62.53 + 43.12) / 2))
    assert found.difference == pytest.approx(62.0 - (62.53 + 43.12) / 2)


@pytest.mark.parametrize(
    ("datasets", "encoder", "note"),
    [
        (("CLINC150",), "mini", "encoder mini"),
        (("bundled/CLINC150",), "bert-base-uncased", "bundled part of CLINC150"),
        (("CLINC150",), None, "encoder not stated"),
    ],
)
def test_another_encoder_or_other_data_make_a_substitute_that_says_so(datasets, encoder, note):
    rows = intents({"DSE": 60.0}, datasets, encoder)
    found = cell(compare_table("dse", "T2", rows), "Clinc150", model="DSE", setting="5-shot")
    assert (found.status, found.note) == ("substitute", note)


def test_a_stand_in_is_used_only_where_the_papers_own_data_did_not_run():
    row = {"task": "response selection", "metric": "Top-1", "protocol": "paper", "ties": "against", "seed": 0, "n": 600}
    row |= {"model": "DSE", "table": "T4", "encoder": "bert-base-uncased"}
    stand_in, own = row | {"dataset": "UbuntuIRC", "value": 30.0}, row | {"dataset": "DSTC7-Ubuntu", "value": 15.0}
    found = cell(compare_table("dse", "T4", pd.DataFrame([stand_in])), "DSTC7-Ubuntu Top-1", model="DSE")
    assert (found.ours, found.status, found.note) == (30.0, "substitute", "UbuntuIRC in place of DSTC7-Ubuntu")
    assert found.half == pytest.approx(1.96 * (30 * 70 / 600) ** 0.5)
    found = cell(compare_table("dse", "T4", pd.DataFrame([stand_in, own])), "DSTC7-Ubuntu Top-1", model="DSE")
    assert (found.ours, found.status) == (15.0, "ran")


def test_rows_that_did_not_run_keep_the_published_value_and_the_reason():
    gaps = [
        {"table": "T2", "model": "PairSupCon", "reason": "needs the hub"},
        {"table": "T2", "column": "Hwu64", "reason": "no label map"},
    ]
    compared = compare_table("dse", "T2", intents({"DSE": 60.0}), gaps)
    found = cell(compared, "Clinc150", model="PairSupCon", setting="1-shot")
    assert (found.published, found.status, found.note) == (55.34, "not run", "needs the hub")
    assert cell(compared, "Hwu64", model="DSE", setting="1-shot").note == "no label map"
    assert cell(compared, "Appen-A", model="DSE", setting="1-shot").note == "private data of the authors"
    assert cell(compared, "Snips", model="BERT", setting="1-shot").note == "not part of this run"


def test_models_beyond_the_papers_are_added_and_cited_rows_stay_constants():
    compared = compare_table("dse", "T2", intents({"DSE": 60.0, "NT-Xent": 55.0}))
    assert cell(compared, "Bank77", model="NT-Xent", setting="5-shot").ours == 61.0
    assert set(compare_table("ums", "T2", pd.DataFrame()).rows.query("source == 'cited'").status) == {"constant"}


def adversarial(values: dict[tuple[str, int], float]) -> pd.DataFrame:
    """Rows of UMS' adversarial test, of models and training seeds."""
    same = {"task": "adversarial selection", "dataset": "Ubuntu-V1", "metric": "Adversarial R10@1", "protocol": "paper"}
    same |= {"seed": 0, "n": 1000, "table": "T4", "encoder": "bert-base-uncased"}
    rows = [same | {"model": model, "train_seed": seed, "value": value} for (model, seed), value in values.items()]
    return pd.DataFrame(rows)


def test_a_model_of_ones_own_that_did_not_run_is_told_under_the_table_with_the_reason():
    gaps = [{"table": "", "model": name, "reason": "left out"} for name in ("TF", "BERT", "mine <b>")]
    gaps += [{"table": "T4", "model": "elsewhere", "reason": "left out"}, {"table": "T2", "reason": "of all"}]
    compared = compare_table("dse", "T2", intents({"DSE": 60.0}).assign(table="T2"), gaps)
    assert compared.absent == {"left out": ["TF", "mine <b>"]}, "BERT has a printed row, which says so"
    assert "<p>Not run: TF, mine &lt;b&gt;: left out.</p>" in compared._repr_html_()
    assert compare_table("dse", "T4", intents({"DSE": 60.0}).assign(table="T2"), gaps).absent == {}, "nothing ran there"


def test_models_are_renamed_and_averaged_where_a_table_says_so():
    rows = adversarial({("BERT", 1): 0.2, ("UMS_BERT", 1): 0.3, ("UMS_ELECTRA", 1): 0.4})
    compared = compare_table("ums", "T4", rows)
    assert cell(compared, "Adversarial R10@1", approach="UMS", model="BERT").ours == 0.3
    assert cell(compared, "Adversarial R10@1", approach="Baselines", model="BERT").ours == 0.2
    assert cell(compared, "Adversarial R10@1", approach="UMS", model="Avg").ours == pytest.approx(0.35)


def test_an_average_of_models_is_over_the_trainings_that_all_of_them_have():
    more = {("UMS_BERT", 3): 0.9, ("UMS_BERT", 4): 0.9}  # a training of one model is no average of two
    both = {
        (model, seed): value + seed / 100
        for model, value in {"UMS_BERT": 0.3, "UMS_ELECTRA": 0.4}.items()
        for seed in (1, 2)
    }
    found = cell(compare_table("ums", "T4", adversarial(both | more)), "Adversarial R10@1", approach="UMS", model="Avg")
    assert (found.ours, found.seeds) == (pytest.approx(0.365), 2)


def test_a_summary_table_follows_from_the_others():
    found = cell(compare_table("dse", "T6", intents({"DSE": 60.0})), "IC", model="DSE")
    assert (found.published, found.ours) == (60.09, pytest.approx(64.0))
    assert (found.status, found.note) == ("substitute", "averages over the columns that ran")


def test_rows_may_name_their_column_themselves():
    rows = pd.DataFrame([{"model": "yes.", "column": "frequency", "value": 5300, "table": "T5"}])
    found = cell(compare_table("wmdc", "T5", rows), "frequency", model="yes.")
    assert (found.published, found.ours, found.difference, found.status) == (5371, 5300, -71, "ran")


def test_two_measurements_of_one_cell_are_refused_and_the_column_is_named():
    rows = intents({"DSE": 60.0})
    with pytest.raises(DataError, match="differ in protocol"):
        compare_table("dse", "T2", pd.concat([rows, rows.assign(protocol="clean")]))


def test_the_renderings_agree_and_what_is_published_is_in_parentheses():
    compared = compare_table("dse", "T2", intents({"DSE": 60.0, "BERT": 40.0}))
    line = next(row for row in compared.markdown().splitlines() if "| DSE | " in row)
    assert "**62.00 ± 2.48** (62.53, −0.53)" in line and "(79.57)" in line
    assert r"\textbf{62.00 $\pm$ 2.48} (62.53, $-$0.53)" in compared.latex()
    assert compared.latex().count(r"\\") == 1 + len(compared.grid)
    table = pd.read_csv(io.StringIO(compared.csv()))
    assert len(table) == 18 * 7 and table.ours.max() == 66.0
    html = compared._repr_html_()
    assert '<td class="best">62.00 ± 2.48</td><td class="grey">62.53</td>' in html


def test_differences_of_counts_are_whole_beside_numbers_that_are_not():
    rows = {"model": ["pairs", "average turns"], "column": "Ubuntu train", "value": [60190.0, 8.36]}
    shown = compare_table("ums", "T1", pd.DataFrame(rows).assign(table="T1", metric="count", seed=0)).markdown()
    assert "60,190 (1,000,000, −939,810)" in shown and "8.36 (10.13, −1.77)" in shown


def test_latex_escapes_what_it_must():
    assert r"UMS\_BERT+" in compare_table("ums", "T2", pd.DataFrame()).latex()


@pytest.mark.parametrize("slug", SLUGS)
def test_the_selectors_of_a_paper_name_its_tables_columns_and_labels(slug):
    tables = load_paper(slug).tables
    for name, spec in load_cells(slug)["tables"].items():
        table = tables[name]
        assert set(spec.get("columns", {})) | set(spec.get("lacking", {})) | set(spec.get("derived", {})) <= set(
            table.columns
        )
        for rule in spec.get("rows", ()):
            labels = dict(rule["if"])
            assert labels.pop("column", table.columns[0]) in table.columns, (name, rule)
            if labels.get("model") not in FLOORS:  # floors are rows of ours that no paper printed
                assert any(labels.items() <= row.labels.items() for row in table.rows), (name, rule)
    results = [table for table in tables.values() if table.kind == "results"]
    assert {table.id for table in results} <= set(load_cells(slug)["tables"])


def test_selecting_rows_reads_numbers_lists_and_dataset_names():
    rows = pd.DataFrame({"shots": [1.0, 5.0], "dataset": ["bundled/SNIPS", "ATIS"], "k": ["1", None]})
    assert list(select(rows, {"shots": 1}).index) == [0] == list(select(rows, {"dataset": "snips"}).index)
    assert len(select(rows, {"dataset": ["SNIPS", "ATIS"]})) == 2
    assert list(select(rows, {"k": 1}).index) == [0]
    assert select(rows, {"absent": 1}).empty
