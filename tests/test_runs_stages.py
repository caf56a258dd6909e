"""Stages: what changes a key, what is stored exactly, what survives damage, death and company."""

from __future__ import annotations

import hashlib
import importlib
import json
import linecache
import math
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import processes
import pytest
import side_by_side
import tiny
import torch
from safetensors.torch import save_file

from dialnb.data.records import RetrievalQuery
from dialnb.errors import DataError, DialnbError
from dialnb.files import sha256
from dialnb.models.selector import Selector
from dialnb.runs import fingerprints
from dialnb.runs.fingerprints import code_version, fingerprint, stage_key
from dialnb.runs.results import read_record, read_result, write_result
from dialnb.runs.stages import StageCache
from dialnb.training import TrainingResult
from dialnb.training.stage import Result


@dataclass(frozen=True)
class Recipe:
    name: str
    rate: float = 0.1


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"model": ["a", "b"], "seed": [1, 2], "value": [0.1, math.nan], "good": [True, False], "odd": [None, 3]}
    ).astype({"seed": "int32"})


# --- fingerprints -----------------------------------------------------------------------------------------------------


def different_values():
    encoder, other, pooled = tiny.encoder(), tiny.encoder(seed=8), tiny.encoder(pooling="cls")
    edited = frame()
    edited.loc[0, "value"] = 0.1000001
    yield from (None, True, 1, 1.5, "1", [1], {"a": 1}, {"a": 2}, {1}, Recipe("a"), Recipe("b"), math.nan, math.inf)
    yield from (np.arange(3), np.arange(3.0), np.arange(6).reshape(2, 3), np.array(["a"], dtype=object))
    yield from (frame(), edited, torch.ones(2), torch.ones(2, dtype=torch.bfloat16), encoder, other, pooled)
    yield from (frame, different_values)
    for name, value in (("length", 7), ("normalize", True), ("prompt", "query: ")):
        read_otherwise = tiny.encoder()
        setattr(read_otherwise, name, value)
        yield read_otherwise


def test_different_values_have_different_fingerprints_and_equal_ones_the_same():
    first, second = ([fingerprint(value) for value in different_values()] for _ in range(2))
    assert len(set(first)) == len(first)
    assert first == second


def test_the_order_of_keys_and_the_name_of_an_encoder_do_not_matter():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    renamed = tiny.encoder()
    renamed.name = "another"
    assert fingerprint(renamed) == fingerprint(tiny.encoder())


def test_a_closure_is_known_by_what_it_holds():
    def make(turns):
        return lambda: turns

    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(2))


def test_what_cannot_be_keyed_is_refused_with_its_name():
    with pytest.raises(DialnbError, match=r"keyed by settings \(it holds a lock\)"):
        import threading

        fingerprint({"lock": threading.Lock()}, "settings")


# --- code versions ----------------------------------------------------------------------------------------------------

LIBRARY = {
    "shelf/__init__.py": "from shelf.sums import add\n",
    "shelf/sums.py": "STEP = 1\n\ndef add(x):\n    return x + STEP\n",
    "shelf/work.py": '''from dataclasses import dataclass
from shelf import add

def stage(x):
    """Words."""
    return helper(x) + (x in {"a", "b", "c"})

def helper(x):
    return add(x)  # a remark

@dataclass
class Shelf:
    def read(self):
        return add(3)
''',
    "shelf/words.yaml": "a: 1\n",
}


@pytest.fixture
def version(tmp_path, monkeypatch):
    """The version of `shelf.work.stage` after some text of the little library was replaced."""
    monkeypatch.syspath_prepend(tmp_path)

    def of(file: str = "shelf/work.py", old: str = "", new: str = "") -> str:
        for name, text in LIBRARY.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace(old, new) if name == file and old else text)
            os.utime(path, ns=(time.time_ns(), time.time_ns()))
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.split(".")[0] == "shelf"]:
            del sys.modules[name]
        return code_version(importlib.import_module("shelf.work").stage)

    return of


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shelf/work.py", "return add(x)", "return -add(x)"),
        ("shelf/work.py", '"c"}', '"d"}'),
        ("shelf/sums.py", "x + STEP", "x - STEP"),
        ("shelf/sums.py", "STEP = 1", "STEP = 2"),
        ("shelf/words.yaml", "a: 1", "a: 2"),
    ],
)
def test_a_change_in_a_package_of_ones_own_is_a_new_version(version, file, old, new):
    assert version() != version(file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shelf/work.py", "Words.", "Other words."),
        ("shelf/work.py", "  # a remark", ""),
    ],
)
def test_comments_and_docstrings_change_nothing(version, file, old, new):
    assert version() == version(file, old, new)


