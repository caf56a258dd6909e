"""Named entities by rule: what is found, where, and what is left alone; and the same from spaCy's documents."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data import load
from dialnb.data.records import IntentUtterance
from dialnb.examples import recogniser
from dialnb.examples.recogniser import (
    default_recogniser,
    from_document,
    gazetteer,
    rule_slots,
    rules,
    with_entities,
)
from dialnb.examples.templates import augment, entity_book


def found(text: str) -> list[tuple[str, str]]:
    return [(slot.name, slot.value) for slot in rule_slots(text)]


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("book a flight from boston to new york city", [("GPE", "boston"), ("GPE", "new york city")]),
        ("on march 5th at 10:30 pm", [("DATE", "march 5th"), ("TIME", "10:30 pm")]),
        ("from the 29th of february until next friday", [("DATE", "the 29th of february"), ("DATE", "next friday")]),
        ("11 february 2019 or 3/1", [("DATE", "11 february 2019"), ("DATE", "3/1")]),
        ("send $1,000 or twenty five dollars", [("MONEY", "$1,000"), ("MONEY", "twenty five dollars")]),
        ("what is 15 percent of 80", [("PERCENT", "15 percent"), ("CARDINAL", "80")]),
        ("set a timer for ten minutes", [("TIME", "ten minutes")]),
        ("how far is two miles", [("QUANTITY", "two miles")]),
        ("who was the first british king", [("ORDINAL", "first"), ("NORP", "british")]),
        ("is chase better than Bank of America", [("ORG", "chase"), ("ORG", "Bank of America")]),
        ("roll over my 401k", [("ORG", "401k")]),
        ("travel to the grand canyon and africa", [("LOC", "the grand canyon"), ("LOC", "africa")]),
        ("canada's capital at christmas", [("GPE", "canada"), ("DATE", "christmas")]),
        ("a table at mcdonald's for 4", [("ORG", "mcdonald's"), ("CARDINAL", "4")]),
    ],
)
def test_entities_of_requests(text, entities):
    assert found(text) == entities


def test_the_longest_of_the_names_that_begin_together_wins():
    assert found("buffalo wild wings in buffalo") == [("ORG", "buffalo wild wings"), ("GPE", "buffalo")]
    assert found("may 9th") == [("DATE", "may 9th")]


@pytest.mark.parametrize(
    "text",
    ["may i march in", "roast a turkey", "which one is nice", "where is my w2", "i don't know", "phone home", ""],
)
def test_words_that_only_look_like_entities_are_left_alone(text):
    assert found(text) == []


def test_names_that_are_words_too_count_after_a_preposition():
    assert found("fly to turkey in may") == [("GPE", "turkey"), ("DATE", "may")]


@given(st.lists(st.sampled_from(["New York", "5", "march", "$", "İ", "'s", "%", "first", "at&t", "u.s.", "x", ","])))
def test_entities_lie_in_the_text_from_left_to_right(parts):
    text, end = " ".join(parts), 0
    for slot in rule_slots(text):
        assert end <= slot.start < slot.end and text[slot.start : slot.end] == slot.value
        end = slot.end


def test_every_name_of_the_gazetteer_is_found():
    for words, label in gazetteer().items():
        name = " ".join(words).replace(" 's", "'s")
        assert (label, name) in found(f"go to {name} please"), name


def test_utterances_get_slots_and_keep_the_rest():
    utterance = IntentUtterance("time in rome", "time", domain="travel", split="dev")
    (annotated,) = with_entities([utterance], rules)
    assert (annotated.intent, annotated.domain, annotated.split) == ("time", "travel", "dev")
    assert [slot.value for slot in annotated.slots] == ["rome"]


def test_documents_of_spacy_become_tokens_between_spaces():
    words = ["what", "'s", "the", "time", "in", "new", "york", "?"]
    tokens = [SimpleNamespace(text=word) for word in words]

    class Document(list):
        ents = (SimpleNamespace(label_="GPE", start=5, end=7),)

    text, (slot,) = from_document(Document(tokens))
    assert text == "what 's the time in new york ?"
    assert (slot.name, slot.value, text[slot.start : slot.end]) == ("GPE", "new york", "new york")


def test_spacy_is_taken_where_it_and_its_model_are_installed(monkeypatch):
    for installed, expected in (((), rules), (("spacy",), rules), (("spacy", recogniser.MODEL), "spacy")):
        monkeypatch.setattr(recogniser, "find_spec", lambda name, there=installed: name in there or None)
        assert default_recogniser() is (recogniser.spacy_entities if expected == "spacy" else expected)


def test_the_entity_book_of_clinc150_stands_beside_the_papers(mirror_store):
    rows = with_entities(load("CLINC150", "plus", "train", mirror_store), rules)
    book = entity_book(rows)
    for label, printed in {"GPE": 1397, "DATE": 1194, "ORG": 844, "CARDINAL": 594, "TIME": 443}.items():  # Table 7
        assert 0.65 * printed < book[label].total() < 1.6 * printed, label
    top = {label: [value for value, _ in book[label].most_common(5)] for label in book}
    assert {"french", "italian", "spanish", "british"} <= set(top["NORP"])  # Table 8
    assert {"first", "5th", "3rd", "4th"} <= {value for value, _ in book["ORDINAL"].most_common(8)}  # Table 9
    assert {"mastercard", "401k", "bank of america", "chase"} <= {v for v, _ in book["ORG"].most_common(6)}  # Table 10
    assert top["LOC"][:3] == ["africa", "europe", "asia"]  # Table 11
    assert len(augment("CLINC150", rows)) > 10 * len(rows)
