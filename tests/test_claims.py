"""Verdicts on synthetic results whose answer is known, their error rates, and the five papers' claims as data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dialnb.claims import Case, Claim, Verdict, judge_claims, load_claims, parse_claims, verdict_text
from dialnb.claims import judge as judge_case
from dialnb.claims.definitions import BY
from dialnb.claims.evidence import Lacking, Unjudged
from dialnb.claims.intervals import (
    Interval,
    Part,
    Prior,
    Stratum,
    choice_interval,
    crossed_interval,
    mean_interval,
    to_decide,
)
from dialnb.claims.judging import check_printed, paper_checks
from dialnb.claims.papers import SLUGS, STUDIES, load_cells, load_paper, published
from dialnb.errors import DataError
from dialnb.files import project_root, read_json

OURS = "ours, beyond the paper"
BALANCED = np.array([-1.6, -1.0, -0.6, -0.2, 0.2, 0.6, 1.0, 1.6])
"""Noise that averages to zero, for tests whose answer must not depend on a draw."""


def rows(values: dict[str, np.ndarray], **columns) -> pd.DataFrame:
    """Tidy rows: for each model a matrix [dataset, training], or [training] for one dataset."""
    made = []
    for model, table in values.items():
        for i, line in enumerate(np.atleast_2d(table)):
            for training, value in enumerate(line):
                row = {"task": "intent", "dataset": f"D{i}", "metric": "Score", "protocol": "paper", "seed": 0}
                row |= {"train_seed": training, "value": float(value), "n": 1000, "model": model, "table": "T2"}
                made.append(row | columns)
    return pd.DataFrame(made)


def judge(claim: Claim, results: pd.DataFrame, **facts) -> Verdict:
    return judge_case(claim, Case(results, **facts))


def curve_rows(curves: np.ndarray, x: list[float], model: str = "A", over: str = "epoch") -> pd.DataFrame:
    """Rows of curves [training, x]."""
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
    assert found.low <= found.estimate <= found.high and found.train_seeds == 8


def test_a_loss_in_one_of_nine_comparisons_that_chance_explains_shows_the_interval_of_all_nine():
    others = {f"B{i}": 40.0 + BALANCED for i in range(8)} | {"B8": 51.3 + BALANCED}
    found = judge(claim(worse=[{"model": name} for name in others]), rows({"A": 50 + BALANCED} | others))
    alone = judge(claim(worse={"model": "B8"}), rows({"A": 50 + BALANCED, "B8": others["B8"]}))
    assert (found.verdict, alone.verdict) == ("undecided", "fails")
    assert found.low < alone.low < alone.high < 0 < found.high
    assert (
        "weakest of 9" in found.reason
        and "zero lies inside the interval that covers all 9 comparisons at 95 %" in found.reason
    )


def test_trainings_are_not_paired_by_seed_and_may_differ_in_number(generator):
    shared = 10 * generator.normal(size=8)
    frame = rows({"A": 50.5 + shared + noisy(generator, 0, spread=0.1), "B": 50 + shared})
    assert judge(claim(), frame).verdict == "undecided", "one seed makes two models no more alike than two seeds"
    other = pd.concat(
        [rows({"A": 55 + 0.1 * BALANCED}), rows({"B": 50 + 0.1 * BALANCED[:3]}).assign(train_seed=[8, 9, 10])]
    )
    found = judge(claim(), other)
    assert (found.verdict, found.train_seeds, found.method) == ("holds", 3, "moderated t")


@pytest.mark.parametrize("seeds", [3, 6, 10, 25])
def test_without_a_difference_holds_and_fails_are_each_said_in_about_two_and_a_half_percent(seeds):
    generator, said = np.random.default_rng(seeds), []
    for _ in range(600):
        said.append(mean_interval(noisy(generator, 0, seeds)))
    for share in (np.mean([one.low > 0 for one in said]), np.mean([one.high < 0 for one in said])):
        assert share <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 600)


def test_the_whole_path_from_rows_to_verdict_keeps_the_false_positive_rate():
    generator, holds = np.random.default_rng(5), 0
    for _ in range(40):  # a judge that says so in 15 % of the cases, not in 2.5 %, passes this with 13 %
        frame = rows({"A": 50 + generator.normal(size=(2, 6)), "B": 50 + generator.normal(size=(2, 6))})
        holds += judge(claim(), frame).verdict == "holds"
    assert holds <= 3


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


def test_undecided_says_how_many_trainings_would_decide():
    found = judge(claim(), rows({"A": 50.4 + BALANCED, "B": np.full(8, 50.0)}))
    assert found.verdict == "undecided"
    assert found.needed > 8 and found.limit == "trainings"
    assert found.reason == f"zero lies inside the interval; about {found.needed:,} trainings would decide it"


@given(st.floats(0, 1), st.floats(0, 100), st.integers(1, 3000))
def test_however_small_the_effect_the_needed_number_is_one_that_exceeds_what_there_is(effect, spread, n):
    seen = Interval(effect, -1.0, 1.0, n, "", trainings=n, between=Part(spread**2 / n, n))
    limit, needed = to_decide(seen, 0.0)
    assert limit == "trainings" and (needed is None or n < needed <= 1000)


def test_a_number_of_trainings_that_nobody_runs_is_not_named():
    found = judge(claim(), rows({"A": 50.001 + BALANCED, "B": np.full(8, 50.0)}))
    assert found.needed is None and "the effect is too close to it for more runs to settle it" in found.reason


def test_that_many_seeds_do_decide_in_about_eighty_percent():
    generator = np.random.default_rng(8)
    _, n = to_decide(Interval(0.5, -0.2, 1.2, 8, "", trainings=8, between=Part(1 / 8, 7)), 0.0)
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
    found = judge(claim(each="window", paired_over="items", one_model=True), frame, items=items)
    assert found.verdict == "fails" and found.estimate == pytest.approx(-10)


def test_datasets_can_be_the_units(generator):
    table = np.array([[60.0], [61.0], [59.0], [64.0], [58.0], [60.0]]) + 0.1 * generator.normal(size=(6, 3))
    found = judge(claim(paired_over="datasets"), rows({"A": table, "B": table - 5 + generator.normal(size=(6, 3))}))
    assert (found.verdict, found.n, found.unit, found.train_seeds) == ("holds", 6, "datasets", 3)


def test_with_one_training_a_difference_is_undecided_however_large_and_says_what_the_items_say():
    frame = rows({"A": [60.0], "B": [40.0]}, metric="Accuracy")
    found = judge(claim(), frame)
    assert (found.verdict, found.qualifier, found.train_seeds) == ("undecided", "one training", 1)
    assert "alone it would hold; 3 trainings are needed" in found.reason
    assert verdict_text({"verdict": found.verdict, "qualifier": found.qualifier}) == "undecided: one training"
    half = 1.96 * np.sqrt(2 * 2400 / 1000)
    assert found.high - found.estimate == pytest.approx(half, abs=0.05)
    two = pd.concat([frame, frame.assign(train_seed=1, value=frame.value + 0.1)])
    assert judge(claim(), two).qualifier == "2 trainings"


def test_readings_of_one_model_and_untrained_models_need_no_further_trainings():
    frame = rows({"A": [60.0], "B": [40.0]}, metric="Accuracy")
    assert judge(claim(one_model=True), frame).verdict == "holds"
    raw = rows({"BERT": [60.0], "BERT-CLS": [40.0]}, metric="Accuracy")
    sides = {"better": {"model": "BERT"}, "worse": {"model": "BERT-CLS"}}
    assert judge(claim(**sides), raw, slug="dse").verdict == "undecided"  # only BERT itself is untrained there
    untrained = rows({"BERT-avg": [60.0], "BERT-CLS": [40.0]}, metric="Accuracy")
    sides = {"better": {"model": "BERT-avg"}, "worse": {"model": "BERT-CLS"}}
    found = judge(claim(**sides), untrained, slug="dialoguecse")
    assert (found.verdict, found.train_seeds) == ("holds", 0)


def test_repetitions_that_change_nothing_do_not_count_as_evidence():
    same = rows({"A": [50.2] * 5, "B": [50.0] * 5})
    found = judge(claim(), same)
    assert found.verdict == "undecided" and found.reason.startswith("one value has no interval")
    assert judge(claim(), same.assign(metric="Accuracy")).verdict == "undecided"


def test_draws_within_a_training_are_units_and_never_called_trainings(generator):
    draws = [rows({"A": noisy(generator, 55, 1), "B": noisy(generator, 50, 1)}).assign(seed=seed) for seed in range(10)]
    found = judge(claim(), pd.concat(draws))
    assert (found.verdict, found.qualifier, found.n, found.train_seeds) == ("undecided", "one training", 10, 1)
    many = [
        part.assign(train_seed=t, value=part.value + 0.01 * t * i) for t in range(3) for i, part in enumerate(draws)
    ]
    found = judge(claim(), pd.concat(many))
    assert (found.verdict, found.n, found.train_seeds, found.method) == ("holds", 10, 3, "moderated t")


def test_what_cannot_be_had_is_not_offered():
    close = rows({"BERT-avg": [50.0], "BERT-CLS": [49.5]}, metric="Accuracy")
    sides = {"better": {"model": "BERT-avg"}, "worse": {"model": "BERT-CLS"}}
    found = judge(claim(**sides), close, slug="dialoguecse")
    assert found.needed is None
    assert found.reason == "zero lies inside the interval; the few groups limit it, and there are no more of them"


def test_scores_per_item_give_a_paired_interval(generator):
    correct = generator.random(2000) < 0.6
    better = correct | (generator.random(2000) < 0.05)
    items = pd.concat([
        pd.DataFrame({"dataset": "D0", "model": model, "item": range(2000), "value": 100.0 * flags})
        for model, flags in (("A", better), ("B", correct))
    ])  # fmt: skip
    frame = rows({"A": [100 * better.mean()], "B": [100 * correct.mean()]})
    asked = claim(paired_over="items", one_model=True)
    found, unpaired = judge(asked, frame, items=items), judge(asked, frame.assign(metric="Accuracy"))
    assert found.verdict == "holds" and found.n == 2000
    assert found.high - found.low < unpaired.high - unpaired.low


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
def test_trends_over_trainings(slope, shape, verdict):
    x = np.arange(1, 6)
    curves = 50 + slope * x + 0.2 * BALANCED[:, None] * (x - 3)  # slopes that differ, and average to `slope`
    assert (
        judge(claim("trend", trend={"over": "epoch", "shape": shape}), curve_rows(curves, list(x))).verdict == verdict
    )


def test_one_curve_is_judged_by_kendalls_test_if_it_has_points_enough(generator):
    x = np.arange(1, 13)
    trend = claim("trend", trend={"over": "epoch", "shape": "rising"}, one_model=True)
    assert judge(trend, curve_rows(2.0 * x[None] + generator.normal(size=12), list(x))).verdict == "holds"
    assert judge(trend, curve_rows(np.array([[1.0, 2.0, 3.0]]), [1, 2, 3])).verdict == "undecided"


def test_a_peak_is_found_where_it_is_and_nowhere_else(generator):
    x = [1, 2, 3, 4, 5]
    frame = curve_rows(np.array([40, 44, 50, 47, 43]) + 0.5 * generator.normal(size=(6, 5)), x, over="turns")
    assert judge(claim("trend", trend={"over": "turns", "shape": "peak", "at": [3]}), frame).verdict == "holds"
    assert judge(claim("trend", trend={"over": "turns", "shape": "peak", "at": [1]}), frame).verdict == "fails"
    level = curve_rows(np.array([40, 44, 50, 49.9, 43]) + 0.5 * generator.normal(size=(6, 5)), x, over="turns")
    found = judge(claim("trend", trend={"over": "turns", "shape": "peak", "at": [3]}), level)
    assert found.verdict == "undecided" and found.reason.endswith(", not clear of all others")


def test_a_flat_curve_seldom_gets_a_peak():
    generator, places, wanted = np.random.default_rng(2), np.arange(4.0), np.array([False, True, True, False])
    said = [choice_interval(generator.normal(size=(6, 1, 4)), places, wanted)[1] for _ in range(100)]
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


def rankings(models: int, order) -> pd.DataFrame:
    """Scores of models under two measures; the second ranks them by `order`."""
    first = rows({f"M{i}": [40.0 + i] for i in range(models)}, method="x")
    return pd.concat([first, rows({f"M{i}": [60.0 + order(i)] for i in range(models)}, method="y")])


AGREEMENT = {"between": [{"method": "x"}, {"method": "y"}], "range": [0.5, 1]}


def test_rankings_of_many_models_that_agree_hold_and_reversed_ones_fail():
    agreement = claim("statistic", statistic=AGREEMENT)
    assert judge(agreement, rankings(12, lambda i: i)).verdict == "holds"
    found = judge(agreement, rankings(12, lambda i: -i))
    assert (found.verdict, found.unit, found.n) == ("fails", "models", 12)


def test_the_agreement_of_trained_models_says_how_often_each_was_trained():
    once = rankings(12, lambda i: i).assign(train_seed=1)
    twice = pd.concat([once, once.assign(train_seed=2)])
    agreement = claim("statistic", statistic=AGREEMENT)
    assert [judge(agreement, frame).train_seeds for frame in (once, twice)] == [1, 2]
    assert judge(agreement, once.drop(columns="train_seed")).train_seeds == 1, "rows of a run that names no seed"


def test_the_agreement_of_five_models_decides_nothing_unless_it_is_perfect():
    found = judge(claim("statistic", statistic=AGREEMENT), rankings(5, lambda i: (0, 1, 3, 2, 4)[i]))
    assert found.verdict == "undecided" and "5 models are too few to tell" in found.reason
    assert found.low < 0.5 < found.estimate <= found.high


def value_rows(encoder: str, level: float, trainings: int = 3) -> pd.DataFrame:
    """The printed row of TaDSE, so much higher, from several trainings that differ by 0.02."""
    made = []
    for dataset, value in {"SNIPS": 97.0, "ATIS": 89.7, "MASSIVE": 78.18, "HWU64": 82.77, "CLINC150": 70.56}.items():
        row = {"task": "intent", "dataset": dataset, "metric": "Accuracy", "protocol": "paper", "seed": 0, "k": 1}
        row |= {"method": "kNN", "n": 5000, "model": "TaDSE", "table": "T3", "encoder": encoder}
        for training in range(trainings):
            made.append(row | {"train_seed": training, "value": value + level + 0.02 * training})
    return pd.DataFrame(made)


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "holds"), (9.0, "fails"), (1.98, "undecided")])
def test_absolute_values_are_judged_with_the_papers_encoder_and_data(level, verdict):
    judged = judge_claims("tadse", value_rows("bert-base-uncased", level)).frame.set_index("id")
    assert judged.loc["value-average", "verdict"] == verdict
    alone = judge_claims("tadse", value_rows("bert-base-uncased", level, 1)).frame.set_index("id")
    assert alone.loc["value-average", "verdict"] == "undecided"


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
    assert judged.loc["supervised-intents", "reason"] == "here: not run; PairSupCon: needs the hub"


def test_what_one_dataset_lacks_is_no_reason_of_a_claim_about_another():
    lacking = {"table": "T2", "dataset": "Douban", "reason": "no test set"}
    rows = pd.DataFrame({"table": ["T2"], "model": ["none"], "value": [0.0]})

    def why(*reasons):
        judged = judge_claims("ums", rows, reasons).frame.set_index("id")["reason"]
        return judged["value-ubuntu"]

    assert why(lacking) == why() != "no test set"
    assert why(lacking, {"table": "T2", "reason": "left out"}) == "left out"


@pytest.mark.parametrize("slug", SLUGS)
def test_every_paper_has_claims_of_several_kinds_and_they_are_not_run_without_results(slug):
    claims = load_claims(slug)
    assert len(claims) >= 18 and {"gain", "trend", "value"} <= {one.kind for one in claims}
    judged = judge_claims(slug, pd.DataFrame())
    assert judged.counts["contradicted"] + judged.counts["not run"] == len(claims)
    json.dumps(judged.to_dict(), allow_nan=False)
    assert "not run" in judged._repr_html_()


@pytest.mark.parametrize("slug", SLUGS)
def test_claims_name_models_of_the_printed_tables_and_point_at_printed_cells(slug):
    paper = load_paper(slug)
    models = {row.labels["model"] for table in paper.tables.values() for row in table.rows} | {"UMS_BERT+", "BERT"}
    models |= {"SiameseBERT-s, both sides", "SiameseBERT-m, both sides"}  # a reading that the paper leaves open
    for one in load_claims(slug):
        sides = [one.better, *(one.worse if isinstance(one.worse, list) else [one.worse or {}]), *one.order]
        sides += [side for pair in one.pairs for side in pair]
        named = {name for side in sides for name in np.atleast_1d(side.get("model", [])).tolist()}
        assert named <= models or one.where == OURS, one.id
        if one.kind == "value":
            wanted = {k: v for k, v in one.published.items() if k not in ("table", "column")}
            table = paper.tables[one.published["table"]]
            assert one.published["column"] in table.columns
            assert [row for row in table.rows if wanted.items() <= row.labels.items()], one.id


printed_now = cache(check_printed)


@pytest.mark.parametrize("slug", STUDIES)
def test_what_is_known_of_printed_cells_is_what_they_say_now(slug, tmp_path, monkeypatch):
    kept = read_json(project_root() / "papers" / slug / "printed.json")
    now = printed_now(slug)
    assert kept == paper_checks(slug) and kept["checks"] == now, "python -m tools.printed"
    shutil.copytree(project_root() / "papers" / slug, tmp_path / "papers" / slug, ignore=lambda *_: ["results"])
    with (tmp_path / "papers" / slug / "claims.yaml").open("a") as claims:
        claims.write("# read again\n")
    monkeypatch.setattr("dialnb.claims.judging.project_root", lambda: tmp_path)
    monkeypatch.setattr("dialnb.claims.judging.check_printed", lambda _: {"made": "anew"})
    assert paper_checks.__wrapped__(slug)["checks"] == {"made": "anew"}


@pytest.mark.parametrize(
    ("slug", "ids"),
    [
        ("dse", {"today-intents", "today-dialogues", "today-answers"}),
        ("tadse", {"same-start-encoder", "same-start-simcse", "same-start-dse", "over-dse-from-dse"}),
    ],
)
def test_claims_of_our_own_are_marked_and_no_printed_cell_speaks_of_them(slug, ids):
    assert {one.id for one in load_claims(slug) if one.where == OURS} == ids
    assert {printed_now(slug)[name] for name in ids} == {"no numbers"}


def encoder_rows(encoder: str, gain: float) -> pd.DataFrame:
    """Rows of T10 and T11 before and after DSE from one encoder, by three trainings, and a floor below them."""
    parts = []
    sets = {"CLINC150": {"metric": "Accuracy", "table": "T10", "method": "prototype-code", "shots": 1}}
    sets["UbuntuIRC"] = {"metric": "Top-1", "table": "T11", "ties": "against"}
    sets["AmazonQA"] = {"metric": "Top-1", "table": "T11"}
    for dataset, columns in sets.items():
        moved = {"raw": [60.0] * 3, "DSE": [60.0 + gain + noise for noise in (-0.1, 0.0, 0.1)]}
        for variant, values in moved.items():
            found = rows({f"{encoder} {variant}": values}, encoder=encoder, variant=variant)
            parts.append(found.assign(dataset=dataset, **columns))
        floor = {"encoder": "none", "dataset": dataset} | columns | {"method": "guess"}
        parts.append(rows({"Majority": [30.0] * 3}).assign(**floor))
    return pd.concat(parts, ignore_index=True)


def judged_today(results: pd.DataFrame) -> pd.DataFrame:
    judged = judge_claims("dse", results).frame.set_index("id")
    return judged.loc[["today-intents", "today-dialogues", "today-answers"]]


def test_what_dse_does_to_an_encoder_of_today_is_judged_on_that_encoder_alone():
    today = "sentence-transformers/all-MiniLM-L6-v2"
    others = [encoder_rows("mini", -20), encoder_rows(f"{today}, masked words", -20)]
    found = judged_today(pd.concat([encoder_rows(today, 5), *others]))
    assert found["verdict"].tolist() == ["holds", "holds", "fails"] and set(found["encoders"]) == {today}
    assert found["floor"].tolist() == ["Majority 30.0"] * 3 and set(found["train_seeds"]) == {3}
    found = judged_today(encoder_rows("mini", 5))
    assert found["verdict"].tolist() == ["not run"] * 3 and found["reason"].str.contains(today).all()


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
    parts = parse_claims("dse", [good | {"split": {"dataset": {"A": "on A", "B": "on B"}}}], "here.yaml")
    assert [(part.id, part.statement, part.rows) for part in parts] == [
        ("x-a", "s, on A.", {"dataset": "A"}),
        ("x-b", "s, on B.", {"dataset": "B"}),
    ]
    parts = parse_claims("dse", [good | {"split": {"dataset": {"A/C": "on A"}}}], "here.yaml")
    parts += parse_claims("dse", [good | {"split": {"shots": {1: "1-shot"}}}], "here.yaml")
    assert [(part.id, part.rows) for part in parts] == [("x-a", {"dataset": ["A", "C"]}), ("x-1", {"shots": 1})]
    with pytest.raises(DataError, match=rf"here.yaml, claim 'x'.*{message}"):
        parse_claims("dse", [good | change], "here.yaml")
    with pytest.raises(DataError, match="unique"):
        parse_claims("dse", [good, good], "here.yaml")


def test_claims_files_hold_nothing_but_lists_of_claims():
    for slug in SLUGS:
        raw = yaml.safe_load((project_root() / "papers" / slug / "claims.yaml").read_text(encoding="utf-8"))
        assert isinstance(raw, list) and all(entry["statement"].endswith(".") for entry in raw), slug


# --- the judge on simulated truth -----------------------------------------------------------------------------------


def simulated_hits(
    generator, effect: float = 0.0, trainings: int = 3, conversations: int = 40, between: float = 0.03
) -> np.ndarray:
    """Hits [model, training, conversation, list] of two models on lists of replies. Trainings differ by `between`; the
    eight lists of a conversation share what makes them hard, and how much better the first model is there."""
    hard, helped = generator.normal(0, 0.25, conversations), generator.normal(0, 0.25, conversations)
    gains = generator.normal(0, between, (2, trainings)) + np.array([[effect], [0.0]])
    chance = 0.5 + gains[..., None] + hard + np.stack([helped, 0 * helped])[:, None]
    return generator.random((2, trainings, conversations, 8)) < chance[..., None]


def simulated(generator, effect: float = 0.0, **settings) -> pd.DataFrame:
    """The same as rows of items, with their conversation as `group`."""
    hits = simulated_hits(generator, effect, **settings)
    index = pd.MultiIndex.from_product([["A", "B"], *map(range, hits.shape[1:])])
    long = pd.Series(
        hits.ravel().astype(float), index.set_names(["model", "train_seed", "group", "list"]), name="value"
    )
    frame = long.reset_index()
    return frame.assign(item=frame.group * 8 + frame.list, dataset="D", metric="R10@1", table="T2")


def of_items(items: pd.DataFrame) -> pd.DataFrame:
    return items.groupby(["model", "train_seed", "dataset", "metric", "table"], as_index=False).value.mean()


def judged_items(items: pd.DataFrame, **fields) -> Verdict:
    return judge(claim(paired_over="items", **fields), of_items(items), items=items)


def gap_interval(hits: np.ndarray, clustered: bool = True) -> Interval:
    """Interval of the first model's gain, over trainings and conversations (or lists, taken for independent)."""
    gaps = hits[0].astype(float) - hits[1]
    if clustered:
        return crossed_interval([Stratum([gaps.sum(-1)], np.full(gaps.shape[1], 8.0))])
    return crossed_interval([Stratum([gaps.reshape(len(gaps), -1)], np.ones(gaps[0].size))])