@pytest.fixture
def house(tmp_path, monkeypatch):
    """The hashes of rooms of a copy of the library, in which a text of a file is replaced."""
    shutil.copytree(fingerprints.HOME, tmp_path / "dialnb", ignore=shutil.ignore_patterns("assets", "__pycache__"))
    monkeypatch.setattr(fingerprints, "HOME", tmp_path / "dialnb")

    def version_of(function, file: str, old: str, new: str) -> str:
        path = tmp_path / "dialnb" / file
        path.write_text(path.read_text().replace(old, new))
        fingerprints.room_version.cache_clear()
        fingerprints._file_version.cache_clear()
        return code_version(function)

    yield version_of
    fingerprints.room_version.cache_clear()


def test_a_function_depends_on_its_room_and_those_below_and_on_no_other(house):
    from dialnb.evaluation import evaluate_actions
    from dialnb.training.stage import train_model

    change = "models/heads.py", "import", "import sys; import"
    for file, old, new, moved in (
        ("plots/ranks.py", "import", "import sys; import", ()),
        ("runs/run.py", "import", "import sys; import", ()),
        ("evaluation/linear.py", "import", "import sys; import", (evaluate_actions,)),
        ("examples/acts.yaml", ":", ": ", (evaluate_actions, train_model)),
        ("losses/contrastive.py", "temperature", "warmth", (evaluate_actions, train_model)),
        (*change, (evaluate_actions, train_model)),
    ):
        for function in (evaluate_actions, train_model):
            before = house(function, file, "", "")
            assert (before != house(function, file, old, new)) == (function in moved), (file, function)
            house(function, file, new, old)


def test_the_street_is_that_of_contributing():
    from test_rooms import drawn_order

    floors = drawn_order()
    assert [floors[room] for room in fingerprints.STREET] == sorted(floors[room] for room in fingerprints.STREET)
    others = {"claims", "plots", "runs", "ecosystem", "explore", "report", "commands", "cli"}
    assert floors.keys() - {*fingerprints.STREET} <= others


def read_all(data) -> int:
    return data.read()


def test_code_that_the_class_of_an_input_reaches_changes_the_key(version):
    """The function knows a reading only as something that can be read."""

    def key(*change: str) -> str:
        version(*change)
        return stage_key(read_all, {"data": sys.modules["shelf.work"].Shelf(), "more": [None, 1, "a"]})

    assert key() == key() != key("shelf/sums.py", "x + STEP", "x - STEP")


def test_the_order_of_inputs_does_not_matter():
    inputs = {"data": Recipe("a"), "x": 2}
    assert stage_key(read_all, inputs) == stage_key(read_all, dict(reversed(inputs.items())))


def typed(text: str, name: str):
    """What a cell of a notebook defines: Python knows the source of its functions, and of no class."""
    place, cell = f"<cell {len(linecache.cache)}>", {"__name__": "__main__"}
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
    exec(compile(text, place, "exec"), cell)  # noqa: S102 (as a kernel does)
    return cell[name]


def test_a_function_of_a_notebook_may_have_the_name_of_one_that_it_calls(version):
    def own(*change: str) -> str:
        version(*change)
        return code_version(
            typed("from shelf.work import stage as theirs\ndef stage(x):\n    return theirs(x)\n", "stage")
        )

    assert own() == own() != own("shelf/sums.py", "x + STEP", "x - STEP")


CLASS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    size: int = 1

    @property
    def twice(self):
        return 2 * self.size

    def read(self):
        return [self.twice]

