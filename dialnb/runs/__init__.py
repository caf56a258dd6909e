"""Runs: the grid of models and tasks, cached stages, notebooks executed headless, provenance, packs.

`Model`, `Task` and `Watch` are what the cells of a notebook list.
"""

from __future__ import annotations

from importlib import import_module

_PLACES = {"Run": "run", "start": "run", "Settings": "profiles", "load_profiles": "profiles"}
_PLACES |= dict.fromkeys(("Model", "TRAIN_SEED", "Task", "Trained", "Watch", "agreement"), "grid")
__all__ = ["TRAIN_SEED", "Model", "Run", "Settings", "Task", "Trained", "Watch", "agreement", "load_profiles", "start"]


def __getattr__(name: str):
    if name in _PLACES:
        return getattr(import_module(f"dialnb.runs.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'dialnb.runs' has no attribute {name!r}")
