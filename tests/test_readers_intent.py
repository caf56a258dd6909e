"""Labelled utterances: slot spans, counts of the public files, and the papers' own re-splits."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from handmade import read, read_part, splits, store_with
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data.readers.intents import dse_rows, head_and_tail, tadse_rows
from dialnb.data.readers.spans import bracketed, chunked, plain_to_bio, tagged
from dialnb.data.records import IntentUtterance, Slot
from dialnb.errors import DataError, Offline

NAMES = st.sampled_from(["city", "fromloc.city_name", "date"])
WORDS = st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters="[]:"), min_size=1, max_size=6)


def spans_fit(text: str, slots: tuple[Slot, ...]) -> bool:
    return all(text[slot.start : slot.end] == slot.value and slot.value for slot in slots)


@given(st.lists(st.tuples(WORDS, st.one_of(st.just("O"), st.tuples(st.sampled_from("BI"), NAMES).map("-".join)))))
def test_every_bio_slot_is_the_text_between_its_offsets(pairs):
    tokens, tags = [token for token, _ in pairs], [tag for _, tag in pairs]
    text, slots = tagged(tokens, tags)
    assert text == " ".join(tokens)
    assert spans_fit(text, slots)
    assert sum(len(slot.value.split(" ")) for slot in slots) == sum(tag != "O" for tag in tags)


@given(st.lists(st.one_of(WORDS, st.tuples(NAMES, st.lists(WORDS, min_size=1, max_size=3).map(" ".join)))))
def test_every_bracketed_slot_is_the_text_between_its_offsets(pieces):
    markup = "  ".join(piece if isinstance(piece, str) else f"[{piece[0]} : {piece[1]}]" for piece in pieces)
    text, slots = bracketed(markup)
    assert text == " ".join(piece if isinstance(piece, str) else piece[1] for piece in pieces)
    assert spans_fit(text, slots)
    assert [(slot.name, slot.value) for slot in slots] == [piece for piece in pieces if not isinstance(piece, str)]


@given(st.lists(st.fixed_dictionaries({"text": st.text(max_size=8)}, optional={"entity": NAMES})))
def test_every_chunk_slot_is_the_text_between_its_offsets(chunks):
    text, slots = chunked(chunks)
    assert text == "".join(chunk["text"] for chunk in chunks)
    assert spans_fit(text, slots)
    assert len(slots) == sum("entity" in chunk and bool(chunk["text"]) for chunk in chunks)


def test_a_second_begin_tag_starts_a_second_slot_and_a_stray_inside_tag_opens_one():
    _, slots = tagged(["a", "b", "c", "d"], ["B-x", "B-x", "O", "I-x"])
    assert [slot.value for slot in slots] == ["a", "b", "d"]


def test_neighbouring_plain_labels_are_one_slot():
    bio = plain_to_bio(["O", "name", "name", "O", "name", "city"])
    assert bio == ["O", "B-name", "I-name", "O", "B-name", "B-city"]


@pytest.mark.parametrize("markup", ["[date : today", "to]day", "[date : ]", "[ : today]"])
def test_broken_brackets_are_refused(markup):
    with pytest.raises(ValueError, match=r"bracket|slot without"):
        bracketed(markup)


def test_the_re_split_keeps_file_order_and_rounds_the_training_share_up():
    rows = [IntentUtterance(f"{intent}{number}", intent) for number in range(15) for intent in "ab"]
    made = list(head_and_tail(rows, 90))
    assert [item.text for item in made if item.split == "test"] == ["a14", "b14"]
    assert splits(made) == {"train": 28, "test": 2}


# -- the public files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "train", "train_oos"), [("full", 15000, 100), ("plus", 15000, 250), ("small", 7500, 100)]
)
def test_clinc150_counts(mirror_store, variant, train, train_oos):
    records, _ = read(mirror_store, "CLINC150", variant)
    assert splits([item for item in records if item.intent != "oos"]) == {"train": train, "dev": 3000, "test": 4500}
    assert splits([item for item in records if item.intent == "oos"]) == {"train": train_oos, "dev": 100, "test": 1000}
    assert len({item.intent for item in records}) == 151
    assert len({item.domain for item in records}) == 10 + 1


def test_banking77_counts(mirror_store):
    records, _ = read(mirror_store, "BANKING77")
    assert splits(records) == {"train": 10003, "test": 3080}
    assert len({item.intent for item in records}) == 77


def test_snips_is_three_datasets(mirror_store):
    slots, original, dse = (read(mirror_store, "SNIPS", variant)[0] for variant in ("slots", "original", "dse"))
    assert splits(slots) == {"train": 13084, "dev": 700, "test": 700}
    assert splits(original) == {"train": 13784, "test": 700}
    assert splits(dse) == {"train": 13038, "test": 1446}
    for records in (slots, original, dse):
        assert len({item.intent for item in records}) == 7
        assert len({slot.name for item in records for slot in item.slots}) == 39
        assert all(spans_fit(item.text, item.slots) for item in records)
    songs = [item.text for item in original if item.intent == "PlayMusic"]
    assert "Play Clásicos del Hip Hop Español" in songs
    assert not any("Ã" in text for text in songs)


def test_the_original_snips_files_hold_the_templates_and_values_that_tadse_counts(mirror_store):
    train = [item for item in read(mirror_store, "SNIPS", "original")[0] if item.split == "train"]
    assert len({slot.value for item in train for slot in item.slots}) == 11928
    templates = set()
    for item in train:
        ends = [0, *(slot.end for slot in item.slots)]
        starts = [*(slot.start for slot in item.slots), None]
        templates.add("{SLOT}".join(item.text[end:start] for end, start in zip(ends, starts)))
    assert len(templates) == 7437


def test_atis_keeps_compound_labels(mirror_store):
    records, _ = read(mirror_store, "ATIS")
    assert splits(records) == {"train": 4478, "dev": 500, "test": 893}
    assert len({item.intent for item in records}) == 26
    assert "atis_airline#atis_flight_no" in {item.intent for item in records}
    assert len({slot.name for item in records for slot in item.slots}) == 83
    assert all(spans_fit(item.text, item.slots) for item in records)


def test_hwu64_standard_and_annotated_counts(mirror_store):
    standard, annotated = (read(mirror_store, "HWU64", variant)[0] for variant in ("standard", "annotated"))
    assert splits(standard) == {"train": 8954, "dev": 1076, "test": 1076}
    assert splits(annotated) == {"train": 9960, "test": 1076}
    for records in (standard, annotated):
        assert len({item.intent for item in records}) == 64
    assert len({slot.name for item in annotated for slot in item.slots}) == 54
    assert all(spans_fit(item.text, item.slots) for item in annotated)


def test_hwu64_as_dse_reads_it_falls_short_of_the_printed_3853_test_rows(mirror_store):
    records, skipped = read(mirror_store, "HWU64", "dse")
    assert splits(records) == {"train": 9374, "test": 1628}
    assert skipped == {"no raw answer": 34}
    assert len({item.intent for item in records}) == 64


def test_hwu64_as_tadse_reads_it_tests_on_the_standard_list_with_slots(mirror_store):
    records, skipped = read(mirror_store, "HWU64", "tadse")
    assert splits(records) == {"train": 8953, "dev": 1006, "test": 1076}  # the dev list repeats 70 utterances
    assert skipped == {"repeats an utterance of the dev or test list": 1}
    assert sum(bool(item.slots) for item in records if item.split == "test") == 629


def test_massive_counts_and_borrowed_slots(mirror_store):
    intents, joined, slurp = (read(mirror_store, "MASSIVE", variant)[0] for variant in ("intents", "joined", "slurp"))
    assert splits(intents) == splits(joined) == {"train": 11510, "test": 2974}
    assert [(item.text, item.intent) for item in intents] == [(item.text, item.intent) for item in joined]
    assert splits([item for item in joined if item.slots]) == {"train": 3147, "test": 1833}
    assert splits(slurp) == {"dev": 2033, "test": 2974}
    assert {item.intent for item in intents} < {item.intent for item in slurp}
    assert len({item.intent for item in slurp}) == 60
    assert all(spans_fit(item.text, item.slots) for item in joined + slurp)


def test_multidogo_counts(mirror_store):
    records, skipped = read(mirror_store, "MultiDoGO")
    assert splits(records) == {"train": 81616, "dev": 11578, "test": 23326}
    assert skipped == {"empty utterance": 77}
    assert len({item.domain for item in records}) == 6
    assert all(spans_fit(item.text, item.slots) for item in records)
    broken = next(item for item in records if item.text == "hamburg ny to perth amboy nj")
    assert [slot.value for slot in broken.slots] == ["hamburg ny", "perth amboy nj"]


# -- files that cannot be had without asking, and rows that are wrong -------------------------------------------------


def test_official_massive_is_read_from_its_release(tmp_path):
    row = {
        "id": "1", "locale": "en-US", "partition": "dev", "scenario": "alarm", "intent": "alarm_set",
        "utt": "wake me up at nine am", "annot_utt": "wake me up at [time : nine am]",
    }  # fmt: skip
    buffer, data = io.BytesIO(), json.dumps(row).encode()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("1.0/data/en-US.jsonl")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    store = store_with(tmp_path, "MASSIVE", {"amazon-massive-dataset-1.0.tar.gz": buffer.getvalue()})
    expected = IntentUtterance("wake me up at nine am", "alarm_set", (Slot("time", "nine am", 14, 21),), "alarm", "dev")
    assert read(store, "MASSIVE", "official")[0] == [expected]


def test_the_single_hwu64_file_is_needed_for_the_official_readings(mirror_store):
    with pytest.raises(Offline, match=r"NLU-Data-Home-Domain-Annotated-All.csv"):
        read(mirror_store, "HWU64", "dse-official")


def test_the_single_hwu64_file_is_split_by_the_rule_of_dse(tmp_path):
    header = (
        "userid;answerid;scenario;intent;status;answer_annotation;notes;suggested_entities;answer_normalised;answer"
    )
    rows = [
        f'1;{n};alarm;set;;"wake me at [time : {n} am]";;;"wake me at {n} am";"Wake me at {n} am!"' for n in range(20)
    ]
    rows.append('1;99;alarm;set;IRR;null;;;null;"No idea"')
    file = {"AnnotatedData/NLU-Data-Home-Domain-Annotated-All.csv": "\n".join([header, *rows])}
    records, skipped = read(store_with(tmp_path, "HWU64", file), "HWU64", "dse-official")
    assert [item.text for item in records if item.split == "test"] == [f"Wake me at {n} am!" for n in (17, 18, 19)]
    assert skipped == {"irrelevant or unannotated answer": 1}


def test_labels_beyond_the_64_most_frequent_are_left_out():
    rows = [(IntentUtterance("text", f"intent{n}"), "Text") for n in range(64) for _ in range(2)]
    made, skipped = read_part(dse_rows, [(IntentUtterance("rare", "rare"), "Rare"), *rows])
    assert len(made) == 128
    assert skipped == {"label beyond the 64 most frequent": 1}


def test_listed_utterances_are_recognised_without_case_and_punctuation():
    listed = {("a_b", "set an alarm"): "test", ("a_b", "another"): "train"}
    rows = [(IntentUtterance("set an alarm", "a_b"), "Set an alarm!"), (IntentUtterance("another", "a_b"), "Another")]
    assert [item.split for item in read_part(tadse_rows, [*rows, rows[0]], listed)[0]] == ["test", "train"]


def test_parallel_files_of_different_length_are_refused(monkeypatch, tmp_path, mirror_store):
    words = mirror_store.path("ATIS", "data/atis/valid/seq.in").read_text("utf-8")
    short = tmp_path / "short"
    short.write_text(words.split("\n", 1)[1], "utf-8")
    whole = mirror_store.path
    monkeypatch.setattr(mirror_store, "path", lambda s, key: short if key.endswith("valid/seq.in") else whole(s, key))
    with pytest.raises(DataError, match=r"malformed row at data/atis/valid/seq.in line 1: 11 tokens but 18 tags"):
        read(mirror_store, "ATIS")


def test_a_row_with_too_few_tags_is_named_by_file_and_line(monkeypatch, tmp_path, mirror_store):
    tags = mirror_store.path("ATIS", "data/atis/train/seq.out").read_text("utf-8").split("\n")
    broken = tmp_path / "broken"
    broken.write_text("\n".join([*tags[:2], "O O", *tags[3:]]), "utf-8")
    whole = mirror_store.path
    monkeypatch.setattr(mirror_store, "path", lambda s, key: broken if key.endswith("train/seq.out") else whole(s, key))
    with pytest.raises(DataError, match=r"data/atis/train/seq\.in line 3: 10 tokens but 2 tags"):
        read(mirror_store, "ATIS")