@pytest.mark.parametrize("trainings", [3, 5])
@pytest.mark.parametrize("between", [0.0, 0.03, 0.2])
def test_without_an_effect_few_trainings_and_clustered_items_are_wrong_in_at_most_two_and_a_half_percent_a_side(
    trainings, between
):
    generator = np.random.default_rng(trainings)
    found = [gap_interval(simulated_hits(generator, 0, trainings, between=between)) for _ in range(800)]
    for wrong in (np.mean([one.low > 0 for one in found]), np.mean([one.high < 0 for one in found])):
        assert wrong <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 800)


def test_items_taken_for_independent_would_have_been_fooled():
    generator = np.random.default_rng(3)
    found = [gap_interval(simulated_hits(generator, between=0), clustered=False) for _ in range(400)]
    assert np.mean([one.low > 0 or one.high < 0 for one in found]) > 0.10  # 5 % were promised


def test_one_training_taken_for_all_would_have_been_fooled():
    generator = np.random.default_rng(4)
    found = [gap_interval(simulated_hits(generator, 0, 1, between=0.1)) for _ in range(400)]
    assert np.mean([one.low > 0 or one.high < 0 for one in found]) > 0.25


def test_the_whole_path_over_trainings_and_conversations_rarely_decides_without_an_effect():
    generator = np.random.default_rng(5)
    verdicts = [judged_items(simulated(generator)).verdict for _ in range(30)]
    assert verdicts.count("undecided") >= 26


