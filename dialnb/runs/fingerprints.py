"""What a stage depends on, as hashes: the values it is given and the code that it can reach.

Code counts by what it does: as it is compiled, so that a comment, a docstring or a line break never retrains a model. A
function of dialnb depends on its room and on all rooms from which that may import: a changed loss redoes the trainings,
a changed plot nothing at all. A function of your own depends on its package, and one that was typed into a notebook on
what its names stand for there.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch

from dialnb.errors import DialnbError
from dialnb.files import Fields, Values, digest_of, sha256

HOME = Path(__file__).resolve().parent.parent
STREET = (
    *("errors", "seeding", "progress", "limits", "typed", "files", "data", "tokens", "losses", "examples", "models"),
    *("training", "evaluation", "studies"),
)
"""The rooms whose code decides what a stage gives; each may import from those before it. Others draw, judge, or run."""

Hashes = MutableMapping[Any, str]
"""The hashes of weights that are known already: many stages share the same few encoders."""


# --- values -----------------------------------------------------------------------------------------------------------


def stage_key(function: Callable, inputs: Fields, hashes: Hashes | None = None) -> str:
    """The name of a result: a hash of the function, its inputs, and the code that it and their classes reach."""
    values = {name: (fingerprint(value, name, hashes), code_version(type(value))) for name, value in inputs.items()}
    parts = [f"{function.__module__}.{function.__qualname__}", code_version(function), values]
    return fingerprint(parts)[:32]


def fingerprint(value: Any, where: str = "value", hashes: Hashes | None = None) -> str:
    """sha256 of a value's content: equal content has equal fingerprints, in every process and on every machine."""
    try:
        return digest_of(json.dumps(value, default=partial(_content, hashes=hashes), sort_keys=True))
    except TypeError as error:
        raise DialnbError(
            f"a stage cannot be keyed by {where} ({error}): give it plain values, dataclasses, arrays, "
            "data frames, tensors, encoders, datasets, or an object with a string attribute `fingerprint`"
        ) from error


def _content(value: Any, hashes: Hashes | None) -> Any:
    """What matters about a value that JSON does not know, in values that it knows or that come here in turn."""
    if isinstance(getattr(value, "fingerprint", None), str):
        return {"fingerprint": value.fingerprint}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.hasobject else digest_of(value.tobytes())
        return {"array": value.dtype.str, "shape": value.shape, "content": content}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, range):
        return list(value)
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(fingerprint, value))}
    if isinstance(value, Path):
        return {"file": sha256(value)}
    if inspect.isfunction(value) or inspect.isclass(value):
        held = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return {"code": code_version(value), "name": value.__qualname__, "holds": held}
    if dataclasses.is_dataclass(value):
        return {type(value).__qualname__: {field.name: getattr(value, field.name) for field in fields(value)}}
    if value is pd.NA:
        return {"missing": True}
    if isinstance(value, pd.DataFrame):
        return {"frame": value.to_dict("split")}
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return {"tensor": str(value.dtype), "shape": value.shape, "bytes": plain}
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"it holds a {type(value).__name__}")
    known = {} if hashes is None else hashes
    if value not in known:
        known[value] = fingerprint(dict(value.state_dict()))
    reader = getattr(value, "encoder", value)  # of a selector
    words: Values = getattr(getattr(reader, "tokenizer", None), "get_vocab", dict)()
    content = {name: getattr(reader, name, None) for name in ("pooling", "length", "normalize", "prompt")}
    return content | {"module": type(value).__qualname__, "words": words, "weights": known[value]}


# --- code -------------------------------------------------------------------------------------------------------------


def code_version(function: Callable) -> str:
    """sha256 of the code of a function or class and of all that it may reach."""
    seen: dict[str, Any] = {}
    _visit(function, seen)
    return digest_of(json.dumps(sorted(seen.items())))


def _visit(value: Any, seen: dict[str, Any]) -> None:
    """Add the code of a module, or of what a function or class may reach."""
    is_code = inspect.isfunction(value) or inspect.isclass(value)
    if not (is_code or isinstance(value, ModuleType)):
        return
    name = value.__module__ if is_code else value.__name__
    package, _, rest = name.partition(".")
    if package == "dialnb":
        room = rest.partition(".")[0]
        rooms = STREET[: STREET.index(room) + 1] if room in STREET else (*STREET, room)
        seen |= {f"dialnb.{each}": room_version(each) for each in rooms}
    elif package in sys.stdlib_module_names and package != "__main__":
        return
    elif name != "__main__" and (file := getattr(sys.modules.get(name), "__file__", None)):
        _visit_module(name, Path(file), seen)
    elif inspect.isclass(value):  # typed into a notebook
        for part in vars(value).values():
            _visit(getattr(part, "fget", part), seen)
    elif inspect.isfunction(value) and f"__main__.{value.__qualname__}" not in seen:
        seen[f"__main__.{value.__qualname__}"] = _compiled(value.__code__)
        for used in _names(value.__code__):
            _visit(value.__globals__.get(used, sys.modules.get(used)), seen)


def _visit_module(name: str, file: Path, seen: dict[str, Any]) -> None:
    """Add a module of one's own, with its package and what it imports. Those of an environment stand in the record."""
    if name in seen or {"site-packages", "dist-packages"} & {*file.parts}:
        return
    whole = "." in name or file.name == "__init__.py"
    root = file.parents[name.count(".") - (file.name != "__init__.py")] if whole else file
    seen[name] = digest_of(json.dumps([_file_version(path, path.stat().st_mtime_ns) for path in _files(root)]))
    for value in vars(import_module(name)).values():
        _visit(value, seen)


@cache
def room_version(room: str) -> str:
    """sha256 of the code of a room and of the lists beside it."""
    root = HOME / room if (HOME / room).is_dir() else HOME / f"{room}.py"
    return digest_of(json.dumps([_file_version(path, 0) for path in _files(root)]))


def _files(root: Path) -> list[Path]:
    return [root] if root.is_file() else [*sorted(root.rglob("*.py")), *sorted(root.glob("*.yaml"))]


@cache
def _file_version(path: Path, changed: int) -> str:
    if path.suffix != ".py":
        return sha256(path)
    return digest_of(json.dumps(_compiled(compile(path.read_text("utf-8"), "", "exec", optimize=2))))


def _compiled(code: CodeType) -> list[Any]:
    """What code does, without where it stands and what it says of itself."""
    told = code.co_flags & getattr(inspect, "CO_HAS_DOCSTRING", inspect.CO_NEWLOCALS)
    first = told and code.co_consts and isinstance(code.co_consts[0], str)
    parts: list[Any] = []
    for value in code.co_consts[bool(first) :]:
        if isinstance(value, CodeType):
            parts.append(_compiled(value))
        else:
            parts.append(sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value))
    return [code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, parts]


def _names(code: CodeType) -> Iterator[str]:
    """The names that code and all functions within it use, those of imported modules among them."""
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)
