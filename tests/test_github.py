"""The workflows of the repository and Binder's files: valid, and in step with the project."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from dialnb.cli import dialnb

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def steps(name: str) -> list[dict]:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_every_workflow_has_the_form_that_github_expects():
    assert [path.stem for path in WORKFLOWS] == ["gpu", "pages", "release", "tests"]
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, *WORKFLOWS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_pushes_are_tested_with_every_supported_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    supported = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3" in text]
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_commands_and_targets_that_exist(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    scripts = "\n".join(step.get("run", "") for step in steps(path.name))
    assert set(re.findall(r"\bmake ([a-z]+)", scripts)) <= targets
    assert set(re.findall(r"(?:-m dialnb|bin/dialnb) ([a-z]+)", scripts)) <= set(dialnb.commands)
    for step in steps(path.name):
        if "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_the_release_and_binder_install_the_locked_torch():
    lock = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (torch,) = re.findall(r"^torch==[0-9.]+$", lock, re.MULTILINE)
    binder = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert torch in binder and "--constraint ../constraints.txt" in binder and "." in binder
    assert torch in "\n".join(step.get("run", "") for step in steps("release.yml"))
    runtime = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    assert runtime.removeprefix("python-") in "".join(PROJECT["classifiers"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version_beside(path):
    used = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_what_somebody_types_into_a_workflow_is_a_list_of_papers_and_no_option(tmp_path):
    """The shell of the run, with a command in place of Python that shows what it is given."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    runs = [step["run"] for step in steps("gpu.yml") if "dialnb run" in step.get("run", "")]
    assert len(runs) == 2
    for script in runs:
        given = {"PAPERS": "dse  ums * --fresh $(touch canary)", "PROFILE": "gpu", "SEED": "1; touch canary"}
        command = ["bash", "-e", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
        options, _, papers = done.stdout.partition("\n--\n")
        assert papers.splitlines() == ["dse", "ums", "*", "--fresh", "$(touch", "canary)"]
        assert "1; touch canary" in options.splitlines() and "--fresh" not in options
    assert not (tmp_path / "canary").exists()


def test_the_nightly_run_waits_for_a_variable_of_the_repository():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "gpu.yml").read_text(encoding="utf-8"))["jobs"]["run"]
    assert "github.event_name != 'schedule' || vars.NIGHTLY_GPU == 'true'" in job["if"]
