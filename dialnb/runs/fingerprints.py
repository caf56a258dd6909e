"""What a stage depends on, as hashes: the values it is given and the code that it can reach.

Code counts by what it does: the syntax tree without docstrings, so that a comment or a line break never retrains a
model. From the stage's function every name is followed into the definitions of its own package, and no further: a
changed loss redoes the models that use it, a changed plot nothing at all. A file beside a module that a function names
counts with it, by its bytes; what a module reads when it is imported has to come to a stage as an input.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch

from dialnb.errors import DialnbError
from dialnb.files import Values, digest_of, sha256

Place = tuple[str, str]
"""A module and a name in it; "*" is the whole module."""
Reached = dict[Place, str]
"""The code of all that was followed."""


def fingerprint(value: Any, where: str = "value") -> str:
    """sha256 of a value's content: equal content has equal fingerprints, in every process and on every machine."""
    try:
        return digest_of(json.dumps(value, default=_content, sort_keys=True))
    except TypeError as error:
        raise DialnbError(
            f"a stage cannot be keyed by {where} ({error}): give it plain values, dataclasses, arrays, "
            "data frames, tensors, encoders, datasets, or an object with a string attribute `fingerprint`"
        ) from error


_hashed: WeakKeyDictionary[Any, Any] | None = None


@contextmanager
def hashed_once() -> Iterator[None]:
    """Inside the block weights and code are hashed once: many stages share the same few encoders and functions."""
    global _hashed
    before, _hashed = _hashed, WeakKeyDictionary()
    try:
        yield
    finally:
        _hashed = before


def _content(value: Any) -> Any:
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
    known = {} if _hashed is None else _hashed
    if value in known:
        return known[value]
    reader = getattr(value, "encoder", value)  # of a selector
    words: Values = getattr(getattr(reader, "tokenizer", None), "get_vocab", dict)()
    content = {name: getattr(reader, name, None) for name in ("pooling", "length", "normalize", "prompt")}
    content |= {"module": type(value).__qualname__, "words": words, "weights": dict(value.state_dict())}
    known[value] = {"sha256": fingerprint(content)}
    return known[value]


def code_version(function: Callable) -> str:
    """sha256 of the function's code and of all definitions of its package that it reaches."""
    known = {} if _hashed is None else _hashed
    if function not in known:
        seen: Reached = {}
        _visit_object(function, seen)
        known[function] = digest_of(json.dumps(sorted([*place, code] for place, code in seen.items())))
    return known[function]


def _visit_object(value: Any, seen: Reached) -> None:
    """Follow a module, function or class; one that was typed into a notebook reaches what its names stand for there."""
    is_class, module = inspect.isclass(value), getattr(value, "__module__", "")
    if isinstance(value, ModuleType):
        _visit([(value.__name__, "*")], seen)
    elif not (is_class or inspect.isfunction(value)):
        return
    elif module != "__main__" and getattr(sys.modules.get(module), "__file__", None):
        _visit([(module, value.__qualname__.split(".")[0])], seen)
    elif is_class:  # Python finds no source of it, but that of its functions
        for part in vars(value).values():
            with suppress(OSError):  # those that a dataclass writes have none
                _visit_object(getattr(part, "fget", part), seen)
    elif ("__main__", value.__qualname__) not in seen:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
        seen["__main__", value.__qualname__] = _code(tree)
        for name in _names(tree):
            _visit_object(value.__globals__.get(name), seen)
        _visit([place for _, place in _imports(tree, "__main__")], seen)


def _visit(todo: list[Place], seen: Reached) -> None:
    """Add definitions of modules of ours, then everything of the package that they name."""
    while todo:
        module, name = todo.pop()
        path = _path(module)
        if path is None or (module, name) in seen:
            continue
        code, names, imports = _parsed(module, path, path.stat().st_mtime_ns)
        text = code.get(name, "")
        files = map(path.with_name, re.findall(r"'([\w-]+\.[\w.]+)'", text) if "def " in text else ())
        seen[module, name] = text + "".join(map(sha256, filter(Path.is_file, files)))
        if name == "*":
            todo += [(module, each) for each in (*code, *imports)]  # what a package imports, it offers
        elif name in code:
            for used in names[name]:
                todo += [(module, used)] if used in code else []
                todo += imports.get(used, ())
        elif others := imports.get(name, set()) - {(module, name)}:
            todo += others
        else:  # a submodule (which a package may import from itself), or a lambda, which could be any definition
            todo.append((f"{module}.{name}" if name.isidentifier() else module, "*"))


@cache
def _parsed(module: str, path: Path, changed: int) -> tuple[dict[str, str], dict[str, set[str]], dict[str, set[Place]]]:
    """The code of a module's top-level definitions, the names that each uses, and what imported names stand for."""
    code: dict[str, str] = defaultdict(str)
    names: dict[str, set[str]] = defaultdict(set)
    imports: dict[str, set[Place]] = defaultdict(set)
    nodes: list[Any] = ast.parse(path.read_text("utf-8")).body
    for node in nodes:
        if isinstance(node, ast.If):  # TYPE_CHECKING: annotations run nothing
            continue
        for name, place in _imports(node, module):
            imports[name].add(place)
        for name in _defines(node):
            code[name] += _code(node)
            names[name] |= _names(node)
            for room, offered in (
                ast.literal_eval(node.value).items() if (name, module[:7]) == ("ROOMS", "dialnb.") else ()
            ):
                for lazy in offered.split():  # what a package fetches from its modules when it is asked for it
                    imports[lazy].add((f"{module}.{room}", lazy))
    return code, names, imports


def _path(module: str) -> Path | None:
    """The file of a module of dialnb or of the user's own; None for other packages, whose versions stand in the
    provenance. They are not asked for their modules: that would import them."""
    package = module.partition(".")[0]
    if package != "dialnb" and (package in sys.stdlib_module_names or _is_installed(package)):
        return None
    spec = _spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@cache
def _is_installed(package: str) -> bool:
    """Whether a package lies among those of an environment (or of a pack), or nowhere."""
    spec = _spec(package)
    places = str(spec and (spec.submodule_search_locations or spec.origin))
    return spec is None or "site-packages" in places or "dist-packages" in places


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _defines(node: ast.stmt) -> set[str]:
    """The names that a top-level statement gives a meaning; one that assigns nothing may change all that it names."""
    if hasattr(node, "name"):
        return {node.name}
    return set().union(*map(_names, getattr(node, "targets", [getattr(node, "target", node)])))


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


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _code(tree: Any) -> str:
    """The code as canonical text, without comments and docstrings."""
    return ast.unparse(_WithoutDocstrings().visit(ast.Module([tree], [])))
