"""Results of stages on disk, by type and without pickle: what is read back equals what was written, bit for bit.

`result.json` holds the structure (dicts, lists, tuples, plain values, data frames, dataclasses of a closed list);
arrays, tensors, encoders and selectors lie beside it in files of their own, each with its sha256. A stored result
decides neither what is imported or called nor what is opened outside its folder, and one that was changed is not read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from dialnb.errors import DataError, DialnbError
from dialnb.files import sha256

INDEX, RECORD = "result.json", "stage.json"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError)
"""What Python makes of a file that is not what was written."""
FOLDERS = ("encoder", "selector")
"""What is stored as a folder of its own that it writes with `save`."""


@cache
def storable() -> dict[str, type]:
    """The dataclasses that a result may hold, by the name they are stored under."""
    from dialnb.data.records import RECORDS, Slot, Utterance
    from dialnb.training.loop import TrainingResult

    return RECORDS | {kind.__name__: kind for kind in (Slot, Utterance, TrainingResult)}


@cache
def folder_kinds() -> dict[str, tuple[type, Callable[[Path], Any]]]:
    """The class and the loader of each of `FOLDERS`."""
    from dialnb.models.encoder import Encoder, load_encoder
    from dialnb.models.selector import Selector

    return dict(zip(FOLDERS, ((Encoder, load_encoder), (Selector, Selector.load)), strict=True))


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
    body = _encode(value, folder, "result")
    hashes = {name: sha256(folder / name) for name in _files(folder)}
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
        if strange := sorted((_files(folder, part) - {INDEX, RECORD}) ^ known.keys()):
            raise DataError(f"the stored result in {folder} has lost or gained {', '.join(strange)}")
        for name in known:
            if sha256(folder / name) != known[name]:
                raise DataError(f"{folder / name} is not what was written there")
    except UNREADABLE as error:
        raise DataError(f"the stored result in {folder} cannot be read ({error})") from error


def _files(folder: Path, part: str = "") -> set[str]:
    return {path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file()}


def stored_encoders(folder: Path) -> dict[str, Path]:
    """The encoders within a stored result, by name; nothing is loaded."""
    found = {}
    todo = [read_sealed(folder / INDEX)[0]["value"]]
    while todo:
        body = todo.pop()
        if isinstance(body, list):
            todo += body
        elif isinstance(body, dict):
            if body.get("$") in FOLDERS:
                found[body["name"]] = _beside(folder, body)
            todo += body.values()
    return found


def _beside(folder: Path, body: dict[str, Any]) -> Path:
    """The file that a part of a result names, which lies directly in its folder."""
    name = body["file"]
    if Path(name).name != name:
        raise DataError(f"the stored result in {folder} names {name!r}, which is no file of its own")
    return folder / name


def _encode(value: Any, folder: Path, where: str) -> Any:
    """The value as JSON; what JSON cannot hold is written into numbered files of the folder."""
    if isinstance(value, np.generic | np.ndarray):
        return _encode_object(value, folder, where)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
    if isinstance(value, list):
        return [_encode(item, folder, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$": "tuple", "items": _encode(list(value), folder, where)}
    if isinstance(value, dict):
        pairs = [[_encode(k, folder, where), _encode(v, folder, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"$": "dict", "items": pairs}
    return _encode_object(value, folder, where)


def _encode_object(value: Any, folder: Path, where: str) -> Any:
    """Arrays, tensors, data frames, encoders, selectors and dataclasses of the list; nothing else."""
    import pandas as pd
    import torch
    from safetensors.torch import save_file

    number = len(list(folder.iterdir())) + 1
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        return {"$": "array", "tensor": _encode(torch.from_numpy(np.array(value)), folder, where)}
    if isinstance(value, torch.Tensor):
        name = f"tensor-{number}.safetensors"
        save_file({"tensor": value.detach().cpu().contiguous()}, folder / name)
        return {"$": "tensor", "file": name}
    if isinstance(value, pd.DataFrame):
        columns = [value.iloc[:, place].tolist() for place in range(value.shape[1])]
        is_plain = value.index.equals(pd.RangeIndex(len(value))) and value.index.name is None
        parts = {"names": list(value.columns), "dtypes": list(map(str, value.dtypes)), "columns": columns}
        parts["index"] = None if is_plain else value.index.tolist()
        return {"$": "frame", "parts": _encode(parts, folder, where)}
    for kind, (stored_class, _) in folder_kinds().items():
        if isinstance(value, stored_class):
            path = value.save(folder / f"{kind}-{number}")
            return {"$": kind, "file": path.name, "name": _encoder_of(value).name}
    if storable().get(kind := type(value).__name__) is type(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"$": "dataclass", "type": kind, "fields": _encode(fields, folder, where)}
    raise DialnbError(
        f"{where} of a stage is a {type(value).__name__}, which cannot be stored: return plain values, "
        f"data frames, arrays, tensors, encoders, {', '.join(storable())}, or dicts, lists and tuples of those"
    )


def _encoder_of(value: Any) -> Any:
    """An encoder itself, or the one that a selector reads with: its name is not in the folder."""
    return getattr(value, "encoder", value)


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
        return _decode(body["tensor"], folder).numpy()[()]
    if kind == "tensor":
        from safetensors.torch import load_file

        return load_file(_beside(folder, body))["tensor"]
    if kind == "frame":
        return _frame(**_decode(body["parts"], folder))
    if kind in FOLDERS:
        _, load = folder_kinds()[kind]
        value = load(_beside(folder, body))
        _encoder_of(value).name = body["name"]
        return value
    if kind != "dataclass" or body["type"] not in storable():
        raise DataError(f"the stored result in {folder} holds a {body.get('type', kind)!r}, which is not known here")
    return storable()[body["type"]](**_decode(body["fields"], folder))


def _frame(names: list, dtypes: list[str], columns: list[list], index: list | None) -> Any:
    import pandas as pd

    series = [pd.Series(values, dtype=dtype) for values, dtype in zip(columns, dtypes, strict=True)]
    frame = pd.concat(series, axis=1) if series else pd.DataFrame()
    if series:
        frame.columns = names
    if index is not None:
        frame.index = index
    return frame
