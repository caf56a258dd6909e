"""What a stage depends on, as hashes: the values it is given and the code that it can reach.

Code counts by what it does: the syntax tree without docstrings, so that a comment or a line break never retrains a
model. From the stage's function every name is followed into the definitions of its own package, and no further: a
changed loss redoes the models that use it, a changed plot nothing at all.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib.util
import inspect
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dialnb.errors import DialnbError

Place = tuple[str, str]
"""A module and a name in it; "*" is the whole module."""


def fingerprint(value: Any, where: str = "value") -> str:
    """sha256 of a value's content: equal content has equal fingerprints, in every process and on every machine."""
    return _sha256(json.dumps(_content(value, where), sort_keys=True, ensure_ascii=False).encode())


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


_hashed: WeakKeyDictionary[Any, Any] | None = None


@contextmanager
def hashed_once() -> Iterator[None]:
    """Inside the block the weights of a module are hashed once: many stages are keyed by the same few encoders."""
    global _hashed
    before, _hashed = _hashed, WeakKeyDictionary()
    try:
        yield
    finally:
        _hashed = before


def _content(value: Any, where: str) -> Any:
    """The value as JSON that holds everything that matters about it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.generic):
        return _content(value.item(), where)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return {"objects": _content(value.tolist(), where)}
        plain = np.ascontiguousarray(value).data if value.size else b""
        return {"array": value.dtype.str, "shape": list(value.shape), "sha256": _sha256(plain)}
    if isinstance(getattr(value, "fingerprint", None), str):
        return {"fingerprint": value.fingerprint}
    if isinstance(value, Mapping):
        return {"map": sorted([fingerprint(k, where), fingerprint(v, f"{where}[{k!r}]")] for k, v in value.items())}
    if isinstance(value, list | tuple | range):
        return [_content(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted(fingerprint(item, where) for item in value)}
    if isinstance(value, Path):
        return {"file": _sha256(value.read_bytes())}
    if inspect.isfunction(value) or inspect.isclass(value):
        held = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return {"code": code_version(value), "name": value.__qualname__, "holds": _content(held, where)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {type(value).__qualname__: _content(fields, where)}
    return _library_content(value, where)


def _library_content(value: Any, where: str) -> Any:
    """The content of data frames, tensors and modules."""
    import pandas as pd
    import torch

    if value is pd.NA:
        return {"missing": True}
    if isinstance(value, pd.DataFrame):
        columns = {str(name): _content(value[name].tolist(), f"{where}.{name}") for name in value.columns}
        return {"frame": columns, "index": _content(value.index.tolist(), where)}
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return {"tensor": str(value.dtype), "shape": list(value.shape), "bytes": _content(plain, where)}
    if not isinstance(value, torch.nn.Module):
        raise DialnbError(
            f"a stage cannot be keyed by {where}, a {type(value).__name__}: give it plain values, dataclasses, arrays, "
            "data frames, tensors, encoders, datasets, or an object with a string attribute `fingerprint`"
        )
    if _hashed is not None and value in _hashed:
        return _hashed[value]
    reader = getattr(value, "encoder", value)  # of a selector
    words = getattr(getattr(reader, "tokenizer", None), "get_vocab", dict)()
    found = {name: getattr(reader, name, None) for name in ("pooling", "length", "normalize", "prompt")}
    found |= {"module": type(value).__qualname__, "words": fingerprint(sorted(words.items()))}
    found["weights"] = {name: _content(tensor, where) for name, tensor in value.state_dict().items()}
    if _hashed is not None:
        _hashed[value] = found
    return found


def code_version(function: Callable, modules: Iterable[ModuleType] = ()) -> str:
    """sha256 of the function's code and of all definitions of its package that it reaches; `modules` count whole."""
    seen: dict[Place, str] = {}
    _visit_object(function, seen)
    for module in modules:
        _visit_object(module, seen)
    return _sha256(json.dumps(sorted([*place, code] for place, code in seen.items())).encode())


def _visit_object(value: Any, seen: dict[Place, str]) -> None:
    """Follow a module, function or class; one that was typed into a notebook reaches what its names stand for there."""
    if isinstance(value, ModuleType):
        return _visit([(value.__name__, "*")], seen)
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return None
    module = value.__module__
    if module != "__main__" and getattr(sys.modules.get(module), "__file__", None):
        return _visit([(module, value.__qualname__.split(".")[0])], seen)
    if ("__main__", value.__qualname__) in seen:
        return None
    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    seen["__main__", value.__qualname__] = _code(tree)
    for name in sorted(_names(tree)):
        _visit_object(getattr(value, "__globals__", {}).get(name), seen)
    return _visit([place for _, place in _imports(tree, "__main__")], seen)


def _visit(todo: list[Place], seen: dict[Place, str]) -> None:
    """Add definitions of modules of ours, then everything of the package that they name."""
    while todo:
        module, name = todo.pop()
        path = _path(module)
        if path is None or (module, name) in seen:
            continue
        source = _parsed(module, path, path.stat().st_mtime_ns)
        seen[module, name] = source.code.get(name, "")
        if name == "*":
            todo += [(module, each) for each in source.code]
        elif name in source.code:
            for used in source.names[name]:
                todo += [(module, used)] if used in source.code else []
                todo += source.imports.get(used, ())
        elif others := source.imports.get(name, set()) - {(module, name)}:
            todo += others
        else:  # a submodule (which a package may import from itself), or a lambda, which could be any definition
            todo.append((f"{module}.{name}" if name.isidentifier() else module, "*"))


@dataclasses.dataclass
class _Source:
    """The code of a module's top-level definitions, the names that each uses, and what imported names stand for."""

    code: dict[str, str] = dataclasses.field(default_factory=dict)
    names: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    imports: dict[str, set[Place]] = dataclasses.field(default_factory=dict)


@cache
def _parsed(module: str, path: Path, changed: int) -> _Source:
    source = _Source()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):  # TYPE_CHECKING: annotations run nothing
            continue
        for name, place in _imports(node, module):
            source.imports.setdefault(name, set()).add(place)
        names, code = _names(node), _code(node)
        for name in _defines(node):
            source.code[name] = source.code.get(name, "") + code
            source.names[name] = source.names.get(name, set()) | names
    return source


def _path(module: str) -> Path | None:
    """The file of a module of dialnb or of the user's own; None for other packages, whose versions stand in the
    provenance. They are not asked for their modules: that would import them."""
    package = module.split(".")[0]
    if package != "dialnb" and (package in sys.stdlib_module_names or _is_installed(package)):
        return None
    spec = _spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@cache
def _is_installed(package: str) -> bool:
    """Whether a package lies among those of an environment, or beside its description (``pip install --target``)."""
    spec = _spec(package)
    if spec is None:
        return True
    for place in map(Path, spec.submodule_search_locations or [spec.origin or ""]):
        if {"site-packages", "dist-packages"} & set(place.parts) or any(place.parent.glob("*.dist-info")):
            return True
    return False


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _defines(node: ast.stmt) -> set[str]:
    """The names that a top-level statement gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else ()
    return set().union(*map(_names, targets))


def _imports(tree: ast.AST, module: str) -> Iterator[tuple[str, Place]]:
    """Every import below `tree`: the local name, and the place that it stands for."""
    is_package = (_path(module) or Path()).name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], (alias.name, "*")
        elif isinstance(node, ast.ImportFrom):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield alias.asname or alias.name, (origin, alias.name)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _code(tree: ast.AST) -> str:
    """The code as canonical text, without comments and docstrings."""
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