def test_a_real_effect_comes_out_with_three_trainings():
    generator = np.random.default_rng(4)
    found = [judged_items(simulated(generator, effect=0.2, conversations=200)) for _ in range(5)]
    assert sum(one.verdict == "holds" for one in found) >= 4
    assert all(one.unit == "conversations" and one.n == 200 and one.train_seeds == 3 for one in found)


def test_the_crossed_interval_is_students_t_over_trainings_where_units_do_not_vary():
    gaps = np.array([[1.0], [2.0], [3.5]])
    found = crossed_interval([Stratum([gaps], np.ones(1))])
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 2, gaps.mean(), stats.sem(gaps[:, 0])))


def test_the_crossed_interval_is_the_clustered_one_where_trainings_do_not_vary(generator):
    gaps = generator.normal(size=60)
    found = crossed_interval([Stratum([np.tile(gaps, (3, 1))], np.ones(60))])
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 59, gaps.mean(), stats.sem(gaps)))


def test_clusters_of_unequal_size_weigh_by_their_items(generator):
    sizes = np.array([1.0, 5.0, 2.0, 8.0])
    means = generator.normal(size=4)
    assert crossed_interval([Stratum([(means * sizes)[None]], sizes)]).estimate == pytest.approx(means @ sizes / 16)


def test_what_limits_a_verdict_is_named_and_only_that_would_decide_it():
    trainings = Interval(1.0, -0.5, 2.5, 50, "", trainings=3, between=Part(1 / 3, 2), within=Part(1e-4, 49))
    items = Interval(1.0, -0.5, 2.5, 50, "", trainings=3, between=Part(0.003, 2), within=Part(0.5, 49))
    draws = Interval(2.0, -6.0, 10.0, 2, "", trainings=3, between=Part(0.1, 8), within=Part(0.4, 1))
    assert to_decide(trainings, 0.0)[0] == "trainings" and 3 < to_decide(trainings, 0.0)[1] < 20
    assert to_decide(items, 0.0, units=False) == ("units", None)
    assert to_decide(draws, 0.0, units=False) == ("units", None), "with two draws no number of trainings decides"
    assert to_decide(draws, 0.0) == ("units", 6), "of Student's t: 12.7 of two draws, 3.2 of six"


