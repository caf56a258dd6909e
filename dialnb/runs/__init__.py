"""Runs: the grid of models and tasks, cached stages, notebooks executed headless, provenance, packs.

`Model`, `Task` and `Watch` are what the cells of a notebook list.
"""

from dialnb import lazily

ROOMS = {
    "grid": "LAYERS TRAIN_SEED Model Task Trained Watch agreement",
    "profiles": "Settings load_profiles",
    "run": "Run start",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
