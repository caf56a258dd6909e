"""Response selection, adversarial sets, retrieval and similarity."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from evaluation_standins import TableEncoder, WordEncoder
from hypothesis import given, settings
from hypothesis import strategies as st

from dialnb.data.records import QuestionAnswer, RetrievalQuery, ScoredPair, SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.adversarial import (
    KINDS,
    adversarial_items,
    build_adversarial,
    evaluate_adversarial,
    evaluate_adversarial_items,
)
from dialnb.evaluation.metrics import top_k
from dialnb.evaluation.selection import (
    ScoreOnce,
    block_ranks,
    cosine_scorer,
    evaluate_blocks,
    evaluate_candidates,
    selection_rows,
)
from dialnb.evaluation.similarity import evaluate_retrieval, evaluate_similarity

QUERIES = np.array([[1, 0], [0, 1], [0.6, 0.8], [-1, 0]])
RESPONSES = np.array([[0.8, 0.6], [0.6, 0.8], [0, 1], [-0.6, -0.8]])


def test_ranks_in_a_block_of_the_worked_example():
    ranks = block_ranks(QUERIES, RESPONSES, np.arange(4)[None], np.arange(4))
    assert ranks.tolist() == [1, 2, 3, 1]
    assert top_k(ranks, (1, 2, 3)) == {"Top-1": 50, "Top-2": 75, "Top-3": 100}


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(2, 9), st.integers(0, 10_000))
def test_block_ranks_equal_sorting_each_block_and_stay_within_it(count, size, seed):
    generator = np.random.default_rng(seed)
    queries, responses = generator.normal(size=(2, count * size, 4))
    blocks = generator.permutation(count * size).reshape(count, size)
    ranks = block_ranks(queries, responses, blocks, np.arange(count * size)).reshape(blocks.shape)
    assert ranks.min() >= 1 and ranks.max() <= size
    for block, found in zip(blocks, ranks):
        for place, rank in zip(range(size), found):
            scores = responses[block] @ queries[block[place]]
            assert list(np.argsort(-scores)).index(place) + 1 == rank


def test_responses_with_equal_scores_rank_before_the_true_one():
    same = np.ones((3, 2))
    assert block_ranks(same, same, np.arange(3)[None], np.arange(3)).tolist() == [3, 3, 3]


def test_equal_responses_in_a_block_tie_against_the_true_one():
    pairs = [QuestionAnswer(*pair) for pair in (("q1", "yes"), ("q2", "yes"), ("q3", "no"), ("q4", "maybe"))]
    table = {"q1": [1, 0], "q2": [1, 0], "q3": [0, 1], "q4": [-1, 1], "yes": [1, 0], "no": [0, 1], "maybe": [-1, 1]}
    frame = evaluate_blocks(TableEncoder(table), pairs, dataset="toy", size=4, seeds=(0,))
    assert frame.value.tolist() == [50, 100, 100, 100]


def test_all_shuffles_share_one_encoding_pass():
    generator = random.Random(0)
    texts = [f"w{generator.randrange(40)} w{generator.randrange(40)} w{i}" for i in range(230)]
    pairs = [QuestionAnswer(text, f"{text} r{i}") for i, text in enumerate(texts)]
    encoder = WordEncoder()
    calls: list[int] = []
    plain = encoder.encode
    encoder.encode = lambda t, **kw: calls.append(len(t)) or plain(t, **kw)
    frame = evaluate_blocks(encoder, pairs, dataset="toy")
    assert calls == [230, 230] and sorted(set(frame.seed)) == [0, 1, 2] and (frame.n == 200).all()
    assert frame[frame.metric == "Top-1"].value.nunique() > 1


def _groups() -> tuple[list[SelectionGroup], dict]:
    table = {"hello there": [1, 0], "gold": [0.9, 0.1], "near": [0.95, 0.05], "far": [0, 1], "other": [-1, 0]}
    groups = [
        SelectionGroup("1", ("hello\n", "there"), ("far", "gold", "other"), (0, 1, 0)),
        SelectionGroup("2", ("hello", "there"), ("near", "gold", "far"), (0, 1, 0)),
    ]
    return groups, table


def test_listed_candidates_are_ranked_once_in_the_paper_protocol():
    groups, table = _groups()
    encoder = TableEncoder(table)
    frame = evaluate_candidates(encoder, groups, dataset="toy", truncate="left")
    assert frame[frame.ties == "against"].value.tolist() == [50, 100, 100, 100] and set(frame.candidates) == {3}
    assert encoder.asked.count("gold") == 1 and encoder.asked[0] == "hello there"
    assert encoder.settings == [{"max_length": 128, "truncate": "left"}, {"max_length": 32}]


def test_the_code_protocol_lists_the_true_response_twice_so_ties_bound_its_top_1():
    groups, table = _groups()
    frame = evaluate_candidates(TableEncoder(table), groups, dataset="toy", protocol="code")
    assert set(frame.candidates) == {4}
    assert frame[frame.ties == "against"].value.tolist() == [0, 100, 100, 100]
    assert frame[frame.ties == "file"].value.tolist() == [50, 100, 100, 100]


def test_a_dialogue_with_two_true_responses_is_refused():
    group = SelectionGroup("d7", ("a",), ("b", "c"), (1, 1))
    with pytest.raises(DataError, match="dialogue d7 has 2 true responses"):
        evaluate_candidates(TableEncoder({}), [group], dataset="toy")


def test_selection_rows_report_both_tie_rules_and_degenerate_lists():
    frame = selection_rows([[0.5, 0.5], [0.1, 0.9], [0.2, 0.1]], [[1, 0], [0, 0], [1, 1]], dataset="toy")
    recall = frame[frame.metric == "R2@1"].set_index("ties").value
    assert recall["against"] == 0.25 and recall["file"] == 0.75
    assert set(frame.n) == {2} and set(frame.without_positive) == {1} and set(frame.all_positive) == {1}
    with pytest.raises(DataError, match="differ in length"):
        selection_rows([[0.5]], [[1, 0]], dataset="toy")


# --- adversarial sets --------------------------------------------------------------------------------------------

utterances = st.sampled_from(["", "  ", "hi", "hi ", "ok", "why", "gold", " gold", "n1"])
group_lists = st.lists(
    st.builds(
        lambda context: SelectionGroup("x", tuple(context), ("gold", "n1", "n2", "n3"), (1, 0, 0, 0)),
        st.lists(utterances, min_size=1, max_size=6),
    ),
    max_size=12,
)


@settings(max_examples=80)
@given(group_lists, st.integers(0, 50))
def test_an_adversarial_list_differs_in_one_negative_that_comes_from_its_context(groups, seed):
    built = build_adversarial(groups, seed)
    assert len(built.groups) + sum(built.left_out.values()) == len(groups)
    for changed, entry in zip(built.groups, built.index):
        group = groups[entry.dialogue]
        drawn = group.context[entry.utterance]
        assert drawn.strip() and drawn.strip() != "gold"
        assert changed.candidates[entry.candidate] == drawn and group.labels[entry.candidate] == 0
        others = [i for i in range(4) if i != entry.candidate]
        assert [changed.candidates[i] for i in others] == [group.candidates[i] for i in others]
        assert changed.context == group.context and changed.labels == group.labels
        assert sum(text.strip() == drawn.strip() for text in changed.candidates) == 1
    for number, group in enumerate(groups):
        usable = any(text.strip() not in ("", "gold") for text in group.context)
        assert usable == any(entry.dialogue == number for entry in built.index)


def _dialogues(n: int = 400) -> list[SelectionGroup]:
    context = tuple(f"turn {i}" for i in range(4))
    return [SelectionGroup(str(i), context, ("gold", *(f"n{j}" for j in range(9))), (1,) + (0,) * 9) for i in range(n)]


def test_the_same_seed_gives_the_same_set_and_a_prefix_of_the_dialogues_a_prefix_of_the_set():
    groups = _dialogues()
    built = build_adversarial(groups, 1)
    assert built == build_adversarial(groups, 1) and built.index != build_adversarial(groups, 2).index
    assert build_adversarial(groups[:50], 1).index == built.index[:50]


def test_utterances_and_negatives_are_drawn_uniformly():
    built = build_adversarial(_dialogues(4000), 0)
    turns = np.bincount([entry.utterance for entry in built.index], minlength=4)
    places = np.bincount([entry.candidate for entry in built.index], minlength=10)
    assert places[0] == 0 and abs(turns - 1000).max() < 130 and abs(places[1:] - 4000 / 9).max() < 90


def test_adversarial_items_count_ranks_and_wins_of_the_adversarial_candidate():
    labels = np.array([[1, 0, 0]] * 2)
    original = np.array([[0.9, 0.1, 0.2], [0.8, 0.7, 0.1]])
    changed = np.array([[0.9, 0.95, 0.2], [0.8, 0.7, 0.8]])
    items = adversarial_items(original, changed, labels, np.array([1, 2]))
    assert items["Original R3@1"].tolist() == [1, 1] and items["Adversarial R3@1"].tolist() == [0, 0]
    assert items["Adversarial MRR"].tolist() == [0.5, 0.5] and items["Adversarial first"].tolist() == [1, 1]
    file = adversarial_items(original, changed, labels, np.array([1, 2]), ties="file")
    assert file["Adversarial R3@1"].tolist() == [0, 1] and file["Adversarial first"].tolist() == [1, 0]


def test_a_scorer_that_likes_the_context_falls_for_every_adversarial_candidate():
    def scorer(groups):
        return [[2.0 * (c in g.context) + (c == "gold") for c in g.candidates] for g in groups]

    frame = evaluate_adversarial(scorer, _dialogues(30), dataset="toy")
    wide = frame[frame.ties == "against"].pivot(index="seed", columns="metric", values="value")
    assert (wide["Original R10@1"] == 1).all() and (wide["Adversarial R10@1"] == 0).all()
    assert (wide["Adversarial first"] == 1).all() and sorted(wide.index) == [0, 1, 2]


def test_lists_of_which_none_can_be_tested_are_counted_by_what_they_lack():
    group = SelectionGroup("0", ("yes", " "), ("yes", "no"), (1, 0))
    with pytest.raises(DataError, match=r"none of the 3 lists of toy .*: 2 with no usable .*, 1 with no true"):
        evaluate_adversarial(_lengths, [group, group, replace(group, labels=(0, 0))], dataset="toy")
    with pytest.raises(DataError, match="must have one length, found no lists"):
        evaluate_adversarial(_lengths, [], dataset="toy")


def _lengths(groups):
    return [[float(len(text)) for text in group.candidates] for group in groups]


def test_harder_adversaries_choose_the_last_the_most_similar_or_other_words():
    context = ("it does not boot", "which disk is it", "the second one", "")
    group = SelectionGroup("0", context, ("try another disk then", "no", "yes"), (1, 0, 0))
    found = {kind: build_adversarial([group], 3, kind) for kind in KINDS}
    assert found["last"].index[0].utterance == 2, "the last that says something"
    assert found["similar"].index[0].utterance == 1 and "which disk is it" in found["similar"].groups[0].candidates
    drawn, place = context[found["paraphrase"].index[0].utterance], found["paraphrase"].index[0].candidate
    assert found["paraphrase"].groups[0].candidates[place] == f"i said {drawn}"
    assert found["paraphrase"].index == found["random"].index
    with pytest.raises(UnknownName, match="kind of adversarial utterance"):
        build_adversarial([group], 0, "nearest")


def test_what_dialogues_add_averages_to_the_metrics():
    def scorer(groups):
        return [[(hash_of(c) + int(g.id or 0)) % 7 for c in g.candidates] for g in groups]

    def hash_of(text):
        return sum(map(ord, text))

    rows, items = evaluate_adversarial_items(scorer, _dialogues(40), dataset="toy", seeds=(0, 1))
    means = rows[rows["protocol"] == "paper"].groupby("metric")["value"].mean()
    of_items = items.groupby("metric")["value"].mean()
    assert of_items.to_dict() == pytest.approx(means[of_items.index].to_dict()) and len(of_items) == 4


def test_a_candidate_is_scored_once_after_each_context():
    asked = []

    def scorer(groups):
        asked.extend((g.context, c) for g in groups for c in g.candidates)
        return [[float(len(c)) for c in g.candidates] for g in groups]

    once, groups = ScoreOnce(scorer), _dialogues(3)
    changed = build_adversarial(groups, 1).groups
    found = [once(part) for part in (groups, changed, [])]
    assert found == [[[float(len(c)) for c in g.candidates] for g in part] for part in (groups, changed, [])]
    assert len(asked) == len(set(asked)) == len({(g.context, c) for g in (*groups, *changed) for c in g.candidates})


def test_a_sentence_encoder_ranks_candidates_by_cosine_with_the_context():
    table = {"a b": [1, 0], "x": [1, 0.1], "y": [0.1, 1]}

    class Table:
        def encode(self, texts, **settings):
            return np.array([table[text] for text in texts], np.float32)

    (scores,) = cosine_scorer(Table())([SelectionGroup("0", ("a ", "b"), ("y", "x"), (0, 1))])
    assert scores[1] > 0.99 and scores[0] < 0.11


# --- retrieval and similarity ------------------------------------------------------------------------------------


def test_retrieval_ranks_pools_by_cosine_and_prints_the_floor_of_a_random_order():
    table = {"q": [1, 0], "a": [0.9, 0.1], "b": [0.5, 0.5], "c": [0, 1]}
    queries = [
        RetrievalQuery(1, "q", (4, 2), (3,)),
        RetrievalQuery(2, "a", (), ()),
        RetrievalQuery(3, "b", (2,), (4,)),
        RetrievalQuery(4, "c", (3,), (2, 1)),
    ]
    frame = evaluate_retrieval(TableEncoder(table), queries, dataset="toy")
    found = frame[frame.protocol == "paper"].set_index("metric").value
    assert found["MAP"] == pytest.approx(100 * ((1 + 2 / 3) / 2 + 1 + 1) / 3)
    assert found["MRR"] == pytest.approx(100)
    floor = frame[frame.protocol == "floor"].set_index("metric").value
    assert floor["MRR"] == pytest.approx(100 * ((2 / 3 + 1 / 6) + 3 / 4 + 11 / 18) / 3)
    assert set(frame.n) == {3}
    with pytest.raises(DataError, match="no sentence 9"):
        evaluate_retrieval(TableEncoder(table), [RetrievalQuery(1, "q", (9,), ())], dataset="toy")


def test_similarity_correlates_cosines_with_human_scores():
    table = {"q": [1, 0], "a": [0.9, 0.1], "b": [0.5, 0.5], "c": [0, 1]}
    pairs = [ScoredPair("q", "a", 5), ScoredPair("q", "b", 2), ScoredPair("q", "c", 3)]
    frame = evaluate_similarity(TableEncoder(table), pairs, dataset="toy")
    assert frame.value.item() == pytest.approx(50) and frame.metric.item() == "Corr"


def test_groups_of_queries_and_pairs_average_to_the_whole_and_spread_as_items_do():
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(400, 6))
    encoder = TableEncoder({str(i): vector for i, vector in enumerate(vectors)})
    numbers = [generator.permutation(400)[:9].tolist() for _ in range(400)]
    queries = [RetrievalQuery(i, str(i), tuple(own[: 1 + i % 3]), tuple(own[4:])) for i, own in enumerate(numbers)]
    pairs = [ScoredPair(str(i), str(own[0]), float(i % 7)) for i, own in enumerate(numbers)]
    for evaluate, items in ((evaluate_retrieval, queries), (evaluate_similarity, pairs)):
        keys = ["protocol", "metric"]
        whole = evaluate(encoder, items, dataset="made").set_index(keys)["value"]
        parts = evaluate(encoder, items, groups=20, dataset="made").groupby(keys)["value"]
        assert set(parts.size()) == {20}
        assert parts.mean().to_dict() == pytest.approx(whole.to_dict(), abs=1e-9)
    error = parts.std().item() / np.sqrt(20)  # of a correlation of 400 unrelated pairs
    assert 0.6 < error / (100 / np.sqrt(400)) < 1.6
    few = evaluate_similarity(encoder, pairs[:5], groups=20, dataset="made")
    assert len(few) == 2 and few["value"].notna().all()
