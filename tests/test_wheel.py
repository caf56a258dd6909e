"""`pip install dialnb` from a wheel: everything works in an empty folder, far from any checkout; nothing is lost."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dialnb.papers import STUDIES

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TALK = [("hello, i want a table", "for how many people?"), ("is it raining in Oslo", "no, the sun is out")]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the source archive, built without a network and without a trace in the checkout."""
    place = tmp_path_factory.mktemp("built")
    build = ["egg_info", "--egg-base", place, "build", "--build-base", place / "build"]
    command = [sys.executable, "setup.py", "-q", *build, "bdist_wheel", "-d", place, "sdist", "-d", place]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A function that runs `dialnb` from the wheel, unpacked as pip does, in an empty folder; returns that folder."""
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("here")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    for folder in [site / "dialnb" / "project", *(site / "dialnb" / "project").rglob("*/")]:
        folder.chmod(0o555)
    settings = {"PYTHONPATH": str(site), "DIALNB_CACHE": str(here / "cache"), "OMP_NUM_THREADS": "1"}

    def dialnb(*arguments: str) -> str:
        command = [sys.executable, "-m", "dialnb", *arguments]
        done = subprocess.run(command, cwd=here, env={**os.environ, **settings}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    dialnb.folder = here
    return dialnb


def test_the_wheel_is_small_and_carries_every_file_of_the_project(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < 25e6
    listed = subprocess.run(["git", "ls-files", "dialnb", "papers", "notebooks", "workflow"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split()  # fmt: skip
    wanted = {name if name.startswith("dialnb/") else f"dialnb/project/{name}" for name in listed}
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())


def test_the_source_archive_carries_what_the_wheel_is_built_from(built):
    import tarfile

    (archive,) = built.glob("*.tar.gz")
    names = {name.partition("/")[2] for name in tarfile.open(archive).getnames()}
    assert {"setup.py", "papers/dse/paper.yaml", "notebooks/dse.ipynb", "workflow/Snakefile"} <= names
    assert "dialnb/assets/encoders/mini/model.safetensors" in names


def test_an_installed_package_lists_plans_and_reports(installed):
    listed = installed("list")
    assert all(f"\n{slug} " in f"\n{listed}" for slug in STUDIES) and "not written yet" not in listed
    assert "CLINC150" in installed("data", "list")
    assert "smoke" in installed("run", "dse", "--profile", "smoke", "--dry-run")
    installed("report", "-o", "site")
    assert all((installed.folder / "site" / f"{slug}.html").is_file() for slug in STUDIES)


def test_an_installed_package_trains_on_a_file_of_ones_own_and_saves_it(installed):
    rows = [{"dialogue": str(n), "text": text} for n, said in enumerate(TALK * 4) for text in said]
    (installed.folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    small = ["--set", "max_steps=2", "--set", "batch_size=4"]
    installed("train", "DSE", "--corpus", "own.jsonl", "-o", "model", *small)
    said = json.loads((installed.folder / "model" / "training.json").read_text(encoding="utf-8"))
    assert said["steps"] == 2 and said["provenance"]["code"]["commit"] is None


def test_init_lays_out_a_project_that_commands_then_use(installed):
    installed("init", "mine")
    mine = installed.folder / "mine"
    assert (mine / "notebooks" / "dse.ipynb").is_file() and (mine / "workflow" / "Snakefile").is_file()
    assert os.access(mine / "papers" / "dse", os.W_OK)


# --- what is imported is declared ---------------------------------------------------------------------------------------