def test_what_trainings_and_units_have_in_common_goes_away_with_more_trainings(generator):
    """Noise of single answers is no limit of the test set: with three trainings its share was once counted as one."""
    noise = generator.normal(size=(3, 20))
    found = crossed_interval([Stratum([0.3 + noise], np.ones(20))])
    assert found.within.variance < 0.5 * (noise.mean(0).var(ddof=1) / 20)


# --- the estimator: trainings unpaired, their variance shrunk towards that of the table -----------------------------

SPREADS = {
    "alike": lambda generator, models: np.ones(models),
    "drawn as the prior says": lambda generator, models: np.sqrt(4 / generator.chisquare(4, models)),
    "one twice the other": lambda generator, models: np.where(np.arange(models) % 2, 2.0, 1.0),
}


def moderated(generator, trainings: int, spread: str, effect: float = 0.0, models: int = 8, runs: int = 800):
    """Intervals of a difference between two of several models whose trainings vary so, with an effect in units of
    their mean spread."""
    found = []
    for _ in range(runs):
        spreads = SPREADS[spread](generator, models)
        values = spreads[:, None] * generator.normal(size=(models, trainings))
        values[0] += effect * np.sqrt((spreads[:2] ** 2).mean())
        variance = values.var(axis=1, ddof=1).mean()
        prior = Prior([variance, variance], models * (trainings - 1))
        sides = [values[:1].T, -values[1:2].T]
        found.append(crossed_interval([Stratum(sides, np.ones(1))], prior=prior))
    return found


