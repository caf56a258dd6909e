"""Shared fixtures. The dataset mirror is found through DIALNB_MIRROR, or in ../shared/mirror beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Folder with the dataset mirror, or a skip that says how to provide one."""
    setting = os.environ.get("DIALNB_MIRROR") or str(ROOT.parent / "shared" / "mirror")
    folder = Path(setting)
    if not (folder / "raw.githubusercontent.com").is_dir():
        pytest.skip(f"no dataset mirror at {folder}: set DIALNB_MIRROR to a folder laid out as HOST/PATH")
    return folder


@pytest.fixture(scope="session")
def mirror_store(mirror, tmp_path_factory):
    """A store that reads the mirror only (never the network); one cache for this test session and all its workers."""
    from dialnb.data.store import Store

    base = tmp_path_factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Store(cache=session / "mirror-cache", mirror=str(mirror), offline=True)


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
