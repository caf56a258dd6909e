"""The promises of the repository itself: lock, environments, licence, citation, README, and the two commands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import hypothesis
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from dialnb import plots
from dialnb.claims.papers import SLUGS, load_paper
from tools.overview import overview

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def lock() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for extra in extras.values() for text in extra)]
    ]


def test_the_lock_is_sorted_exact_and_free_of_local_tags():
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert lines == sorted(lines, key=str.upper)


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_every_dependency_is_pinned_within_its_bounds(requirement, lock):
    assert lock[canonicalize_name(requirement.name)] in requirement.specifier


def test_environment_yml_agrees_with_the_lock_and_the_supported_pythons(lock):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    versions = dict(re.split("=+", entry) for entry in conda if "=" in entry)
    assert f"{versions.pop('python')}.0" in SpecifierSet(PROJECT["requires-python"])
    versions |= dict(entry.split("==") for entry in pip if "==" in entry)
    assert versions["torch"] == lock["torch"]
    assert {name: lock[canonicalize_name(name)] for name in versions} == versions
    assert "--constraint constraints.txt" in pip and "-e .[dev]" in pip


def test_the_readme_installs_the_locked_torch(lock):
    for name in ("README.md", "constraints.txt"):
        mentioned = set(re.findall(r"torch==([0-9.]+)", (ROOT / name).read_text(encoding="utf-8")))
        assert mentioned == {lock["torch"]}, name


def test_the_readme_gives_every_step_of_the_two_commands_without_make():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    steps = re.findall(
        r"\$\(PY\) (?:-u )?-m ((?:dialnb|pytest|ruff|mypy|nbstripout)[^\n$]*)", recipe.split("format: setup")[0]
    )
    assert len(steps) == 6
    for step in steps:
        assert f".venv/bin/python -m {step.removesuffix(' -rs').rstrip()}" in readme, step


def test_the_check_of_types_reports_a_call_with_too_many_arguments(tmp_path):
    room = ROOT / "dialnb" / "evaluation"
    files = [ROOT / "dialnb" / "__init__.py", room / "__init__.py", room / "bundled.py", tmp_path / "broken.py"]
    code = (ROOT / "dialnb" / "commands" / "engine.py").read_text(encoding="utf-8")
    broken = code.replace("intent_sets()))", "intent_sets(), 24))")
    files[-1].write_text(broken, encoding="utf-8")
    settings = ["--follow-imports=skip", f"--cache-dir={tmp_path}", "--hide-error-context"]  # these files alone: quick
    command = [sys.executable, "-m", "mypy", *settings, *map(str, files)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    (error,) = [line for line in said.splitlines() if "broken.py" in line]
    assert 'error: Too many arguments for "intent_scores"  [call-arg]' in error


def test_modules_that_are_not_strictly_typed_yet_exist():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] and settings["files"] == ["dialnb", "tools", "benchmarks"]
    named = [name for part in settings["overrides"] for name in part["module"] if not name.endswith(".*")]
    ours = [name for name in named if name.split(".")[0] in settings["files"]]
    paths = [ROOT / name.replace(".", "/") for name in ours]
    assert ours and [path for path in paths if not (path.with_suffix(".py").is_file() or path.is_dir())] == []


def test_the_licence_is_the_one_that_the_project_names():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_citation_names_version_licence_and_all_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {reference["title"] for reference in citation["references"]} == {load_paper(slug).title for slug in SLUGS}
    assert all(reference["authors"] and reference["type"] for reference in citation["references"])


def test_every_relative_link_in_the_documents_leads_to_a_file():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("papers/*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (document.parent / target).is_file(), f"{document.name}: {target}"


def test_the_readme_lists_every_paper_and_claims_no_notebook_that_is_not_there():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for slug in SLUGS:
        row = next(line for line in readme.splitlines() if line.startswith(f"| [{load_paper(slug).name}]"))
        assert ("not written yet" in row) != (ROOT / "notebooks" / f"{slug}.ipynb").is_file()


def test_the_overview_figure_is_drawn_the_same_every_time(tmp_path):
    first, second = (plots.save(overview(), tmp_path / name / "overview") for name in "ab")
    assert [path.suffix for path in first] == [".png", ".svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_no_property_test_is_timed():
    assert hypothesis.settings.default.deadline is None
