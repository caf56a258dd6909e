"""dialnb: five papers on dialogue representation learning, reproduced in notebooks.

>>> import dialnb
>>> encoder = dialnb.load_encoder("mini")                # doctest: +SKIP
>>> records = dialnb.load("CLINC150", split="test")      # doctest: +SKIP
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

try:
    __version__ = version("dialnb")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"


def lazily(package: str, rooms: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package: a module and all that it loads wait until a name of it is
    asked for."""
    homes = {name: f"{package}.{room}" for room, names in rooms.items() for name in names.split()}

    def named(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names = sorted(homes)
    return names, named, lambda: names


__all__, __getattr__, _ = lazily(__name__, {"models.encoder": "Encoder load_encoder", "data": "load"})
__all__ += ["__version__"]


def __dir__() -> list[str]:
    """What a notebook offers after `dialnb.`: the names above, and the rooms that have been entered."""
    return [*__all__, *(name for name, value in globals().items() if isinstance(value, ModuleType))]
