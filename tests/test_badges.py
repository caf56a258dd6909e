"""Badges of a release, and the cell that installs what is missing: none here, in every notebook of what is tagged."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement
from shared import are_stripped

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
TAG, REPOSITORY = f"v{VERSION}", "some-one/dialnb.fork"
WHEEL = f"https://github.com/{REPOSITORY}/releases/download/{TAG}/dialnb-{VERSION}-py3-none-any.whl"
PLACES = re.compile(r"(?:colab\.research\.google\.com/github|mybinder\.org/v2/gh|github\.com)/([\w.-]+/dialnb[\w.-]*)/")

# What the kernels of Colab run on (googlecolab/backend-info, August 2026): another version of these can crash them.
COLAB = {"ipykernel": "6.17.1", "ipython": "7.34.0", "ipywidgets": "7.7.1", "jupyter-client": "7.4.9",
         "numpy": "2.1.3", "pandas": "2.2.3", "plotly": "5.24.1", "torch": "2.11.0"}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=Some One", "-c", "user.email=some@one.example"]
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def shell(folder: Path, step: str, **variables: str) -> subprocess.CompletedProcess:
    """Run a step of the release workflow as a runner does."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    (script,) = [one["run"] for one in workflow["jobs"]["wheel"]["steps"] if one.get("name") == step]
    known = {"PATH": f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}", "RUNNER_TEMP": str(folder.parent)}
    known |= {"GITHUB_REPOSITORY": REPOSITORY, "TAG": TAG} | variables
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=os.environ | known, capture_output=True, text=True)


def checkout(place: Path) -> Path:
    """A clone, with an origin that can be pushed to, of the parts of the project that a release changes or reads."""
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(sys.executable)
    folder = place / "clone"
    for name in ("README.md", "pyproject.toml", "tools/__init__.py", "tools/badges.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (folder / ".gitignore").write_text("__pycache__/\n")
    git(place, "init", "-q", "--bare", "origin.git")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "As it is")
    git(folder, "remote", "add", "origin", str(place / "origin.git"))
    git(folder, "push", "-q", "origin", "main")
    return folder


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    """The clone after the steps of the release workflow that write badges and make the tag."""
    folder = checkout(tmp_path_factory.mktemp("released"))
    for step in ("Badges and addresses", "Tag it"):
        done = shell(folder, step)
        assert done.returncode == 0, done.stderr
    return folder


def cells_of(folder: Path, name: str) -> list[dict]:
    return nbformat.read(folder / "notebooks" / name, as_version=4).cells


def install_cell(folder: Path, name: str) -> str:
    (cell,) = [cell for cell in cells_of(folder, name) if cell.id.endswith("-install")]
    return TransformerManager().transform_cell(cell.source)


def test_readme_and_notebooks_name_no_place_or_all_the_same_one():
    texts = [(ROOT / "README.md").read_text(encoding="utf-8")]
    texts += [(ROOT / "notebooks" / name).read_text(encoding="utf-8") for name in NOTEBOOKS]
    places = [set(PLACES.findall(text)) for text in texts]
    assert all(found == places[0] for found in places) and len(places[0]) <= 1
    assert not any("OWNER/dialnb" in text for text in texts)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tagged_notebook_opens_in_colab_and_binder_and_is_still_a_clean_notebook(released, name):
    nbformat.validate(nbformat.read(released / "notebooks" / name, as_version=4))
    title, badges = cells_of(released, name)[0].source.splitlines()[0:3:2]
    colab = f"(https://colab.research.google.com/github/{REPOSITORY}/blob/{TAG}/notebooks/{name})"
    binder = f"(https://mybinder.org/v2/gh/{REPOSITORY}/{TAG}?labpath=notebooks%2F{name})"
    assert title.startswith("# ") and colab in badges and binder in badges
    readme = (released / "README.md").read_text(encoding="utf-8")
    notes = (released.parent / "notes.md").read_text(encoding="utf-8")
    for text in (readme, notes):
        assert text.count(colab) == text.count(binder) == 1


