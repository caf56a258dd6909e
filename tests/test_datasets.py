"""`load`: read once, kept in a file, read again when anything it depends on has changed; and the reader register."""

from __future__ import annotations

import hashlib
import typing
from dataclasses import replace

import pytest

from dialnb.data import load, readers, sources
from dialnb.data.readers import Files, Reader, all_readers, get_reader, reader
from dialnb.data.records import TEXTS, IntentUtterance, Record
from dialnb.data.sources import Source, SourceFile
from dialnb.data.store import Store
from dialnb.errors import DataError, Offline, UnknownName

ROWS = b"play jazz\tmusic\ttrain\nwake me\talarm\ttrain\n\ttrain\nstop\talarm\ttest\n"
URL = "https://example.org/tiny.tsv"


class Tiny:
    """A registry of one dataset, a mirror folder with its file, and a reader that counts how often it runs."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch, self.runs = folder, monkeypatch, 0
        self.publish(ROWS)
        self.register(version=1)

    @property
    def mirror(self):
        (self.folder / "mirror" / "example.org").mkdir(parents=True, exist_ok=True)
        return self.folder / "mirror"

    def publish(self, data: bytes, known: bool = True) -> None:
        (self.mirror / "example.org" / "tiny.tsv").write_bytes(data)
        digest = hashlib.sha256(data).hexdigest() if known else ""
        file = SourceFile("tiny.tsv", (URL,), digest, len(data) if known else 0)
        source = Source("Tiny", "", (), "CC0-1.0", True, "", "", "complete", "", "", (file,))
        self.monkeypatch.setattr(sources, "load_registry", lambda: {"Tiny": source})
        self.store = Store(cache=self.folder / "cache", mirror=self.mirror, offline=True)

    def register(self, version: int) -> None:
        @reader("Tiny", variants=("plain", "loud"), version=version)
        def read_tiny(files, variant):
            self.runs += 1
            for line in files.lines("tiny.tsv"):
                if line.startswith("\t"):
                    files.skipped["no text"] += 1
                    continue
                text, intent, split = line.split("\t")
                yield IntentUtterance(text.upper() if variant == "loud" else text, intent, split=split)

        self.monkeypatch.setattr(readers, "all_readers", lambda: {"Tiny": read_tiny})

    def load(self, *args, **kwargs):
        return load("Tiny", *args, store=self.store, **kwargs)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    return Tiny(tmp_path, monkeypatch)


def test_a_dataset_is_a_sequence_of_records(tiny):
    dataset = tiny.load()
    assert len(dataset) == 3
    assert dataset[0] == IntentUtterance("play jazz", "music")
    assert dataset[-1].text == "stop"
    assert [record.text for record in dataset] == ["play jazz", "wake me", "stop"]
    assert [record.text for record in dataset[::-1]] == ["stop", "wake me", "play jazz"]
    assert list(dataset[1:2]) == [dataset[1]]
    assert dataset[1] in dataset
    with pytest.raises(IndexError):
        dataset[3]


def test_a_dataset_says_where_it_comes_from(tiny):
    dataset = tiny.load()
    assert (dataset.name, dataset.variant, dataset.licence) == ("Tiny", "plain", "CC0-1.0")
    assert dataset.skipped == {"no text": 1}
    assert len(dataset.fingerprint) == 64
    assert repr(dataset) == "<Tiny (plain): 3 IntentUtterance records; see .skipped>"


def test_filters_and_columns_need_no_records(tiny):
    dataset = tiny.load()
    alarms = dataset.filter(intent="alarm")
    assert [record.text for record in alarms] == alarms.texts() == ["wake me", "stop"]
    assert len(alarms.filter(split=("dev", "test"))) == 1
    assert dataset[1:].column("intent") == ["alarm", "alarm"]
    assert dataset.filter(split="nowhere").texts() == []


def test_a_part_has_a_fingerprint_of_its_own(tiny):
    dataset = tiny.load()
    parts = [dataset, dataset[:2], dataset[1:], dataset.filter(intent="music")]
    assert len({part.fingerprint for part in parts}) == 4
    assert dataset[:].fingerprint == dataset.fingerprint
    assert tiny.load(split="train").fingerprint == dataset.filter(split="train").fingerprint


def test_a_split_can_be_asked_for_and_a_missing_one_names_the_others(tiny):
    assert tiny.load(split="test").texts() == ["stop"]
    with pytest.raises(DataError, match=r"no records in split 'dev'; it has: test, train"):
        tiny.load(split="dev")


def test_the_second_load_reads_no_source(tiny):
    first = tiny.load()
    second = tiny.load()
    assert tiny.runs == 1
    assert list(second) == list(first)
    assert (second.fingerprint, second.skipped) == (first.fingerprint, first.skipped)


def test_variants_are_kept_apart_and_case_does_not_matter(tiny):
    assert tiny.load("LOUD").texts() == ["PLAY JAZZ", "WAKE ME", "STOP"]
    assert tiny.load().texts()[0] == "play jazz"
    assert load("tINY", store=tiny.store).name == "Tiny"
    assert tiny.runs == 2


def test_new_bytes_and_new_reader_versions_are_read_anew(tiny):
    old = tiny.load().fingerprint
    tiny.register(version=2)
    assert tiny.load().fingerprint != old
    tiny.publish(b"pause\tmusic\ttrain\n")
    with pytest.warns(UserWarning, match="failed its check"):
        assert tiny.load().texts() == ["pause"]
    assert tiny.runs == 3


def test_a_damaged_cache_is_read_anew_with_a_warning(tiny):
    tiny.load()
    (path,) = (tiny.folder / "cache" / "records").glob("*.json")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="read anew"):
        assert tiny.load().texts() == ["play jazz", "wake me", "stop"]
    assert tiny.runs == 2


def test_records_of_a_file_without_known_hash_are_named_after_its_bytes(tiny):
    tiny.publish(ROWS, known=False)
    first = tiny.load()
    assert tiny.load().fingerprint == first.fingerprint
    assert len(list((tiny.folder / "cache" / "records").glob("*.json"))) == 1


def test_a_missing_file_is_the_stores_error(tiny):
    (tiny.mirror / "example.org" / "tiny.tsv").unlink()
    with pytest.raises(Offline, match=r"tiny\.tsv"):
        tiny.load()


def test_a_malformed_row_names_file_and_line_and_nothing_is_kept(tiny):
    tiny.publish(b"play jazz\tmusic\ttrain\nbroken\n")
    with pytest.raises(DataError, match=r"tiny\.tsv line 2"):
        tiny.load()
    assert not list((tiny.folder / "cache" / "records").glob("*.json"))


def test_a_dataset_without_records_is_an_error(tiny):
    tiny.publish(b"\ttrain\n")
    with pytest.raises(DataError, match="no records"):
        tiny.load()


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'MetaLWOZ'"):
        get_reader("MetaLWZ")
    with pytest.raises(UnknownName, match="variant of MultiWOZ"):
        get_reader("MultiWOZ").variant("2.4")
    with pytest.raises(UnknownName, match="it has none"):
        get_reader("SGD").variant("copies")


def test_every_reader_reads_a_source_of_the_registry():
    registry = sources.load_registry()
    found = all_readers()
    assert {"SGD", "MetaLWOZ", "DSTC2", "STAR"} <= found.keys()
    assert {name for made in found.values() for name in made.sources} <= registry.keys()
    assert all(isinstance(made, Reader) and made.function.__doc__ for made in found.values())


def test_two_readers_for_one_dataset_are_refused(monkeypatch):
    other = replace(get_reader("SGD"), version=99)
    module = __import__("dialnb.data.readers.crowd", fromlist=["crowd"])
    monkeypatch.setattr(module, "read_more", other, raising=False)
    with pytest.raises(ValueError, match="two readers claim the dataset SGD"):
        all_readers.__wrapped__()


def test_rows_know_their_place():
    files = Files(None, "Toy")
    rows = files.json_lines("rows.jsonl", b'{"a": 1}\r\n\n{"a": "x\xe2\x80\xa8y"}\n{oops\n')
    assert (next(rows), files.place) == ({"a": 1}, "rows.jsonl line 1")
    assert (next(rows), files.place) == ({"a": "x\u2028y"}, "rows.jsonl line 3")
    with pytest.raises(DataError, match=r"rows\.jsonl line 4"):
        next(rows)
    with pytest.raises(DataError, match=r"rows\.json is not the JSON document.*line 2"):
        files.json("rows.json", b"{\n1")
    with pytest.raises(DataError, match=r"latin\.txt line 2 is not utf-8"):
        list(files.lines("latin.txt", b"fine\n\xe9\n"))


def test_texts_are_known_for_every_record_type():
    assert TEXTS.keys() == set(typing.get_args(Record))
