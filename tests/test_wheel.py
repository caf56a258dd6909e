"""`pip install dialnb` from a wheel: everything works in an empty folder, far from any checkout; nothing is lost."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import tiny
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dialnb.claims.papers import STUDIES

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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
    """A function that runs `dialnb` from the wheel, unpacked as pip does, in an empty folder."""
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("here")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    for folder in [site / "dialnb" / "project", *(site / "dialnb" / "project").rglob("*/")]:
        folder.chmod(0o555)
    settings = {"PYTHONPATH": str(site), "DIALNB_CACHE": str(here / "cache"), "OMP_NUM_THREADS": "1"}

    def dialnb(*arguments: str, cwd: Path = here) -> str:
        command = [sys.executable, "-m", "dialnb", *arguments]
        done = subprocess.run(command, cwd=cwd, env={**os.environ, **settings}, capture_output=True, text=True)
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
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"setup.py", "papers/dse/paper.yaml", "notebooks/dse.ipynb", "workflow/Snakefile"} <= names
    assert "dialnb/assets/encoders/mini/model.safetensors" in names


def test_an_installed_package_lists_papers_and_data_and_plans_a_run(installed):
    listed = installed("list")
    assert all(f"\n{slug} " in f"\n{listed}" for slug in STUDIES) and "not written yet" not in listed
    assert "CLINC150" in installed("data", "list")
    assert "nothing is executed" in installed("run", "dse", "--profile", "smoke", "--dry-run")


@pytest.mark.slow
def test_an_installed_package_trains_on_a_file_of_ones_own_and_saves_it(installed):
    tiny.encoder().save(installed.folder / "start")
    said = [("hello, i want a table", "for how many people?"), ("is it raining in Oslo", "no, the sun is out")]
    rows = [{"dialogue": str(n), "text": text} for n, texts in enumerate(said * 4) for text in texts]
    (installed.folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    small = ["--set", "max_steps=2", "--set", "batch_size=4"]
    installed("train", "DSE", "--encoder", "start", "--corpus", "own.jsonl", "-o", "model", *small)
    made = json.loads((installed.folder / "model" / "training.json").read_text(encoding="utf-8"))
    assert made["steps"] == 2 and made["provenance"]["code"]["commit"] is None


def test_init_lays_out_a_project_that_commands_then_use(installed):
    mine = installed.folder / "mine"
    installed("init", str(mine))
    assert (mine / "notebooks" / "dse.ipynb").is_file() and (mine / "workflow" / "Snakefile").is_file()
    (mine / "papers" / "dse" / "paper.yaml").write_text("{title: A title of mine, venue: here}", encoding="utf-8")
    assert "A title of mine" in installed("list", cwd=mine / "notebooks")


# --- what is imported is declared -------------------------------------------------------------------------------------

GUARDED = {"triton": "comes with torch where there is a GPU", "spacy": "used where it is; rules stand in for it"}
GUARDED |= dict.fromkeys(("datasets", "mteb", "sentence_transformers"), "asked for by those who have it (extra mteb)")
GUARDED["distributed"] = "asked for by those who name a scheduler (extra dask)"
STARTED = {"ipykernel": "runs the notebooks", "jupyterlab": "opens them"}
"""What no module imports, and what for it is needed all the same."""


OURS = {"dialnb", "tools", "benchmarks", "sweep"}
FOLDERS = {"dialnb": "", "benchmarks": "bench", "tools": "dev", "tests": "dev"}


def imported(folder: str) -> set[str]:
    """Top-level modules that the files of a folder import, without the standard library and without its own."""
    files = list((ROOT / folder).rglob("*.py"))
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.split(".")[0] for name in names} - {path.stem for path in files} - OURS - sys.stdlib_module_names


def declared(extra: str = "") -> set[str]:
    """Names of the packages that pyproject.toml asks for."""
    texts = PROJECT["dependencies"] + PROJECT["optional-dependencies"].get(extra, [])
    return {canonicalize_name(Requirement(text).name) for text in texts}


@pytest.fixture(scope="module")
def packages() -> dict[str, set[str]]:
    """The packages that bring a module, by its name."""
    return {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}


@pytest.mark.parametrize(("folder", "extra"), FOLDERS.items())
def test_every_package_that_is_imported_is_declared(folder, extra, packages):
    bring = {module: packages.get(module, {module}) for module in imported(folder) - set(GUARDED)}
    assert not [module for module, names in bring.items() if not names & declared(extra)]


def test_every_package_that_is_declared_is_imported_or_has_another_reason(packages):
    used = {name for module in imported("dialnb") for name in packages.get(module, ())}
    assert declared() - used == set(STARTED)
