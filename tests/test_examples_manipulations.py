"""Insertion, deletion and search: what they keep, what they hide, what they ask for, and how inputs are trimmed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.examples.manipulations import (
    MARKS,
    TASKS,
    Input,
    Layout,
    bare_pieces,
    deletion,
    input_tokens,
    insertion,
    manipulate,
    manipulation_examples,
    search,
    trim,
    window,
)
from dialnb.models.selector import add_marks

FOREIGN = 99
LAYOUT = Layout(cls=2, sep=3, eot=80, marks={"insertion": 81, "deletion": 82, "search": 83}, max_length=64)
PROTOCOL = st.sampled_from(["paper", "code"])
SEED = st.integers(0, 10_000)


def groups(count: int = 6, context: int = 7) -> list[SelectionGroup]:
    """Training rows 1:1; every utterance is a text of its own."""
    words = tiny.WORDS
    texts = [f"{a} {b} {c}" for a in words[:9] for b in words[9:18] for c in words[18:27]]
    size = context + 2
    made = []
    for i in range(count):
        own = texts[i * size : (i + 1) * size]
        made.append(SelectionGroup(f"train-{i}", tuple(own[:context]), tuple(own[context:]), (1, 0), "train"))
    return made


@pytest.fixture(scope="module")
def encoder():
    return add_marks(tiny.encoder(max_position_embeddings=80))


# --- what the tasks do ------------------------------------------------------------------------------------------------


@given(st.integers(2, 12), SEED)
def test_insertion_takes_the_target_out_and_its_place_is_the_right_mark(n, seed):
    made = insertion(range(n), np.random.default_rng(seed))
    restored = [*made.context[: made.target], made.second, *made.context[made.target :]]
    assert restored == list(range(n))


@given(st.integers(1, 12), SEED)
def test_deletion_marks_the_foreign_utterance(n, seed):
    made = deletion(range(n), FOREIGN, np.random.default_rng(seed))
    assert made.context[made.target] == FOREIGN and made.second is None
    assert [u for u in made.context if u != FOREIGN] == list(range(n))
    assert made.context[-1] == n - 1, "never after the last"


@given(st.integers(2, 12), SEED)
def test_search_finds_the_utterance_before_the_last(n, seed):
    made = search(range(n), np.random.default_rng(seed))
    assert made.second == n - 1 and made.context[made.target] == n - 2
    assert sorted(made.context) == list(range(n - 1))


@given(st.integers(1, 15), SEED, PROTOCOL, st.sets(st.sampled_from(TASKS)))
def test_windows_are_runs_of_the_dialogue_and_as_long_as_the_protocol_says(n, seed, protocol, chosen):
    tasks = [task for task in TASKS if task in chosen]
    made = manipulate(range(n), FOREIGN, np.random.default_rng(seed), tasks, protocol)
    assert [m.task for m in made] == (tasks if n > 1 else [])
    left = n
    for m in made:
        used = sorted(u for u in (*m.context, m.second) if u not in (FOREIGN, None))
        assert used == list(range(used[0], used[0] + len(used)))
        size = 4 if (protocol, m.task) == ("code", "deletion") else 5
        assert len(used) == min(left, size)
        if protocol == "code":
            left = len(used)
            if n > 5:
                assert n - 1 not in used, "the code never draws the last window"


def test_the_paper_draws_every_window_and_the_code_all_but_the_last():
    rng = np.random.default_rng(0)
    paper = Counter(window(range(8), 5, rng)[0] for _ in range(4000))
    code = Counter(window(range(8), 5, rng, "code")[0] for _ in range(4000))
    assert sorted(paper) == [0, 1, 2, 3] and sorted(code) == [0, 1, 2]
    assert all(abs(count / 4000 - 1 / 4) < 0.04 for count in paper.values())


def test_all_tasks_of_the_code_chain_and_single_ones_do_not():
    def sizes(*tasks):
        return [len(m.context) for m in manipulate(range(9), FOREIGN, np.random.default_rng(1), tasks, "code")]

    assert sizes("insertion", "deletion", "search") == [4, 5, 3]
    assert [sizes(task) for task in TASKS] == [[4], [5], [4]]
    assert sizes("insertion", "search") == [4, 4] and sizes("deletion", "search") == [5, 3]


def test_targets_are_uniform():
    rng = np.random.default_rng(3)
    draws = [manipulate(range(12), FOREIGN, rng) for _ in range(4000)]
    for place, count in ((0, 5), (1, 5), (2, 4)):
        found = Counter(made[place].target for made in draws)
        assert sorted(found) == list(range(count))
        assert all(abs(share / 4000 - 1 / count) < 0.03 for share in found.values())


# --- how they are written ---------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 80))
def test_trimming_in_one_go_is_trimming_token_by_token(first, second, room):
    kept = [first, second]
    while sum(kept) > room:
        kept[0 if kept[0] > kept[1] else 1] -= 1
    lost, shortened = trim(first, second, room)
    assert [first - lost, second - shortened] == kept


def pieces(*lengths: int) -> list[np.ndarray]:
    return [np.full(n, 10 + i, np.int32) for i, n in enumerate(lengths)]


def selection(layout: Layout, context: list[np.ndarray], response: np.ndarray) -> Input:
    """One input of response selection, put together part by part."""
    return layout.join([part for piece in context for part in (piece, [layout.eot])], [response, [layout.eot]])


def test_selection_closes_every_utterance_and_the_response():
    written = selection(LAYOUT, pieces(2, 1), np.array([30, 31]))
    assert written.ids.tolist() == [2, 10, 10, 80, 11, 80, 3, 30, 31, 80, 3]
    assert written.types.tolist() == [0] * 7 + [1] * 4


def test_a_long_selection_input_loses_the_oldest_words_and_fills_the_room():
    written = selection(LAYOUT, pieces(40, 40), np.array([30, 31]))
    assert len(written.ids) == 64 and written.ids[0] == 2 and written.ids[-5:].tolist() == [3, 30, 31, 80, 3]
    assert written.ids[1:-5].tolist() == [10] * 16 + [80] + [11] * 40 + [80]


@given(SEED, st.sampled_from([0, 1]), st.sampled_from([3, 25, 90]))
def test_many_selection_inputs_at_once_are_those_of_one_at_a_time(seed, segment, longest):
    """Of texts that fit, are trimmed on either side or on both, and are empty; of empty contexts and equal pairs."""
    rng, layout = np.random.default_rng(seed), replace(LAYOUT, second_segment=segment)
    texts = [rng.integers(100, 999, n) for n in (0, *rng.integers(0, longest, 9))]
    contexts = [tuple(rng.integers(0, 10, n).tolist()) for n in (0, *rng.integers(0, 6, 3))]
    pairs = [(contexts[rng.integers(4)], int(rng.integers(10))) for _ in range(20)]
    for asked in (pairs, [((), 0)], pairs[:1] * 2):
        before, after = zip(*asked)
        found = layout.selections(layout.closed(texts), before, np.array(after))
        expected = input_tokens([selection(layout, [texts[i] for i in context], texts[r]) for context, r in asked])
        for name in ("ids", "offsets", "types"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


def test_each_task_is_written_as_the_paper_shows():
    u = pieces(1, 2, 1)
    cut = np.random.default_rng(0)
    made = insertion(range(3), cut)._replace(context=[0, 2], second=1, target=1)
    written = LAYOUT.manipulation(made, [u[0], u[2], u[1]])
    assert written.ids.tolist() == [2, 81, 10, 80, 81, 12, 80, 81, 3, 11, 11, 80, 3]
    assert written.marks.tolist() == [1, 4, 7] and written.target == 1
    assert written.types.tolist() == [0] * 9 + [1] * 4
    made = made._replace(task="deletion", context=[0, 1, 2], second=None)
    written = LAYOUT.manipulation(made, u)
    assert written.ids.tolist() == [2, 82, 10, 80, 82, 11, 11, 80, 82, 12, 80, 3]
    assert written.marks.tolist() == [1, 4, 8] and not written.types.any()
    made = made._replace(task="search", context=[1, 0], second=2, target=0)
    written = LAYOUT.manipulation(made, [u[1], u[0], u[2]])
    assert written.ids.tolist() == [2, 83, 11, 11, 80, 83, 10, 80, 3, 12, 80, 3]
    assert written.marks.tolist() == [1, 5] and written.types.tolist() == [0] * 9 + [1] * 3


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12), SEED, PROTOCOL)
def test_after_trimming_the_target_is_still_the_same_utterance(lengths, seed, protocol):
    rng = np.random.default_rng(seed)
    texts = [np.r_[np.int32(1000 + i), np.full(n, 7, np.int32)] for i, n in enumerate([*lengths, 5])]
    for made in manipulate(range(len(lengths)), len(lengths), rng, TASKS, protocol):
        numbers = made.context if made.second is None else [*made.context, made.second]
        written = LAYOUT.manipulation(made, [texts[i] for i in numbers])
        cut = [texts[i][:16] for i in numbers]  # a quarter of the length
        whole = Layout(2, 3, 80, LAYOUT.marks, 4096).manipulation(made, cut)
        assert whole.target == made.target and len(whole.marks) == len(made.context) + (made.task == "insertion")
        assert len(written.ids) <= 64 and (written.ids[written.marks] == LAYOUT.marks[made.task]).all()
        behind = [item.ids[item.marks[item.target] + 1] for item in (written, whole)]
        assert behind[0] == behind[1]


@pytest.mark.parametrize("target", [0, 2, 4])
def test_an_auxiliary_input_loses_what_is_farther_from_its_target(target):
    made = deletion(range(4), 4, np.random.default_rng(0))._replace(context=list(range(5)), target=target)
    written = LAYOUT.manipulation(made, pieces(*[16] * 5))
    lost = {10 + i for i in range(5)} - set(written.ids.tolist())
    assert len(written.ids) == 64 and 10 + target not in lost
    assert lost == {0: {14}, 2: {14}, 4: {10}}[target]
    assert (written.ids == 10).sum() == {0: 16, 2: 12, 4: 0}[target], "in the middle both sides lose"


@pytest.mark.parametrize("length", [64, 512])
def test_utterances_are_cut_to_a_quarter_of_the_length_for_the_tasks_but_not_for_selection(length):
    layout = Layout(2, 3, 80, LAYOUT.marks, length)
    made = deletion([0], 1, np.random.default_rng(0))
    assert len(layout.manipulation(made, pieces(5, 300)).ids) == 1 + (1 + 5 + 1) + (1 + length // 4 + 1) + 1
    layout = Layout(2, 3, 80, LAYOUT.marks, 512)
    assert len(selection(layout, pieces(300), np.array([7])).ids) == 1 + 301 + 1 + 2 + 1


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_mark_that_stands_in_a_text_is_not_taken_for_one_of_ours(encoder):
    texts = ("book [INS] a table", "hello [DEL]", "thanks [SRCH]", "bye", "ok sure")
    rows = [SelectionGroup("a", texts, ("yes", "no"), (1, 0)), *groups(3)]
    examples = manipulation_examples(encoder, rows)
    for seed in range(20):
        batch = examples.batch(np.array([0]), np.random.default_rng(seed))
        assert batch.arrays["insertion_mask"].sum() == 5 and batch.arrays["search_mask"].sum() == 4


def test_only_positive_rows_are_manipulated_and_only_with_the_tasks_that_are_on(encoder):
    examples = manipulation_examples(encoder, groups(), tasks=("search", "insertion"))
    batch = examples.batch(np.arange(12), np.random.default_rng(0))
    assert examples.tasks == ("insertion", "search"), "the order of the paper"
    assert batch.counts == {"selection": 12, "insertion": 6, "search": 6} and len(batch.tokens["inputs"]) == 24
    assert batch.arrays["labels"].tolist() == [1, 0] * 6
    none = examples.batch(np.array([1, 3]), np.random.default_rng(0))
    assert none.counts == {"selection": 2, "insertion": 0, "search": 0} and none.arrays["search_mask"].shape == (0, 1)
    plain = manipulation_examples(encoder, groups(1), tasks=())
    assert plain.batch(np.arange(2), np.random.default_rng(0)).counts == {"selection": 2}


def test_every_visit_draws_anew_from_the_given_generator_and_changes_nothing(encoder):
    examples = manipulation_examples(encoder, groups())
    before = list(examples.contexts), [piece.copy() for piece in examples.pieces]

    def visit(seed):
        return examples.batch(np.arange(12), np.random.default_rng(seed)).tokens["inputs"].ids.tolist()

    assert visit(1) == visit(1) != visit(2)
    assert examples.contexts == before[0] and all(map(np.array_equal, examples.pieces, before[1]))


def test_the_foreign_utterance_comes_from_another_conversation_with_more_than_two_utterances(encoder):
    rows = groups(4)
    same = [SelectionGroup(f"talk#{i}", g.context, g.candidates, g.labels) for i, g in enumerate(rows[:2])]
    short = SelectionGroup("short", rows[2].context[:2], rows[2].candidates, (1, 0))
    examples = manipulation_examples(encoder, [*same, short, rows[3]], tasks=("deletion",))
    allowed = set(examples.contexts[6])
    rng = np.random.default_rng(0)
    for _ in range(50):
        (made,) = examples.draw(0, rng)
        assert made.context[made.target] in allowed
    with pytest.raises(DataError, match="fewer than 2"):
        manipulation_examples(encoder, same, tasks=("deletion",))


def test_negatives_stay_as_they_are_or_are_drawn_anew_from_other_conversations(encoder):
    fixed, redrawn = (
        manipulation_examples(encoder, groups(), tasks=(), negatives=kind) for kind in ("fixed", "redrawn")
    )

    def read(examples, seed):
        batch = examples.batch(np.arange(12), np.random.default_rng(seed))
        return [tuple(ids) for ids in batch.tokens["inputs"]]

    first, second = read(redrawn, 1), read(redrawn, 2)
    assert read(fixed, 1) == read(fixed, 2) and first[::2] == read(fixed, 1)[::2], "right responses stay"
    assert first[1::2] != second[1::2] and not set(first[1::2]) & set(read(fixed, 1))
    with pytest.raises(UnknownName, match="negatives"):
        manipulation_examples(encoder, groups(), negatives="new")


def test_rows_read_back_as_their_texts(encoder):
    (group, *_) = rows = groups()
    batch = manipulation_examples(encoder, rows).batch(np.array([0]), np.random.default_rng(0))
    said = encoder.tokenizer.decode(batch.tokens["inputs"][0])
    context = " ".join(f"{text} [EOT]" for text in group.context)
    assert said == f"[CLS] {context} [SEP] {group.candidates[0]} [EOT] [SEP]"


def test_pieces_are_bare_and_read_from_the_cache(encoder, tmp_path):
    texts = ["book a table", "", " ".join(["hotel"] * 300)]
    made = [bare_pieces(encoder, texts, cache) for cache in (None, tmp_path, tmp_path)]
    assert [len(piece) for piece in made[0]] == [3, 0, 300] and len(list(tmp_path.glob("*.safetensors"))) == 1
    assert all(np.array_equal(a, b) for other in made[1:] for a, b in zip(made[0], other, strict=True))


def test_unknown_names_and_encoders_without_marks_are_refused(encoder):
    with pytest.raises(UnknownName, match="did you mean 'deletion'"):
        manipulation_examples(encoder, groups(), tasks=("deletoin",))
    with pytest.raises(UnknownName, match="protocol"):
        manipulation_examples(encoder, groups(), protocol="clean")
    with pytest.raises(DataError, match="Selector"):
        manipulation_examples(tiny.encoder(), groups())
    assert set(MARKS) == {"eot", *TASKS}
