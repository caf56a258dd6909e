"""WMDC's windows: which pairs exist, what their contexts read like, how responses weigh, one window per batch."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data.corpora import Conversation, Part, conversations
from dialnb.errors import DataError, UnknownName
from dialnb.examples.windows import (
    WEIGHTINGS,
    context_length,
    cumulative_share,
    response_frequencies,
    response_key,
    window_examples,
)
from dialnb.training.plan import BatchPlan
from dialnb.training.recipes import fit, get_recipe, wmdc

UTTERANCE = st.lists(st.sampled_from(tiny.WORDS), max_size=14).map(" ".join)
DIALOGUES = st.lists(st.lists(UTTERANCE, max_size=7), max_size=4)
TALK = ["hello", "Yes.", "book a table", "yes.", "for two please", "Thanks", "bye"]


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder(max_position_embeddings=50)


def pairs_of(dialogues, windows) -> list[tuple[int, list[str], str]]:
    """(window, context, response) of every pair, by the definition."""
    return [
        (window, list(said[end - window : end]), said[end])
        for window in windows
        for said in dialogues
        for end in range(window, len(said))
    ]


@given(DIALOGUES.filter(lambda d: any(len(said) > 1 for said in d)), st.sampled_from([(1,), (1, 2, 3), (2, 1), (1, 4)]))
def test_batches_read_like_the_last_turns_joined_by_separators(encoder, dialogues, windows):
    examples = window_examples(encoder, dialogues, windows)
    expected = pairs_of(dialogues, windows)
    assert len(examples) == len(expected)
    assert [[expected[i][0] for i in group] for group in examples.groups] == [
        [window] * len(group) for window, group in zip(windows, examples.groups)
    ], "a group for each window, and in it that window alone"
    assert sorted(np.concatenate(examples.groups)) == list(range(len(expected)))
    for window, group in zip(windows, examples.groups):
        if len(group):
            rows = group[::-1]
            batch = examples.batch(rows, np.random.default_rng(0))
            contexts = [" [SEP] ".join(expected[i][1]) for i in rows]
            left = encoder.tokenize(contexts, context_length(window), "left")
            right = encoder.tokenize([expected[i][2] for i in rows], 64)
            assert [ids.tolist() for ids in batch.tokens["pair"]] == [ids.tolist() for ids in (*left, *right)]
            assert batch.arrays["window"].tolist() == [window] * len(rows) and batch.size == len(rows)


def test_contexts_grow_with_the_window_up_to_128_tokens():
    assert [context_length(window) for window in range(1, 6)] == [32, 64, 96, 128, 128]


def test_contexts_lose_their_beginning_and_responses_their_end(encoder):
    long = " ".join(["one"] * 40 + ["two"] * 40)
    batch = window_examples(encoder, [[long, long]], (1,)).batch(np.array([0]), np.random.default_rng(0))
    context, response = (encoder.tokenizer.decode(ids).split() for ids in batch.tokens["pair"])
    assert context == ["[CLS]", *["two"] * 30, "[SEP]"], "32 tokens for one utterance"
    assert response == ["[CLS]", *["one"] * 40, *["two"] * 8, "[SEP]"], "50 tokens are all that this encoder reads"


def test_a_dialogue_of_n_utterances_has_n_minus_w_pairs_of_window_w(encoder):
    examples = window_examples(encoder, [TALK, TALK[:2], ["hello"], []], (1, 2, 3))
    assert [len(group) for group in examples.groups] == [6 + 1, 5, 4]
    with pytest.raises(DataError, match="the 3 utterances that the smallest window needs"):
        window_examples(encoder, [TALK[:2]], (2, 3))


def test_batches_cycle_through_the_windows(encoder):
    examples = window_examples(encoder, [TALK] * 4, (1, 2, 3))
    plan = BatchPlan(len(examples), 8, seed=1, groups=examples.groups)
    windows = [set(examples.windows[plan.rows(step)].tolist()) for step in range(plan.steps_per_epoch)]
    assert windows == [{1}, {2}, {3}, {1}, {2}, {3}, {1}, {2}], "24, 20 and 16 pairs in batches of 8"


@given(st.text(), st.sampled_from(["", " ", "\n\t"]))
def test_case_and_outer_space_do_not_tell_utterances_apart(text, space):
    assert response_key(f"{space}{text.lower()}{space}") == response_key(response_key(text))


def test_punctuation_tells_utterances_apart():
    counts = response_frequencies([["Yes.", "yes", "YES. "], ["yes"], ["yes !"]])
    assert counts == {"yes.": 2, "yes": 2, "yes !": 1}


@given(st.lists(st.integers(1, 50), min_size=1))
def test_the_share_covered_rises_to_one(counts):
    share = cumulative_share(Counter({str(i): n for i, n in enumerate(counts)}))
    assert share[0] == max(counts) / sum(counts) and share[-1] == 1
    steps = np.diff(share, prepend=0)
    assert (steps > 0).all() and (np.diff(steps) <= 1e-12).all(), "the most frequent first"


@pytest.mark.parametrize(("frequency", "weight"), [(1, 1), (2, 0.590616), (100, 0.178407), (1481, 0.120475)])
def test_frequent_responses_weigh_less(frequency, weight):
    assert WEIGHTINGS["irf"](np.array([frequency]))[0] == pytest.approx(weight, abs=1e-6)
    assert WEIGHTINGS["inverse square root"](np.array([frequency]))[0] == pytest.approx(frequency**-0.5)


@given(DIALOGUES.filter(lambda d: any(len(said) > 1 for said in d)), st.sampled_from(sorted(WEIGHTINGS)))
def test_weights_come_from_the_frequency_of_the_response_in_the_corpus(encoder, dialogues, weighting):
    examples = window_examples(encoder, dialogues, (1, 2), weighting, mask_duplicates=True)
    counts = response_frequencies(dialogues)
    responses = [response for _, _, response in pairs_of(dialogues, (1, 2))]
    formula = {"irf": lambda n: 1 / (math.log(n) + 1), "inverse square root": lambda n: 1 / math.sqrt(n)}[weighting]
    batch = examples.batch(np.arange(len(examples.groups[0])), np.random.default_rng(0))
    first = responses[: batch.size]
    assert batch.arrays["weights"] == pytest.approx([formula(counts[response_key(r)]) for r in first], rel=1e-6)
    same = batch.arrays["duplicates"][:, None] == batch.arrays["duplicates"]
    assert same.tolist() == [[response_key(a) == response_key(b) for b in first] for a in first]


def test_a_response_counts_once_however_many_windows_use_it(encoder):
    weights = [
        window_examples(encoder, [TALK], windows).batch(np.array([0]), None).arrays["weights"]
        for windows in ((1,), (1, 2, 3))
    ]
    assert weights[0] == weights[1] == pytest.approx(1 / (math.log(2) + 1)), '"Yes." and "yes." are one utterance'


def test_without_reweighting_and_masking_no_such_arrays_exist(encoder):
    arrays = window_examples(encoder, [TALK], weighting=None).batch(np.array([0, 1]), None).arrays
    assert set(arrays) == {"window"}
    with pytest.raises(UnknownName, match="idf"):
        window_examples(encoder, [TALK], weighting="idf")


def test_utterances_are_tokenised_once_and_kept(encoder, tmp_path, monkeypatch):
    examples = window_examples(encoder, [TALK, TALK], cache=tmp_path)
    assert len(examples.tokens) == len(set(TALK))
    monkeypatch.setattr(encoder.wordpieces, "_bare", lambda texts: pytest.fail("tokenised again"))
    again = window_examples(encoder, [TALK, TALK], cache=tmp_path)
    assert again.tokens.ids.tolist() == examples.tokens.ids.tolist()


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        (wmdc(), "WMDC"),
        (wmdc(weighting=None), "WMDC w/o IRF"),
        (wmdc((2,)), "WMDC {2}"),
        (wmdc((1, 2), None), "WMDC {1,2} w/o IRF"),
        (wmdc(weighting="inverse square root"), "WMDC, inverse square root"),
        (wmdc(mask_duplicates=True), "WMDC, masked"),
    ],
)
def test_recipes_are_found_by_names_that_say_what_differs(encoder, recipe, name):
    assert recipe.name == name == get_recipe(name).name
    objective = get_recipe(name).objective(encoder)
    assert isinstance(objective.heads[next(iter(objective.heads))], torch.nn.Linear), "one linear head per window"


def test_the_printed_settings():
    printed = get_recipe("WMDC").settings
    assert (printed.batch_size, printed.learning_rate, printed.schedule) == (256, 3e-5, "onecycle")
    assert printed.head_learning_rate == pytest.approx(1.2e-3) and printed.optimiser == "adamw"


@pytest.mark.parametrize("name", ["WMDC", "WMDC w/o IRF", "WMDC {2}", "WMDC, masked"])
def test_every_window_trains_its_own_head(name):
    encoder = tiny.encoder()
    dialogues = [Conversation("toy", tuple(tiny.sentences(6, seed))) for seed in range(4)]
    recipe = get_recipe(name)
    settings = replace(recipe.settings, batch_size=8, precision="float32", learning_rate=1e-3)
    before = encoder.encode(list(tiny.TEXTS))
    result = fit(name, encoder, dialogues, settings).result
    assert result.steps == (2 if name == "WMDC {2}" else 7) and np.isfinite(result.curve.loss).all()
    assert not np.allclose(before, encoder.encode(list(tiny.TEXTS)), atol=1e-3)


# --- the published corpora --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [Part("KVRET"), Part("Taskmaster", "tm1-delexicalised"), Part("CamRest676")])
def test_one_percent_of_the_utterances_covers_15_to_30_percent_of_a_corpus(mirror_store, part):
    counts = response_frequencies(d.utterances for d in conversations([part], mirror_store))
    share = cumulative_share(counts)
    assert 0.15 < share[len(share) // 100] < 0.30
    assert any(word in counts.most_common(1)[0][0] for word in ("thank", "welcome", "yes"))
