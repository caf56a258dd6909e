"""The record of a run: what `run.json` says of it while it goes on and when it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from itertools import product
from pathlib import Path
from typing import Any
from weakref import finalize

from filelock import FileLock, Timeout

from dialnb.files import LOCK, Values, as_list, make_folder, say, time_of, write_json
from dialnb.models.places import encoder_name
from dialnb.runs.profiles import Settings
from dialnb.runs.provenance import determinism, provenance, watch_gpus
from dialnb.runs.stages import StageRecord, peak_memory

SAVED_EVERY = 2.0
"""Seconds between two records of a run that goes on."""


class Record:
    """The folder of a run and `run.json` in it, which stands there from the beginning, whatever happens."""

    def __init__(self, slug: str, profile: str, settings: Settings, folder: Path) -> None:
        self.slug, self.profile, self.settings, self.folder = slug, profile, settings, folder
        self.missing: list[dict[str, str]] = []
        self.stages: list[StageRecord] = []
        self.data_read: list[Values] = []
        self.facts: Values = {}
        self.began = time.time()
        self._lock = FileLock(make_folder(folder) / LOCK, is_singleton=True)  # a cell may open the run again
        with suppress(Timeout):  # `dialnb run` holds it for its kernel
            self._lock.acquire(timeout=0)
        self._state = {"status": "running", "reason": ""}
        self._provenance = provenance()
        self._watched = finalize(self, watch_gpus(folder / "gpu.csv"))  # a cell that opens the run again ends it, too
        self.save()

    def note_stage(self, record: StageRecord, inputs: Values) -> None:
        """Keep that a stage is there, and which data it read."""
        for dataset in _datasets_in(list(inputs.values())):
            facts = {"name": dataset.name, "variant": dataset.variant, "licence": dataset.licence}
            self.data_read.append(facts | {"fingerprint": dataset.fingerprint[:16]})
        same = record.name, record.key
        self.stages = [kept for kept in self.stages if (kept.name, kept.key) != same] + [record]
        self._has_news = True
        if time.time() > self._saved + SAVED_EVERY:
            self.save()

    def save_news(self) -> None:
        """Write `run.json` if a stage was noted since it was written last."""
        if self._has_news:
            self.save()

    def note(self, **facts: Any) -> None:
        """Record facts of the run in `run.json`."""
        self.facts.update(facts)

    def note_absent(self, reason: str, table: str = "", **labels: str | Sequence[str]) -> None:
        """Say why rows are missing, in the log and under the table: those of a ``model``, a ``dataset`` or a ``column``
        (or of several of them), in one table or in all."""
        rows = product(*map(as_list, labels.values()))
        entries = [{"table": table, **dict(zip(labels, names)), "reason": reason} for names in rows]
        if new := [entry for entry in entries if entry not in self.missing]:
            names = dict.fromkeys(", ".join(entry[label] for label in labels) for entry in new)
            say(f"not run: {'; '.join(names) or table}{f' in {table}' if labels and table else ''}: {reason}")
        for entry in entries:
            self.missing = [other for other in self.missing if other | {"reason": reason} != entry] + [entry]

    def fail(self, reason: str) -> None:
        """Write down that the run stopped and why, unless it is done."""
        if self._state["status"] != "done":
            self._end("failed", reason)

    def _end(self, status: str, reason: str = "") -> None:
        self._state = {"status": status, "reason": reason}
        self.facts |= self._watched() or {}
        self.save()
        self._lock.release(force=True)

    def save(self) -> None:
        """Write `run.json` as things stand."""
        record = {
            "slug": self.slug,
            "profile": self.profile,
            **self._state,
            "parameters": _shown(self.settings),
            "set_by_hand": {name: _shown(self.settings[name]) for name in self.settings.by_hand},
            "started": time_of(self.began),
            "updated": time_of(time.time()),
            "seconds": round(time.time() - self.began, 3),
            "determinism": determinism(),
            **self._provenance,
            "stages": [asdict(stage) for stage in self.stages],
            "not_run": self.missing,
            **peak_memory(),
            **self.facts,
        }
        write_json(self.folder / "run.json", record)
        self._saved, self._has_news = time.time(), False


def _shown(value: Any) -> Any:
    """A setting as a record keeps it: runs are shared, so that folders of encoders stand there by their names."""
    if isinstance(value, tuple | list):
        return [_shown(part) for part in value]
    if isinstance(value, Mapping):
        return {name: _shown(part) for name, part in value.items()}
    return encoder_name(value) if isinstance(value, str) and value else value


def _datasets_in(value: Any) -> Iterator[Any]:
    """Every dataset within the inputs of a stage."""
    if hasattr(value, "licence"):
        yield value
        return
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, part.name) for part in fields(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _datasets_in(part)
