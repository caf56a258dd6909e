"""Results of stages on disk, by type and without pickle: what is read back equals what was written, bit for bit.

`result.json` holds the structure (dicts, lists, tuples, dataclasses of this package, plain values); data frames,
arrays, tensors and encoders lie beside it in files of their own, each with its sha256.
"""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dialnb.errors import DataError, DialnbError
from dialnb.runs.files import sha256

INDEX = "result.json"


def write_result(value: Any, folder: Path) -> None:
    """Store `value` in the (empty) folder."""
    body = _Writer(folder).encode(value, "result")
    hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    text = json.dumps({"value": body, "files": hashes}, ensure_ascii=False)
    (folder / INDEX).write_text(text, encoding="utf-8")


def read_result(folder: Path) -> Any:
    """The stored value; DataError if a file is missing or is not what was written."""
    try:
        stored = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        for name, expected in stored["files"].items():
            if sha256(folder / name) != expected:
                raise DataError(f"{folder / name} is not what was written there")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the stored result in {folder} cannot be read ({error})") from error
    return _decode(stored["value"], folder)


def stored_encoders(folder: Path) -> dict[str, Path]:
    """The encoders within a stored result, by name; nothing is loaded."""
    found = {}
    todo = [json.loads((folder / INDEX).read_text(encoding="utf-8"))["value"]]
    while todo:
        body = todo.pop()
        if isinstance(body, dict) and body.get("$") == "encoder":
            found[body["name"]] = folder / body["file"]
        elif isinstance(body, dict | list):
            todo += body.values() if isinstance(body, dict) else body
    return found


class _Writer:
    """Turns a value into JSON, and writes what JSON cannot hold into numbered files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def encode(self, value: Any, where: str) -> Any:
        import pandas as pd
        import torch

        from dialnb.models.encoder import Encoder

        if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
            return {"$": "array", "file": self._tensors({"array": np.ascontiguousarray(value)}, "numpy"),
                    "shape": list(value.shape)}  # fmt: skip
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
        if isinstance(value, list):
            return [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"$": "tuple", "items": self.encode(list(value), where)}
        if isinstance(value, dict):
            pairs = [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"$": "dict", "items": pairs}
        if isinstance(value, torch.Tensor):
            return {"$": "tensor", "file": self._tensors({"tensor": value.detach().cpu().contiguous()}, "torch")}
        if isinstance(value, pd.DataFrame):
            return self._frame(value, where)
        if isinstance(value, Encoder):
            self.count += 1
            folder = value.save(self.folder / f"encoder-{self.count}")
            return {"$": "encoder", "file": folder.name, "name": value.name}
        if dataclasses.is_dataclass(value) and type(value).__module__.startswith("dialnb."):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            kind = f"{type(value).__module__}:{type(value).__qualname__}"
            return {"$": "dataclass", "type": kind, "fields": self.encode(fields, where)}
        raise DialnbError(
            f"{where} of a stage is a {type(value).__name__}, which cannot be stored: return plain values, "
            "data frames, arrays, tensors, encoders, dataclasses of dialnb, or dicts, lists and tuples of those"
        )

    def _frame(self, frame: Any, where: str) -> dict[str, Any]:
        self.count += 1
        name = f"frame-{self.count}.json"
        dtypes = [str(dtype) for dtype in frame.dtypes]
        columns = [self.encode(frame.iloc[:, i].tolist(), f"{where}.{c}") for i, c in enumerate(frame.columns)]
        body = {"names": self.encode(list(frame.columns), where), "dtypes": dtypes, "columns": columns}
        body["index"] = None if _is_plain_range(frame.index) else self.encode(frame.index.tolist(), where)
        (self.folder / name).write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
        return {"$": "frame", "file": name}

    def _tensors(self, content: dict[str, Any], library: str) -> str:
        self.count += 1
        name = f"tensor-{self.count}.safetensors"
        import_module(f"safetensors.{library}").save_file(content, self.folder / name)
        return name


def _decode(body: Any, folder: Path) -> Any:
    if isinstance(body, list):
        return [_decode(item, folder) for item in body]
    if not isinstance(body, dict):
        return body
    kind = body["$"]
    if kind == "float":
        return float(body["text"])
    if kind == "tuple":
        return tuple(_decode(body["items"], folder))
    if kind == "dict":
        return {_decode(k, folder): _decode(v, folder) for k, v in body["items"]}
    if kind in ("array", "tensor"):
        library = import_module("safetensors.numpy" if kind == "array" else "safetensors.torch")
        loaded = library.load_file(folder / body["file"])
        return loaded[kind].reshape(body["shape"])[()] if kind == "array" else loaded[kind]
    if kind == "frame":
        return _read_frame(folder / body["file"], folder)
    if kind == "encoder":
        from dialnb.models.encoder import load_encoder

        encoder = load_encoder(folder / body["file"])
        encoder.name = body["name"]
        return encoder
    module, _, name = body["type"].partition(":")
    return getattr(import_module(module), name)(**_decode(body["fields"], folder))


def _read_frame(path: Path, folder: Path) -> Any:
    import pandas as pd

    body = json.loads(path.read_text(encoding="utf-8"))
    names, index = _decode(body["names"], folder), body["index"]
    pairs = zip(body["columns"], body["dtypes"], strict=True)
    columns = [pd.Series(_decode(values, folder), dtype=dtype) for values, dtype in pairs]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame()
    if columns:
        frame.columns = names
    if index is not None:
        frame.index = _decode(index, folder)
    return frame


def _is_plain_range(index: Any) -> bool:
    import pandas as pd

    return isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1 and index.name is None
