"""`dialnb data`: tables for people, JSON for machines, exit codes for scripts."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dialnb.cli import main
from dialnb.data.sources import get_source, load_registry


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mirrored(cache, mirror, monkeypatch) -> Path:
    """The cache of a command line that reads the real mirror."""
    monkeypatch.setenv("DIALNB_MIRROR", str(mirror))
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    return cache


def said(capsys, *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    return main(argv), *capsys.readouterr()


def test_list_has_one_aligned_row_per_dataset(capsys):
    code, out, _ = said(capsys, "data", "list")
    header, rule, *rows = out.splitlines()
    assert code == 0
    assert [row.split()[0] for row in rows] == list(load_registry())
    start = header.index("availability")
    assert rule[start - 1] == " " and all(row[start - 1] == " " and row[start] != " " for row in rows)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_terminal_that_knows_few_letters_gets_a_list_all_the_same(more):
    command = [sys.executable, "-m", "dialnb", "data", "list", *more]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    lines = done.stdout.decode("ascii").splitlines()
    assert len(json.loads("".join(lines)) if more else lines) >= len(load_registry())


def test_list_as_json_gives_the_same_rows(capsys):
    _, out, _ = said(capsys, "data", "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["CLINC150"] | {"MB": None} == {
        "name": "CLINC150",
        "kind": "dataset",
        "availability": "complete",
        "files": 10,
        "MB": None,
        "may be shared": "yes",
        "licence": "CC-BY-3.0",
        "papers": "DSE T1 T2 T3 T6 T7 T8 T10 X2, TaDSE T1 T3 T4 T7 T8 T9 T10 T11 T12",
    }
    assert rows["Kakao"]["availability"] == "unavailable"


def test_info_tells_papers_terms_citation_and_files(capsys, cache):
    code, out, _ = said(capsys, "data", "info", "metalwoz")
    assert code == 0
    text = " ".join(out.split())
    assert "Lee et al. 2019" in text and "redistribution not permitted" in text and "WMDC T6 T7" in text
    assert "metalwoz-v1.zip" in out and "not checked" in out
    about = json.loads(said(capsys, "data", "info", "MetaLWOZ", "--json")[1])
    assert len(about["files"]) == len(get_source("MetaLWOZ").files)


def test_info_has_no_table_of_files_where_there_are_none(capsys, cache):
    code, out, _ = said(capsys, "data", "info", "Kakao")
    assert code == 0 and "never released" in " ".join(out.split())
    assert "sha256" not in out and "\n\n" not in out


@pytest.mark.parametrize("action", ["info", "fetch", "verify"])
def test_an_unknown_name_is_answered_with_the_nearest_one(capsys, cache, action):
    code, out, err = said(capsys, "data", action, "CLINK150")
    assert (code, out) == (2, "")
    assert "did you mean 'CLINC150'?" in err


def test_a_wrong_command_is_a_usage_error(capsys):
    assert said(capsys, "data", "frobnicate")[0] == 2
    assert said(capsys)[0] == 2


def test_what_cannot_be_had_is_explained(capsys, cache):
    code, _, err = said(capsys, "data", "fetch", "Kakao")
    assert code == 1 and "never released" in err
    code, _, err = said(capsys, "data", "fetch", "MNLI")
    assert code == 1 and "--unchecked" in err
    code, _, err = said(capsys, "data", "fetch", "DSTC7-Ubuntu", "--unchecked")
    assert code == 1 and "has to be fetched by hand: Download it from https://ibm.github.io" in err


def test_fetch_without_a_network_fails_at_once_with_one_helpful_sentence(tmp_path):
    """No network is simulated by a proxy that nobody listens to, for both kinds of address."""
    settings = {"DIALNB_CACHE": str(tmp_path), "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    command = [sys.executable, "-m", "dialnb", "data", "fetch", "CLINC150"]
    done = subprocess.run(command, env=kept | settings, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.strip().splitlines()
    assert "no connection to raw.githubusercontent.com" in sentence
    assert "Check the network" in sentence and "DIALNB_MIRROR" in sentence


def test_offline_fetch_says_where_to_put_the_file(capsys, cache, monkeypatch):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    code, _, err = said(capsys, "data", "fetch", "Frames")
    assert code == 1
    assert f"put the file at {cache / 'files' / 'Frames'}" in err


def test_the_version_is_printed(capsys):
    code, out, _ = said(capsys, "--version")
    assert code == 0 and out.startswith("dialnb ")


@pytest.mark.parametrize(
    ("command", "heavy"),
    [("['--help']", {"numpy", "yaml", "papermill"}), ("['data', 'list']", {"torch", "transformers", "pandas"})],
)
def test_nothing_heavy_is_imported_for_help_or_a_listing(command, heavy):
    program = f"import sys, dialnb.cli; dialnb.cli.main({command}); sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.mirror
def test_fetch_and_verify_with_a_mirror(capsys, mirrored):
    code, out, _ = said(capsys, "data", "fetch", "CLINC150", "WOZ2.0", "--json")
    assert code == 0
    assert [(row["name"], row["files"]) for row in json.loads(out)] == [("CLINC150", 10), ("WOZ2.0", 3)]
    code, out, _ = said(capsys, "data", "verify", "CLINC150", "WOZ2.0")
    assert code == 0 and "13 files: 13 ok, 0 missing, 0 bad" in out


@pytest.mark.mirror
def test_verify_finds_a_cached_file_that_changed_on_disk(capsys, mirrored):
    said(capsys, "data", "fetch", "WOZ2.0")
    path = mirrored / "files" / "WOZ2.0" / "data" / "woz" / "woz_test_en.json"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    code, out, _ = said(capsys, "data", "verify", "WOZ2.0", "--json")
    report = json.loads(out)
    assert code == 1
    assert (report["ok"], report["bad"]) == (2, 1)
    assert str(path) in report["problems"][0]["problem"]


def test_verify_reports_what_is_missing_and_what_is_bad_in_a_mirror(capsys, cache, tmp_path, monkeypatch):
    file = get_source("Frames").files[0]
    place = tmp_path / "mirror" / (file.urls[0].removeprefix("https://") + ".gz")
    place.parent.mkdir(parents=True)
    place.write_bytes(gzip.compress(b"not Frames"))
    monkeypatch.setenv("DIALNB_MIRROR", str(tmp_path / "mirror"))
    code, out, _ = said(capsys, "data", "verify")
    count = sum(file.verified for source in load_registry().values() for file in source.files)
    assert code == 1
    assert f"{count:,} files: 0 ok, {count - 1:,} missing, 1 bad" in out and str(place) in out


def test_missing_files_fail_only_where_they_were_asked_for(capsys, cache):
    assert said(capsys, "data", "verify")[0] == 0
    assert said(capsys, "data", "verify", "Frames")[0] == 1