def test_tagged_notebooks_are_stripped(released):
    assert are_stripped(*(released / "notebooks").glob("*.ipynb"))


def test_only_the_tag_has_links_and_nothing_but_readme_and_notebooks_changed(released):
    origin = released.parent / "origin.git"
    assert git(origin, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", f"refs/tags/{TAG}"]
    changed = git(origin, "diff", "--name-only", "main", TAG).split()
    assert sorted(changed) == sorted(["README.md", *(f"notebooks/{name}" for name in NOTEBOOKS)])
    assert REPOSITORY not in git(origin, "show", "main:README.md")
    assert WHEEL in git(origin, "show", f"{TAG}:notebooks/dse.ipynb")


def test_a_second_time_changes_nothing_and_another_place_replaces_the_first(released, tmp_path):
    folder = shutil.copytree(released.parent, tmp_path / "again", symlinks=True) / "clone"
    assert shell(folder, "Badges and addresses").returncode == 0
    assert git(folder, "status", "--porcelain") == ""
    assert shell(folder, "Badges and addresses", GITHUB_REPOSITORY="other/dialnb").returncode == 0
    for path in [folder / "README.md", *(folder / "notebooks").glob("*.ipynb")]:
        assert set(PLACES.findall(path.read_text(encoding="utf-8"))) == {"other/dialnb"}, path.name


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"TAG": "v9.9.9"}, f"the tag must be {TAG}"),
        ({"GITHUB_REPOSITORY": "nobody"}, "expected a repository as OWNER/NAME"),
    ],
)
def test_a_wrong_tag_or_repository_is_refused_and_nothing_is_written(tmp_path, wrong, said):
    folder = checkout(tmp_path)
    done = shell(folder, "Badges and addresses", **wrong)
    assert done.returncode == 1 and said in done.stderr
    assert git(folder, "status", "--porcelain") == ""


def test_a_readme_without_its_place_is_refused_before_a_notebook_is_written(tmp_path):
    folder = checkout(tmp_path)
    (folder / "README.md").write_text("# dialnb\n")
    done = shell(folder, "Badges and addresses")
    assert done.returncode == 1 and "README.md has 0 places" in done.stderr
    assert git(folder, "status", "--porcelain").split() == ["M", "README.md"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_cell_after_the_parameters_looks_for_dialnb_before_anything_imports_it(name):
    code = [cell for cell in cells_of(ROOT, name) if cell.cell_type == "code"]
    assert code[0].metadata.get("tags") == ["parameters"] and code[1].id.endswith("-install")
    assert not re.search(r"^(import|from) dialnb", code[0].source + "\n" + code[1].source, re.MULTILINE)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_that_cell_does_nothing_where_dialnb_is_there(released, name):
    for folder in (ROOT, released):
        exec(install_cell(folder, name), {"get_ipython": lambda: pytest.fail("it installs")})  # noqa: S102


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_where_dialnb_is_missing_a_release_installs_its_wheel_and_a_clone_says_how(released, name, monkeypatch):
    class Shell:
        asked: list[tuple[str, str]] = []  # noqa: RUF012

        def run_line_magic(self, magic: str, line: str) -> None:
            self.asked.append((magic, line))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(install_cell(released, name), {"get_ipython": Shell})  # noqa: S102
    assert Shell.asked == [("pip", f"install -q {WHEEL}")]
    if "%pip" not in json.dumps(cells_of(ROOT, name)):  # a clone of a release installs it, too
        with pytest.raises(ModuleNotFoundError, match=r"run `pip install -e \.` in the clone"):
            exec(install_cell(ROOT, name), {})  # noqa: S102


def test_installing_the_wheel_leaves_what_the_kernels_of_colab_run_on_as_it_is():
    needed = {requirement.name: requirement.specifier for requirement in map(Requirement, PROJECT["dependencies"])}
    assert [name for name, version in COLAB.items() if not needed[name].contains(version)] == []
