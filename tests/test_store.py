"""The store: cache, then mirror, then upstream; every byte checked, every time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import tarfile
import zipfile
from dataclasses import replace

import pytest

from dialnb.data import sources
from dialnb.data.archives import members_digest, read_members
from dialnb.data.sources import Source, SourceFile, load_registry
from dialnb.data.store import Store, split_roots
from dialnb.errors import DataError, Offline, UnknownName

TEXT = b"one utterance per line\n" * 40
URL = "https://example.org/corpus/train%20set.txt"


def known(key: str, data: bytes, *urls: str) -> SourceFile:
    return SourceFile(key, urls or (URL,), hashlib.sha256(data).hexdigest(), len(data), "CC0-1.0")


@pytest.fixture
def register(monkeypatch):
    """Replace the registry by one source, Toy, with the given files."""

    def replace_registry(*files: SourceFile) -> None:
        toy = Source("Toy", "Toy", (), "CC0-1.0", True, "nobody", "", "complete", "All of it.", "", files)
        monkeypatch.setattr(sources, "load_registry", lambda: {"Toy": toy})

    return replace_registry


@pytest.fixture
def folder(tmp_path):
    """A mirror folder with a place for URL."""
    place = tmp_path / "mirror" / "example.org" / "corpus"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def store(tmp_path, folder):
    return Store(tmp_path / "cache", tmp_path / "mirror", offline=True)


def test_a_plain_file_of_the_mirror_is_copied_and_verified(register, folder, store):
    register(known("train.txt", TEXT))
    (folder / "train set.txt").write_bytes(TEXT)
    path = store.path("toy", "train.txt")
    assert path == store.cache / "files" / "Toy" / "train.txt"
    assert path.read_bytes() == TEXT


def test_a_gzipped_file_of_the_mirror_is_unpacked(register, folder, store):
    register(known("train.txt", TEXT))
    (folder / "train set.txt.gz").write_bytes(gzip.compress(TEXT))
    assert store.path("Toy", "train.txt").read_bytes() == TEXT


def test_a_file_that_is_gzipped_upstream_stays_gzipped(register, folder, store):
    packed = gzip.compress(TEXT)
    register(known("train.txt.gz", packed, "https://example.org/corpus/train.txt.gz"))
    (folder / "train.txt.gz").write_bytes(packed)
    assert store.path("Toy", "train.txt.gz").read_bytes() == packed


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        (TEXT[:-1], "has 919 bytes instead of 920"),
        (TEXT.replace(b"one", b"0ne", 1), "has sha256"),
        (gzip.compress(TEXT)[:-9], "is a damaged gzip file"),
        (gzip.compress(TEXT * 1000), "holds more than the 920 bytes expected"),
    ],
    ids=["short", "altered", "truncated gzip", "gzip bomb"],
)
def test_a_bad_file_of_the_mirror_is_refused_and_leaves_nothing_behind(register, folder, store, stored, complaint):
    register(known("train.txt", TEXT))
    (folder / "train set.txt").write_bytes(stored)
    with pytest.raises(DataError, match=complaint) as caught:
        store.path("Toy", "train.txt")
    assert str(folder / "train set.txt") in str(caught.value)
    assert [p for place in ("files", "partial") for p in (store.cache / place).rglob("*") if p.is_file()] == []


def test_the_next_copy_is_taken_where_the_first_is_bad(register, folder, store):
    register(known("train.txt", TEXT, URL, "https://example.org/corpus/copy.txt"))
    (folder / "train set.txt").write_bytes(b"spoilt")
    (folder / "copy.txt").write_bytes(TEXT)
    assert store.path("Toy", "train.txt").read_bytes() == TEXT


@pytest.mark.parametrize("rotten", [TEXT[:-5], TEXT.replace(b"one", b"0ne")], ids=["size", "content"])
def test_a_cached_copy_that_rots_is_set_aside_and_fetched_again(register, folder, store, rotten):
    register(known("train.txt", TEXT))
    (folder / "train set.txt").write_bytes(TEXT)
    store.path("Toy", "train.txt").write_bytes(rotten)
    assert Store(store.cache, offline=True).check("Toy", "train.txt")[0] == "bad"
    with pytest.warns(UserWarning, match="failed its check"):
        assert store.path("Toy", "train.txt").read_bytes() == TEXT
    assert (store.cache / "quarantine" / "Toy" / "train.txt").read_bytes() == rotten


def test_offline_says_what_is_missing_and_where_to_put_it(register, store):
    register(known("train.txt", TEXT))
    with pytest.raises(Offline, match="DIALNB_OFFLINE") as caught:
        store.path("Toy", "train.txt")
    place = store.location(sources.get_source("Toy"), sources.get_source("Toy").file("train.txt"))
    assert f"put the file at {place}" in str(caught.value)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(TEXT)
    assert store.path("Toy", "train.txt") == place


def test_a_file_placed_by_hand_is_not_trusted_blindly(register, store):
    register(known("train.txt", TEXT))
    place = store.cache / "files" / "Toy" / "train.txt"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"something else")
    with pytest.warns(UserWarning), pytest.raises(Offline):
        store.path("Toy", "train.txt")
    assert not place.exists()


def test_a_file_to_be_fetched_by_hand_says_where_it_is_found(register, store):
    register(SourceFile("data.zip", note="Ask at https://example.org."))
    with pytest.raises(Offline, match=r"fetched by hand: Ask at https://example\.org\. Then put the file at"):
        store.path("Toy", "data.zip")


def test_an_unchecked_file_is_recorded_at_first_sight_and_enforced_from_then_on(register, folder, store):
    register(SourceFile("train.txt", (URL,)))
    (folder / "train set.txt").write_bytes(TEXT)
    store.path("Toy", "train.txt")
    recorded = json.loads((store.cache / "recorded.json").read_text())
    assert recorded["Toy/train.txt"]["sha256"] == hashlib.sha256(TEXT).hexdigest()
    (folder / "train set.txt").write_bytes(b"a later release\n")
    store.path("Toy", "train.txt").unlink()
    with pytest.raises(DataError, match="has sha256"):
        store.path("Toy", "train.txt")


def test_a_web_page_in_place_of_an_unchecked_file_is_refused(register, folder, store):
    register(SourceFile("train.txt", (URL,)))
    (folder / "train set.txt").write_bytes(b"\n<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(DataError, match="is a web page"):
        store.path("Toy", "train.txt")
    assert not (store.cache / "recorded.json").exists()


def test_checking_records_nothing(register, folder, store):
    register(SourceFile("train.txt", (URL,)))
    (folder / "train set.txt").write_bytes(TEXT)
    assert store.check("Toy", "train.txt")[0] == "ok"
    assert not store.cache.exists()


def test_paths_follow_a_pattern_in_sorted_order_and_leave_unchecked_files_out(register, folder, store):
    names = ["dev/b.txt", "dev/a.txt", "test/a.txt"]
    files = [known(name, name.encode(), f"https://example.org/corpus/{name[-5:]}{i}") for i, name in enumerate(names)]
    for i, name in enumerate(names):
        (folder / f"{name[-5:]}{i}").write_bytes(name.encode())
    register(*files, SourceFile("dev/c.txt", (URL,)))
    assert list(store.paths("Toy", "dev/*")) == ["dev/a.txt", "dev/b.txt"]
    assert list(store.paths("Toy")) == sorted(names)
    with pytest.raises(DataError, match="no file that matches"):
        store.paths("Toy", "train/*")


def test_an_unknown_key_gets_a_hint(register, store):
    register(known("train.txt", TEXT))
    with pytest.raises(UnknownName, match=r"did you mean 'train\.txt'"):
        store.path("Toy", "trian.txt")


def test_a_mirror_that_is_no_folder_is_an_error_at_once(tmp_path):
    with pytest.raises(DataError, match="DIALNB_MIRROR"):
        Store(tmp_path, tmp_path / "nowhere")


@pytest.mark.parametrize(
    "roots",
    [
        ["/data/mirror"],
        ["/data/mirror", "more"],
        ["http://example.org"],
        ["HTTP://example.org:80/m", "/data/mirror", "Https://example.org"],
        ["http://localhost:8000", "/data/mirror", "https://example.org/m"],
        ["https://me:secret@example.org:8443/m", "http://[::1]:8000/m", "rel/ative"],
    ],
)
def test_mirrors_are_joined_as_in_path_and_addresses_keep_their_colons(roots):
    assert split_roots(os.pathsep.join(roots)) == roots
    assert split_roots("") == []


def test_each_file_comes_from_the_first_mirror_that_has_it_whole(register, folder, store, tmp_path):
    other = tmp_path / "second" / "example.org" / "corpus"
    other.mkdir(parents=True)
    register(known("train.txt", TEXT))
    (folder / "train set.txt").write_bytes(TEXT[:-1])
    (other / "train set.txt").write_bytes(TEXT)
    both = Store(store.cache, os.pathsep.join((store.mirror, str(tmp_path / "second"))), offline=True)
    assert both.path("Toy", "train.txt").read_bytes() == TEXT
    with pytest.raises(DataError, match="nowhere' is neither a folder"):
        Store(store.cache, os.pathsep.join((store.mirror, str(tmp_path / "nowhere"))))


def test_the_environment_describes_the_default_store(monkeypatch, tmp_path):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("DIALNB_MIRROR", str(tmp_path))
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    store = Store()
    assert (store.cache, store.mirror, store.offline) == (tmp_path / "c", str(tmp_path), True)
    monkeypatch.setenv("DIALNB_OFFLINE", "0")
    assert Store().offline is False


# -- archives ---


def make_zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def make_tar(members: dict[str, bytes], level: int = 9) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=level) as archive:
        for name, data in members.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            archive.addfile(item, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [make_zip, make_tar])
def test_members_are_read_by_pattern_in_sorted_order(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack({"top/b.json": b"2", "top/a.json": b"1", "top/readme": b"-"}))
    assert list(read_members(tmp_path / "a", "*.json").items()) == [("top/a.json", b"1"), ("top/b.json", b"2")]
    assert list(read_members(tmp_path / "a", "readme", strip_top=True)) == ["readme"]


@pytest.mark.parametrize("pack", [make_zip, make_tar])
def test_an_archive_that_unpacks_to_far_more_than_it_should_is_refused(tmp_path, pack):
    (tmp_path / "bomb").write_bytes(pack({"zeros": bytes(70 * 2**20)}))
    assert (tmp_path / "bomb").stat().st_size < 2**20
    with pytest.raises(DataError, match="more than the 67,108,864 allowed"):
        read_members(tmp_path / "bomb")


def test_a_zip_that_lies_about_the_size_of_a_member_is_refused(tmp_path):
    data = bytearray(make_zip({"zeros": bytes(10**6)}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + offset, 10)
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match="not a readable zip"):
        read_members(tmp_path / "a.zip")


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive at all" * 99, make_zip({"a": TEXT})[:-30], make_tar({"a": TEXT})[:-40]],
    ids=["empty", "text", "cut zip", "cut tar"],  # an archive holds the time: it must not be its own name
)
def test_a_damaged_archive_is_an_error_that_names_it(tmp_path, data):
    (tmp_path / "bad.bin").write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.bin is not a readable zip or tar archive"):
        read_members(tmp_path / "bad.bin")


def test_an_archive_packed_anew_is_known_by_its_members(register, folder, store):
    members = {"Toy-1/LICENSE": b"free", "Toy-1/data/1.json": b"{}", "Toy-1/data/2.json": b"[]"}
    first, again = make_tar(members), make_tar(members | {"Toy-1/.github/ci": b"extra"}, level=1)
    (folder / "first").write_bytes(first)
    patterns = ("LICENSE", "data/*")
    file = replace(
        known("Toy.tar.gz", first, "https://example.org/corpus/toy"),
        members=patterns,
        members_sha256=members_digest(folder / "first", patterns),
    )
    register(file)
    (folder / "toy").write_bytes(again)
    assert store.members("Toy", "Toy.tar.gz", "data/*") == {"data/1.json": b"{}", "data/2.json": b"[]"}
    assert Store(store.cache, offline=True).path("Toy", "Toy.tar.gz").read_bytes() == again

    altered = Store(store.cache.with_name("other"), store.mirror, offline=True)
    (folder / "toy").write_bytes(make_tar(members | {"Toy-1/data/2.json": b"[1]"}))
    with pytest.raises(DataError, match="has members with sha256"):
        altered.path("Toy", "Toy.tar.gz")


# -- the real mirror ---

MPNET = "sentence-transformers/all-mpnet-base-v2"


@pytest.mark.mirror
def test_every_mirrored_file_is_the_one_of_the_registry(mirror_store, every_mirror):
    from concurrent.futures import ThreadPoolExecutor

    wanted = [(source.name, file.key) for source in load_registry().values() for file in source.files if file.verified]
    assert len(wanted) == 1295
    large = [pair for pair in wanted if pair[0] in ("GloVe", MPNET)]  # which a mirror may do without
    wanted = [pair for pair in wanted if pair not in large or mirror_store.check(*pair)[0] != "missing"]
    with ThreadPoolExecutor() as pool:
        states = pool.map(lambda pair: mirror_store.check(*pair), wanted)
    assert [(pair, text) for pair, (state, text) in zip(wanted, states) if state != "ok"] == []


@pytest.mark.mirror
def test_star_is_verified_by_its_members(mirror_store):
    file = load_registry()["STAR"].file("STAR.tar.gz")
    assert members_digest(mirror_store.path("STAR", "STAR.tar.gz"), file.members) == file.members_sha256
    assert len(mirror_store.members("STAR", "STAR.tar.gz", "dialogues/*.json")) == 6652
