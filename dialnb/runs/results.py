"""Results of stages on disk, by type and without pickle: what is read back equals what was written, bit for bit.

`result.json` holds the structure (dicts, lists, tuples, plain values, dataclasses of a closed list); data frames,
arrays, tensors and encoders lie beside it in files of their own, each with its sha256. A stored result decides neither
what is imported or called nor what is opened outside its folder, and one that was changed is not read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import SafetensorError

from dialnb.errors import DataError, DialnbError
from dialnb.files import sha256

INDEX, RECORD = "result.json", "stage.json"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError)
"""What Python makes of a file that is not what was written."""


def storable() -> dict[str, type]:
    """The dataclasses that a result may hold, by the name they are stored under."""
    from dialnb.data.records import RECORDS, Slot, Utterance
    from dialnb.training.loop import TrainingResult

    return RECORDS | {kind.__name__: kind for kind in (Slot, Utterance, TrainingResult)}


def write_sealed(path: Path, content: dict[str, Any]) -> str:
    """Write JSON with the hash of its content, which is returned."""
    text = json.dumps(content, ensure_ascii=False, default=str)
    seal = _hash(json.loads(text))
    path.write_text(f'{{"sha256": "{seal}", "content": {text}}}', encoding="utf-8")
    return seal


def read_sealed(path: Path) -> tuple[dict[str, Any], str]:
    """The content that `write_sealed` wrote and its hash; DataError if a letter of it was changed."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        content, seal = stored["content"], stored["sha256"]
        if _hash(content) == seal:
            return content, seal
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    raise DataError(f"{path} is not what was written there")


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_result(value: Any, folder: Path) -> str:
    """Store `value` in the (empty) folder; returns the hash of everything."""
    body = _Writer(folder).encode(value, "result")
    hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    return write_sealed(folder / INDEX, {"value": body, "files": hashes})


def read_result(folder: Path, seal: str | None = None) -> Any:
    """The stored value; DataError if anything is missing, added, unknown or not what was written (under `seal`)."""
    stored, found = read_sealed(folder / INDEX)
    if seal not in (None, found):
        raise DataError(f"{folder / INDEX} is of another result")
    check_files(folder)
    try:
        return _decode(stored["value"], folder)
    except UNREADABLE as error:
        raise DataError(f"the stored result in {folder} cannot be read ({error})") from error


def check_files(folder: Path, part: str = "") -> None:
    """DataError unless the files of a stored result (those below `part` of it) are there, untouched and alone."""
    stored, _ = read_sealed(folder / INDEX)
    try:
        known = {name: known for name, known in stored["files"].items() if part in ("", name.partition("/")[0])}
        beside = {path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file()}
        if strange := sorted((beside - {INDEX, RECORD}) ^ known.keys()):
            raise DataError(f"the stored result in {folder} has lost or gained {', '.join(strange)}")
        for name in known:
            if sha256(folder / name) != known[name]:
                raise DataError(f"{folder / name} is not what was written there")
    except UNREADABLE as error:
        raise DataError(f"the stored result in {folder} cannot be read ({error})") from error


def stored_encoders(folder: Path) -> dict[str, Path]:
    """The encoders within a stored result, by name; nothing is loaded."""
    found = {}
    todo = [read_sealed(folder / INDEX)[0]["value"]]
    while todo:
        body = todo.pop()
        if isinstance(body, dict) and body.get("$") in ("encoder", "selector"):
            found[body["name"]] = _beside(folder, body)
        elif isinstance(body, dict | list):
            todo += body.values() if isinstance(body, dict) else body
    return found


def _beside(folder: Path, body: dict[str, Any]) -> Path:
    """The file that a part of a result names, which lies directly in its folder."""
    name = body["file"]
    if Path(name).name != name:
        raise DataError(f"the stored result in {folder} names {name!r}, which is no file of its own")
    return folder / name


class _Writer:
    """Turns a value into JSON, and writes what JSON cannot hold into numbered files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def encode(self, value: Any, where: str) -> Any:
        import pandas as pd
        import safetensors.numpy
        import safetensors.torch
        import torch

        from dialnb.models.encoder import Encoder
        from dialnb.models.selector import Selector

        if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
            file = self._tensors(safetensors.numpy, {"array": np.ascontiguousarray(value)})
            return {"$": "array", "file": file, "shape": list(value.shape)}
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
            file = self._tensors(safetensors.torch, {"tensor": value.detach().cpu().contiguous()})
            return {"$": "tensor", "file": file}
        if isinstance(value, pd.DataFrame):
            return self._frame(value, where)
        if isinstance(value, Encoder | Selector):
            self.count += 1
            kind = type(value).__name__.lower()
            folder = value.save(self.folder / f"{kind}-{self.count}")
            return {"$": kind, "file": folder.name, "name": getattr(value, "encoder", value).name}
        if storable().get(kind := type(value).__name__) is type(value):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return {"$": "dataclass", "type": kind, "fields": self.encode(fields, where)}
        raise DialnbError(
            f"{where} of a stage is a {type(value).__name__}, which cannot be stored: return plain values, "
            f"data frames, arrays, tensors, encoders, {', '.join(storable())}, or dicts, lists and tuples of those"
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

    def _tensors(self, library: ModuleType, content: dict[str, Any]) -> str:
        self.count += 1
        name = f"tensor-{self.count}.safetensors"
        library.save_file(content, self.folder / name)
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
    if kind == "array":
        from safetensors.numpy import load_file

        return load_file(_beside(folder, body))["array"].reshape(body["shape"])[()]
    if kind == "tensor":
        from safetensors.torch import load_file

        return load_file(_beside(folder, body))["tensor"]
    if kind == "frame":
        return _read_frame(_beside(folder, body), folder)
    if kind == "encoder":
        from dialnb.models.encoder import load_encoder

        encoder = load_encoder(_beside(folder, body))
        encoder.name = body["name"]
        return encoder
    if kind == "selector":
        from dialnb.models.selector import Selector

        selector = Selector.load(_beside(folder, body))
        selector.encoder.name = body["name"]
        return selector
    if kind != "dataclass" or body["type"] not in storable():
        raise DataError(f"the stored result in {folder} holds a {body.get('type', kind)!r}, which is not known here")
    return storable()[body["type"]](**_decode(body["fields"], folder))


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
