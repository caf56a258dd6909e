"""The parts of the UMS study: which rows train what, in which order, and what is drawn and told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import from_notebook
from test_studies import dataset

from dialnb import plots
from dialnb.claims import load_claims
from dialnb.claims.papers import load_paper
from dialnb.data import load
from dialnb.data.corpora import Conversation
from dialnb.data.records import MatchingGroup, SelectionGroup
from dialnb.evaluation.projection import METHODS
from dialnb.examples.manipulations import TASKS, deletion, insertion, search
from dialnb.examples.readings import Lists
from dialnb.files import project_root, read_json
from dialnb.runs.grid import Model, Task, Trained, job_of
from dialnb.runs.profiles import load_profiles
from dialnb.runs.results import read_record, read_result, write_result
from dialnb.runs.scheduler import Scheduler
from dialnb.runs.stages import StageCache
from dialnb.studies import ums
from dialnb.training.pretrain import PretrainingRecipe, pretrain
from dialnb.training.recipes import fit
from dialnb.training.settings import TrainingSettings
from dialnb.training.stage import Result, train_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    defined = ("project_marks", "statistics", "count_lists", "least_skill", "most_saved", "rows_for")
    defined += ("has_lists", "label", "pretrained", "post_training", "mark_vectors")
    return from_notebook("ums", tmp_path_factory.mktemp("notebook"), *defined)


def group(number: int, split: str, candidates: int = 2, turns: int = 4) -> SelectionGroup:
    words = iter(tiny.sentences(turns + candidates, seed=number))
    context = tuple(f"{next(words)} in {split} {number}" for _ in range(turns))
    said = tuple(f"{next(words)} after {split} {number}" for _ in range(candidates))
    return SelectionGroup(f"{split}{number}#1", context, said, (1, *[0] * (candidates - 1)), split)


def corpus(folder: Path, lists: int = 12, train: int = 24):
    rows = [group(i, "train") for i in range(train)]
    rows += [group(100 + i, split, 10) for i in range(lists) for split in ("dev", "test")]
    return dataset(folder, rows, "made")


def resolved(profile: str, **changes):
    return load_profiles("ums").resolve(profile, overrides=changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict:
    """A selector of two layers with all three tasks, trained for two epochs and scored after each."""
    folder = tmp_path_factory.mktemp("selector")
    parts = [corpus(folder)]
    work = folder / "work"
    work.mkdir()
    s = dict(resolved("smoke")) | {"max_length": 64, "dev_groups": 12, "max_steps": None, "adversarial_seeds": (0, 1)}
    model = ums.model(s, Lists(parts), TASKS, probe=12, settings={"epochs": 2, "learning_rate": 1e-3})
    function, inputs = job_of(s, model, tiny.encoder(max_position_embeddings=80), seed=1)
    assert function is train_model
    made = function(**inputs, folder=work)
    return {"selector": made.model, "watched": made.watched, "curve": made.training.curve, "parts": parts}


# --- data ---------------------------------------------------------------------------------------------------------


def test_a_sample_without_test_lists_keeps_a_third_of_its_dialogues_apart(tmp_path, notebook):
    sample = dataset(tmp_path, [group(i, "train") for i in range(10)], "sample")
    train, test = (Lists([sample], split=split).read() for split in ("train", "test"))
    assert len(test) == 4 and len(train) == 6 and not {g.id for g in train} & {g.id for g in test}
    assert not notebook.has_lists([sample]) and notebook.has_lists([corpus(tmp_path)])


def test_rows_of_dialoguecse_join_the_training_data_alone(tmp_path):
    rows = [MatchingGroup(("a", "b"), ("d",), ("x", "c", "y"), (0, 1, 0))]
    parts = [corpus(tmp_path), dataset(tmp_path, rows, "more")]
    assert Lists(parts).read()[-1].candidates == ("c", "x")
    assert Lists(parts).read()[-1].context == ("a", "b"), "what comes after is left out"
    assert len(Lists(parts, split="test").read()) == 12


def test_statistics_count_rows_wrong_candidates_and_utterances(notebook):
    found = notebook.statistics([group(1, "test", 10), group(2, "test", 10, turns=6)])
    assert found == {"pairs": 20, "pos:neg": 9.0, "average turns": 5.0}


# --- models -------------------------------------------------------------------------------------------------------


def test_every_subset_of_table_5_names_its_tasks_and_every_printed_model_is_known():
    subsets = [row.labels["model"] for row in load_paper("ums").tables["T5"].rows]
    assert {task for name in subsets[1:] for task in name.split(" + ")} == set(ums.SHORT)
    printed = [row.labels for row in load_paper("ums").tables["T2"].rows if row.labels["source"] == "this paper"]
    assert {row["model"].removesuffix(" (ours)") for row in printed} == set(ums.MODELS)


def test_the_paper_profile_trains_as_the_code_does_and_the_gpu_everything_that_claims_name(tmp_path, notebook):
    assert [resolved(profile).ablation for profile in ("paper", "gpu")] == ["ELECTRA", "ELECTRA"]
    assert resolved("gpu").max_length == 512 and resolved("gpu").dev_groups is None, "all validation lists"
    assert not resolved("gpu").train_seeds, "one training a run; runs are pooled"
    lists = Lists([corpus(tmp_path)])
    job = job_of(resolved("paper"), ums.model(resolved("paper"), lists, TASKS), tiny.encoder(), 1)
    printed = job[1]["settings"]
    assert (printed.batch_size, printed.epochs, printed.learning_rate, printed.clip) == (32, 5, 3e-5, 5.0)
    post = job_of(resolved("paper"), notebook.post_training("BERT", resolved("paper"), lists, ""), tiny.encoder(), 1)
    assert post[1]["settings"].batch_size == 384
    s = resolved("gpu")
    known = {*s.models, *s.subsets, "None", "INS + DEL + SRCH"}
    claims = [c for c in load_claims("ums") if c.kind == "gain"]
    sides = [
        side for c in claims for side in (c.better, *(s for p in c.pairs for s in p), *np.atleast_1d(c.worse or {}))
    ]
    assert {side["model"] for side in sides if isinstance(side.get("model"), str)} == known


def test_a_stored_selector_scores_as_it_did(trained, tmp_path):
    asked = Lists(trained["parts"], split="test").read()
    write_result({"selector": trained["selector"]}, tmp_path)
    once, again = (
        trained["selector"].score(asked),
        read_result(tmp_path, read_record(tmp_path))["selector"].score(asked),
    )
    assert once == again and len({score for row in once for score in row}) > 20


def test_every_epoch_is_scored_and_the_best_on_validation_is_kept(trained):
    epochs = trained["watched"]
    assert sorted(set(epochs["epoch"])) == [1, 2]
    on_test = epochs[epochs["metric"] == "Adversarial R10@1"]
    assert on_test.groupby("epoch")["seed"].nunique().tolist() == [2, 2]
    tasks = epochs[epochs["task"].isin(TASKS)].pivot_table("value", ["task", "epoch"], "metric")
    assert len(tasks) == 6 and tasks["chance"].between(0.16, 0.26).all() and tasks["accuracy"].between(0, 1).all()
    assert (tasks["skill"] < 1).all() and tasks["loss"].gt(0).all()
    assert {"selection", *TASKS} <= set(trained["curve"]), "the terms of the loss one by one"
    terms = trained["curve"][["selection", *TASKS]].sum(axis=1)
    np.testing.assert_allclose(terms, trained["curve"]["loss"], rtol=1e-5)
    best = epochs[epochs["metric"] == "validation"].set_index("epoch")["value"].max()
    dev = Lists(trained["parts"], split="dev").read()
    assert ums.first_is_right(trained["selector"].score(dev), dev).mean() == pytest.approx(best)


def test_answers_hold_rows_items_and_the_scores_of_response_and_adversary(trained, notebook):
    asked = {"records": trained["parts"], "dataset": "made", "groups": None, "max_length": 64}
    found = ums.answer_of(trained["selector"], seeds=(0, 1), kinds=("random", "last"), **asked)
    rows = notebook.rows_for("X-encoders", found["rows"])
    seeds = rows.groupby("adversary")["seed"].nunique().to_dict()
    assert seeds == {"random": 2, "last": 1}
    drawn = rows.query("protocol == 'paper' and adversary == 'random'").set_index("metric")["value"]
    share = drawn["Adversarial first"].mean()
    assert found["items"].query("metric == 'Adversarial first'")["value"].mean() == pytest.approx(share)
    assert len(found["scores"]) == 12 and found["scores"][["response", "adversary"]].stack().between(0, 1).all()
    plain = ums.answer_of(tiny.encoder(), seeds=(0,), kinds=("random",), **asked)["rows"]
    assert plain["value"].between(-1, 1).all() and notebook.rows_for("T2", plain)["n"].eq(12).all()


def test_post_training_gives_an_encoder_that_knows_the_marks(tmp_path):
    chosen = TrainingSettings(batch_size=8, epochs=1, learning_rate=1e-3)
    for recipe, family in (("next sentences", "bert"), ("replaced tokens", "electra")):
        encoder = tiny.encoder(family, max_position_embeddings=80)
        made = fit(recipe, encoder, Lists([corpus(tmp_path)]).read(), chosen, options={"max_length": 40})
        assert made.model is encoder and "[EOT]" in encoder.tokenizer.get_vocab()
        assert np.isfinite(made.result.curve["loss"]).all()


def test_an_electra_goes_on_from_the_encoder_or_begins_from_scratch(notebook):
    s = resolved("gpu")
    on, new = (notebook.pretrained(shape, "ELECTRA", s, Lists([]), "English", "mini") for shape in ("encoder", "small"))
    assert on.labels["encoder"] == "English ELECTRA (from mini)" and new.labels["encoder"].endswith("from scratch)")
    assert on.recipe.settings.learning_rate < new.recipe.settings.learning_rate
    chinese = notebook.pretrained("encoder", "ELECTRA", s, Lists([]), "Chinese", "moka-ai/m3e-small")
    assert chinese.start == "moka-ai/m3e-small" and not chinese.recipe.own_words
    scratch = notebook.pretrained("mini", "BERT", s, Lists([]), "Chinese", "")
    assert scratch.recipe.own_words


def test_an_electra_that_goes_on_has_the_weights_of_its_start_and_says_how_well_it_finds_replaced_tokens(
    tmp_path, notebook
):
    start = tiny.encoder(max_position_embeddings=80)
    chosen = TrainingSettings(batch_size=8, max_steps=1, learning_rate=1e-12)
    talks = [Conversation("made", group(i, "train").context) for i in range(6)]
    made, result = pretrain(
        talks, PretrainingRecipe("encoder", "electra", settings=chosen), tmp_path, "cpu", start=start
    )
    np.testing.assert_allclose(made.encode(tiny.TEXTS), start.encode(tiny.TEXTS), atol=1e-4)
    assert made.transformer.config.model_type == "electra" and result.facts["skill"] < ums.LEARNED
    stage = Scheduler(StageCache(tmp_path)).submit("", lambda: Result(made, result))
    trained = Trained({"E": Model()}, {("E", 1): stage})
    assert notebook.least_skill(trained, "E") == result.facts["skill"]


def test_a_copy_of_a_split_is_not_counted_and_conversations_are(tmp_path, notebook):
    rows = [group(i, "train") for i in range(3)]
    rows += [replace(row, id=f"{row.id}copy", split="dev") for row in rows] + [group(9, "test", 10)]
    found = notebook.count_lists({"Ubuntu": [dataset(tmp_path, rows, "made")]})
    assert set(found["column"]) == {"Ubuntu train", "Ubuntu test"}
    assert found["substitute"].iloc[0] == "beginnings of 3 Ubuntu IRC conversations"


# --- figures ------------------------------------------------------------------------------------------------------


def test_special_tokens_of_every_task_are_laid_out_with_one_target_an_input(trained, notebook):
    found = notebook.mark_vectors(trained["selector"], Lists(trained["parts"], split="test").read())
    assert list(found) == list(TASKS)
    for vectors, right in found.values():
        assert len(vectors) == len(right) and right.sum() == 12 and np.isfinite(vectors).all()
    plane = notebook.project_marks(trained["selector"], trained["parts"], "made", 12, "tsne", 1)
    assert list(dict.fromkeys(plane["task"])) == list(TASKS) and list(dict.fromkeys(plane["label"])) == [
        "other",
        "target",
    ]


def scores(*rows: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame([{"item": i, "utterance": 0, "response": a, "adversary": b} for i, (a, b) in enumerate(rows)])


def test_the_example_is_the_dialogue_that_fools_the_baseline_alone_and_shows_it_best(notebook):
    plain = scores((0.5, 0.4), (0.4, 0.6), (0.4, 0.6), (0.2, 0.9), (0.0, 1.0))
    saves = scores((0.9, 0.1), (0.4, 0.6), (0.6, 0.4), (0.5, 0.4), (0.5, 0.5))  # most is gained in the last, to a tie
    assert notebook.most_saved(plain, saves) == (3, True)
    assert notebook.most_saved(plain, scores((0.1, 0.9), (0.4, 0.6), (0.4, 0.5), (0.2, 0.3), (0.0, 0.9))) == (3, False)


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(0, 99))
def test_a_drawn_manipulation_has_one_right_mark_and_all_its_utterances(n, seed):
    texts, rng, numbers = [f"u{i}" for i in range(n + 1)], np.random.default_rng(seed), list(range(n))
    for made in (insertion(numbers, rng), deletion(numbers, n, rng), search(numbers, rng)):
        rows = ums.drawn(made, texts)
        assert sum(kind in ("target", "foreign") for _, _, kind in rows) == 1
        said = [text for _, text, _ in rows if text]
        assert sorted(said) == sorted(texts if made.task == "deletion" else texts[:-1])


def example() -> pd.DataFrame:
    lists = load("bundled/UbuntuIRC", "selection-10").filter(split="test")
    said = [*lists[140].context, lists[140].candidates[0]][-5:]
    return ums.manipulation_rows(said, lists[209].context[0], seed=4)


def test_the_drawing_of_the_manipulations_keeps_its_text_on_the_page():
    data = example()
    assert list(dict.fromkeys(data["column"])) == ["dialogue", *TASKS]
    figure = plots.manipulations(data)
    figure.draw_without_rendering()
    page = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text.get_text()


def test_drawings_of_dialogues_are_drawn_again_from_their_stored_data(tmp_path):
    data = example()
    data.to_csv(tmp_path / "F2.csv", index=False)
    again = plots.manipulations(pd.read_csv(tmp_path / "F2.csv"))
    first = plots.manipulations(data)
    assert [t.get_text() for t in again.axes[0].texts] == [t.get_text() for t in first.axes[0].texts]


def test_bars_have_means_of_seeds_and_no_whisker_below_zero():
    rows = [("BERT", "baseline", seed, value) for seed, value in enumerate((0.5, 0.1))] + [("BERT", "UMS", 0, 0.2)]
    figure = plots.grouped_bars(pd.DataFrame(rows, columns=["model", "approach", "seed", "value"]), bar="approach")
    heights = sorted(round(patch.get_height(), 3) for patch in figure.axes[0].patches)
    assert heights == [0.2, 0.3] and figure.axes[0].get_ylim()[0] == 0


def test_replies_are_drawn_with_the_score_of_each_model():
    rows = [("context", "how do i boot", "", np.nan), ("context", "which disk", "", np.nan)]
    for part, text in (("right", "the first"), ("adversary", "how do i boot")):
        rows += [(part, text, model, 0.25) for model in ("BERT", "UMS_BERT")]
    figure = plots.scored_replies(pd.DataFrame(rows, columns=["part", "text", "model", "score"]))
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said.count("0.25") == 4 and said.count("UMS_BERT") == 2


def test_what_a_model_lacks_in_chinese_is_not_said_of_it_in_english(tmp_path, notebook):
    cells = read_json(project_root() / "notebooks" / "ums.ipynb")["cells"]
    (source,) = (text for text in map("".join, (cell["source"] for cell in cells)) if text.startswith("selectors, "))
    said = []
    run = SimpleNamespace(
        train_seeds=(1,),
        wants=lambda name: True,
        note_absent=lambda why, table="", **labels: said.append((why, labels)),
    )
    given = {"s": resolved("gpu"), "run": run, "ums": ums, "Lists": Lists, "TASKS": TASKS, "replace": replace}
    given |= {"sets": {"Ubuntu": [corpus(tmp_path)], "E-commerce": [corpus(tmp_path)]}, "encoders": {}, "names": {}}
    given |= {"starts": {"Ubuntu": {"BERT": ""}, "Chinese": {"BERT": "x"}}, "lacking": {("Ubuntu", "ELECTRA"): "why"}}
    given |= {"Task": Task, "METHODS": METHODS}
    given |= {name: getattr(notebook, name) for name in ("has_lists", "label", "post_training")}
    exec(source.partition("trained = run.train")[0], given)  # noqa: S102 (a cell of our own)
    electra = [name for name in ums.MODELS if "ELECTRA" in name]
    assert [labels["model"] for _, labels in said] == electra * 2
    assert {(why, labels.get("dataset")) for why, labels in said} == {
        ("why", None),
        ("needs an ELECTRA encoder for E-commerce, which the 'paper' profile has", "E-commerce"),
    }
