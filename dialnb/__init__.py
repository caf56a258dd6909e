"""dialnb: five papers on dialogue representation learning, reproduced in notebooks.

>>> import dialnb
>>> encoder = dialnb.load_encoder("mini")                # doctest: +SKIP
>>> records = dialnb.load("CLINC150", split="test")      # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

try:
    __version__ = version("dialnb")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_LAZY = {"load_encoder": "dialnb.models.encoder", "Encoder": "dialnb.models.encoder", "load": "dialnb.data"}
__all__ = ["Encoder", "__version__", "load", "load_encoder"]


def __getattr__(name: str):
    """Import the heavy rooms only when something of theirs is asked for."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dialnb' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a notebook offers after `dialnb.`: the names above, and the rooms that have been entered."""
    return [*__all__, *(name for name, value in globals().items() if isinstance(value, ModuleType))]
