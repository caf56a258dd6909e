"""The registry: every dataset of the five papers, with terms, citation and hashed files."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from dialnb.claims.papers import load_paper
from dialnb.data import sources
from dialnb.data.sources import get_source, load_registry
from dialnb.errors import UnknownName
from dialnb.files import project_root
from tools.make_tables import make_tables

REGISTRY = Path(sources.__file__).parent / "registry"

PRINTED = {  # how the tables of each paper spell the datasets
    "dse": {
        "Clinc150": "CLINC150", "Bank77": "BANKING77", "Snips": "SNIPS", "Hwu64": "HWU64", "Appen-A": "Appen-A",
        "Appen-H": "Appen-H", "DSTC2": "DSTC2", "GSIM": "GSIM", "DSTC7-Ubuntu": "DSTC7-Ubuntu", "AmazonQA": "AmazonQA",
        "DSE-dianli": "Dialogue-NLI",
    },
    "dialoguecse": {"MDC": "MDC", "JDDC": "JDDC", "ECD": "E-commerce", "GloVe": "GloVe"},
    "tadse": {name: name for name in ("CLINC150", "SNIPS", "ATIS", "HWU64", "MASSIVE")},
    "wmdc": {
        "DSTC2": "DSTC2", "GSIM": "GSIM", "IC-TOD": "CI-ToD", "DECODE": "DECODE", "DSTC7-Ubuntu": "DSTC7-Ubuntu",
        "MetaLWOZ": "MetaLWOZ", "Schema": "SGD", "Taskmaster": "Taskmaster", "TaskMaster1": "Taskmaster",
        "TaskMaster2": "Taskmaster-2", "MWOZ": "MultiWOZ", "MSR-E2E": "MDC", "SMD": "KVRET", "Frames": "Frames",
        "WOZ": "WOZ2.0", "CamRest676": "CamRest676", "Reddit": "Reddit", "AmazonQA": "AmazonQA",
        "Movie-Dialogs": "Movie-Dialogs", "Self-Dialog": "Self-dialogue", "PersonaChat": "PersonaChat",
        "TopicChat": "TopicalChat", "ABCD": "ABCD", "ChitChat": "ChitChat", "CCPE-M": "CCPE-M",
    },
    "ums": {"Ubuntu": "Ubuntu-V1", "Douban": "Douban", "E-commerce": "E-commerce", "Kakao": "Kakao"},
}  # fmt: skip
NAMED_IN_THE_TEXT = ("DialogueCSE", "SNLI", "MNLI", "Wikipedia-1M")


@pytest.mark.parametrize("slug", PRINTED)
def test_a_dataset_lists_every_table_that_prints_its_name(slug):
    paper, found = load_paper(slug), set()
    for table in paper.tables.values():
        cells = [str(cell) for row in table.rows for cell in (*row.labels.values(), *row.values)]
        words = "; ".join([table.caption, *table.columns, *cells])
        for spelled, name in PRINTED[slug].items():
            if re.search(rf"(?<![\w-]){spelled}(?![\w-])", words):
                found.add(spelled)
                assert f"{paper.name} {table.id}" in get_source(name).papers
    assert found == PRINTED[slug].keys()


def test_what_the_papers_name_in_their_text_lists_a_table_too():
    assert all(get_source(name).papers for name in NAMED_IN_THE_TEXT)


@pytest.mark.parametrize("source", load_registry().values(), ids=lambda source: source.name)
def test_an_entry_says_what_a_user_must_know(source):
    assert source.title and source.licence and source.citation
    assert source.coverage.endswith(".")
    assert all(re.fullmatch(r"(DSE|DialogueCSE|TaDSE|WMDC|UMS) [TX]\d+", table) for table in source.papers)
    checked = any(file.verified for file in source.files)
    assert checked == (source.availability in ("complete", "partial"))
    assert (source.kind == "dataset") == (source.language == "")
    assert source.availability in ("complete", "partial", "unavailable", "unchecked", "bundled")
    assert source.kind in ("dataset", "masked language model", "language model", "sentence encoder", "ours")
    assert len({file.key for file in source.files}) == len(source.files)


def test_every_encoder_of_the_hub_that_a_table_or_a_profile_names_has_an_entry():
    hub = re.compile(r"(?<![\w./-])([\w-]+/[\w.-]+|(?:bert|roberta|distilbert)-[\w-]+)(?![\w/-])")
    names = yaml.safe_load(files("dialnb.studies").joinpath("names.yaml").read_text(encoding="utf-8"))
    asked = {
        name for part in names.values() for table in ("checkpoints", "encoders") for name in found(part.get(table))
    }
    for profiles in (project_root() / "papers").glob("*/profiles.yaml"):
        needs = yaml.safe_load(profiles.read_text(encoding="utf-8"))["needs"]
        asked |= {name for need in needs.values() for name in need["encoders"]}
    named = {name for name in asked if hub.fullmatch(name)}
    assert len(named) > 15 and named <= {*load_registry()}


def found(value) -> list[str]:
    """All texts in a nest of lists and tables."""
    if isinstance(value, dict):
        return [text for each in (value.keys(), value.values()) for part in each for text in found(part)]
    return [text for part in value for text in found(part)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("source", load_registry().values(), ids=lambda source: source.name)
def test_files_are_pinned_and_hashed_or_marked_as_unchecked(source):
    for file in source.files:
        assert not file.key.startswith("/") and ".." not in Path(file.key).parts
        assert file.licence
        assert all(urlsplit(url).scheme in ("http", "https") for url in file.urls)
        if file.verified:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0
            pinned = r"/[0-9a-f]{40}(/|$)|@\d+\.\d+\.\d+/"  # a commit, or the release of a package
            pinned = pinned if source.kind == "dataset" else f"/{source.name}/resolve/main/"
            assert re.search(pinned, file.urls[-1]), "the last address of a checked file is a pinned copy"
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


def test_the_tables_come_out_of_the_manifests_again(every_mirror, tmp_path):
    make_tables([path for root in every_mirror if (path := root / "MANIFEST.jsonl").is_file()], tmp_path)
    for name in ("copies.tsv", "files.tsv"):
        assert (tmp_path / name).read_text("utf-8") == (REGISTRY / name).read_text("utf-8")