def stage():
    return Mine().read()
"""


@pytest.mark.parametrize("name", ["Mine", "stage"])
def test_a_class_that_was_typed_into_a_notebook_counts_by_its_functions(name):
    first, again = (code_version(typed(CLASS, name)) for _ in range(2))
    changes = ("[self.twice]", "[-self.twice]"), ("2 * self.size", "3 * self.size")
    assert first == again and len({first, *(code_version(typed(CLASS.replace(*each), name)) for each in changes)}) == 3


# --- storage ----------------------------------------------------------------------------------------------------------


def stored(value, folder: Path):
    folder.mkdir()
    write_result(value, folder)
    return read_back(folder)


def read_back(folder: Path):
    return read_result(folder, read_record(folder))


def seal(folder: Path, **record) -> None:
    """Write a record as one does who can write to a shared cache: with its hash."""
    (folder / "stage.json").write_text(json.dumps(record))
    (folder / "stage.sha256").write_text(sha256(folder / "stage.json"))


def test_plain_values_come_back_as_they_were(tmp_path):
    value = {"a": [1, 2.5, None, True, "ü"], 3: (1, (2,)), "nan": math.inf, "empty": {}}
    assert stored(value, tmp_path / "x") == value


def test_data_frames_come_back_with_their_types_and_every_bit(tmp_path):
    original = pd.concat([frame(), frame()]).assign(third=1 / 3)
    back = stored({"rows": original}, tmp_path / "x")["rows"]
    pd.testing.assert_frame_equal(back, original, check_exact=True)
    pd.testing.assert_frame_equal(stored(pd.DataFrame(), tmp_path / "y"), pd.DataFrame())


def test_arrays_and_tensors_come_back_bit_for_bit(tmp_path):
    arrays = (np.float64(1 / 3), np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros((0, 4), np.float32))
    for before, after in zip(arrays, stored(arrays, tmp_path / "x"), strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape and np.array_equal(before, after)
    tensor = torch.randn(3, 2).to(torch.bfloat16)
    assert torch.equal(stored(tensor, tmp_path / "y"), tensor)


def test_an_encoder_comes_back_with_name_pooling_and_weights(tmp_path):
    encoder = tiny.encoder(pooling="cls")
    back = stored([encoder], tmp_path / "x")[0]
    assert (back.name, back.pooling) == (encoder.name, "cls")
    assert fingerprint(back) == fingerprint(encoder)
    assert np.array_equal(back.encode(tiny.TEXTS), encoder.encode(tiny.TEXTS))


def test_a_selector_comes_back_with_its_heads_and_the_name_of_its_encoder(tmp_path):
    selector = Selector(tiny.encoder(), max_length=20)
    back = stored({"UMS": selector}, tmp_path / "x")["UMS"]
    assert type(back) is Selector and (back.encoder.name, back.max_length) == (selector.encoder.name, 20)
    assert fingerprint(back) == fingerprint(selector) != fingerprint(Selector(tiny.encoder(), 20, seed=1))


def test_what_cannot_be_stored_is_refused_with_its_kind(tmp_path):
    with pytest.raises(DialnbError, match="the result of a stage holds a object"):
        stored({"x": [object()]}, tmp_path / "x")


def test_a_changed_file_is_noticed(tmp_path):
    stored(np.arange(3), tmp_path / "x")
    next((tmp_path / "x").glob("tensor-*")).write_bytes(b"something else")
    with pytest.raises(DataError, match="not what was written"):
        read_back(tmp_path / "x")


def test_a_file_that_came_later_is_noticed(tmp_path):
    stored([tiny.encoder()], tmp_path / "x")
    (tmp_path / "x" / "encoder-1" / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match=r"lost or gained encoder-1/adapter_config.json"):
        read_back(tmp_path / "x")


def test_records_and_the_facts_of_a_training_come_back(tmp_path):
    query = RetrievalQuery(1, "text", (2, 3), (4,), "a")
    training = TrainingResult(3, pd.DataFrame({"loss": [3.0]}), 1.0, 2.0, 4.0, 0.0)
    queries, back = stored(([query], training), tmp_path / "x")
    assert queries == [query] and back.last_loss == 3.0


@pytest.mark.parametrize(
    "value",
    [
        {"$": "subprocess:Popen", "value": {"$": "dict", "value": [["args", ["touch", "ran"]]]}},
        {"$": "dialnb.files:say", "value": {"$": "dict", "value": [["line", "ran"]]}},
        {"$": "NoLongerThere", "value": {"$": "dict", "value": []}},
        {"$": "RetrievalQuery", "value": {"$": "dict", "value": [["renamed", 1]]}},
        {"$": "pickle", "file": "x"},
        {"$": "tensor", "file": "../outside.safetensors"},
        {"$": "encoder", "file": "/etc", "name": "x"},
        {"$": "tensor"},
        {},
        {"$": "tuple", "value": 3},
    ],
    ids=str,
)
def test_a_stored_result_decides_neither_what_is_called_nor_what_is_opened(tmp_path, monkeypatch, value, capfd):
    """Whoever can write to a shared cache can also seal what he wrote."""
    monkeypatch.chdir(tmp_path)
    save_file({"tensor": torch.ones(1)}, tmp_path / "outside.safetensors")
    folder = tmp_path / "x"
    folder.mkdir()
    seal(folder, value=value, files={})
    with pytest.raises(DataError, match="stored result"):
        read_back(folder)
    assert not (tmp_path / "ran").exists() and capfd.readouterr().out == ""


# --- the cache --------------------------------------------------------------------------------------------------------

calls: list[str] = []


def double(x: int) -> dict:
    calls.append("double")
    return {"twice": 2 * x}


def breaks() -> None:
    calls.append("breaks")
    raise ValueError("no")


def patient(folder: Path) -> list[str]:
    """Leaves a mark in its folder and fails the first time."""
    seen = sorted(path.name for path in folder.iterdir())
    (folder / "checkpoint").write_text("here")
    if not seen:
        raise ValueError("killed")
    return seen


@pytest.fixture
def cache(tmp_path, monkeypatch):
    calls.clear()
    monkeypatch.setattr("dialnb.runs.stages.say", calls.append)
    return StageCache(tmp_path / "stages")


def test_a_stage_is_done_once_for_the_same_inputs(cache):
    first, made = cache.run("double", double, {"x": 2})
    second, found = cache.run("double again", double, {"x": 2})
    assert first == second == {"twice": 4} and calls == ["double"]
    assert (made.cached, found.cached, found.name, found.key) == (False, True, "double again", made.key)
    assert cache.run("double", double, {"x": 3})[0] == {"twice": 6}


def test_a_failed_stage_leaves_nothing_and_is_tried_again(cache):
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache.run("breaks", breaks, {})
    assert calls == ["breaks", "breaks"]
    assert not [path for path in cache.root.iterdir() if path.is_dir()]


def test_a_stage_that_was_stopped_finds_its_folder_again_and_the_folder_goes_when_it_is_done(cache):
    with pytest.raises(ValueError, match="killed"):
        cache.run("patient", patient, {})
    assert cache.run("patient", patient, {})[0] == ["checkpoint"]
    assert not list(cache.root.glob("*.work"))


@pytest.mark.parametrize("damage", [("4", "5"), ("double", "duoble"), (" ", ""), ("}", "")], ids=str)
def test_a_stage_of_which_a_letter_was_changed_is_made_anew_and_says_so(cache, damage):
    _, record = cache.run("double", double, {"x": 2})
    path = cache.root / record.key / "stage.json"
    path.write_text(path.read_text().replace(*damage))
    found, again = cache.run("double", double, {"x": 2})
    assert found == {"twice": 4} and not again.cached
    assert any("made anew" in call for call in calls) and calls.count("double") == 2


def test_a_stage_in_the_place_of_another_is_made_anew(cache):
    (_, two), (_, three) = (cache.run("double", double, {"x": x}) for x in (2, 3))
    shutil.rmtree(cache.root / two.key)
    shutil.copytree(cache.root / three.key, cache.root / two.key)
    assert cache.run("double", double, {"x": 2})[0] == {"twice": 4} and calls.count("double") == 3


def test_a_stage_that_names_what_is_no_longer_known_is_made_anew(cache):
    _, record = cache.run("double", double, {"x": 2})
    folder = cache.root / record.key
    value = {"$": "subprocess:Popen", "value": {"$": "dict", "value": [["args", "false"]]}}
    seal(folder, **read_record(folder) | {"value": value})
    assert cache.run("double", double, {"x": 2})[0] == {"twice": 4}
    assert any("'subprocess:Popen', which is not known here" in call for call in calls)


def test_fresh_ignores_what_is_older_and_what_a_stopped_run_left_but_not_its_own(cache):
    cache.run("double", double, {"x": 2})
    with pytest.raises(ValueError, match="killed"):
        cache.run("patient", patient, {})
    time.sleep(0.02)
    fresh = StageCache(cache.root, fresh_since=time.time())
    for _ in range(2):
        fresh.run("double", double, {"x": 2})
    assert calls.count("double") == 2
    with pytest.raises(ValueError, match="killed"):
        fresh.run("patient", patient, {})


def test_facts_of_training_within_a_result_are_recorded(cache):
    result = TrainingResult(3, pd.DataFrame({"loss": [3.0, 1.0]}), 1.0, 2.0, 4.0, 0.0)

    _, record = cache.run("train", lambda: Result(training=result), {})
    assert record.facts["training"][0]["tokens_per_second"] == 4.0 and record.facts["training"][0]["last_loss"] == 2.0
    assert record.facts["peak_memory_gb"] > 0


def test_two_processes_that_want_the_same_stage_make_it_once(tmp_path):
    both = [processes.Process(tmp_path / name, side_by_side.make_slowly, tmp_path) for name in ("one", "other")]
    assert [process.wait() for process in both] == [0, 0]
    said = "".join(process.said() for process in both)
    assert (tmp_path / "log").read_text() == "made "
    assert "waiting" in said or said == ""


def test_weights_are_hashed_once_where_hashes_are_kept_and_anew_where_not(monkeypatch):
    encoder, hashed, hashes = tiny.encoder(), [], {}
    monkeypatch.setattr(type(encoder), "state_dict", lambda self: hashed.append(1) or {})
    first = fingerprint([encoder, encoder], hashes=hashes)
    assert len(hashed) == 1
    encoder.pooling = "cls"
    assert fingerprint([encoder, encoder], hashes=hashes) != first and len(hashed) == 1, "how it reads is no weight"
    fingerprint(encoder)
    assert len(hashed) == 2


def test_a_large_file_is_hashed_again_once_it_changes(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(2**20))
    first = sha256(path)
    assert sha256(path) == first == hashlib.sha256(bytes(2**20)).hexdigest()
    moved = path.rename(tmp_path / "elsewhere")
    time.sleep(0.05)  # longer than a tick of the clock that stamps files
    with moved.open("r+b") as file:
        file.write(b"x")
    os.utime(moved, (0, 0))  # a false date does not hide it
    assert sha256(moved) == hashlib.sha256(b"x" + bytes(2**20 - 1)).hexdigest()


def test_texts_that_several_stages_ask_an_encoder_for_are_encoded_once(tmp_path, monkeypatch):
    encoder, texts, encoded = tiny.encoder(), [f"table {n}" for n in range(60)], []
    embed = type(encoder).embed
    monkeypatch.setattr(type(encoder), "embed", lambda *given: encoded.append(len(given[1])) or embed(*given))
    cache = StageCache(tmp_path)
    given = {"encoder": encoder, "texts": texts}
    found = [cache.run("length", side_by_side.length, given | {"power": power})[0] for power in (2, 4)]
    assert sum(encoded) == 60
    assert found == [float((encoder.encode(texts) ** power).sum()) for power in (2, 4)], "bit for bit"
    assert cache.run("changed", side_by_side.length_when_changed, given)[0] != found[0], "weights as they are then"
    assert encoder.cache is None, "the caller's own remembers nothing"
