"""Response selection: the public row format, DSTC7, Ubuntu IRC and the sets built from it, DialogueCSE's files."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from handmade import read, read_part, splits, store_with, zipped

from dialnb.data.readers import get_reader
from dialnb.data.readers.irc import (
    build_selection,
    merge_turns,
    read_conversations,
    read_message,
    strip_addressees,
    thread,
)
from dialnb.data.readers.selection import (
    in_runs,
    in_tens,
    matching_groups,
    retrieval_queries,
    selection_groups,
    selection_rows,
)
from dialnb.data.records import Dialogue, MatchingGroup, SelectionGroup, Utterance
from dialnb.errors import DataError


def ten(context: str, positive: int = 0) -> str:
    """Ten candidate rows of one context."""
    return "".join(f"{int(number == positive)}\t{context}\tanswer {number}\n" for number in range(10))


def groups(text: str, gather=in_tens, positive_first: bool = True) -> list[SelectionGroup]:
    def records(files):
        rows = selection_rows(files, "test.txt", text.encode())
        yield from selection_groups(gather(rows), "test", positive_first)

    return read_part(records)[0]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_ten_rows_of_one_context_are_one_group():
    first, second = groups(ten("hi\thow are you") + ten("hello"))
    assert first.context == ("hi", "how are you")
    assert first.candidates[:2] == ("answer 0", "answer 1")
    assert first.labels == (1,) + (0,) * 9
    assert second.context == ("hello",)


def test_a_positive_that_is_not_first_is_refused_only_where_the_corpus_lists_it_first():
    assert groups(ten("hi", positive=3), positive_first=False)[0].labels[3] == 1
    with pytest.raises(DataError, match=r"test.txt line 1: expected one positive, listed first"):
        groups(ten("hi", positive=3))


def test_groups_that_mix_contexts_or_stop_short_are_refused():
    with pytest.raises(DataError, match=r"test.txt line 10: another context than test.txt line 1"):
        groups("\n".join(ten("hi").splitlines()[:9]) + "\n" + ten("hello"))
    with pytest.raises(DataError, match=r"line 11: the last group has 1 candidates, expected 10"):
        groups(ten("hi") + "1\thello\tthere")


def test_training_rows_pair_a_positive_with_its_negative_even_when_contexts_repeat():
    made = groups("1\thi\tyes\n0\thi\tno\n1\thi\tsure\n0\thi\tnever\n1\tbye\tbye\n", in_runs)
    assert [(group.candidates, group.labels) for group in made] == [
        (("yes", "no"), (1, 0)),
        (("sure", "never"), (1, 0)),
        (("bye",), (1,)),
    ]


@pytest.mark.parametrize("line", ["2\thi\tyes", "1\tyes", "1\t \tyes", "hello"])
def test_a_malformed_row_is_named_by_file_and_line(line):
    with pytest.raises(DataError, match=r"malformed row at test.txt line 2"):
        groups(f"1\thi\tyes\n{line}\n", in_runs)


def test_empty_context_utterances_are_counted():
    (only,), skipped = read_part(selection_rows, "train.txt", b"1\thi\t\tyou\tyes\n\n")
    assert only.context == ("hi", "you")
    assert skipped == {"empty utterance in a context": 1, "blank line": 1}


def test_ubuntu_v1_is_read_from_its_archive(tmp_path):
    archive = zipped(train__txt="1\ta\tb\n0\ta\tc\n", valid__txt=ten("v"), test__txt=ten("t"))
    records, _ = read(store_with(tmp_path, "Ubuntu-V1", {"ubuntu_data.zip": archive}), "Ubuntu-V1")
    assert splits(records) == {"train": 1, "dev": 1, "test": 1}


def test_douban_test_contexts_may_have_any_number_of_positives_anywhere(tmp_path):
    test = ten("q", positive=4).replace("0\tq\tanswer 7", "1\tq\tanswer 7")
    archive = zipped(train__txt="1\ta\tb\n0\ta\tc\n", dev__txt="1\ta\tb\n0\ta\tc\n", test__txt=test)
    records, _ = read(store_with(tmp_path, "Douban", {"DoubanConversaionCorpus.zip": archive}), "Douban", "official")
    assert splits(records) == {"dev": 1, "test": 1, "train": 1}
    assert sum(next(item for item in records if item.split == "test").labels) == 2


def test_official_e_commerce_is_read_from_an_archive_fetched_by_hand(tmp_path):
    archive = zipped(train__txt="1\ta\tb\tc\td\n0\ta\tb\tc\te\n", test__txt=ten("t"))
    store = store_with(tmp_path, "E-commerce", {"E_commerce_dataset.zip": archive})
    assert splits(read(store, "E-commerce", "official")[0]) == {"train": 1, "test": 1}
    (session,), skipped = read(store, "E-commerce", "official-sessions")
    assert [(turn.speaker, turn.text) for turn in session.utterances] == [
        ("user", "a"),
        ("system", "b"),
        ("user", "c"),
        ("system", "d"),
    ]
    assert skipped == {"session of fewer than 4 turns": 1}


def test_dstc7_answers_of_the_test_set_come_from_their_own_file(tmp_path):
    def example(split: str, number: int) -> dict:
        return {
            "data-split": split,
            "example-id": number,
            "messages-so-far": [{"speaker": "participant_1", "utterance": "help"}, {"utterance": "with what"}],
            "options-for-correct-answers": [{"candidate-id": "B", "utterance": "b"}] if split != "test" else [],
            "options-for-next": [{"candidate-id": name, "utterance": name.lower()} for name in "ABC"],
        }

    files = {
        "ubuntu_train_subtask_1.json": json.dumps([example("train", 1)]),
        "ubuntu_dev_subtask_1.json": json.dumps([example("dev", 1)]),
        "ubuntu_test_subtask_1.json": json.dumps([example("test", 7)]),
        "ubuntu_responses_subtask_1.tsv": "7\tC\tc\n",
    }
    records, _ = read(store_with(tmp_path, "DSTC7-Ubuntu", files), "DSTC7-Ubuntu")
    assert {item.split: item.labels for item in records} == {"train": (0, 1, 0), "dev": (0, 1, 0), "test": (0, 0, 1)}
    assert records[0].context == ("help", "with what")


def test_a_dstc7_answer_that_is_not_a_candidate_is_an_error(tmp_path):
    example = {"example-id": 7, "messages-so-far": [], "options-for-next": [{"candidate-id": "A", "utterance": "a"}]}
    files = {
        "ubuntu_train_subtask_1.json": "[]",
        "ubuntu_dev_subtask_1.json": "[]",
        "ubuntu_test_subtask_1.json": json.dumps([example]),
        "ubuntu_responses_subtask_1.tsv": "7\tC\tc\n",
    }
    with pytest.raises(DataError, match=r"ubuntu_test_subtask_1.json example 0: the right answer of example 7"):
        read(store_with(tmp_path, "DSTC7-Ubuntu", files), "DSTC7-Ubuntu")


# -- Ubuntu IRC --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[12:18] <|trey|> quite stable  :)", Utterance("|trey|", "quite stable  :)")),
        ("[13:16]  * krycek giggles", Utterance("krycek", "giggles")),
        ("=== usual [~u@host]  has joined #ubuntu", "system line"),
        ("[07:24] <lokita>", "empty message"),
        ("[07:09]  * homejoe", "empty message"),
        ("[01:26] -spammer:#ubuntu- buy this", "notice"),
    ],
)
def test_a_log_line_is_a_message_or_the_reason_why_it_is_none(line, expected):
    assert read_message(line) == expected


def test_a_log_line_of_no_known_form_is_an_error():
    with pytest.raises(ValueError, match="neither a message"):
        read_message("hello?")


def test_conversations_gather_lines_by_number_and_count_the_rest():
    log = [Utterance("a", "one"), "system line", Utterance("b", "two"), Utterance("c", "x")]
    made, skipped = read_part(read_conversations, "gold", b"log:0 2\nlog:1\n", "dev", {"log": log})
    assert made == [Dialogue("log:0", (Utterance("a", "one"), Utterance("b", "two")), split="dev")]
    assert skipped == {"system line": 1, "conversation without a message": 1, "line without annotation": 1}
    with pytest.raises(DataError, match="gold line 1: no field 'other'"):
        read_part(read_conversations, "gold", b"other:0", "dev", {"log": log})


def test_messages_in_a_row_are_merged_and_the_name_of_the_addressee_goes():
    said = [("ann", "bob: hi"), ("ann", "bobby, look"), ("bob", "Ann, yes"), ("ann", "bob:"), ("bob", "ok")]
    dialogue = Dialogue("x", tuple(Utterance(*item) for item in said))
    assert [item.text for item in merge_turns(dialogue).utterances][:2] == ["bob: hi bobby, look", "Ann, yes"]
    turns = merge_turns(strip_addressees(dialogue)).utterances
    assert [(item.speaker, item.text) for item in turns] == [("ann", "hi bobby, look"), ("bob", "yes ok")]


def conversation(name: str, length: int, split: str = "test") -> Dialogue:
    return Dialogue(name, tuple(Utterance("ab"[n % 2], f"{name} says {n}") for n in range(length)), split=split)


def test_built_groups_list_the_true_response_first_and_draw_negatives_from_other_conversations():
    made = list(build_selection([conversation(name, 6) for name in "pqrst"], 10, np.random.default_rng(0)))
    assert len(made) == 5 * 4
    for group in made:
        name, place = group.id.split("#")
        assert group.candidates[0] == f"{name} says {place}"
        assert group.context == tuple(f"{name} says {n}" for n in range(int(place)))
        assert group.labels == (1,) + (0,) * 9
        assert not any(text.startswith(name) for text in group.candidates[1:])
        assert len(set(group.candidates)) == 10


def test_no_negative_reads_like_the_true_response():
    same = [
        Dialogue(name, (Utterance("a", "q"), Utterance("b", "r"), Utterance("a", text)))
        for name, text in zip("pqrs", ["Thanks", "thanks ", "THANKS", "no"])
    ]
    made = {group.id: group for group in build_selection(same, 2, np.random.default_rng(0))}
    assert all(made[f"{name}#2"].candidates[1] == "no" for name in "pqr")


def test_equal_seeds_give_equal_groups_and_other_seeds_do_not():
    corpus = [conversation(name, 6) for name in "pqrstuvw"]
    first, again, other = (list(build_selection(corpus, 5, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_conversations_of_two_splits_are_never_mixed():
    with pytest.raises(DataError, match="must not mix splits"):
        list(build_selection([conversation("p", 4), conversation("q", 4, "train")], 2, np.random.default_rng(0)))


def test_too_few_other_responses_are_an_error():
    with pytest.raises(DataError, match="9 negatives wanted, but the other conversations have only 2"):
        list(build_selection([conversation("p", 4), conversation("q", 4)], 10, np.random.default_rng(0)))


def test_ubuntu_irc_counts(mirror_store):
    conversations, skipped = read(mirror_store, "UbuntuIRC")
    assert splits(conversations) == {"train": 9229, "dev": 329, "test": 583}
    assert len(conversations) + skipped["conversation without a message"] == 17267 + 494 + 961
    said = sum(len(item.utterances) for item in conversations)
    counted = sum(skipped[reason] for reason in ("system line", "empty message", "line without annotation"))
    assert said + counted == 220463 + 12500 + 15000


def test_all_log_lines_are_there_for_language_modelling(mirror_store):
    logs, skipped = read(mirror_store, "UbuntuIRC", "lines")
    assert splits(logs) == {"train": 153, "dev": 10, "test": 10}
    assert sum(len(item.utterances) for item in logs) + sum(skipped.values()) == 247963


@pytest.fixture(scope="module")
def built(mirror_store) -> list[SelectionGroup]:
    """The sets of ten candidates, built once for the tests that look at them."""
    return read(mirror_store, "UbuntuIRC", "selection-10")[0]


def test_ubuntu_irc_selection_sets(built):
    sizes = Counter((item.split, len(item.candidates)) for item in built)
    assert sizes == {("train", 2): 30095, ("dev", 10): 1213, ("test", 10): 2342}
    conversations = {split: {item.id.split("#")[0] for item in built if item.split == split} for split, _ in sizes}
    assert len(set().union(*conversations.values())) == sum(map(len, conversations.values()))
    for item in built:
        assert item.labels == (1,) + (0,) * (len(item.candidates) - 1)
        assert item.candidates[0].casefold() not in [text.casefold() for text in item.candidates[1:]]
        assert len(item.context) >= 2


def test_hundred_candidates_on_the_same_test_contexts(mirror_store, built):
    hundred, _ = read(mirror_store, "UbuntuIRC", "selection-100")
    assert [item.id for item in hundred] == [item.id for item in built if item.split != "train"]
    assert {len(set(item.candidates)) for item in hundred} == {100}


def test_e_commerce_and_douban_samples(mirror_store):
    records, _ = read(mirror_store, "E-commerce")
    assert Counter((item.split, item.labels) for item in records) == {
        ("train", (1, 0)): 77,
        ("dev", (1, 0)): 77,
        ("test", (1,) + (0,) * 9): 100,
    }
    sessions, skipped = read(mirror_store, "E-commerce", "sessions")
    assert len(sessions) + skipped["session of fewer than 4 turns"] == len(records)
    assert min(len(item.utterances) for item in sessions) == 4
    assert sessions[0].utterances[-1] == Utterance("system", "发邮政的哦")
    assert [item.labels for item in read(mirror_store, "Douban")[0]] == [(1, 0)] * 57


# -- DialogueCSE -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("corpus", "dev", "test"), [("ecd", 2373, 4243), ("jddc", 2094, 6970)])
def test_dialoguecse_retrieval_pools(mirror_store, corpus, dev, test):
    records, _ = read(mirror_store, "DialogueCSE", f"{corpus}-select")
    assert splits(records) == {"dev": dev, "test": test}
    pools = Counter((len(item.positives), len(item.negatives)) for item in records if item.split == "dev")
    assert pools == {(30, 40): dev}
    tests = [item for item in records if item.split == "test"]
    if corpus == "ecd":
        assert {(len(item.positives), len(item.negatives)) for item in tests} == {(30, 40)}
        assert {item.intent for item in tests} == {""}
    else:
        assert np.mean([len(item.positives) for item in tests]) == pytest.approx(29.2, abs=0.05)
        assert np.mean([len(item.negatives) for item in tests]) == pytest.approx(38.9, abs=0.05)


@pytest.mark.parametrize(("corpus", "dev", "test"), [("ecd", 500, 1000), ("jddc", 1000, 2000)])
def test_dialoguecse_similarity_pairs(mirror_store, corpus, dev, test):
    records, _ = read(mirror_store, "DialogueCSE", f"{corpus}-sts")
    assert splits(records) == {"dev": dev, "test": test}
    assert {item.score for item in records} == {1, 2, 3, 4, 5}


def test_dialoguecse_training_sample(mirror_store):
    records, _ = read(mirror_store, "DialogueCSE", "ecd-train")
    assert len(records) == 1000
    assert {(len(item.candidates), item.labels.index(1), sum(item.labels)) for item in records} == {(50, 0, 1)}
    assert all(item.before and item.after for item in records)


def test_a_training_row_has_both_sides_and_its_candidates():
    line = "a|b\tc\t1|0-1-0\t1\tyes|no|never\t1|0|0"
    assert list(matching_groups([line])) == [MatchingGroup(("a", "b"), ("c",), ("yes", "no", "never"), (1, 0, 0))]


def test_a_candidate_that_is_listed_twice_counts_once():
    good = "0\ta\t\t1\t2\n1\tb\t\t0,0\t2\n"
    records, skipped = read_part(retrieval_queries, "f", f"{good}2\tc\t\t0\t1\n".encode(), "dev")
    assert [item.positives for item in records] == [(1,), (0,), (0,)]
    assert skipped == {"candidate listed twice": 1}


def test_unknown_variants_are_answered_with_the_known_ones():
    with pytest.raises(Exception, match="selection-100"):
        get_reader("UbuntuIRC").variant("selection-1000")


def test_lines_without_annotation_become_conversations_of_two_by_the_names_that_open_them():
    said = ["ann: my sound is gone", "cat: anyone with kde?", "bob: ann: which card?", "ann: an old one", "annotated"]
    said += ["dan: cat, yes", "cat: dan: good", "eve: hello", "bob: ann, then try alsa"]
    log = [Utterance(*line.split(": ", 1)) if ": " in line else line for line in said]
    found = {talk.id: [item.text for item in talk.utterances] for talk in thread("2005-01-01", log)}
    assert found == {
        "2005-01-01~0": ["my sound is gone", "ann: which card?", "an old one", "ann, then try alsa"],
        "2005-01-01~1": ["anyone with kde?", "cat, yes", "dan: good"],
    }
    far = [log[0], *["notice"] * 200, log[2]]
    assert [len(talk.utterances) for talk in thread("2005-01-01", far)] == [1], "too long ago to be what is answered"
