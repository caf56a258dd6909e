"""Shared fixtures. Mirrors are found through DIALNB_MIRROR, or in ../shared beside the checkout."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

# A busy machine is no failure; what fifty examples of a run do not find is looked for again by the next.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=50)
hypothesis.settings.load_profile("untimed")

sys.dont_write_bytecode = False  # hundreds of processes import the same packages: each is compiled once, for all
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.set_threshold(100_000, 20, 20)  # millions of records and no cycles among them: looking for some took half the time

ROOT = Path(__file__).resolve().parent.parent

SHARED = ("mirror", "encoders", "more")

LONGEST = (
    *("test_papers_notebooks", "test_matrix", "test_records", "test_jupyterlab", "test_runs_notebooks"),
    *("test_workflow", "test_report", "test_tour", "test_report_browser", "test_runs_tools", "test_stats"),
    "test_documents",
    *("test_seeds", "test_leaks", "test_wheel", "test_bundle", "test_claims", "test_graphs", "test_grid", "test_scale"),
    *("test_projection", "test_cli_engine", "test_study_dialoguecse", "test_training", "test_runs_workers"),
)
"""The files that take longest: begun first, so that all workers end at about the same time. Those that read the same
corpora (stats, leaks, bundle) stand apart: two workers at once would wait for each other."""


def pytest_configure(config) -> None:
    config.option.loadscopereorder = False  # else pytest-xdist begins with the files that have most tests


def pytest_collection_modifyitems(items) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported stays


@pytest.fixture(scope="session")
def roots() -> list[Path]:
    """The mirror folders there are: datasets, encoders, more datasets; each laid out as HOST/PATH."""
    from dialnb.data.store import split_roots

    setting = os.environ.get("DIALNB_MIRROR")
    named = split_roots(setting) if setting else [str(ROOT.parent / "shared" / name) for name in SHARED]
    return [Path(root) for root in named if Path(root).is_dir()]


def root_with(roots: list[Path], part: str, what: str) -> Path:
    found = next((root for root in roots if (root / part).is_dir()), None)
    if found is None:
        pytest.skip(f"no {what} mirror: name a folder with {part} (laid out as HOST/PATH) in DIALNB_MIRROR")
    return found


@pytest.fixture(scope="session")
def mirror(roots) -> Path:
    """Folder with the dataset mirror, or a skip that says how to provide one."""
    return root_with(roots, "raw.githubusercontent.com/clinc", "dataset")


@pytest.fixture(scope="session")
def encoder_mirror(roots) -> Path:
    """Folder with the mirror of real encoders, or a skip that says how to provide one."""
    return root_with(roots, "huggingface.co/sentence-transformers", "encoder")


@pytest.fixture(scope="session")
def mpnet(roots) -> Path:
    """Folder of the base-size encoder in the cache of whoever runs the tests or in a mirror, or a skip."""
    from dialnb.data.store import Store

    name = "sentence-transformers/all-mpnet-base-v2"
    places = [Store().cache / "files" / name, *(root / "huggingface.co" / name / "resolve" / "main" for root in roots)]
    for place in places:
        if (place / "model.safetensors").is_file():
            return place
    pytest.skip(f"no {name} on this machine: dialnb data fetch {name}")


@pytest.fixture(scope="session")
def every_mirror(roots, mirror, encoder_mirror) -> list[Path]:
    """All that the registry knows the bytes of, or a skip."""
    root_with(roots, "raw.githubusercontent.com/brmson", "second dataset")
    return roots


@pytest.fixture(scope="session")
def mirror_store(mirror, roots, tmp_path_factory):
    """A store that reads the mirrors only (never the network); one cache for this test session and all its workers."""
    from shared import session_folder

    from dialnb.data.store import Store

    session = session_folder(tmp_path_factory)
    return Store(cache=session / "mirror-cache", mirror=os.pathsep.join(map(str, roots)), offline=True)


@pytest.fixture(autouse=True)
def _private_home(tmp_path_factory, monkeypatch):
    """Tests never read or write the user's own cache, mirror setting or hub folder."""
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path_factory.getbasetemp() / "dialnb-cache"))
    monkeypatch.delenv("DIALNB_MIRROR", raising=False)
    monkeypatch.delenv("DIALNB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def one_thread():
    """A single torch thread for the tests of a module: results to the last bit, and no fight over two cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
