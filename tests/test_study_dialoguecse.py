"""The parts of the DialogueCSE study: what is trained on, what is asked, how rows and settings are laid out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dialnb import plots
from dialnb.claims import judge_claims
from dialnb.claims.papers import FLOORS, compare_table
from dialnb.data import Dataset
from dialnb.data.columns import build_table
from dialnb.data.corpora import COLLECTIONS, sentences_of
from dialnb.data.readers import Files
from dialnb.data.readers.retrieval import sessions as sessions_of_groups
from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, ScoredPair, SelectionGroup, Utterance
from dialnb.errors import Offline
from dialnb.evaluation import geometry
from dialnb.losses import matching_matrix
from dialnb.runs.profiles import load_profiles
from dialnb.studies import dialoguecse, figures, matching, matching_data, matching_figures
from dialnb.studies.matching import Matching
from dialnb.training import TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")

QUERIES = [RetrievalQuery(i, f"text {i}", ((i + 1) % 6, (i + 2) % 6), ((i + 3) % 6,), "ab"[i % 2]) for i in range(6)]


def dataset(folder: Path, records: list, name: str = "made") -> Dataset:
    table = build_table(records, folder / f"{name}.safetensors", name)
    return Dataset(name, "", "none", name, {}, table, np.arange(len(records)))


@pytest.fixture
def corpus(tmp_path) -> Dataset:
    words = iter(tiny.sentences(200, seed=3))
    said = ("user", "system")
    rows = [Dialogue(str(i), tuple(Utterance(said[k % 2], next(words)) for k in range(5))) for i in range(12)]
    return dataset(tmp_path, rows, "corpus")


def settings(profile: str, **changes) -> dict:
    return load_profiles("dialoguecse").resolve(profile, overrides=changes)


def fake_run(profile: str, **changes) -> SimpleNamespace:
    return SimpleNamespace(settings=settings(profile, **changes), profile=profile, results=pd.DataFrame())


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_sentences_of_records_that_are_no_dialogues_are_all_that_they_hold():
    group = MatchingGroup(("a", " "), ("c",), ("b", "n"), (1, 0))
    assert sentences_of(group) == ("a", "c", "b", "n")
    assert sentences_of(ScoredPair("one  two", "three", 1.0)) == ("one two", "three")
    assert sentences_of(SelectionGroup("x", ("a",), ("b", ""), (1, 0))) == ("a", "b")
    assert sentences_of(Dialogue("x", (Utterance("user", " hi "),))) == ("hi",)


def test_chinese_text_leaves_the_test_sentences_out():
    parts = [part for part in COLLECTIONS["chinese"] if part.variant and part.variant.endswith(("select", "sts"))]
    assert len(parts) == 4 and {part.split for part in parts} == {"dev"}


def test_dialogues_of_training_rows_have_the_response_in_its_place_and_come_once():
    rows = [
        MatchingGroup(("a", "b"), ("d",), ("c", "n"), (1, 0)),
        MatchingGroup(("a",), ("c", "d"), ("b", "n"), (1, 0)),
    ]
    files = Files(None, "Toy")
    (found,) = sessions_of_groups(files, rows)
    assert [(u.speaker, u.text) for u in found.utterances] == list(zip(["user", "system"] * 2, "abcd"))
    assert files.skipped == {"dialogue of another row": 1}


def test_released_training_rows_give_nearly_as_many_dialogues(mirror_store):
    from dialnb.data import load

    found = load("DialogueCSE", "ecd-sessions", store=mirror_store)
    assert len(found) == 998 and min(len(d.utterances) for d in found) >= 3


def test_families_are_trained_on_where_one_of_their_evaluation_sets_is_asked_for():
    assert matching_data.families(fake_run("gpu")) == {"MDC": ["MDC"], "ECD": ["ECD", "JDDC"]}
    assert matching_data.families(fake_run("quick")) == {"SGD": ["SGD"]}
    assert matching_data.families(fake_run("smoke")) == {"SGD": ["SGD"], "ECD": ["JDDC"]}


def test_bundled_data_hold_no_chinese_dialogues_but_text_and_tests():
    with pytest.raises(Offline, match="DialogueCSE, which is not bundled"):
        matching_data.dialogues_of("ECD", "bundled")
    assert {r.split for part in matching_data.text_of("ECD", "bundled") for r in part[:50]} == {"dev"}
    assert len(matching_data.released("JDDC", "sts", "bundled", "test")) == 2000


def test_counts_are_of_merged_turns_and_of_characters_in_chinese(tmp_path):
    said = [("user", "你 好"), ("user", "在吗"), ("system", "在的"), ("user", "好"), ("system", "谢谢")]
    short = Dialogue("b", (Utterance("user", "a"), Utterance("system", "b")))
    records = dataset(tmp_path, [Dialogue("a", tuple(Utterance(*u) for u in said)), short])
    assert matching_data.count([records], 4, True) == {"dialogues": 1, "turns": 4, "words": 9, "intents": 0}
    assert matching_data.count([records], 0, False)["dialogues"] == 2


# --- evaluation -------------------------------------------------------------------------------------------------------


@given(st.integers(2, 40), st.integers(1, 45), st.integers(0, 5))
def test_thinned_queries_keep_their_candidates_and_nobody_else(size, limit, seed):
    random = np.random.default_rng(seed)
    queries = []
    for i in range(size):
        pool = random.permutation(np.delete(np.arange(size), i))[:4].tolist()
        queries.append(RetrievalQuery(i, f"t{i}", tuple(pool[:1]), tuple(pool[1:])))
    kept = matching.thinned(queries, limit)
    asked = [query for query in kept if query.positives]
    assert len(asked) == min(limit, size) and all(query == queries[query.id] for query in asked)
    wanted = {i for q in asked for i in (q.id, *q.positives, *q.negatives)}
    assert wanted == {query.id for query in kept} if limit < size else len(kept) == size


def test_intents_are_the_most_frequent_ones_and_no_text_comes_twice():
    doubled = [*QUERIES, replace(QUERIES[0], id=6), replace(QUERIES[1], id=7, text="another", intent="b")]
    assert matching.by_intent(doubled, 1, 2) == (["text 1", "text 3"], ["b", "b"])
    assert matching.by_intent([replace(q, intent="") for q in QUERIES], 3, 3) == ([], [])


def test_a_retrieval_set_can_be_of_one_dialogue_act(tmp_path):
    texts = [
        ("find a hotel", "hotel", "INFORM_INTENT"),
        ("yes please", "hotel", "AFFIRM"),
        ("play it", "music", "INFORM_INTENT"),
    ]
    said = tuple(Utterance("user", text, (act,), intent=intent) for text, intent, act in texts)
    records = dataset(tmp_path, [Dialogue("a", said)])
    assert {q.text for q in matching.rebuild(records, 10, 30, 70, "INFORM_INTENT", 0)} == {"find a hotel", "play it"}
    assert len(matching.rebuild(records, 10, 30, 70, "", 0)) == 3


def test_views_are_the_baselines_of_table_2():
    encoder, texts = tiny.encoder(dropout=0.0), tiny.sentences(12)
    mean, cls = encoder.encode(texts, pooling="mean"), encoder.encode(texts, pooling="cls")
    assert np.allclose(matching.view(encoder, "mean").encode(texts), mean)
    assert np.allclose(matching.view(encoder, "cls").encode(texts), cls)
    encoder.pooling = "mean"
    assert np.allclose(matching.view(encoder, "whitening").encode(texts), geometry.whiten(mean), atol=1e-4)
    assert matching.view(encoder, "flow", flow_steps=2).encode(texts).shape == mean.shape
    assert {how for _, how in dialoguecse.BASELINES.values()} == {"words", "cls", "mean", "flow", "whitening"}


def test_scores_carry_the_seed_of_the_training_and_the_floor():
    pairs = [ScoredPair(*tiny.sentences(2, seed=i), float(i % 5 + 1)) for i in range(8)]
    rows = matching.score(tiny.encoder(), "mean", QUERIES, pairs, None, 50, "toy", 3)
    assert set(rows["train_seed"]) == {3} and set(rows["metric"]) == {"MAP", "MRR", "Corr"}
    assert set(rows["protocol"]) == {"paper", "floor"}
    assert "Corr" not in set(matching.score(tiny.encoder(), "mean", QUERIES, [], None, 50, "toy", 3)["metric"])


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", matching.MODELS)
def test_every_matching_model_trains_and_moves_the_encoder(corpus, tmp_path, model):
    start = tiny.encoder()
    options = TrainingSettings(batch_size=8, max_steps=2, learning_rate=1e-2)
    made = matching.train_matching(start.clone(), [corpus], Matching(model), options, 0, [], tmp_path / "w")
    assert made["groups"] == 16 and made["encoder"].name == model and len(made["curve"]) == 2
    texts = tiny.sentences(3)
    assert not np.allclose(made["encoder"].encode(texts), start.encode(texts))


def test_a_training_that_is_cut_short_prepares_no_more_groups_than_it_sees(corpus, tmp_path):
    sizes = []
    for number, steps in enumerate((None, 3, 100)):
        options = TrainingSettings(batch_size=5, epochs=0.25, max_steps=steps)
        made = matching.train_matching(tiny.encoder(), [corpus], Matching(), options, 0, [], tmp_path / str(number))
        sizes.append(made["groups"])
        if steps == 3:
            assert list(made["curve"]["epoch"]) == [5 / 60, 10 / 60, 15 / 60], "an epoch is of all groups"
    assert sizes == [60, 15, 60]
    options = TrainingSettings(batch_size=5, epochs=0.25, max_steps=9)
    past = matching.train_matching(tiny.encoder(), [corpus], Matching(sides="past"), options, 0, [], tmp_path / "p")
    assert past["groups"] == 45, "of 48 with a past"


def test_the_epoch_that_is_best_on_the_development_pairs_is_kept(corpus, tmp_path, monkeypatch):
    pairs = [ScoredPair(*tiny.sentences(2, seed=i), float(i % 5 + 1)) for i in range(6)]
    seen = iter([0.1, 0.9, 0.5, 0.2])  # the last one, then after epochs 1, 2 and 3
    monkeypatch.setattr(matching, "agreement", lambda encoder, pairs: next(seen))
    options = TrainingSettings(batch_size=60, epochs=3, learning_rate=1e-2)
    made = matching.train_matching(tiny.encoder(), [corpus], Matching(), options, 0, pairs, tmp_path)
    first = matching.load_encoder(tmp_path / "epochs" / "1")
    assert np.allclose(made["encoder"].encode(["a b c"]), first.encode(["a b c"]), atol=1e-6)


def test_stage_one_reads_each_sentence_once(tmp_path):
    first, second, third = (" ".join(tiny.sentences(9, seed=i)) for i in range(3))
    records = dataset(tmp_path, [ScoredPair(first, second, 1.0), ScoredPair(first, third, 2.0)])
    assert [c.paired for c in matching.spoken([records])] == [False, False]
    options = TrainingSettings(batch_size=3, epochs=1, learning_rate=1e-3)
    made = matching.adapt(tiny.encoder(), [records], options, 2, None, 50, tmp_path / "w")
    assert made["training"].steps == 1, "three distinct sentences are one batch"


def test_the_fresh_head_of_stage_one_is_trained_before_the_encoder_moves(tmp_path, monkeypatch):
    start, seen = tiny.encoder(), []
    texts = dataset(
        tmp_path, [ScoredPair(*(" ".join(tiny.sentences(9, seed=i + k)) for k in (0, 9)), 1.0) for i in range(6)]
    )

    def watched(encoder, *arguments, **named):
        seen.append(encoder.encode(["a b c"]))
        return train(encoder, *arguments, **named)

    train = matching.train
    monkeypatch.setattr(matching, "train", watched)
    options = TrainingSettings(batch_size=6, epochs=1, learning_rate=1e-2)
    made = matching.adapt(start, [texts], options, 3, None, 50, tmp_path / "w")
    assert np.allclose(seen[0], seen[1]) and not np.allclose(seen[1], made["encoder"].encode(["a b c"]))


def test_the_lower_half_of_the_layers_is_frozen_and_the_rest_as_the_profile_says():
    made = dialoguecse.contrast_settings(fake_run("gpu"), tiny.encoder(), 2)
    assert (made.freeze, made.seed, made.batch_size) == (1, 2, 64)
    printed = dialoguecse.contrast_settings(fake_run("paper"), tiny.encoder(), 1)
    assert (printed.batch_size, printed.learning_rate, printed.epochs) == (20, 5e-5, 3)


def test_rows_say_what_stands_in_for_the_papers_data():
    assert dialoguecse.instead("DialogueCSE I2", "JDDC") == "trained on dialogues of ECD"
    assert dialoguecse.instead("BERT-avg", "JDDC") == "" == dialoguecse.instead("DialogueCSE I2", "ECD")
    assert dialoguecse.instead("Avg. GloVe embeddings", "MDC").count(";") == 1


# --- settings and figures ---------------------------------------------------------------------------------------------


def test_every_sweep_of_the_gpu_profile_holds_the_usual_value_or_all_dialogues():
    s = settings("gpu")
    for one in matching_figures.SWEEPS:
        usual = getattr(Matching(), one.setting)
        assert usual in s[one.values] if one.setting != "dialogues" else usual is None
    assert max(s["negative_counts"]) <= matching.MOST_NEGATIVES


def test_the_matching_matrix_is_of_the_tokens_as_they_are_read():
    encoder = tiny.encoder(dropout=0.0).eval()
    turns, response = tiny.sentences(2, seed=5), tiny.sentences(1, seed=6)[0]
    found = matching.matching_of(encoder, turns, response)
    assert list(found["turn"].unique()) == [1, 2] and found["word"].iloc[0] == found["response"].iloc[0] == "[CLS]"
    states, _ = encoder.hidden(encoder.tokenize([turns[1]]))
    answer, _ = encoder.hidden(encoder.tokenize([response]))
    ones = [np.ones(len(part), np.float32) for part in (states, answer)]
    expected = matching_matrix(states, *(map(_tensor, ones[:1])), answer, _tensor(ones[1])).detach().numpy()
    second = found[found["turn"] == 2].pivot(index="row", columns="column", values="value").to_numpy()
    assert np.allclose(second, expected, atol=1e-4)


def _tensor(array: np.ndarray):
    import torch

    return torch.from_numpy(array)


def test_the_example_is_short_and_has_context_on_both_sides():
    group = matching_figures.example_group()
    assert group.before and group.after and len(group.candidates) == 10


def test_without_english_models_the_heat_map_says_why_it_is_not_drawn():
    run, noted = fake_run("gpu", corpora=["ECD"]), {}
    run.not_run = lambda figure, reason: noted.update({figure: reason})
    trained = dialoguecse.Trained({}, {}, {}, pd.DataFrame())
    assert "English dialogues" in matching_figures.heat_map(run, trained) and list(noted) == ["matching"]


def test_the_architecture_is_drawn_with_the_shapes_of_its_example():
    roles, tokens = ["u-1", "u+1", "response", "negative"], [7, 5, 6, 4]
    data = pd.DataFrame({"role": roles, "text": ["some words"] * 4, "tokens": tokens, "width": 32})
    said = [text.get_text() for text in plots.architecture(data, candidates=10).axes[0].texts]
    assert {"7×32", "5×32", "7×6", "5×6", "6×32"} <= set(said)
    assert any("9 sampled responses" in text for text in said) and "4×32" not in said


def test_matching_matrices_have_a_panel_for_each_turn_and_model():
    cells = [(m, t, i, f"w{i}", j, f"r{j}", i - j) for m in "ab" for t in (1, 2) for i in range(3) for j in range(2)]
    data = pd.DataFrame(cells, columns=["model", "turn", "row", "word", "column", "response", "value"])
    axes = plots.matching_matrices(data).axes
    assert [a.get_title() for a in axes] == ["turn 1", "turn 2", "", ""] and axes[2].get_ylabel() == "b"
    assert [label.get_text() for label in axes[3].get_xticklabels()] == ["r0", "r1"]


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_rows() -> pd.DataFrame:
    """Rows as the gpu profile adds them: every model on every evaluation set with three seeds, and every sweep."""
    random, s, rows = np.random.default_rng(0), settings("gpu"), []
    tests = {"MDC": ("MAP", "MRR"), "JDDC": ("Corr", "MAP", "MRR"), "ECD": ("Corr", "MAP", "MRR")}

    def add(table: str, model: str, names, **more) -> None:
        for name in names:
            for metric in tests[name]:
                task = "similarity" if metric == "Corr" else "retrieval"
                for seed in s["train_seeds"]:
                    row = {"table": table, "model": model, "task": task, "dataset": name, "metric": metric}
                    row |= {"protocol": "paper", "encoder": "mini", "train_seed": seed, "n": 100, **more}
                    rows.append(row | {"value": (30 if model in FLOORS else 50) + float(random.normal())})

    for model in (*dialoguecse.BASELINES, *matching.MODELS):
        add("T2", model, tests)
    for one in matching_figures.SWEEPS:
        names = ("JDDC", "ECD") if one.families else tests
        for model in one.models:
            for value in (*s[one.values], *([5984] if one.setting == "dialogues" else [])):
                add(one.table, model, names, **{one.setting: value})
    return pd.DataFrame(rows)


def test_every_claim_can_be_judged_on_the_rows_of_the_gpu_profile(gpu_rows):
    judged = judge_claims("dialoguecse", gpu_rows).frame.set_index("id")
    left = judged[judged["verdict"] == "not run"]
    assert set(left.index) == {"value-ecd", "value-jddc"}, left["reason"].to_dict()
    assert not judged["reason"].str.contains("no interval").any()


@pytest.mark.parametrize("table", ["T2", "T3", "T4"])
def test_our_rows_land_in_every_printed_cell_but_the_unreleased_ones(gpu_rows, table):
    cells = compare_table("dialoguecse", table, gpu_rows).rows
    assert set(cells[cells["status"] == "not run"]["column"]) == ({"MDC Corr"} if table == "T2" else set())


def test_a_figure_that_is_not_drawn_is_a_sentence_without_quotes():
    run = SimpleNamespace(not_run=lambda figure, reason: None)
    said = figures.absent(run, "F9", "there is no data")
    assert said == said._repr_markdown_() == "Not drawn: there is no data."
