"""Sessions, groups, contexts and the retrieval set of DialogueCSE; post-training examples of UMS."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from test_examples_manipulations import groups as selection_groups

from dialnb.data.records import Dialogue, MatchingGroup, SelectionGroup, Utterance
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.floors import Lexical
from dialnb.evaluation.similarity import evaluate_retrieval
from dialnb.examples.masking import WholeWordMasks, next_sentence_examples, replaced_token_examples
from dialnb.examples.matching import (
    build_groups,
    build_retrieval,
    labelled_utterances,
    matching_examples,
    neighbours,
    sessions,
    word_weights,
)
from dialnb.models.selector import add_marks
from dialnb.tokens import Tokens

SESSIONS = [("a1", "a2", "a3", "a4"), ("b1",), ("c1", "c2"), tuple(f"d{i}" for i in range(30))]


def dialogue(*said: tuple[str, str]) -> Dialogue:
    return Dialogue("x", tuple(Utterance(speaker, text) for speaker, text in said))


def test_consecutive_utterances_of_a_speaker_are_one_turn_and_short_dialogues_go():
    long = dialogue(("u", "hi"), ("u", "there "), ("s", "hello"), ("u", " "), ("s", "well"), ("u", "bye"), ("s", "ok"))
    short = dialogue(("u", "hi"), ("s", "bye"))
    assert sessions([long, short]) == [("hi there", "hello well", "bye", "ok")]
    assert sessions([long, short], min_turns=0)[1] == ("hi", "bye")
    assert sessions([dialogue(("u", " "))], min_turns=0) == []


def test_every_utterance_with_a_neighbour_makes_a_group():
    made = build_groups(SESSIONS, negatives=3)
    assert [g.candidates[0] for g in made] == [u for s in SESSIONS if len(s) > 1 for u in s]
    assert (made[1].before, made[1].after) == (("a1",), ("a3", "a4"))
    assert all(g.labels == (1, 0, 0, 0) for g in made)


def test_negatives_are_distinct_places_of_other_sessions_fixed_by_the_seed():
    made = build_groups(SESSIONS, negatives=7, seed=4)
    for group in made:
        own = group.candidates[0][0]
        assert len(set(group.candidates)) == 8 and all(text[0] != own for text in group.candidates[1:])
    assert made == build_groups(SESSIONS, negatives=7, seed=4) != build_groups(SESSIONS, negatives=7, seed=5)
    seen = {text for group in made[:4] for text in group.candidates[1:]}
    assert {"b1", "c2", "d0", "d29"} & seen and not {"a1", "a4"} & seen
    with pytest.raises(DataError, match="only 7 utterances"):
        build_groups(SESSIONS, negatives=8)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 6))
def test_the_context_is_the_nearest_utterances_ties_towards_the_past(past, future, turns):
    group = MatchingGroup(
        tuple(f"p{i}" for i in range(past, 0, -1)), tuple(f"f{i}" for i in range(1, future + 1)), ("r",), (1,)
    )
    by_distance = sorted([(i, 0) for i in range(1, past + 1)] + [(i, 1) for i in range(1, future + 1)])[:turns]
    before, after = neighbours(group, turns)
    assert [f"p{i}" for i, side in by_distance if side == 0] == before
    assert [f"f{i}" for i, side in by_distance if side == 1] == after
    assert neighbours(group, turns, "past") == ([f"p{i}" for i in range(1, min(turns, past) + 1)], [])


def test_blank_neighbours_do_not_exist_and_unknown_sides_are_refused():
    group = MatchingGroup(("",), ("b", " "), ("r", "n"), (1, 0))
    assert neighbours(group) == ([], ["b"])
    with pytest.raises(UnknownName, match="did you mean 'past'"):
        neighbours(group, sides="pst")


def rows_as_texts(encoder, examples, row):
    batch = examples.batch(np.array([row]), np.random.default_rng(0))
    texts = [encoder.tokenizer.decode(ids[1:-1]) for ids in batch.tokens["texts"]]
    turns, candidates = batch.arrays["turns"][0], batch.arrays["candidates"][0]
    return [texts[i] for i in turns if i >= 0], [texts[i] for i in candidates]


RELEASED = [
    MatchingGroup(("one", "two"), ("three",), ("hello", "bye", "ok", "sure"), (1, 0, 0, 0)),
    MatchingGroup(("",), ("",), ("no", "bye", "ok", "sure"), (1, 0, 0, 0)),
    MatchingGroup(("",), ("two",), ("yes", "hello", "no", "bye"), (1, 0, 0, 0)),
]


def test_released_groups_become_batches_of_turns_and_candidates():
    encoder = tiny.encoder()
    examples = matching_examples(encoder, RELEASED, negatives=2)
    assert len(examples) == 2, "a response alone has no context"
    assert rows_as_texts(encoder, examples, 0) == (["two", "one", "three"], ["hello", "bye", "ok"])
    assert rows_as_texts(encoder, examples, 1) == (["two"], ["yes", "hello", "no"])
    batch = examples.batch(np.array([0, 1]), np.random.default_rng(0))
    assert batch.arrays["turns"].tolist() == [[0, 1, 2], [3, -1, -1]] and batch.counts == {"matching": 2}
    assert batch.arrays["candidates"].tolist() == [[4, 5, 6], [7, 8, 9]] and len(batch.tokens["texts"]) == 10
    with pytest.raises(DataError, match="4 negatives wanted, but a group has 3"):
        matching_examples(encoder, RELEASED, negatives=4)


def test_a_flat_context_is_one_sequence_in_the_order_it_was_said():
    encoder = tiny.encoder()
    examples = matching_examples(encoder, RELEASED, negatives=2, flat=True)
    assert rows_as_texts(encoder, examples, 0)[0] == ["one [SEP] two [SEP] three"]
    cut = matching_examples(encoder, RELEASED, negatives=2, flat=True, max_length=3)
    assert cut.tokens.lengths.tolist()[:2] == [7, 3] and cut.tokens.lengths.max() == 7, "3 turns of 3 tokens fit in 9"
    single = matching_examples(encoder, RELEASED, negatives=2, turns=1)
    assert rows_as_texts(encoder, single, 0)[0] == ["two"]


# --- retrieval --------------------------------------------------------------------------------------------------------


def labelled(count: int = 60) -> list[tuple[str, str]]:
    return [
        (f"{verb} {what} number{i}", verb)
        for i in range(count // 6)
        for verb in ("book", "cancel")
        for what in ("a table", "the train", "my hotel room")
    ]


def test_the_retrieval_set_has_the_nearest_by_bm25_and_a_few_of_those_that_are_relevant():
    queries = build_retrieval(labelled(), positives=5, pool=30, seed=1)
    assert sorted(q.text for q in queries) == sorted(text for text, _ in labelled())
    for number, query in enumerate(queries):
        assert query.id == number and number not in (*query.positives, *query.negatives)
        assert len(query.positives) == 5 and 1 <= len(query.negatives) <= 25
        assert {queries[i].intent for i in query.positives} == {query.intent}
        assert query.intent not in {queries[i].intent for i in query.negatives}
    query = next(q for q in queries if q.text == "book a table number3")
    assert queries[query.negatives[0]].text == "cancel a table number3", "most words in common first"
    every = build_retrieval(labelled(), positives=60, pool=30, seed=1)
    assert {len(q.positives) + len(q.negatives) for q in every} == {30}
    assert all({*q.positives} < {*all_of.positives} for q, all_of in zip(queries, every))
    assert any({*q.positives} != {*sorted(all_of.positives)[:5]} for q, all_of in zip(queries, every))


def test_a_query_whose_candidates_are_all_of_one_kind_is_a_candidate_only():
    alike = [(f"play song number{i}", "play") for i in range(9)]
    queries = build_retrieval([*alike, ("what time is it", "ask"), ("what day is it", "ask")], pool=3)
    asked = {q.text for q in queries if q.positives}
    assert len(queries) == 11 and not asked & {text for text, _ in alike} and len(asked) == 2


@pytest.mark.mirror
def test_shared_words_alone_do_not_solve_a_rebuilt_pool(mirror_store):
    from dialnb.data import load
    from dialnb.models.encoder import load_encoder

    queries = build_retrieval(labelled_utterances(load("MDC", store=mirror_store)), 1000, seed=24)
    words = Lexical(load_encoder("mini"), [query.text for query in queries], "BM25")
    rows = evaluate_retrieval(words, queries, dataset="MDC").set_index(["protocol", "metric"])["value"]
    assert rows["paper", "MAP"] < rows["floor", "MAP"] + 10, "those that are first by BM25 would be 27 points above"


def test_words_weigh_more_the_rarer_they_are_and_less_each_time_and_in_long_texts():
    weights = word_weights([["book", "a", "table"], ["a", "a"], ["a", "book", "on", "the", "long", "dark", "road"]])
    rarity, lengths = {"a": log(1 + 0.5 / 3.5), "book": log(1 + 1.5 / 2.5)}, {0: 3, 1: 2, 2: 7}
    for word, places in {"a": {0: 1, 1: 2, 2: 1}, "book": {0: 1, 2: 1}}.items():
        expected = [rarity[word] * n / (1.5 * (0.25 + 0.75 * lengths[i] / 4) + n) for i, n in places.items()]
        assert weights[word][0].tolist() == [*places] and weights[word][1].tolist() == pytest.approx(expected)


def test_the_retrieval_set_is_seeded_distinct_and_unambiguous():
    texts = [*labelled(), ("book a table  number1", "book"), ("yes", "affirm"), ("yes", "book"), ("", "book")]
    queries = build_retrieval(texts, size=20, seed=3)
    assert queries == build_retrieval(texts, size=20, seed=3) != build_retrieval(texts, size=20, seed=4)
    assert len({q.text for q in queries}) == len(queries) == 20
    assert len(build_retrieval(texts)) == 60
    with pytest.raises(DataError, match="at least 2"):
        build_retrieval([("hello", "greet")])


def test_labelled_utterances_are_the_users():
    spoken = (
        Utterance("user", "hi", intent="greet"),
        Utterance("system", "hi", intent="greet"),
        Utterance("user", "x"),
    )
    assert labelled_utterances([Dialogue("x", spoken)]) == [("hi", "greet")]


@pytest.mark.mirror
def test_released_rows_have_context_and_up_to_49_negatives(mirror_store):
    from dialnb.data import load

    rows = load("DialogueCSE", "ecd-train", store=mirror_store)
    examples = matching_examples(tiny.encoder(), rows, negatives=49)
    assert len(examples) == len(rows) == 1000 and examples.candidates.shape == (1000, 50)
    assert ((examples.turns >= 0).sum(1) >= 1).all()


# --- post-training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder():
    return add_marks(tiny.encoder(max_position_embeddings=40))


def test_whole_words_are_masked_up_to_the_limit(encoder):
    masks = WholeWordMasks.from_tokens(encoder, Tokens.from_lists([]), probability=0.3)
    vocabulary = encoder.tokenizer.get_vocab()
    word = [vocabulary["no"], vocabulary["##t"], vocabulary["##e"]]
    sequence = [vocabulary["[CLS]"], *word * 6, vocabulary["hello"], vocabulary["[EOT]"], vocabulary["[SEP]"]]
    tokens = Tokens.from_lists([sequence] * 50)
    masks.limit = 4
    chosen = masks.choose(tokens, np.random.default_rng(0))
    rows, places = np.divmod(chosen, len(sequence))
    for row in range(50):
        own = places[rows == row]
        assert 1 <= len(own) <= 4
        starts = {p - (p - 1) % 3 for p in own if p < 19}
        assert {p for p in own if p < 19} == {s + i for s in starts for i in range(3)}, "whole words"
        assert not {0, 20, 21} & set(own.tolist()), "no special tokens"


def test_next_sentences_are_next_half_of_the_time_and_random_ones_are_of_other_dialogues(encoder):
    rows = [*selection_groups(12, context=4), SelectionGroup("negative", ("x", "y"), ("z",), (0,), "train")]
    examples = next_sentence_examples(encoder, rows)
    examples.short = 0.0
    assert len(examples) == 12, "label-1 contexts, each fits one input"
    batches = [examples.batch(np.arange(12), np.random.default_rng(seed)) for seed in range(40)]
    labels = np.concatenate([batch.arrays["next_label"] for batch in batches])
    assert abs(labels.mean() - 0.5) < 0.07
    batch = batches[0]
    tokens, ids = batch.tokens["masked"], batch.tokens["masked"].ids.copy()
    ids[tokens.offsets[batch.arrays["masked_sequence"]] + batch.arrays["masked_position"]] = batch.arrays[
        "masked_label"
    ]
    assert batch.counts == {"mlm": len(batch.arrays["masked_label"]), "nsp": 12} and tokens.lengths.max() <= 40
    for row, group in enumerate(rows[:12]):
        said = encoder.tokenizer.decode(ids[tokens.offsets[row] : tokens.offsets[row + 1]])
        first, second, rest = said.removeprefix("[CLS] ").split(" [SEP]")
        utterances = [[t for t in part.strip().split(" [EOT]") if t] for part in (first, second)]
        utterances = [[text.strip() for text in part] for part in utterances]
        assert rest == "" and tuple(utterances[0]) == group.context[: len(utterances[0])]
        follows = tuple(utterances[1]) == group.context[len(utterances[0]) :]
        assert follows == (batch.arrays["next_label"][row] == 0)
        kinds = tokens.types[tokens.offsets[row] : tokens.offsets[row + 1]]
        assert kinds.sum() == 1 + sum(len(encoder.tokenizer.tokenize(text)) + 1 for text in utterances[1])


def test_long_dialogues_are_cut_into_runs_and_short_inputs_occur(encoder):
    rows = selection_groups(3, context=20)
    examples = next_sentence_examples(encoder, rows)
    assert len(examples) == 9 and [sum(map(len, run)) for run in examples.runs[:3]] == [36, 36, 8]
    lengths = np.concatenate(
        [examples.batch(np.arange(9), np.random.default_rng(s)).tokens["masked"].lengths for s in range(30)]
    )
    assert lengths.max() == 40 and (lengths < 12).any()
    replaced = replaced_token_examples(encoder, rows)
    batch = replaced.batch(np.arange(9), np.random.default_rng(0))
    assert batch.counts["rtd"] == len(batch.tokens["masked"].ids) and batch.tokens["masked"].lengths.max() == 38
    with pytest.raises(DataError, match="at least 2 different contexts"):
        next_sentence_examples(encoder, rows[:1])


def test_texts_without_a_word_are_no_queries():
    labelled = [("5", "number"), ("?!", "number"), ("twenty five", "number"), ("play music", "music")]
    assert {query.text for query in build_retrieval(labelled)} == {"twenty five", "play music"}
