"""Results of stages on disk, by type and without pickle: what is read back equals what was written, bit for bit.

`stage.json` holds the structure (dicts, lists, tuples, plain values, data frames, dataclasses of a closed list);
tensors, encoders and selectors lie beside it in files of their own, each with its sha256. A stored result decides
neither what is imported or called nor what is opened outside its folder, and one that was changed is not read.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas import DataFrame
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from dialnb.data.records import RECORDS, Slot, Utterance
from dialnb.errors import DataError, DialnbError
from dialnb.files import Values, read_json, sha256
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from dialnb.training.loop import TrainingResult
from dialnb.training.stage import Result

RECORD, SEAL = "stage.json", "stage.sha256"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError)
"""What Python makes of a file that is not what was written."""
STORABLE: dict[str, Any] = RECORDS | {kind.__name__: kind for kind in (Slot, Utterance, TrainingResult, Result)}
"""The dataclasses that a result may hold, by the name they are stored under."""
FOLDERS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "encoder": (Encoder, load_encoder),
    "selector": (Selector, Selector.load),
}
"""What is stored as a folder of its own that it writes with `save`: class and loader."""


def write_result(value: Any, folder: Path, **about: Any) -> None:
    """Store `value`, and what is said about it, in the (empty) folder, with the hash of everything."""
    body = _encode(value, folder)
    record = about | {"value": body, "files": {name: sha256(folder / name) for name in _files(folder)}}
    (folder / RECORD).write_text(json.dumps(record, ensure_ascii=False, default=str), "utf-8")
    (folder / SEAL).write_text(sha256(folder / RECORD), "utf-8")


def read_record(folder: Path) -> Values:
    """What `write_result` wrote down; DataError if a letter of it was changed."""
    try:
        if sha256(folder / RECORD) == (folder / SEAL).read_text("utf-8"):
            return read_json(folder / RECORD)
    except UNREADABLE as error:
        raise DataError(f"{folder / RECORD} cannot be read ({error})") from error
    raise DataError(f"{folder / RECORD} is not what was written there")


def read_result(folder: Path, record: Values) -> Any:
    """The stored value; DataError if anything is missing, added, unknown or not what was written."""
    try:
        if strange := sorted((_files(folder) - {RECORD, SEAL}) ^ record["files"].keys()):
            raise DataError(f"the stored result in {folder} has lost or gained {', '.join(strange)}")
        for name, known in record["files"].items():
            if sha256(folder / name) != known:
                raise DataError(f"{folder / name} is not what was written there")
        return _decode(record["value"], folder)
    except UNREADABLE as error:
        raise DataError(f"the stored result in {folder} cannot be read ({error})") from error


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _beside(folder: Path, body: Values) -> Path:
    """The file that a part of a result names, which lies directly in its folder."""
    name = body["file"]
    if Path(name).name != name:
        raise DataError(f"the stored result in {folder} names {name!r}, which is no file of its own")
    return folder / name


def _encode(value: Any, folder: Path) -> Any:
    """The value as JSON; what JSON cannot hold is written into numbered files of the folder."""
    kind = type(value).__name__
    parts: Any = None
    if isinstance(value, np.generic | np.ndarray):
        kind, parts = "array", torch.from_numpy(np.array(value))
    elif value is None or isinstance(value, bool | int | float | str):
        return value
    elif isinstance(value, list):
        return [_encode(item, folder) for item in value]
    elif isinstance(value, tuple):
        kind, parts = "tuple", list(value)
    elif isinstance(value, dict):
        kind, parts = "dict", [list(pair) for pair in value.items()]
    elif isinstance(value, DataFrame):
        columns = [value.iloc[:, place].tolist() for place in range(value.shape[1])]
        is_plain = value.index.equals(pd.RangeIndex(len(value))) and value.index.name is None
        kind, parts = "frame", {"names": list(value.columns), "dtypes": list(map(str, value.dtypes))}
        parts |= {"columns": columns, "index": None if is_plain else value.index.tolist()}
    elif STORABLE.get(kind) is type(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    if parts is not None:
        return {"$": kind, "value": _encode(parts, folder)}
    number = len(list(folder.iterdir())) + 1
    if isinstance(value, torch.Tensor):
        name = f"tensor-{number}.safetensors"
        save_file({"tensor": value.detach().cpu().contiguous()}, folder / name)
        return {"$": "tensor", "file": name}
    for place, (stored_class, _) in FOLDERS.items():
        if isinstance(value, stored_class):
            path = value.save(folder / f"{place}-{number}")
            return {"$": place, "file": path.name, "name": _encoder_of(value).name}
    raise DialnbError(
        f"the result of a stage holds a {kind}, which cannot be stored: return plain values, "
        f"data frames, arrays, tensors, encoders, {', '.join(STORABLE)}, or dicts, lists and tuples of those"
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
    if kind == "tensor":
        return load_file(_beside(folder, body))["tensor"]
    if kind in FOLDERS:
        value = FOLDERS[kind][1](_beside(folder, body))
        _encoder_of(value).name = body["name"]
        return value
    value = _decode(body["value"], folder)
    if kind in ("tuple", "dict"):
        return tuple(value) if kind == "tuple" else dict(value)
    if kind == "array":
        return value.numpy()[()]
    if kind == "frame":
        return _frame(**value)
    if kind not in STORABLE:
        raise DataError(f"the stored result in {folder} holds a {kind!r}, which is not known here")
    return STORABLE[kind](**value)


def _frame(names: list, dtypes: list[str], columns: list[list], index: list | None) -> DataFrame:
    series = [pd.Series(values, dtype=dtype) for values, dtype in zip(columns, dtypes, strict=True)]
    frame = pd.concat(series, axis=1, keys=names) if series else DataFrame()
    if index is not None:
        frame.index = index
    return frame
