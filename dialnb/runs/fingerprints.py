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


def fingerprint(value: Any, where: str = "value") -> str:
    """sha256 of a value's content: equal content has equal fingerprints, in every process and on every machine."""
    return hashlib.sha256(json.dumps(_content(value, where), sort_keys=True, ensure_ascii=False).encode()).hexdigest()


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
        return _array(value, where)
    if hasattr(value, "fingerprint") and isinstance(value.fingerprint, str):
        return {"fingerprint": value.fingerprint}
    if isinstance(value, Mapping):
        return {"map": sorted([fingerprint(k, where), fingerprint(v, f"{where}[{k!r}]")] for k, v in value.items())}
    if isinstance(value, list | tuple | range):
        return [_content(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted(fingerprint(item, where) for item in value)}
    if isinstance(value, Path):
        return {"file": hashlib.sha256(value.read_bytes()).hexdigest()}
    if inspect.isfunction(value) or inspect.isclass(value):
        held = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return {"code": code_version(value), "name": value.__qualname__, "holds": _content(held, where)}
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {type(value).__qualname__: _content(fields, where)}
    found = _library_content(value, where)
    if found is None:
        raise DialnbError(
            f"a stage cannot be keyed by {where}, a {type(value).__name__}: give it plain values, dataclasses, arrays, "
            "data frames, tensors, encoders, datasets, or an object with a string attribute `fingerprint`"
        )
    return found


def _library_content(value: Any, where: str) -> Any:
    """Data frames, tensors and modules; their libraries are asked only if they are loaded, else it is none of them."""
    pandas, torch = sys.modules.get("pandas"), sys.modules.get("torch")
    if pandas and isinstance(value, pandas.DataFrame):
        columns = {str(name): _content(value[name].tolist(), f"{where}.{name}") for name in value.columns}
        return {"frame": columns, "index": _content(value.index.tolist(), where)}
    if pandas and value is pandas.NA:
        return {"missing": True}
    if torch and isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return {"tensor": str(value.dtype), "shape": list(value.shape), "bytes": _array(plain, where)}
    if torch and isinstance(value, torch.nn.Module):
        if _hashed is not None and value in _hashed:
            return _hashed[value]
        words = getattr(getattr(value, "tokenizer", None), "get_vocab", dict)()
        weights = {name: _content(tensor, f"{where}.{name}") for name, tensor in value.state_dict().items()}
        said = {name: getattr(value, name, None) for name in ("pooling", "length", "normalize", "prompt")}
        said |= {"words": fingerprint(json.dumps(sorted(words.items())))}
        found = {"module": type(value).__qualname__, "weights": weights, **said}
        if _hashed is not None:
            _hashed[value] = found
        return found
    return None


def _array(array: np.ndarray, where: str) -> dict[str, Any]:
    if array.dtype.hasobject:
        return {"objects": _content(array.tolist(), where)}
    content = hashlib.sha256(np.ascontiguousarray(array).data if array.size else b"").hexdigest()
    return {"array": array.dtype.str, "shape": list(array.shape), "sha256": content}


# --- code ---------------------------------------------------------------------------------------------------------


def code_version(function: Callable, modules: Iterable[ModuleType] = ()) -> str:
    """sha256 of the function's code and of all definitions of its package that it reaches; `modules` count whole.

    A function that was typed into a notebook reaches what its names stand for there.
    """
    seen: dict[tuple[str, str], str] = {}
    module = sys.modules.get(function.__module__)
    if getattr(module, "__file__", None) and function.__module__ != "__main__":
        _visit(function.__module__, function.__qualname__.split(".")[0], seen)
    else:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        seen["__main__", function.__qualname__] = _dump(tree)
        scope = getattr(function, "__globals__", {})
        for name in sorted(_names(tree)):
            _visit_object(scope.get(name), seen)
        for imported, attribute in _imports(tree, "__main__").values():
            _visit(imported, attribute, seen)
    for extra in modules:
        _visit(extra.__name__, "*", seen)
    return hashlib.sha256(json.dumps(sorted([*key, dump] for key, dump in seen.items())).encode()).hexdigest()


def _visit_object(found: Any, seen: dict[tuple[str, str], str]) -> None:
    if isinstance(found, ModuleType):
        _visit(found.__name__, "*", seen)
    elif inspect.isfunction(found) or inspect.isclass(found):
        if found.__module__ == "__main__" and ("__main__", found.__qualname__) not in seen:
            seen["__main__", found.__qualname__] = code_version(found)
        elif found.__module__ != "__main__":
            _visit(found.__module__, found.__qualname__.split(".")[0], seen)


def _visit(module: str, name: str, seen: dict[tuple[str, str], str]) -> None:
    """Add one definition of a module (all of them for "*"), then everything of the package that it names."""
    todo, passed = [(module, name)], set(seen)
    while todo:
        module, name = todo.pop()
        source = _source(module)
        if source is None or (module, name) in passed:
            continue
        passed.add((module, name))
        if name == "*":
            todo += [(module, each) for each in source.definitions]
            seen[module, name] = ""
        elif name in source.definitions:
            dump, names, own_imports = source.definitions[name]
            seen[module, name] = dump
            reachable = source.imports | own_imports
            todo += [(module, used) for used in names if used in source.definitions]
            todo += [reachable[used] for used in names if used in reachable]
            todo += list(own_imports.values())
        elif source.imports.get(name, (module, name)) != (module, name):
            todo.append(source.imports[name])
        elif name.isidentifier():  # a submodule, which a package may also import from itself: from dialnb import losses
            todo.append((f"{module}.{name}", "*"))
        else:  # a lambda could be any of them
            todo.append((module, "*"))


@dataclasses.dataclass(frozen=True)
class _Source:
    """The top-level definitions of a module (code, names used, imports inside), and its own imports."""

    definitions: Mapping[str, tuple[str, frozenset[str], dict[str, tuple[str, str]]]]
    imports: Mapping[str, tuple[str, str]]


def _source(module: str) -> _Source | None:
    """The parsed source of a module of ours; None for other packages, whose versions stand in the provenance."""
    path = _path(module)
    return _parsed(module, path, path.stat().st_mtime_ns) if path else None


@cache
def _parsed(module: str, path: Path, changed: int) -> _Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions: dict[str, tuple[str, frozenset[str], dict]] = {}
    for node in tree.body:
        for name in _defines(node):
            before = definitions.get(name, ("", frozenset(), {}))
            inner = _imports(node, module)
            definitions[name] = (before[0] + _dump(node), before[1] | _names(node), before[2] | inner)
    return _Source(definitions, _imports(tree, module, top_only=True))


def _path(module: str) -> Path | None:
    """The file of a module of ours. Other packages are not asked for their modules: that would import them."""
    spec = _spec(module) if _ours(module.split(".")[0]) else None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@cache
def _ours(package: str) -> bool:
    """Whether a package is dialnb or a user's own code, not the standard library and nothing that was installed: in the
    place of an environment's packages, or with ``pip install --target`` anywhere, where its description lies beside."""
    if package == "dialnb" or package in sys.stdlib_module_names:
        return package == "dialnb"
    spec = _spec(package)
    places = [spec.origin] if spec and spec.origin else list((spec and spec.submodule_search_locations) or ())
    return not all(_installed(Path(place)) for place in places)


def _installed(place: Path) -> bool:
    folders = [place.parent, place.parent.parent]  # of a module, of a package
    known = {"site-packages", "dist-packages"} & set(place.parts)
    return bool(known) or any(any(folder.glob("*.dist-info")) for folder in folders)


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _defines(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _imports(tree: ast.AST, module: str, top_only: bool = False) -> dict[str, tuple[str, str]]:
    """Local name -> (module, attribute, or "*" for the module itself) for every import below `tree`."""
    found = {}
    package = module if (_path(module) or Path()).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.iter_child_nodes(tree) if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(a.asname or a.name.split(".")[0]): (a.name, "*") for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module or "") if part)
            found |= {a.asname or a.name: (origin, a.name) for a in node.names}
    return found


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _dump(node: ast.AST) -> str:
    """The code as canonical text, without comments and docstrings."""
    return ast.unparse(_NoDocstrings().visit(ast.parse(ast.unparse(node))))


class _NoDocstrings(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and _is_text(body[0]):
            node.body = body[1:]
        elif isinstance(body, list) and body and _is_text(body[0]):
            node.body = [ast.Pass()]
        return node


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
