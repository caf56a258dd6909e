"""The parts of the UMS study: which rows train what, in which order, and what is drawn and told of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_studies import dataset

from dialnb import plots
from dialnb.claims import load_claims
from dialnb.claims.papers import load_paper, project_root
from dialnb.data.corpora import Conversation
from dialnb.data.records import MatchingGroup, SelectionGroup
from dialnb.examples.manipulations import TASKS, deletion, insertion, search
from dialnb.models.encoder import load_encoder
from dialnb.runs.profiles import load_profiles
from dialnb.runs.stages import stage_key
from dialnb.studies import common, selectors, ums, ums_figures, ums_models
from dialnb.studies.sentence_encoders import ENGLISH, elsewhere, sentence_steps
from dialnb.studies.training import Step, in_order, pretrain_encoder, pretraining, training
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import has_shape, pretrain

pytestmark = pytest.mark.usefixtures("one_thread")


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
    chosen = TrainingSettings(batch_size=8, epochs=2, learning_rate=1e-3)
    encoder = tiny.encoder(max_position_embeddings=80)
    made = selectors.train_selector("UMS_BERT", encoder, parts, chosen, TASKS, "paper", None, 64, 12, 12, (0, 1), work)
    return made | {"parts": parts, "folder": work}


# --- data ---------------------------------------------------------------------------------------------------------


def test_a_sample_without_test_lists_keeps_a_third_of_its_dialogues_apart(tmp_path):
    sample = dataset(tmp_path, [group(i, "train") for i in range(10)], "sample")
    train, test = (selectors.groups_of([sample], split) for split in ("train", "test"))
    assert len(test) == 4 and len(train) == 6 and not {g.id for g in train} & {g.id for g in test}
    assert not ums_models.has_lists([sample]) and ums_models.has_lists([corpus(tmp_path)])


def test_rows_of_dialoguecse_join_the_training_data_alone(tmp_path):
    rows = [MatchingGroup(("a", "b"), ("d",), ("x", "c", "y"), (0, 1, 0))]
    parts = [corpus(tmp_path), dataset(tmp_path, rows, "more")]
    assert selectors.groups_of(parts, "train")[-1].candidates == ("c", "x")
    assert selectors.groups_of(parts, "train")[-1].context == ("a", "b"), "what comes after is left out"
    assert len(selectors.groups_of(parts, "test")) == 12


def test_statistics_count_rows_wrong_candidates_and_utterances():
    found = ums.statistics([group(1, "test", 10), group(2, "test", 10, turns=6)])
    assert found == {"pairs": 20, "pos:neg": 9.0, "average turns": 5.0}


# --- models -------------------------------------------------------------------------------------------------------


def test_every_printed_model_is_parsed_and_every_subset_names_its_tasks():
    assert {ums_models.parse(model) for model in ums_models.MODELS} == {
        (kind, plus, tasks) for kind in ("BERT", "ELECTRA") for plus in (False, True) for tasks in ((), TASKS)
    }
    assert [len(ums_models.tasks_of(name)) for name in ums_models.SUBSETS] == [0, 1, 1, 1, 2, 2, 2, 3]
    printed = [row.labels for row in load_paper("ums").tables["T2"].rows if row.labels["source"] == "this paper"]
    assert {row["model"].removesuffix(" (ours)") for row in printed} == set(ums_models.MODELS)


def test_the_paper_profile_trains_as_the_code_does_and_the_gpu_everything_that_claims_name():
    assert [ums_models.parse(resolved(p).ablation)[:2] for p in ("paper", "gpu")] == [
        ("ELECTRA", False),
        ("ELECTRA", True),
    ]
    printed = ums_models.fine_tuning(resolved("paper"), "Ubuntu")
    assert (printed.batch_size, printed.epochs, printed.learning_rate, printed.clip) == (32, 5, 3e-5, 5.0)
    assert ums_models.post_training(resolved("paper"), "BERT").batch_size == 384
    s = resolved("gpu")
    known = {*s.models, *s.subsets, "None", "INS + DEL + SRCH"}
    claims = [c for c in load_claims("ums") if c.kind == "gain"]
    sides = [
        side for c in claims for side in (c.better, *(s for p in c.pairs for s in p), *np.atleast_1d(c.worse or {}))
    ]
    assert {side["model"] for side in sides if isinstance(side.get("model"), str)} == known


class Recorder:
    """Stands for a run: makes what it is given and what follows on it, and remembers in which order."""

    def __init__(self):
        self.begun = []

    def stage_each(self, jobs, follow):
        self.begun.append(sorted(jobs))
        done = {name: function(**inputs) for name, (function, inputs) in jobs.items()}
        for name in list(done):
            done |= self.stage_each(more, follow) if (more := follow(name, done[name])) else {}
        return done


def test_stages_begin_as_soon_as_their_encoder_is_there_and_never_without():
    def make(name):
        return lambda source: (lambda source: {"encoder": f"{source}>{name}"}, {"source": source})

    steps = [
        Step("late", ("x", "made"), make("late")),
        Step("first", ("x", "raw"), make("first"), ("x", "made")),
        Step("other", ("x", "raw"), make("other")),
        Step("never", ("x", "missing"), make("never")),
    ]
    run = Recorder()
    done = in_order(run, {("x", "raw"): "raw"}, steps)
    assert run.begun == [["first", "other"], ["late"]] and done["late"]["encoder"] == "raw>first>late"


def test_sentence_encoders_are_those_that_the_other_notebooks_train():
    wanted = ["SimCSE-unsup", "DSE", "WMDC", "TaDSE", "DialogueCSE"]
    run = SimpleNamespace(settings=resolved("smoke", sentence_encoders=wanted), profile="smoke", root=project_root())
    raw = tiny.encoder()
    steps, places = sentence_steps(run, raw)
    assert list(places) == wanted and set(places.values()) <= {step.name for step in steps}
    (own,) = [step for step in steps if step.name == "train DSE"]
    other = elsewhere(run, "dse")
    job = training("DSE", raw, common.corpus(other), common.settings_for(other.settings, "DSE"), 60, False)
    assert own.source == ENGLISH and stage_key(*own.job(raw)) == stage_key(*job)


def test_a_stored_selector_scores_as_it_did(trained):
    asked = selectors.groups_of(trained["parts"], "test")
    once, again = (selectors.assemble(trained["encoder"], trained["heads"], 64).score(asked) for _ in range(2))
    assert once == again and len({score for row in once for score in row}) > 20


def test_every_epoch_is_scored_and_the_best_on_validation_is_kept(trained):
    epochs = trained["epochs"]
    assert sorted(set(epochs["epoch"])) == [1, 2]
    on_test = epochs[epochs["metric"] == "Adversarial R10@1"]
    assert on_test.groupby("epoch")["seed"].nunique().tolist() == [2, 2]
    best = epochs[epochs["metric"] == "validation"].set_index("epoch")["value"].max()
    dev = selectors.groups_of(trained["parts"], "dev")
    scores = selectors.assemble(trained["encoder"], trained["heads"], 64).score(dev)
    assert selectors._first_is_right(scores, dev).mean() == pytest.approx(best)


def test_answers_hold_rows_items_and_the_scores_of_response_and_adversary(trained):
    inputs = (trained["encoder"], trained["heads"], 64, trained["parts"], "made", None, (0, 1), ("random", "last"))
    found = selectors.answer(*inputs)
    rows = found["adversarial"]
    assert set(rows["adversary"]) == {"random", "last"} and rows.groupby("adversary")["seed"].nunique().to_dict() == {
        "random": 2, "last": 1}  # fmt: skip
    drawn = rows.query("protocol == 'paper' and adversary == 'random'").set_index("metric")["value"]
    share = drawn["Adversarial first"].mean()
    assert found["items"].query("metric == 'Adversarial first'")["value"].mean() == pytest.approx(share)
    assert len(found["scores"]) == 12 and found["scores"][["response", "adversary"]].stack().between(0, 1).all()
    plain = selectors.answer(tiny.encoder(), None, 32, trained["parts"], "made", None, (0,), ("random",))
    assert plain["adversarial"]["value"].between(-1, 1).all() and plain["selection"]["n"].eq(12).all()


def test_post_training_gives_an_encoder_that_knows_the_marks(tmp_path):
    chosen = TrainingSettings(batch_size=8, epochs=1, learning_rate=1e-3)
    for kind, family in (("BERT", "bert"), ("ELECTRA", "electra")):
        work = tmp_path / kind
        work.mkdir()
        encoder = tiny.encoder(family, max_position_embeddings=80)
        made = selectors.post_train(encoder, kind, [corpus(tmp_path)], chosen, None, 40, work)
        assert made["encoder"].name == f"{kind}+" and "[EOT]" in made["encoder"].tokenizer.get_vocab()
        assert np.isfinite(made["curve"]["loss"]).all()


def test_an_electra_of_the_shape_of_the_encoder_starts_from_its_weights(tmp_path, monkeypatch):
    mini, talk = load_encoder("mini", device="cpu"), [Conversation("made", ("how are you", "fine"))]
    monkeypatch.setattr("dialnb.training.pretrain.train", lambda *_, **__: None)
    assert has_shape(mini.transformer, "mini") and not has_shape(mini.transformer, "small")
    job, inputs = pretraining("mini", mini, [], 1, kind="electra", warm=True)
    cold = pretraining("mini", mini, [], 1, kind="electra")[1]["recipe"].settings
    assert job is pretrain_encoder and inputs["recipe"].settings.learning_rate == cold.learning_rate / 2
    for start, same in ((mini, True), (None, False)):
        made, _ = pretrain(talk, inputs["recipe"], tmp_path, "cpu", tokenizer=mini.tokenizer, start=start)
        assert type(made.transformer).__name__ == "ElectraModel"
        assert np.allclose(made.encode(["how are you"]), mini.encode(["how are you"])) == same


# --- figures ------------------------------------------------------------------------------------------------------


def test_special_tokens_of_every_task_are_laid_out_with_one_target_an_input(trained):
    selector = selectors.assemble(trained["encoder"], trained["heads"], 64)
    found = selectors.mark_vectors(selector, selectors.groups_of(trained["parts"], "test"))
    assert list(found) == list(TASKS)
    for vectors, right in found.values():
        assert len(vectors) == len(right) and right.sum() == 12 and np.isfinite(vectors).all()
    plane = selectors.project_marks(trained["encoder"], trained["heads"], 64, trained["parts"], "made", 12, "tsne", 1)
    assert list(dict.fromkeys(plane["task"])) == list(TASKS) and list(dict.fromkeys(plane["label"])) == [
        "other",
        "target",
    ]


def scores(*rows: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame([{"item": i, "utterance": 0, "response": a, "adversary": b} for i, (a, b) in enumerate(rows)])


def test_the_example_is_the_first_dialogue_that_fools_the_baseline_alone():
    plain = scores((0.9, 0.1), (0.4, 0.6), (0.4, 0.6), (0.2, 0.9))
    assert ums_figures.first_fooled(plain, scores((0.9, 0.1), (0.4, 0.6), (0.6, 0.4), (0.9, 0.1))) == (2, True)
    assert ums_figures.first_fooled(plain, scores((0.1, 0.9), (0.4, 0.6), (0.4, 0.5), (0.2, 0.3))) == (3, False)


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(0, 99))
def test_a_drawn_manipulation_has_one_right_mark_and_all_its_utterances(n, seed):
    texts, rng, numbers = [f"u{i}" for i in range(n + 1)], np.random.default_rng(seed), list(range(n))
    for made in (insertion(numbers, rng), deletion(numbers, n, rng), search(numbers, rng)):
        rows = ums_figures.drawn(made, texts)
        assert sum(kind in ("target", "foreign") for _, _, kind in rows) == 1
        said = [text for _, text, _ in rows if text]
        assert sorted(said) == sorted(texts if made.task == "deletion" else texts[:-1])


def test_the_drawing_of_the_manipulations_keeps_its_text_on_the_page():
    data = ums_figures.manipulation_example()
    assert list(dict.fromkeys(data["column"])) == ["dialogue", *TASKS]
    figure = plots.manipulations(data)
    figure.draw_without_rendering()
    page = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text.get_text()


def test_drawings_of_dialogues_are_drawn_again_from_their_stored_data(tmp_path):
    data = ums_figures.manipulation_example()
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
    rows += [(part, text, model, 0.25) for part, text in (("right", "the first"), ("adversary", "how do i boot"))
             for model in ("BERT", "UMS_BERT")]  # fmt: skip
    figure = plots.scored_replies(pd.DataFrame(rows, columns=["part", "text", "model", "score"]))
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said.count("0.25") == 4 and said.count("UMS_BERT") == 2