def wrong(found: list[Interval]) -> float:
    return np.mean([one.low > 0 or one.high < 0 for one in found])


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("trainings", [3, 5, 10])
def test_the_estimator_is_wrong_in_about_five_percent_without_an_effect(trainings, spread):
    found = moderated(np.random.default_rng(trainings), trainings, spread)
    assert 0.025 <= wrong(found) <= 0.08


@pytest.mark.parametrize("models", [2, 3, 4])
def test_it_is_so_with_few_models_whose_variance_says_little(models):
    assert wrong(moderated(np.random.default_rng(models), 3, "alike", models=models)) <= 0.075


def test_three_trainings_find_two_standard_deviations_in_three_cases_of_five_where_pairs_find_them_in_three_of_ten():
    generator = np.random.default_rng(1)
    power = np.mean([one.low > 0 for one in moderated(generator, 3, "alike", effect=2.0)])
    pairs = generator.normal(2.0, np.sqrt(2), (800, 3))
    half = stats.t.ppf(0.975, 2) * pairs.std(axis=1, ddof=1) / np.sqrt(3)
    assert 0.57 <= power <= 0.68 and np.mean(pairs.mean(1) > half) <= 0.35
    assert np.mean([one.low > 0 for one in moderated(generator, 3, "alike", effect=1.0)]) <= 0.3, "a small one seldom"
    assert np.mean([one.low > 0 for one in moderated(generator, 3, "alike", effect=4.0)]) >= 0.97, "a large one mostly"


