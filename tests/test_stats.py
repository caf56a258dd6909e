"""The numbers come out: counts of the records beside those that the papers and the makers of the data print."""

from __future__ import annotations

import json
from functools import cache

import pytest

from dialnb.cli import main
from dialnb.commands.counts import EXPECTED, count_all
from dialnb.data.corpora import collection
from dialnb.examples.pairs import consecutive_pairs, tail_quirk

AS_PRINTED = (
    *("CLINC150", "BANKING77", "ATIS", "DSTC2", "GSIM", "DialogueCSE"),
    *("MetaLWOZ", "SGD", "Frames", "WOZ2.0", "CamRest676"),
)


@pytest.fixture(scope="module")
def counts_of(mirror_store):
    """The counts of a dataset by its name, each made once."""
    return cache(lambda name: list(count_all(mirror_store, [name])))


@pytest.mark.mirror
@pytest.mark.parametrize("name", AS_PRINTED)
def test_complete_datasets_count_to_what_is_printed(counts_of, name):
    counts = counts_of(name)
    assert counts and all(count.ours == count.printed and count.where for count in counts)


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "item", "ours", "printed"),
    [
        ("MetaLWOZ", "utterances", 432_036, 432_036),
        ("SGD", "utterances", 463_284, 463_284),
        ("KVRET", "dialogues", 3_030, 3_031),
        ("SNIPS", "test, re-split of DSE", 1_446, 1_447),
        ("DSTC2", "train, samples of DiaEval", 20_130, 20_130),
        ("GSIM", "train, samples of DiaEval", 11_831, 11_831),
        ("GSIM", "test, samples of DiaEval", 6_505, 6_505),
        ("CI-ToD", "train", 1_705, 2_553),
        ("CI-ToD", "test", 318, 318),
        ("Taskmaster", "dialogues", 2_000, 13_215),
        ("MultiWOZ", "dialogues", 1_999, 10_420),
        ("MDC", "utterances", 44_967, 74_686),
    ],
)
def test_single_numbers_are_right_and_what_differs_is_explained(counts_of, name, item, ours, printed):
    found = next(count for count in counts_of(name) if count.item == item)
    assert (found.ours, found.printed) == (ours, printed)
    assert found.remark or ours == printed


@pytest.fixture(scope="module")
def together(mirror_store):
    return {count.item: count for count in count_all(mirror_store, ["tod-bert"])}


@pytest.mark.mirror
@pytest.mark.slow
def test_the_corpus_total_stands_beside_the_printed_one_with_the_share_present(together):
    assert (together["dialogues"].ours, together["dialogues"].printed) == (76_967, 100_707)
    assert (together["utterances"].ours, together["utterances"].printed) == (1_044_671, 1_388_152)
    assert "76.4%" in together["dialogues"].remark and "75.3%" in together["utterances"].remark


@pytest.mark.mirror
@pytest.mark.slow
def test_the_pairs_of_dse_extrapolate_to_the_printed_number(together):
    pairs = {item: count for item, count in together.items() if item.startswith("pairs")}
    assert [count.ours for count in pairs.values()][:2] == [719_137, 651_418]
    assert {count.printed for count in pairs.values()} == {892_835}
    assert pairs["pairs, extrapolated"].ours == pytest.approx(892_835, rel=0.01)
    assert (together["unique sentences"].ours, together["unique sentences"].printed) == (695_782, 879_185)


@pytest.mark.mirror
@pytest.mark.slow
def test_the_most_frequent_utterances_stand_beside_those_of_wmdc(together):
    printed = {item: count for item, count in together.items() if count.where == "WMDC T5"}
    assert list(printed)[:2] == ['"yes."', '"yes"'] and len(printed) == 10
    assert all(0 < count.ours <= count.printed for count in printed.values())
    assert printed['"anything else?"'].ours == 1_541


def test_what_is_not_at_hand_is_said_and_is_no_failure(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path))  # other tests may have read a mirror into theirs
    assert main(["data", "stats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["dataset"] for row in rows] == list(EXPECTED)
    assert all(row["remark"].startswith("not available: ") and row["ours"] is None for row in rows)


def test_a_named_dataset_that_is_missing_is_a_failure(capsys, monkeypatch):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    assert main(["data", "stats", "ATIS"]) == 1
    assert "ATIS" in capsys.readouterr().err


def test_a_dataset_without_published_counts_is_answered_with_the_nearest_one(capsys):
    assert main(["data", "stats", "MetaLWOS"]) == 2
    assert "did you mean 'MetaLWOZ'" in capsys.readouterr().err


def test_the_nine_corpora_are_all_counted():
    nine = collection("todbert")
    assert len(nine) == 9 and {part.dataset for part in nine} < set(EXPECTED)


HELLO, TABLE, ELSE, WINE, NO, BYE = "hello", "a table please", "anything else?", "some wine", "no thanks", "goodbye"


def test_tail_quirk_loses_opening_and_closing_system_lines():
    assert tail_quirk([HELLO, TABLE, ELSE, NO, BYE], system_opens=True) == [TABLE, ELSE, NO]
    assert tail_quirk([TABLE, ELSE, NO, BYE], system_opens=False) == [TABLE, ELSE, NO]


def test_tail_quirk_loses_the_last_exchange_if_its_system_line_was_said_before():
    assert tail_quirk([TABLE, ELSE, WINE, ELSE, NO], system_opens=False) == [TABLE, ELSE, WINE]


def test_tail_quirk_keeps_a_single_exchange_and_survives_shorter_dialogues():
    assert tail_quirk([HELLO, TABLE], system_opens=True) == [HELLO, TABLE]
    assert tail_quirk([TABLE], system_opens=False) == [TABLE]
    assert tail_quirk([HELLO], system_opens=True) == [] == tail_quirk([], system_opens=False)


def test_pairs_need_more_than_three_words_on_both_sides():
    said = ["i want a cheap hotel", "where would you like it", "in the north", "how many nights then please"]
    assert consecutive_pairs([said]) == [(said[0], said[1])]
