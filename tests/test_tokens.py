"""Ragged token arrays and packing: nothing is lost, nothing is padded, everything is found again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dialnb.errors import UnknownName
from dialnb.models.wordpieces import Wordpieces
from dialnb.tokens import Tokens, pack

ROWS = st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=9), min_size=1, max_size=12)


@given(ROWS)
def test_lists_come_back_as_they_went_in(rows):
    tokens = Tokens.from_lists(rows)
    assert [row.tolist() for row in tokens] == rows
    assert len(tokens) == len(rows)
    assert tokens.lengths.tolist() == [len(row) for row in rows]


@given(ROWS, st.data())
def test_any_selection_equals_the_selection_of_the_lists(rows, data):
    tokens = Tokens.from_lists(rows, types=[[i % 2 for i in row] for row in rows])
    picks = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=8))
    part = tokens[picks]
    assert [row.tolist() for row in part] == [rows[i] for i in picks]
    assert part.types.tolist() == [i % 2 for p in picks for i in rows[p]]
    cut = data.draw(st.slices(len(rows)))
    assert [row.tolist() for row in tokens[cut]] == rows[cut]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    assert [row.tolist() for row in tokens[mask]] == [row for row, kept in zip(rows, mask, strict=True) if kept]


@pytest.mark.parametrize("index", [3, -4, [0, 3], [-4]])
def test_a_position_outside_is_refused(index):
    with pytest.raises(IndexError):
        Tokens.from_lists([[1], [2, 3], [4]])[index]


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_concatenation_keeps_the_order(parts):
    whole = Tokens.concatenate([Tokens.from_lists(rows) for rows in parts])
    assert [row.tolist() for row in whole] == [row for rows in parts for row in rows]


def test_concatenation_fills_missing_segments_with_the_first():
    plain, typed = Tokens.from_lists([[5, 6]]), Tokens.from_lists([[7, 8]], types=[[0, 1]])
    assert Tokens.concatenate([plain, typed]).types.tolist() == [0, 0, 0, 1]


def test_no_rows_are_fine():
    assert len(Tokens.from_lists([])) == len(Tokens.from_lists([], types=[])) == 0
    assert len(Tokens.from_lists([[1]])[[]]) == 0


@given(ROWS)
def test_padding_and_mask_hold_the_same_ids(rows):
    ids, mask = Tokens.from_lists(rows).padded(pad=-1)
    assert ids.shape == mask.shape == (len(rows), max(map(len, rows)))
    assert [row[kept.astype(bool)].tolist() for row, kept in zip(ids, mask, strict=True)] == rows
    assert (ids[mask == 0] == -1).all()


@given(ROWS)
def test_packing_sorts_by_length_and_wastes_nothing(rows):
    packed = pack(Tokens.from_lists(rows))
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # stable
    assert packed.ids.tolist() == [i for r in order for i in rows[r]]
    assert packed.positions.tolist() == [p for r in order for p in range(len(rows[r]))]
    assert packed.rank[order].tolist() == list(range(len(rows)))
    assert packed.starts.tolist() == np.cumsum([0, *(len(rows[r]) for r in order)]).tolist()
    assert [length for length, count in packed.groups for _ in range(count)] == packed.lengths.tolist()
    assert packed.max_length == max(map(len, rows))


@given(ROWS)
def test_places_finds_every_token_of_the_callers_order(rows):
    packed = pack(Tokens.from_lists(rows))
    where = [(s, p) for s, row in enumerate(rows) for p in range(len(row))]
    sequences, positions = torch.tensor(where).T
    assert packed.ids[packed.places(sequences, positions)].tolist() == [i for row in rows for i in row]


def test_segments_travel_with_their_tokens():
    packed = pack(Tokens.from_lists([[5, 6, 7], [8, 9]], types=[[0, 1, 1], [0, 1]]))
    assert packed.ids.tolist() == [8, 9, 5, 6, 7]
    assert packed.types.tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("rows", [[], [[1], []]])
def test_nothing_to_pack_is_refused(rows):
    with pytest.raises(ValueError, match="cannot pack"):
        pack(Tokens.from_lists(rows))


# --- word pieces ------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.text(max_size=40), max_size=6), st.sampled_from(["left", "right"]), st.integers(3, 20))
def test_word_pieces_equal_the_tokenizers_own(texts, side, longest):
    tokenizer = tiny.tokenizer()
    tokenizer.truncation_side = side
    tokens = Wordpieces(tokenizer)(texts, longest, side)
    assert len(tokens) == len(texts)
    if texts:
        expected = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        assert [row.tolist() for row in tokens] == expected


def test_left_truncation_keeps_the_end():
    pieces = Wordpieces(tiny.tokenizer())
    last = pieces.tokenizer.convert_tokens_to_ids(["the", "north"])
    assert pieces(["i need a hotel in the north"], 4, "left")[0].tolist() == [2, *last, 3]


def test_a_side_that_does_not_exist_is_named():
    with pytest.raises(UnknownName, match="'middle'"):
        Wordpieces(tiny.tokenizer())(["a"], 8, "middle")


def test_no_room_for_words_is_refused():
    with pytest.raises(ValueError, match="no room"):
        Wordpieces(tiny.tokenizer())(["a"], 2)


def test_cached_tokens_are_read_back_and_a_broken_cache_is_rebuilt(tmp_path, monkeypatch):
    pieces, texts = Wordpieces(tiny.tokenizer()), tiny.sentences(9)
    fresh = pieces(texts, 16, "right", tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    monkeypatch.setattr(pieces, "_bare", lambda texts: pytest.fail("tokenised again"))
    again = pieces(texts, 16, "right", tmp_path)
    assert again.ids.tolist() == fresh.ids.tolist() and again.offsets.tolist() == fresh.offsets.tolist()
    monkeypatch.undo()
    file.write_bytes(file.read_bytes()[:50])
    assert pieces(texts, 16, "right", tmp_path).ids.tolist() == fresh.ids.tolist()
    pieces(texts[:-1], 16, "right", tmp_path)
    pieces(texts, 15, "right", tmp_path)
    pieces(texts, 16, "left", tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 4, "texts, length and side all belong to the key"


@pytest.mark.parametrize("place", [*range(12, 200, 31), -1, -40, -90, -150])
def test_one_bit_in_the_cache_is_seen_and_the_texts_are_tokenised_again(tmp_path, place):
    pieces, texts = Wordpieces(tiny.tokenizer()), tiny.sentences(9)
    fresh = pieces(texts, 16, "right", tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    again = pieces(texts, 16, "right", tmp_path)
    assert again.ids.tolist() == fresh.ids.tolist() and again.offsets.tolist() == fresh.offsets.tolist()
    assert again.ids.dtype == fresh.ids.dtype and again.offsets.dtype == fresh.offsets.dtype


def test_texts_that_many_ask_for_at_once_are_tokenised_once(tmp_path):
    pieces, texts, calls = Wordpieces(tiny.tokenizer()), tiny.sentences(9), []

    def slowly(texts, bare=pieces._bare):
        calls.append(len(texts))
        time.sleep(0.2)
        return bare(texts)

    pieces._bare = slowly
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: pieces(texts, 16, "right", tmp_path).ids.tolist(), range(4)))
    assert calls == [9] and made == made[:1] * 4


def test_the_fingerprint_ignores_what_the_last_caller_padded_to():
    pieces = Wordpieces(tiny.tokenizer())
    before = pieces.fingerprint()
    pieces.tokenizer(["a", "a table"], padding=True, truncation=True, max_length=4)
    assert pieces.fingerprint() == before