def test_a_model_whose_trainings_differ_far_more_than_those_of_the_table_is_its_limit():
    """What the estimator assumes is that models of a table vary alike; the page about the judge says what it costs."""
    SPREADS["one alone"] = lambda generator, models: np.where(np.arange(models) == 0, 3.0, 1.0)
    assert 0.1 <= wrong(moderated(np.random.default_rng(2), 3, "one alone")) <= 0.2
    del SPREADS["one alone"]


@pytest.mark.parametrize("between", [0.0, 0.05, 0.2])
def test_with_clustered_items_that_models_share_it_stays_below_six_percent(between):
    generator = np.random.default_rng(7)
    found = []
    for _ in range(500):
        hits = simulated_hits(generator, 0, 3, between=between).astype(float)
        variance = hits.mean((2, 3)).var(axis=1, ddof=1).mean()
        sides = [hits[0].sum(-1), -hits[1].sum(-1)]
        prior = Prior([variance, variance], 4)
        found.append(crossed_interval([Stratum(sides, np.full(hits.shape[2], 8.0))], prior=prior))
    assert wrong(found) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)


def test_both_sides_of_a_gain_share_the_degrees_of_freedom_of_one_table():
    """Two models with three trainings each have four, not four for either side."""
    values = {"A": np.array([50.0, 51.0, 52.5]), "B": np.array([48.0, 48.2, 49.5])}
    verdict = judge(claim(), rows(values))
    variance = np.mean([table.var(ddof=1) for table in values.values()])
    sides = [values["A"][:, None], -values["B"][:, None]]
    expected = crossed_interval([Stratum(sides, np.ones(1))], prior=Prior([variance, variance], 4))
    assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high))


def test_the_variance_between_trainings_is_that_of_all_models_of_the_table(generator):
    close = {"A": np.array([50.0, 50.1, 50.2]), "B": np.array([49.0, 49.1, 49.2])}
    calm = judge(claim(), rows(close | {"C": np.array([40.0, 40.1, 40.2])}))
    rough = judge(claim(), rows(close | {"C": np.array([30.0, 40.0, 50.0])}))
    untrained = judge(claim(), rows(close | {"BERT": np.array([30.0, 40.0, 50.0])}), slug="dse")
    assert calm.verdict == "holds" and rough.verdict == "undecided"
    assert untrained.high - untrained.low < 1.5 * (calm.high - calm.low), "what is not trained here says nothing"


# --- floors ---------------------------------------------------------------------------------------------------------


