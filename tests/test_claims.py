"""Verdicts on synthetic results whose answer is known, their error rates, and the five papers' claims as data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dialnb.claims import Claim, judge, judge_claims, load_claims, parse_claims
from dialnb.errors import DataError
from dialnb.evidence import BY, Lacking
from dialnb.papers import SLUGS, load_paper, project_root
from dialnb.statistics import Interval, choice_interval, mean_interval, units_to_decide

BALANCED = np.array([-1.6, -1.0, -0.6, -0.2, 0.2, 0.6, 1.0, 1.6])
"""Noise that averages to zero, for tests whose answer must not depend on a draw."""


def rows(values: dict[str, np.ndarray], **columns) -> pd.DataFrame:
    """Tidy rows: for each model a matrix [dataset, seed], or [seed] for one dataset."""
    made = []
    for model, table in values.items():
        for i, line in enumerate(np.atleast_2d(table)):
            for seed, value in enumerate(line):
                row = {"task": "intent", "dataset": f"D{i}", "metric": "Accuracy", "protocol": "paper", "seed": seed}
                made.append(row | {"value": float(value), "n": 1000, "model": model, "table": "T2"} | columns)
    return pd.DataFrame(made)


def curve_rows(curves: np.ndarray, x: list[float], model: str = "A", over: str = "epoch") -> pd.DataFrame:
    """Rows of curves [seed, x]."""
    parts = [rows({model: curves[:, i]}, **{over: place}) for i, place in enumerate(x)]
    return pd.concat(parts, ignore_index=True)


def claim(kind: str = "gain", **fields) -> Claim:
    sides = {"better": {"model": "A"}, "worse": {"model": "B"}} if kind == "gain" else {}
    return Claim(**({"id": "c", "statement": "s", "where": "w", "kind": kind} | sides | fields))


def noisy(generator, mean: float = 0.0, seeds: int = 8, spread: float = 1.0) -> np.ndarray:
    return mean + spread * generator.normal(size=seeds)


@pytest.fixture
def generator():
    return np.random.default_rng(20)


@pytest.mark.parametrize(("gap", "verdict"), [(5.0, "holds"), (-5.0, "fails"), (0.05, "undecided")])
def test_a_clear_gain_holds_a_clear_loss_fails_and_a_small_one_is_undecided(gap, verdict):
    found = judge(claim(), rows({"A": 50 + gap + BALANCED, "B": np.full(8, 50.0)}))
    assert found.verdict == verdict
    assert found.low <= found.estimate <= found.high and found.n == 8


def test_a_loss_in_one_of_nine_comparisons_that_chance_explains_shows_the_interval_of_all_nine():
    others = {f"B{i}": np.full(8, 40.0) for i in range(8)} | {"B8": np.full(8, 51.1)}
    found = judge(claim(worse=[{"model": name} for name in others]), rows({"A": 50 + BALANCED} | others))
    alone = judge(claim(worse={"model": "B8"}), rows({"A": 50 + BALANCED, "B8": others["B8"]}))
    assert (found.verdict, alone.verdict) == ("undecided", "fails")
    assert found.low < alone.low < alone.high < 0 < found.high
    assert "weakest of 9" in found.reason and "covers all 9 comparisons at 95 % crosses the line" in found.reason


def test_pairing_by_seed_sees_a_difference_that_the_spread_of_seeds_hides(generator):
    shared = 10 * generator.normal(size=8)
    found = judge(claim(), rows({"A": 50.5 + shared + noisy(generator, 0, spread=0.1), "B": 50 + shared}))
    assert found.verdict == "holds" and found.high - found.low < 1


@pytest.mark.parametrize("seeds", [3, 6, 10, 25])
def test_without_a_difference_holds_and_fails_are_each_said_in_about_two_and_a_half_percent(seeds):
    generator, said = np.random.default_rng(seeds), []
    for _ in range(600):
        said.append(mean_interval(noisy(generator, 0, seeds)))
    for share in (np.mean([one.low > 0 for one in said]), np.mean([one.high < 0 for one in said])):
        assert share <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 600)


def test_the_whole_path_from_rows_to_verdict_keeps_the_false_positive_rate():
    generator, holds = np.random.default_rng(5), 0
    for _ in range(100):
        frame = rows({"A": 50 + generator.normal(size=(2, 6)), "B": 50 + generator.normal(size=(2, 6))})
        holds += judge(claim(), frame).verdict == "holds"
    assert holds / 100 <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 100)


def test_a_difference_of_two_standard_deviations_is_found_with_ten_seeds():
    generator = np.random.default_rng(6)
    assert np.mean([mean_interval(noisy(generator, 2, 10)).low > 0 for _ in range(100)]) > 0.95


@given(st.lists(st.floats(-50, 50), min_size=6, max_size=9, unique=True))
def test_the_exact_interval_agrees_with_the_sign_flip_test_it_inverts(values):
    values = np.array(values)
    one = mean_interval(values)
    assert one.method == "exact sign flips" and one.low <= one.high
    for line, inside in ((one.low - 1e-6, False), (one.high + 1e-6, False), ((one.low + one.high) / 2, True)):
        test = stats.permutation_test((values - line,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert (test.pvalue > 0.05) >= inside


def test_few_pairs_use_students_t_and_many_the_bootstrap(generator):
    assert [mean_interval(noisy(generator, 0, n)).method for n in (1, 3, 6, 12, 13)] == [
        "one value", "Student's t", "exact sign flips", "exact sign flips", "paired bootstrap",
    ]  # fmt: skip


def test_the_bootstrap_is_seeded_and_its_interval_is_close_to_students(generator):
    values = noisy(generator, 3, 40)
    one, again = mean_interval(values), mean_interval(values)
    assert one == again
    low, high = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
    assert (one.low, one.high) == pytest.approx((low, high), abs=0.08)


def test_undecided_says_how_many_seeds_would_decide():
    found = judge(claim(), rows({"A": 50.4 + BALANCED, "B": np.full(8, 50.0)}))
    assert found.verdict == "undecided"
    assert found.needed > 8 and f"about {found.needed:,} seeds would decide" in found.reason


@given(st.floats(0, 1), st.floats(0, 100), st.integers(1, 3000))
def test_however_small_the_effect_the_needed_number_is_one_that_exceeds_what_there_is(effect, spread, n):
    needed = units_to_decide(Interval(effect, -1.0, 1.0, n, "", spread=np.float64(spread)), 0.0)
    assert needed is None if effect == 0 else n <= needed <= 10**12


def test_a_number_of_seeds_that_nobody_runs_is_not_named():
    found = judge(claim(), rows({"A": 50.001 + BALANCED, "B": np.full(8, 50.0)}))
    assert found.needed > 1000 and "not even 1,000 seeds would decide" in found.reason


def test_that_many_seeds_do_decide_in_about_eighty_percent():
    generator = np.random.default_rng(8)
    n = units_to_decide(Interval(0.5, -0.2, 1.2, 8, "", spread=1.0), 0.0)
    decided = [mean_interval(noisy(generator, 0.5, n)).low > 0 for _ in range(200)]
    assert 0.7 < np.mean(decided) < 0.9


def test_the_margin_moves_the_line_and_lower_turns_it_round(generator):
    frame = rows({"A": noisy(generator, 53, spread=0.2), "B": noisy(generator, 50, spread=0.2)})
    assert judge(claim(margin=2), frame).verdict == "holds"
    assert judge(claim(margin=5), frame).verdict == "fails"
    assert judge(claim(lower=True), frame).verdict == "fails"


def test_every_rival_must_be_beaten_and_the_weakest_is_named(generator):
    frame = rows({"A": noisy(generator, 55), "B": noisy(generator, 40), "C": noisy(generator, 60)})
    found = judge(claim(worse=[{"model": "B"}, {"model": "C"}]), frame)
    assert found.verdict == "fails" and "A against C" in found.reason
    assert judge(claim(worse=[{"model": "B"}]), frame).verdict == "holds"


def test_rivals_that_did_not_run_are_named_and_all_missing_means_not_run(generator):
    frame = rows({"A": noisy(generator, 55), "B": noisy(generator, 40)})
    found = judge(claim(worse=[{"model": "B"}, {"model": "Absent"}]), frame)
    assert found.verdict == "holds" and "judged on 1 of 2 comparisons, not run: A against Absent" in found.reason
    with pytest.raises(Lacking, match="not measured: Absent"):
        judge(claim(worse={"model": "Absent"}), frame)


def test_an_ordering_holds_only_if_every_step_does(generator):
    frame = rows({"A": noisy(generator, 60), "B": noisy(generator, 50), "C": noisy(generator, 40)})
    order = [{"model": name} for name in "ABC"]
    assert judge(claim("ordering", order=tuple(order)), frame).verdict == "holds"
    assert judge(claim("ordering", order=tuple(order[::-1])), frame).verdict == "fails"


def test_each_value_of_a_column_is_judged_by_itself(generator):
    good, bad = (
        rows({"A": noisy(generator, 60), "B": noisy(generator, 50)}),
        rows({"A": noisy(generator, 40), "B": noisy(generator, 50)}),
    )
    frame = pd.concat([good.assign(window=1), bad.assign(window=2)])
    found = judge(claim(each="window"), frame)
    assert found.verdict == "fails" and found.reason.endswith("A against B at window 2")
    assert judge(claim(each="window"), frame[frame.window == 1]).verdict == "holds"


def test_items_are_paired_within_each_value_of_a_column():
    frame = pd.concat([rows({"A": [60.0], "B": [50.0]}, window=1), rows({"A": [40.0], "B": [50.0]}, window=2)])
    items = pd.DataFrame([
        {"model": model, "window": window, "item": item, "value": float(item < right) * 100}
        for model, window, right in (("A", 1, 60), ("B", 1, 50), ("A", 2, 40), ("B", 2, 50))
        for item in range(100)
    ])  # fmt: skip
    found = judge(claim(each="window", paired_over="items"), frame, items=items)
    assert found.verdict == "fails" and found.estimate == pytest.approx(-10)


def test_datasets_can_be_the_units(generator):
    table = np.array([[60.0], [61.0], [59.0], [64.0], [58.0], [60.0]])
    found = judge(claim(paired_over="datasets"), rows({"A": table, "B": table - 5 + generator.normal(size=(6, 1))}))
    assert found.verdict == "holds" and found.n == 6


def test_with_one_seed_the_test_items_give_a_careful_interval():
    close, far = rows({"A": [50.0], "B": [49.0]}), rows({"A": [60.0], "B": [40.0]})
    assert judge(claim(), close).verdict == "undecided" and judge(claim(), far).verdict == "holds"
    half = 1.96 * np.sqrt(2 * 2500 / 1000)
    assert judge(claim(), close).high - 1 == pytest.approx(half, abs=0.01)
    found = judge(claim(paired_over="items"), close)
    assert f"about {found.needed} times as many test items would decide" in found.reason


def test_seeds_that_change_nothing_do_not_count_as_evidence():
    same = rows({"A": [50.2] * 5, "B": [50.0] * 5})
    assert judge(claim(), same).verdict == "undecided"
    assert judge(claim(), same.assign(metric="MRR")).reason.startswith("one value has no interval")


def test_several_training_seeds_are_the_units_and_their_draws_are_averaged(generator):
    parts = [rows({"A": noisy(generator, 55), "B": noisy(generator, 50)}).assign(train_seed=seed) for seed in range(3)]
    found = judge(claim(), pd.concat(parts))
    assert (found.n, found.method) == (3, "Student's t")


def test_scores_per_item_give_a_paired_interval(generator):
    correct = generator.random(2000) < 0.6
    better = correct | (generator.random(2000) < 0.05)
    items = pd.concat([
        pd.DataFrame({"dataset": "D0", "model": model, "item": range(2000), "value": 100.0 * flags})
        for model, flags in (("A", better), ("B", correct))
    ])  # fmt: skip
    frame = rows({"A": [100 * better.mean()], "B": [100 * correct.mean()]})
    found = judge(claim(paired_over="items"), frame, items=items)
    assert found.verdict == "holds" and found.n == 2000
    assert (
        found.high - found.low
        < judge(claim(paired_over="items"), frame).high - judge(claim(paired_over="items"), frame).low
    )


def test_a_gain_can_be_compared_with_another_gain(generator):
    def part(metric, gap):
        return rows({"A": noisy(generator, 50 + gap, spread=0.3), "B": noisy(generator, 50, spread=0.3)}, metric=metric)

    frame = pd.concat([part("hard", 12), part("easy", 2)])
    sides = [{"better": {"model": "A", "metric": m}, "worse": {"model": "B", "metric": m}} for m in ("hard", "easy")]
    assert judge(claim(**sides[0], than=sides[1]), frame).verdict == "holds"
    assert judge(claim(**sides[1], than=sides[0]), frame).verdict == "fails"


@pytest.mark.parametrize(
    ("slope", "shape", "verdict"),
    [(1, "rising", "holds"), (-1, "rising", "fails"), (-1, "falling", "holds"), (0, "rising", "undecided")],
)
def test_trends_over_seeds(slope, shape, verdict):
    x = np.arange(1, 6)
    curves = 50 + slope * x + 0.2 * BALANCED[:, None] * (x - 3)  # slopes that differ by seed, and average to `slope`
    assert (
        judge(claim("trend", trend={"over": "epoch", "shape": shape}), curve_rows(curves, list(x))).verdict == verdict
    )


def test_one_curve_is_judged_by_kendalls_test_if_it_has_points_enough(generator):
    x = np.arange(1, 13)
    trend = claim("trend", trend={"over": "epoch", "shape": "rising"})
    assert judge(trend, curve_rows(2.0 * x[None] + generator.normal(size=12), list(x))).verdict == "holds"
    assert judge(trend, curve_rows(np.array([[1.0, 2.0, 3.0]]), [1, 2, 3])).verdict == "undecided"


def test_a_peak_is_found_where_it_is_and_nowhere_else(generator):
    x = [1, 2, 3, 4, 5]
    frame = curve_rows(np.array([40, 44, 50, 47, 43]) + 0.5 * generator.normal(size=(6, 5)), x, over="turns")
    assert judge(claim("trend", trend={"over": "turns", "shape": "peak", "at": [3]}), frame).verdict == "holds"
    assert judge(claim("trend", trend={"over": "turns", "shape": "peak", "at": [1]}), frame).verdict == "fails"


def test_a_flat_curve_seldom_gets_a_peak():
    generator, places, wanted = np.random.default_rng(2), np.arange(4.0), np.array([False, True, True, False])
    said = [choice_interval(generator.normal(size=(6, 4)), places, wanted)[1] for _ in range(100)]
    assert said.count("holds") + said.count("fails") <= 8


def test_largest_step_and_flatness_after_it(generator):
    x = [1, 2, 3, 4, 5]
    frame = curve_rows(np.array([40, 42, 50, 50.4, 50.2]) + 0.2 * generator.normal(size=(6, 5)), x, over="window")
    step, flat = (
        {"over": "window", "shape": "largest-step", "at": [2, 3]},
        {"over": "window", "shape": "flat-after", "at": 3},
    )
    assert judge(claim("trend", trend=step), frame).verdict == "holds"
    assert judge(claim("trend", trend=step | {"at": [3, 4]}), frame).verdict == "fails"
    assert judge(claim("trend", trend=flat), frame).verdict == "holds"
    rising = curve_rows(10.0 * np.array(x) + 0.2 * generator.normal(size=(6, 5)), x, over="window")
    assert judge(claim("trend", trend=flat), rising).verdict == "fails"


def test_a_gap_between_two_models_can_have_a_trend(generator):
    x = [10, 100, 1000]
    one = curve_rows(np.array([50, 52, 54]) + 0.1 * generator.normal(size=(6, 3)), x, "A", "dialogues")
    two = curve_rows(np.array([40, 46, 52]) + 0.1 * generator.normal(size=(6, 3)), x, "B", "dialogues")
    trend = {"over": "dialogues", "shape": "falling", "scale": "log"}
    found = judge(claim("trend", better={"model": "A"}, worse={"model": "B"}, trend=trend), pd.concat([one, two]))
    assert found.verdict == "holds" and found.estimate == pytest.approx(4 / np.log(10), abs=0.1)


def test_a_statistic_must_lie_in_its_range_on_every_dataset():
    frame = rows({"corpus": np.array([[18.0], [29.0]])}, metric="share")
    assert judge(claim("statistic", statistic={"range": [15, 30]}), frame).verdict == "holds"
    found = judge(claim("statistic", statistic={"range": [20, 30]}), frame)
    assert found.verdict == "fails" and found.estimate == 18 and "D0" in found.reason


def test_rankings_that_agree_hold_and_reversed_ones_fail(generator):
    levels = {f"M{i}": 40.0 + 4 * i for i in range(5)}
    first = rows({model: noisy(generator, level, spread=0.2) for model, level in levels.items()}, method="x")
    alike = rows({model: noisy(generator, 2 * level, spread=0.2) for model, level in levels.items()}, method="y")
    turned = rows({model: noisy(generator, 90 - level, spread=0.2) for model, level in levels.items()}, method="y")
    statistic = {"between": [{"method": "x"}, {"method": "y"}], "range": [0.5, 1]}
    assert judge(claim("statistic", statistic=statistic), pd.concat([first, alike])).verdict == "holds"
    assert judge(claim("statistic", statistic=statistic), pd.concat([first, turned])).verdict == "fails"


def test_an_agreement_lies_within_its_interval_though_every_draw_is_noisier_than_the_whole():
    levels = np.arange(40) / 40  # far closer than seeds are: the means agree perfectly, resampled ones never do
    spread = np.array([-3.0, 0.0, 3.0])
    sides = [rows({f"M{i}": (level + np.roll(spread, i * turn))[None] for i, level in enumerate(levels)}, method=name)
             for name, turn in (("x", 1), ("y", 2))]  # fmt: skip
    statistic = {"between": [{"method": "x"}, {"method": "y"}], "range": [0.5, 1]}
    found = judge(claim("statistic", statistic=statistic), pd.concat(sides))
    assert found.estimate == pytest.approx(1) and found.low < 0.9 and found.high >= found.estimate


def value_rows(encoder: str, level: float) -> pd.DataFrame:
    made = []
    for dataset, value in {"SNIPS": 97.0, "ATIS": 89.7, "MASSIVE": 78.18, "HWU64": 82.77, "CLINC150": 70.56}.items():
        row = {"task": "intent", "dataset": dataset, "metric": "Accuracy", "protocol": "paper", "seed": 0, "k": 1}
        row |= {"method": "kNN", "value": value + level, "n": 5000, "model": "TaDSE", "table": "T3"}
        made.append(row | {"encoder": encoder})
    return pd.DataFrame(made)


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "holds"), (9.0, "fails"), (2.0, "undecided")])
def test_absolute_values_are_judged_with_the_papers_encoder_and_data(level, verdict):
    judged = judge_claims("tadse", value_rows("bert-base-uncased", level)).frame.set_index("id")
    assert judged.loc["value-average", "verdict"] == verdict


def test_absolute_values_of_substitutes_are_not_judged():
    judged = judge_claims("tadse", value_rows("mini", 0.3)).frame.set_index("id").loc["value-average"]
    assert judged.verdict == "not run" and "substitute" in judged.reason and "encoder mini" in judged.reason


def test_rows_that_cannot_be_told_apart_are_an_error_that_names_the_column(generator):
    frame = rows({"A": noisy(generator, 55), "B": noisy(generator, 50)})
    with pytest.raises(DataError, match="differ in ties"):
        judge(claim(), pd.concat([frame.assign(ties="against"), frame.assign(ties="file")]))


def test_recorded_reasons_reach_the_verdict():
    gap = [{"table": "T2", "model": "PairSupCon", "reason": "needs the hub"}]
    judged = judge_claims("dse", rows({"DSE": [50.0, 51.0]}, method="prototype-code"), gap).frame.set_index("id")
    assert judged.loc["supervised-intents", "reason"] == "PairSupCon: needs the hub"


@pytest.mark.parametrize("slug", SLUGS)
def test_every_paper_has_claims_of_several_kinds_and_they_are_not_run_without_results(slug):
    claims = load_claims(slug)
    assert len(claims) >= 18 and {"gain", "trend", "value"} <= {one.kind for one in claims}
    judged = judge_claims(slug, pd.DataFrame())
    assert judged.counts == {"holds": 0, "fails": 0, "undecided": 0, "not run": len(claims)}
    json.dumps(judged.to_dict(), allow_nan=False)
    assert "not run" in judged._repr_html_()


@pytest.mark.parametrize("slug", SLUGS)
def test_claims_name_models_of_the_printed_tables_and_point_at_printed_cells(slug):
    paper = load_paper(slug)
    models = {row.labels["model"] for table in paper.tables.values() for row in table.rows} | {"UMS_BERT+", "BERT"}
    for one in load_claims(slug):
        sides = [one.better, *(one.worse if isinstance(one.worse, list) else [one.worse or {}]), *one.order]
        sides += [side for pair in one.pairs for side in pair]
        named = {name for side in sides for name in np.atleast_1d(side.get("model", [])).tolist()}
        assert named <= models, one.id
        if one.kind == "value":
            wanted = {k: v for k, v in one.published.items() if k not in ("table", "column")}
            table = paper.tables[one.published["table"]]
            assert one.published["column"] in table.columns
            assert [row for row in table.rows if wanted.items() <= row.labels.items()], one.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "gains"}, "did you mean 'gain'"),
        ({"bettter": {}}, "did you mean 'better'"),
        ({"worse": None}, "expected the field 'worse'"),
        ({"where": ""}, "expected the field 'where'"),
        ({"rows": {"table": "T99"}}, "unknown table 'T99'"),
        ({"kind": "trend", "trend": {"shape": "rissing"}}, "did you mean 'rising'"),
    ],
)
def test_mistakes_in_a_claims_file_are_errors_that_say_where(change, message):
    good = {
        "id": "x",
        "statement": "s",
        "where": "w",
        "kind": "gain",
        "better": {"model": "A"},
        "worse": {"model": "B"},
    }
    assert parse_claims("dse", [good], "here.yaml")[0].by == BY
    with pytest.raises(DataError, match=rf"here.yaml, claim 'x'.*{message}"):
        parse_claims("dse", [good | change], "here.yaml")
    with pytest.raises(DataError, match="unique"):
        parse_claims("dse", [good, good], "here.yaml")


def test_claims_files_hold_nothing_but_lists_of_claims():
    for slug in SLUGS:
        raw = yaml.safe_load((project_root() / "papers" / slug / "claims.yaml").read_text(encoding="utf-8"))
        assert isinstance(raw, list) and all(entry["statement"].endswith(".") for entry in raw), slug
