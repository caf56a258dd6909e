"""Small files written by the tests themselves, put where a store looks for the real ones."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dialnb.data.readers import Files, Reader, get_reader
from dialnb.data.records import Record
from dialnb.data.sources import get_source
from dialnb.data.store import Store


def zipped(**members: str) -> bytes:
    """A zip archive of text files; a double underscore in a name stands for the dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(f"folder/{name.replace('__', '.')}", text)
    return buffer.getvalue()


def store_with(folder: Path, source: str, files: dict[str, str | bytes]) -> Store:
    """A store that finds these files in a mirror folder, or in its cache if they are to be fetched by hand."""
    mirror, cache = folder / "mirror", folder / "cache"
    mirror.mkdir()
    for key, content in files.items():
        urls = get_source(source).file(key).urls
        where = urlsplit(urls[0]) if urls else None
        path = mirror / where.netloc / unquote(where.path)[1:] if where else cache / "files" / source / key
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if key.endswith(".json.gz") else data)
    return Store(cache=cache, mirror=mirror, offline=True)


def read(store: Store, dataset: str, variant: str | None = None) -> tuple[list[Record], Counter]:
    """All records of a dataset, straight from its reader, and what was skipped."""
    files = Files(store, dataset)
    return list(get_reader(dataset)(files, variant)), files.skipped


def read_part(function: Callable, *arguments: object) -> tuple[list[Record], Counter]:
    """The records of a part of a reader, its errors told as those of a reader, and what was skipped."""
    files = Files(None, "Toy")
    part = Reader("Toy", (), 1, ("Toy",), lambda files: function(files, *arguments))
    return list(part(files)), files.skipped


def splits(records: list[Record]) -> dict[str, int]:
    """The number of records per split."""
    return dict(Counter(record.split for record in records))