FOR_THE_TASK = {"slug": "ums"}
"""A paper whose models are all trained for the task that they are asked, so that word overlap is their floor."""


def judged_for_task(items: pd.DataFrame) -> Verdict:
    return judge(claim(paired_over="items"), of_items(items), items=items, **FOR_THE_TASK)


def with_floor(items: pd.DataFrame, share: float, name: str = "TF-IDF") -> pd.DataFrame:
    """The items with those of a floor that gets `share` of them right."""
    one = items[(items.model == "A") & (items.train_seed == 0)]
    hits = (np.random.default_rng(9).random(len(one)) < share).astype(float)
    return pd.concat([items, one.assign(model=name, train_seed=np.nan, value=hits)], ignore_index=True)


@pytest.mark.parametrize("effect", [0.3, 0.0, -0.3])
def test_a_model_at_its_floor_gives_neither_holds_nor_fails_whichever_way_it_points(effect):
    items = with_floor(simulated(np.random.default_rng(1), effect, conversations=80), 0.85)
    with pytest.raises(Unjudged, match=r"under-trained \((A|B) 0\.\d+, TF-IDF 0\.8\d+\)"):
        judged_for_task(items)


def test_models_above_their_floor_are_judged_and_the_verdict_names_it():
    found = judged_for_task(with_floor(simulated(np.random.default_rng(2), 0.3, conversations=200), 0.1))
    assert found.verdict == "holds" and found.floor.startswith("TF-IDF 0.0")


def test_chance_alone_is_no_gate_where_a_stronger_floor_was_scored():
    items = with_floor(with_floor(simulated(np.random.default_rng(2), 0.3), 0.05, "Chance"), 0.9)
    with pytest.raises(Unjudged, match="TF-IDF"):
        judged_for_task(items)


def test_of_a_single_training_the_floor_is_what_it_says():
    """There is no interval around it; that it lies far above word overlap is seen all the same."""
    above = rows({"A": [60.0], "B": [55.0], "BM25": [40.0]})
    assert judge(claim(), above, **FOR_THE_TASK).qualifier == "one training"
    with pytest.raises(Unjudged, match=r"under-trained \(A 60\.0, BM25 61\.0\)"):
        judge(claim(), rows({"A": [60.0], "B": [62.0], "BM25": [61.0]}), **FOR_THE_TASK)


def test_a_side_that_is_above_its_floor_but_not_surely_is_said_to_be_so():
    frame = rows({"A": [60.0, 70.0, 65.0], "B": [55.0, 75.0, 62.0], "BM25": [58.0, 58.0, 58.0]})
    with pytest.raises(Unjudged, match=r"under-trained \(A 65\.0, not surely above BM25 58\.0\)"):
        judge(claim(), frame, **FOR_THE_TASK)


def test_means_are_held_against_a_floor_where_items_were_not_kept():
    floor = rows({"BM25": [58.0]}).drop(columns=["train_seed"])
    frame = pd.concat([rows({"A": 60 + 0.1 * BALANCED, "B": 57 + 0.1 * BALANCED}), floor])
    with pytest.raises(Unjudged, match=r"under-trained \(B 57\.0, BM25 58\.0\)"):
        judge(claim(), frame, **FOR_THE_TASK)
    low = frame.assign(value=frame.value.where(frame.model != "BM25", 50))
    assert judge(claim(), low, **FOR_THE_TASK).floor == "BM25 50.0"


def test_word_overlap_is_no_floor_of_an_encoder_that_is_asked_as_it_is_and_the_verdict_says_where_it_is_better():
    frame = rows({"A": 60 + 0.1 * BALANCED, "B": 57 + 0.1 * BALANCED, "TF-IDF": np.full(8, 58.0)})
    found = judge(claim(), frame, slug="dse")
    assert found.verdict == "holds" and found.reason == "word overlap is better (TF-IDF 58.0, B 57.0)"
    chance = pd.concat([frame, rows({"Chance": np.full(8, 58.0)})])
    with pytest.raises(Unjudged, match=r"under-trained \(B 57\.0, Chance 58\.0\)"):
        judge(claim(), chance, slug="dse")
    tuned = frame.assign(method="fine-tuning")
    with pytest.raises(Unjudged, match=r"under-trained \(B 57\.0, TF-IDF 58\.0\)"):
        judge(claim(), tuned, slug="dse")


@pytest.mark.parametrize("slug", STUDIES)
def test_what_was_trained_for_its_task_is_said_in_data_that_names_columns_of_rows(slug):
    known = {"task", "method", "model", "table", "protocol", "dataset"}
    assert all({*where} <= known for where in load_cells(slug).get("trained_for_task", ()))


def test_a_floor_holds_for_every_encoder_and_method():
    results = encoder_rows("mini", 5)
    results.loc[results.model == "Majority", "value"] = 70.0
    for name in ("other-encoders-intents", "other-encoders-selection"):
        one = next(each for each in load_claims("dse") if each.id == name)
        with pytest.raises(Unjudged, match=r"under-trained .* 65\.0, Majority 70\.0"):
            judge(one, results, slug="dse")


def test_items_that_do_not_name_their_encoder_are_not_held_against_a_floor_for_one():
    results = pd.concat([encoder_rows("mini", 5), encoder_rows("small", -40)])
    results.loc[results.model == "Majority", "value"] = 50.0
    items = results[results.table.eq("T11")].drop(columns="encoder").assign(item=0)
    one = next(each for each in load_claims("dse") if each.id == "other-encoders-selection")
    one = replace(one, each="", rows=one.rows | {"encoder": "mini"})
    assert judge(one, results, slug="dse", items=items).verdict == "holds"


