"""Sentence pairs, inference and question answering: public counts, and public formats on hand-made files."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from handmade import read, read_part, splits, store_with, zipped

from dialnb.data.readers import Files
from dialnb.data.readers.pairs import judged_replies, question_answers
from dialnb.data.records import InferenceItem, QuestionAnswer
from dialnb.errors import DataError, Offline
from dialnb.studies.tasks import nli_triples


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_sts_b_counts(mirror_store):
    records, _ = read(mirror_store, "STS-B")
    assert splits(records) == {"train": 5749, "dev": 1500, "test": 1379}
    assert min(item.score for item in records) == 0
    assert max(item.score for item in records) == 5
    assert all(item.first and item.second for item in records)


def test_anli_copies_are_the_dev_sets_of_three_rounds(mirror_store):
    records, _ = read(mirror_store, "ANLI")
    assert Counter(item.id[:2] for item in records) == {"R1": 1000, "R2": 1000, "R3": 1200}
    assert splits(records) == {"dev": 3200}
    assert {item.label for item in records} == {"entailment", "neutral", "contradiction"}


def test_snli_leaves_out_pairs_without_a_gold_label(tmp_path):
    row = {"pairID": "4#1", "sentence1": "a man sleeps", "sentence2": "a person rests", "gold_label": "entailment"}
    text = lines(row, {**row, "gold_label": "-"})
    archive = zipped(snli_1__0_train__jsonl=text, snli_1__0_dev__jsonl=text, snli_1__0_test__jsonl=text)
    records, skipped = read(store_with(tmp_path, "SNLI", {"snli_1.0.zip": archive}), "SNLI", "official")
    assert splits(records) == {"train": 1, "dev": 1, "test": 1}
    assert records[0] == InferenceItem("4#1", ("a man sleeps", "a person rests"), "entailment", "train")
    assert skipped == {"annotators did not agree on a label": 3}


def test_snli_copies_are_parts_of_dev_and_test(mirror_store, every_mirror):
    records, skipped = read(mirror_store, "SNLI")
    assert splits(records) == {"dev": 1273, "test": 1254} and sum(skipped.values()) == 39
    assert len(nli_triples(records)) > 700


def test_sick_has_labels(mirror_store, every_mirror):
    items, _ = read(mirror_store, "SICK")
    assert splits(items) == {"train": 4500, "dev": 500, "test": 4927}
    assert Counter(item.label for item in items) == {"neutral": 5611, "entailment": 2857, "contradiction": 1459}


def test_dialogue_nli_files_are_json_lists_with_labels_of_their_own(tmp_path):
    rows = [
        {"id": f"d{number}", "label": label, "sentence1": "i am 22", "sentence2": "i am twenty two", "dtype": "x"}
        for number, label in enumerate(("positive", "neutral", "negative"))
    ]
    text = json.dumps(rows)
    archive = zipped(
        dialogue_nli_train__jsonl=text,
        dialogue_nli_dev__jsonl=text,
        dialogue_nli_test__jsonl=text,
    )
    records, _ = read(store_with(tmp_path, "Dialogue-NLI", {"dnli.zip": archive}), "Dialogue-NLI")
    assert [item.label for item in records[:3]] == ["entailment", "neutral", "contradiction"]
    assert splits(records) == {"train": 3, "dev": 3, "test": 3}


def test_an_unknown_label_is_named_by_file_and_line(tmp_path):
    good = {"pairID": "1", "sentence1": "p", "sentence2": "h", "gold_label": "neutral"}
    archive = zipped(snli_1__0_train__jsonl=lines(good, {**good, "gold_label": "maybe"}))
    with pytest.raises(DataError, match=r"snli_1.0_train.jsonl line 2: label 'maybe', expected one of"):
        read(store_with(tmp_path, "SNLI", {"snli_1.0.zip": archive}), "SNLI", "official")


def test_a_row_without_a_field_is_named_by_file_and_line(tmp_path):
    archive = zipped(snli_1__0_train__jsonl=lines({"pairID": "1", "sentence1": "p", "gold_label": "neutral"}))
    with pytest.raises(DataError, match=r"snli_1.0_train.jsonl line 1: no field 'sentence2'"):
        read(store_with(tmp_path, "SNLI", {"snli_1.0.zip": archive}), "SNLI", "official")


def test_amazonqa_counts(mirror_store):
    records, skipped = read(mirror_store, "AmazonQA")
    assert Counter(item.category for item in records) == {"Appliances": 9011, "Video Games": 13307}
    assert not skipped


def test_amazonqa_rows_are_python_literals():
    rows = b"{'question': \"Is it mum's?\", 'answer': 'Yes'}\n{'question': 'Why?', 'answer': ' '}\n"
    records, skipped = read_part(question_answers, "qa_Home_and_Kitchen.json.gz", rows)
    assert records == [QuestionAnswer("Is it mum's?", "Yes", "Home and Kitchen")]
    assert skipped == {"empty question or answer": 1}


@pytest.mark.parametrize("line", [b"{'question': ", b"{'question': 'a'}", b"print('x')", b"[1]"])
def test_amazonqa_rows_that_are_not_such_literals_are_refused(line):
    with pytest.raises(DataError, match=r"malformed row at qa_Baby.json.gz line 1"):
        read_part(question_answers, "qa_Baby.json.gz", line)


def test_all_categories_of_amazonqa_are_wanted_from_the_official_source(mirror_store):
    with pytest.raises(Offline, match=r"qa_Arts_Crafts_and_Sewing.json.gz"):
        read(mirror_store, "AmazonQA", "official")


def test_ci_tod_counts_and_labels(mirror_store):
    records, _ = read(mirror_store, "CI-ToD")
    assert splits(records) == {"dev": 319, "test": 318, "train": 1705}
    assert Counter(item.label for item in records if item.split == "test") == {"0": 162, "1": 156}
    assert len({item.id for item in records}) == len(records)


def test_a_contradiction_of_query_or_history_is_the_label_and_the_knowledge_base_is_not():
    def dialogue(**labels: str) -> dict:
        said = [{"turn": "driver", "utterance": "q"}, {"turn": "assistant", "utterance": "a"}]
        return {"id": 1, "dialogue": said, "scenario": {"kb": {}, "qi": "0", "hi": "0", "kbi": "0", **labels}}

    text = json.dumps([dialogue(), dialogue(qi="1"), dialogue(hi="1"), dialogue(kbi="1")])
    records, _ = read_part(judged_replies, "data/weather_new_train.json", text.encode())
    assert [item.label for item in records] == ["0", "1", "1", "0"]
    assert records[0] == InferenceItem("weather_new-train-0", ("q", "a"), "0", "train")


def test_a_ci_tod_label_that_is_neither_0_nor_1_is_an_error():
    text = json.dumps([{"id": 1, "dialogue": [], "scenario": {"qi": "?", "hi": "0"}}])
    with pytest.raises(DataError, match=r"weather_new_train.json dialogue 0: labels"):
        read_part(judged_replies, "data/weather_new_train.json", text.encode())


def test_decode_has_a_test_set_of_people_with_bots(mirror_store):
    records, _ = read(mirror_store, "DECODE")
    assert Counter(item.label for item in records) == {"0": 382, "1": 382}
    assert splits(records) == {"test": len(records)}


def test_decode_main_files_have_the_format_of_the_test_sets(tmp_path):
    row = {
        "record_id": "r1",
        "turns": [{"turn_id": 1, "agent_id": 1, "text": "second"}, {"turn_id": 0, "agent_id": 0, "text": "first"}],
        "is_contradiction": True,
        "aggregated_contradiction_indices": [0, 1],
    }
    text = lines(row, {**row, "is_contradiction": False})
    archive = zipped(train__jsonl=text, dev__jsonl=text, test__jsonl=text)
    records, _ = read(store_with(tmp_path, "DECODE", {"decode_v0.1.zip": archive}), "DECODE", "main")
    assert splits(records) == {"train": 2, "dev": 2, "test": 2}
    assert records[0] == InferenceItem("r1", ("first", "second"), "1", "train")
    assert records[1].label == "0"


def test_a_table_must_have_its_columns_and_whole_rows():
    def table(data: bytes, *fields: str) -> list:
        return read_part(Files.table, "t.csv", data, fields)[0]

    assert table(b'a,b\n1,"x\ny"\n', "a") == [{"a": "1", "b": "x\ny"}]
    with pytest.raises(DataError, match=r"t.csv line 1: no column c; found a, b"):
        table(b"a,b\n", "c")
    with pytest.raises(DataError, match=r"t.csv line 3: 1 columns, expected 2"):
        table(b"a,b\n1,2\n3\n", "a")
