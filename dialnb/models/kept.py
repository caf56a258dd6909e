"""Arrays that are kept in a file under the hash of what they were made of: tokens of texts, vectors of texts."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dialnb.files import make_folder, writing

Arrays = dict[str, np.ndarray]


def kept(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in a file; where it is missing or has changed by a bit, what ``make`` gives, which is then kept. Of
    several processes that ask at once one does the work and the others wait for it."""
    arrays = _read(path)
    if arrays is None:
        make_folder(path.parent)
        with FileLock(f"{path}.lock"):
            arrays = _read(path)  # somebody may have written it while this process waited
            if arrays is None:
                arrays, draft = make(), path.with_suffix(".tmp")
                with writing(draft):
                    save_file(arrays | {"sha256": _checksum(arrays)}, draft)
                draft.replace(path)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        arrays = load_file(path)
        return arrays if np.array_equal(arrays.pop("sha256"), _checksum(arrays)) else None
    except (SafetensorError, OSError, KeyError):
        return None


def _checksum(arrays: Arrays) -> np.ndarray:
    """The sha256 of all arrays and their types, as an array: it travels in the same file."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return np.frombuffer(digest.digest(), np.uint8)
