"""The file of records: what goes in comes out, for every kind of record, and damage is never taken for data."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialnb.data import Dataset, records
from dialnb.data.records import Dialogue, ScoredPair, Slot, Utterance
from dialnb.data.tables import Table, build_table, open_table
from dialnb.errors import DataError

KINDS = typing.get_args(records.Record)
ANY_CHARACTER = st.characters(exclude_categories=())  # lone surrogates too: JSON files contain them
DIALOGUES = [
    Dialogue("a", (Utterance("user", "hé ☃ 👋", ("GREET",)), Utterance("system", "")), ("x", "y"), "train"),
    Dialogue("b", (), (), "test"),
    Dialogue("c", (Utterance("user", "to York", (), (Slot("city", "York", 3, 7),), "travel"),), ("x",), "test"),
]


def values(hint: type) -> st.SearchStrategy:
    """Any value of a record's field type."""
    if hint is str:
        return st.text(ANY_CHARACTER, max_size=8)
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if typing.get_origin(hint) is tuple:
        return st.lists(values(typing.get_args(hint)[0]), max_size=3).map(tuple)
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{field.name: values(hints[field.name]) for field in dataclasses.fields(hint)})


def dataset(table: Table) -> Dataset:
    return Dataset("made", "", "none", "f", table, np.arange(len(table)))


def records_of(table: Table) -> list:
    return list(dataset(table))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_record_type_survives_the_file(kind, data, tmp_path):
    made = data.draw(st.lists(values(kind), min_size=1, max_size=5))
    path = tmp_path / "records.json"
    path.unlink(missing_ok=True)
    assert records_of(build_table(made, path, "f")) == made
    table = open_table(path, "f")
    assert (table.kind, len(table)) == (kind.__name__, len(made))
    assert records_of(table) == made


def test_a_column_is_read_flat_without_records(tmp_path):
    data = dataset(build_table(DIALOGUES, tmp_path / "t", "f"))
    assert data.column("utterances.text") == ["hé ☃ 👋", "", "to York"]
    assert data[1:].column("utterances.slots.start") == [3]
    assert data[:1].column("domains") == ["x", "y"]
    assert data[1:].column("id") == ["b", "c"]
    assert data.sizes("utterances") == [2, 0, 1]
    with pytest.raises(DataError, match=r"no field 'utterances\.words'.*speaker, text"):
        data.column("utterances.words")
    with pytest.raises(DataError, match="cannot be filtered by 'domains'"):
        data.filter(domains="x")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text"])
def test_a_damaged_file_is_not_trusted_but_rebuilt(tmp_path, damage):
    path = tmp_path / "t"
    build_table(DIALOGUES, path, "f")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-9]), "empty": b"", "text": b"not a table"}[damage])
    with pytest.warns(UserWarning, match="damaged"):
        assert open_table(path, "f") is None
    with pytest.warns(UserWarning, match="damaged"):
        build_table(DIALOGUES, path, "f")
    assert records_of(open_table(path, "f")) == DIALOGUES


def test_a_file_for_other_inputs_is_not_used(tmp_path):
    build_table(DIALOGUES, tmp_path / "t", "inputs of yesterday")
    with pytest.warns(UserWarning, match="other inputs"):
        assert open_table(tmp_path / "t", "inputs of today") is None


def test_a_reader_that_fails_leaves_nothing_behind(tmp_path):
    def failing():
        yield DIALOGUES[0]
        raise DataError("malformed row at line 2")

    with pytest.raises(DataError, match="line 2"):
        build_table(failing(), tmp_path / "t", "f")
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_second_builder_uses_what_the_first_one_made(tmp_path):
    build_table(DIALOGUES, tmp_path / "t", "f")

    def never():
        raise AssertionError("read again")
        yield

    assert records_of(build_table(never(), tmp_path / "t", "f")) == DIALOGUES


def test_one_file_holds_one_kind_of_record(tmp_path):
    with pytest.raises(DataError, match="Dialogue and ScoredPair"):
        build_table([DIALOGUES[0], ScoredPair("a", "b", 1.0)], tmp_path / "t", "f")
    with pytest.raises(DataError, match="no records"):
        build_table([], tmp_path / "t", "f")