def test_fewer_than_half_of_the_comparisons_are_no_verdict(generator):
    frame = rows({"A": noisy(generator, 60), "B": noisy(generator, 50)})
    absent = [{"model": "B"}, {"model": "C"}, {"model": "D"}]
    with pytest.raises(Lacking, match="not measured: C"):
        judge(claim(worse=absent), frame)
    assert judge(claim(worse=absent[:2]), frame).verdict == "holds"


def test_a_margin_that_does_not_fit_between_model_and_floor_is_no_test():
    frame = pd.concat([rows({"A": 0.41 + 0.01 * BALANCED, "B": 0.2 + 0.01 * BALANCED}), rows({"Chance": [0.1]})])
    with pytest.raises(Unjudged, match=r"no room \(0\.4 do not fit between 0\.41 and the floor 0\.1\)"):
        judge(claim(margin=0.4), frame)
    assert judge(claim(times=0.6), frame).verdict == "holds"  # a ratio always fits


# --- gains next to the printed ones ---------------------------------------------------------------------------------


def dse_rows(gain: float, noise: float = 0.3) -> pd.DataFrame:
    """1-shot and 5-shot intents of BERT and DSE-dropout; the paper's own gain on these datasets is 7.3 points."""
    levels = {"BERT": np.full(8, 40.0), "DSE-dropout": 40.0 + gain + noise * BALANCED, "DSE": 60 + noise * BALANCED}
    parts = [rows(levels, metric="Accuracy", method="prototype-code", shots=shots) for shots in (1, 5)]
    return pd.concat(parts).assign(dataset="CLINC150", n=4500)


def judged_gain(gain: float, noise: float = 0.3) -> pd.Series:
    return judge_claims("dse", dse_rows(gain, noise)).frame.set_index("id").loc["dropout-over-raw"]


def test_every_gain_says_how_it_lies_to_the_printed_one():
    printed = judged_gain(1.0)["printed"]
    cells = published("dse", "T2").query("column == 'Clinc150'").set_index(["setting", "model"])["value"].astype(float)
    gains = [cells[shots, "DSE-dropout"] - cells[shots, "BERT"] for shots in ("1-shot", "5-shot")]
    assert printed == pytest.approx(np.mean(gains)), "on the datasets that were measured"
    sizes = {share: judged_gain(share * printed)["size"] for share in (0.2, 0.75, 1.0, 1.6)}
    assert list(sizes.values()) == ["less than half of it", "smaller than printed", "as printed", "larger"]
    assert judged_gain(0.2 * printed)["verdict"] == "holds", "there is a gain, and it is not the printed one"


def test_what_excludes_half_of_the_printed_gain_but_not_zero_is_decided():
    printed = judged_gain(1.0)["printed"]
    wide = judged_gain(0.1 * printed, noise=0.25 * printed)
    assert wide["verdict"] == "not at the printed size" and wide["low"] < 0 < wide["high"] < printed / 2
    assert judged_gain(0.0, noise=0.05 * printed)["verdict"] == "no effect"
    assert judged_gain(0.2 * printed, noise=2 * printed)["verdict"] == "undecided"
    assert verdict_text({"verdict": "no effect", "qualifier": "0.1 of the printed training"}) == (
        "no effect here (0.1 of the printed training)"
    )


# --- words ----------------------------------------------------------------------------------------------------------


def test_a_failure_on_little_training_says_how_little(generator):
    frame = rows({"A": noisy(generator, 40), "B": noisy(generator, 50)})
    found = judge(claim(), frame, training={"A": 0.13, "B": 1.0})
    assert verdict_text({"verdict": found.verdict, "qualifier": found.qualifier}) == (
        "fails here (0.13 of the printed training)"
    )
    assert judge(claim(), frame, training={"A": 0.9, "B": 1.0}).qualifier == ""


def test_readings_that_disagree_leave_a_claim_open():
    cell = {"dataset": "ECD", "metric": "MAP"}
    levels = {
        "DialogueCSE I2": 60 + 0.1 * BALANCED,
        "SiameseBERT-s": np.full(8, 50.0),
        "SiameseBERT-m": np.full(8, 50.0),
    }
    parts = [rows(levels, **cell)]
    both = [rows({f"SiameseBERT-{which}, both sides": np.full(8, 70.0)}, **cell) for which in "sm"]
    one = judge_claims("dialoguecse", pd.concat(parts)).frame.set_index("id").loc["i2-over-siamese-ecd"]
    assert (one.verdict, one.qualifier) == (
        "undecided",
        "depends on the reading",
    ) and "both sides: not run" in one.reason
    two = judge_claims("dialoguecse", pd.concat(parts + both)).frame.set_index("id").loc["i2-over-siamese-ecd"]
    assert two.verdict == "undecided" and "alone: holds; network on both sides: fails" in two.reason
    agree = [part.assign(value=part.value - 25) for part in both]
    three = judge_claims("dialoguecse", pd.concat(parts + agree)).frame.set_index("id").loc["i2-over-siamese-ecd"]
    assert three.verdict == "holds"


@pytest.mark.parametrize(
    ("slug", "contradicted"),
    [("dse", {"supervised-intents", "out-of-scope-13"}), ("tadse", {"growth"}), ("wmdc", set()), ("ums", set())],
)
def test_claims_that_a_papers_own_cells_contradict_count_as_no_fail(slug, contradicted):
    judged = judge_claims(slug, pd.DataFrame()).frame
    assert set(judged.id[judged.verdict == "contradicted"]) == contradicted
    assert set(judged.id[judged.paper == "contradict it"]) == contradicted
