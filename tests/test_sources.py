"""The registry: every dataset of the five papers, with terms, citation and hashed files."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dialnb.data import sources
from dialnb.data.sources import get_source, load_registry
from dialnb.errors import UnknownName

REGISTRY = Path(sources.__file__).parent / "registry"

NAMED_BY_THE_PAPERS = [
    "CLINC150",
    "BANKING77",
    "SNIPS",
    "ATIS",
    "HWU64",
    "MASSIVE",
    "Appen-A",
    "Appen-H",
    "MetaLWOZ",
    "SGD",
    "Taskmaster",
    "Taskmaster-2",
    "MultiWOZ",
    "MDC",
    "KVRET",
    "Frames",
    "WOZ2.0",
    "CamRest676",
    "DSTC2",
    "GSIM",
    "CI-ToD",
    "DECODE",
    "DSTC7-Ubuntu",
    "Ubuntu-V1",
    "Douban",
    "E-commerce",
    "Kakao",
    "DialogueCSE",
    "JDDC",
    "AmazonQA",
    "SNLI",
    "MNLI",
    "Dialogue-NLI",
    "Wikipedia-1M",
    "Reddit",
    "Movie-Dialogs",
    "Self-dialogue",
    "PersonaChat",
    "TopicalChat",
    "ABCD",
    "ChitChat",
    "CCPE-M",
]


def test_every_dataset_of_the_papers_is_registered_with_its_tables():
    registry = load_registry()
    assert set(NAMED_BY_THE_PAPERS) <= registry.keys()
    for name in NAMED_BY_THE_PAPERS:
        assert registry[name].papers, f"{name} is named by the papers but lists no table"


@pytest.mark.parametrize("source", load_registry().values(), ids=lambda source: source.name)
def test_an_entry_says_what_a_user_must_know(source):
    assert source.title and source.licence and source.citation
    assert source.coverage.endswith(".")
    assert all(re.fullmatch(r"(DSE|DialogueCSE|TaDSE|WMDC|UMS) [TX]\d+", table) for table in source.papers)
    if source.availability == "unavailable":
        assert not any(file.verified for file in source.files)
    else:
        assert any(file.verified for file in source.files)


@pytest.mark.parametrize("source", load_registry().values(), ids=lambda source: source.name)
def test_files_are_pinned_and_hashed_or_marked_as_unchecked(source):
    for file in source.files:
        assert not file.key.startswith("/") and ".." not in Path(file.key).parts
        assert file.licence
        assert all(urlsplit(url).scheme in ("http", "https") for url in file.urls)
        if file.verified:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0
            assert re.search("/[0-9a-f]{40}(/|$)", file.urls[-1]), "the last address of a checked file is a pinned copy"
        else:
            assert (file.sha256, file.size) == ("", 0)
            assert file.urls or file.note, "a file without an address says where a person finds it"


def test_redistribution_is_denied_where_a_copy_denies_it():
    for source in load_registry().values():
        if any("NOT permitted" in file.licence for file in source.files):
            assert source.redistributable is False


def test_names_are_found_in_any_casing_and_unknown_ones_get_a_hint():
    assert get_source("clinc150") is get_source("CLINC150")
    with pytest.raises(UnknownName, match="did you mean 'BANKING77'"):
        get_source("banking")
    with pytest.raises(UnknownName, match=r"did you mean 'data/data_full.json'"):
        get_source("CLINC150").file("data/data_ful.json")


def test_official_addresses_come_before_pinned_copies():
    official, pinned = get_source("AmazonQA").file("qa_Appliances.json.gz").urls
    assert urlsplit(official).netloc == "jmcauley.ucsd.edu"
    assert urlsplit(pinned).netloc == "raw.githubusercontent.com"


def test_keys_are_readable_names_even_where_the_address_is_quoted():
    file = get_source("MDC").file("Human Dialogue Dataset License Terms.txt")
    assert "%20" in file.urls[0]


def test_the_tables_come_out_of_the_manifest_again(mirror, tmp_path):
    spec = importlib.util.spec_from_file_location("make_tables", REGISTRY / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make_tables(mirror / "MANIFEST.jsonl", tmp_path)
    for name in ("copies.tsv", "files.tsv"):
        assert (tmp_path / name).read_text("utf-8") == (REGISTRY / name).read_text("utf-8")
