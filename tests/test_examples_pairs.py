"""Consecutive pairs: neighbours only, the word filter holds, texts are tokenised once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dialnb.examples.pairs import (
    PairExamples,
    consecutive_pairs,
    dropout_examples,
    enough_words,
    keep_last_words,
    pair_examples,
    tail_quirk,
    unique_sentences,
)

UTTERANCE = st.lists(st.sampled_from(tiny.WORDS), max_size=7).map(" ".join)
DIALOGUES = st.lists(st.lists(UTTERANCE, max_size=7), max_size=4)


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder()


@given(DIALOGUES, st.integers(0, 4))
def test_pairs_are_all_neighbours_that_pass_the_filter(dialogues, min_words):
    expected = [
        (a, b)
        for utterances in dialogues
        for a, b in pairwise(utterances)
        if len(a.split()) > min_words and len(b.split()) > min_words
    ]
    assert consecutive_pairs(dialogues, min_words=min_words) == expected


@given(DIALOGUES, st.integers(1, 3))
def test_longer_queries_join_the_utterances_before_the_response(dialogues, turns):
    windows = [u[i : i + turns + 1] for u in dialogues for i in range(len(u) - turns)]
    kept = [window for window in windows if all(map(enough_words, window))]
    assert consecutive_pairs(dialogues, turns) == [(" [SEP] ".join(w[:-1]), w[-1]) for w in kept]


def test_exactly_three_words_are_too_few():
    assert not enough_words("book a table") and enough_words("book  a table\tplease")
    assert consecutive_pairs([["where do you want it", "in the north", "in the north please"]]) == []


def test_duplicate_pairs_are_kept():
    dialogue = ["i need a cheap hotel", "where do you want it"]
    assert len(consecutive_pairs([dialogue, dialogue])) == 2


@given(DIALOGUES)
def test_unique_sentences_come_in_order_of_appearance(dialogues):
    found = unique_sentences(dialogues)
    everything = [u for utterances in dialogues for u in utterances]
    assert len(set(found)) == len(found)
    assert set(found) == {u for u in everything if len(u.split()) > 3}
    assert [everything.index(u) for u in found] == sorted(everything.index(u) for u in found)


@pytest.mark.parametrize(("turns", "kept"), [(1, 28), (2, 57), (3, 86)])
def test_only_the_last_words_of_a_long_query_are_kept(turns, kept):
    words = [str(i) for i in range(100)]
    assert keep_last_words(" ".join(words), turns).split() == words[-kept:]
    assert keep_last_words("short  query", turns) == "short query"


@given(st.lists(UTTERANCE, max_size=8), st.booleans())
def test_the_tail_quirk_only_leaves_out(utterances, system_opens):
    found = iter(utterances)
    assert all(text in found for text in tail_quirk(utterances, system_opens)), "a subsequence, in order"


def test_the_tail_quirk_loses_a_closing_system_line_and_an_opening_one():
    assert tail_quirk(["hi", "hello", "a table", "when"], system_opens=False) == ["hi", "hello", "a table"]
    assert tail_quirk(["hello", "a table", "when", "at two"], system_opens=True) == ["a table", "when", "at two"]
    assert tail_quirk([], system_opens=True) == []


@given(st.lists(st.tuples(UTTERANCE, UTTERANCE), min_size=1, max_size=9), st.sampled_from([None, 8, 5]))
def test_batches_hold_the_pairs_tokens(encoder, pairs, query_length):
    examples = pair_examples(encoder, pairs, max_length=8, query_length=query_length)
    rows = np.arange(len(pairs))[::-1]
    batch = examples.batch(rows, None)
    assert len(examples) == len(pairs) and batch.size == len(pairs) and batch.counts == {}
    first = encoder.tokenize([pairs[r][0] for r in rows], query_length or 8)
    second = encoder.tokenize([pairs[r][1] for r in rows], 8)
    assert [row.tolist() for row in batch.tokens["pair"]] == [row.tolist() for row in (*first, *second)]
    if query_length in (None, 8):
        assert len(examples.tokens) == len({text for pair in pairs for text in pair}), "each text once"


def test_no_pairs_make_no_examples(encoder):
    assert len(pair_examples(encoder, [])) == 0


def test_a_sentence_is_its_own_positive(encoder):
    batch = dropout_examples(encoder, ["hello", "book a table"]).batch(np.array([1, 0]), None)
    both = batch.tokens["pair"]
    assert both[:2].ids.tolist() == both[2:].ids.tolist()


def test_tokens_come_from_the_cache_the_second_time(encoder, tmp_path, monkeypatch):
    pairs = [("hello", "book a table"), ("yes", "hello")]
    first = pair_examples(encoder, pairs, cache=tmp_path)
    monkeypatch.setattr(encoder.wordpieces, "_bare", lambda texts: pytest.fail("tokenised again"))
    second = pair_examples(encoder, pairs, cache=tmp_path)
    assert isinstance(second, PairExamples) and second.tokens.ids.tolist() == first.tokens.ids.tolist()
