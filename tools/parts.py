"""Take a large file to a machine that takes small ones: split it, and join it there.

    python -m tools.parts split model.safetensors --size 25M -o parts
    python -m tools.parts join parts -o model.safetensors

The folder holds the parts and `parts.json`, with the sha256 of each and of the whole; what does not fit is refused.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from click import BadParameter, argument, group, option

from dialnb.errors import DataError
from dialnb.files import digest_of, make_folder, read_json, sha256, write_json

LISTED = "parts.json"
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def bytes_of(size: str) -> int:
    """A number of bytes as people write it.

    >>> bytes_of("25M")
    25000000
    """
    match = re.fullmatch(r"([1-9]\d*)([KMG]?)B?", size.upper())
    if not match:
        raise BadParameter(f"--size {size!r} is no number of bytes such as 25M")
    return int(match[1]) * UNITS[match[2]]


def split(file: Path, size: int, folder: Path) -> list[Path]:
    """Write the parts of a file into a folder, at most ``size`` bytes each."""
    make_folder(folder)
    hashes, whole = {}, hashlib.sha256()
    parts: list[Path] = []
    with file.open("rb") as stream:
        while data := stream.read(size):
            part = folder / f"{file.name}.{len(parts) + 1:03}"
            part.write_bytes(data)
            whole.update(data)
            parts.append(part)
            hashes[part.name] = digest_of(data)
    write_json(folder / LISTED, {"name": file.name, "sha256": whole.hexdigest(), "parts": hashes})
    return parts


def join(folder: Path, out: Path) -> Path:
    """Join the parts of a folder; nothing is written to ``out`` unless every one is there and right."""
    if not (folder / LISTED).is_file():
        raise DataError(f"{folder} holds no {LISTED}: it is not a folder that 'split' wrote")
    listed = read_json(folder / LISTED)
    for name, expected in listed["parts"].items():
        part = folder / name
        if not part.is_file():
            raise DataError(f"{part} is missing: bring it here, too")
        if sha256(part) != expected:
            raise DataError(f"{part} is not the part that was written: bring it here again")
    make_folder(out.parent)
    draft = out.with_name(f".{out.name}.joining")
    with draft.open("wb") as stream:
        for name in listed["parts"]:
            stream.write((folder / name).read_bytes())
    if sha256(draft) != listed["sha256"]:
        draft.unlink()
        raise DataError(f"the parts of {folder} do not make up {listed['name']}: split it again")
    return draft.replace(out)


@group()
def main() -> None:
    """Split a large file, and join it."""


@main.command("split")
@argument("file", type=Path)
@option("--size", default="25M", show_default=True, help="largest part: bytes, or with K, M or G")
@option("-o", "--out", "folder", required=True, type=Path, metavar="FOLDER")
def split_file(file: Path, size: str, folder: Path) -> None:
    """Write the parts of a file into a folder."""
    parts = split(file, bytes_of(size), folder)
    print(f"{folder}: {len(parts)} parts of {file.name}")


@main.command("join")
@argument("folder", type=Path)
@option("-o", "--out", required=True, type=Path, metavar="FILE")
def join_file(folder: Path, out: Path) -> None:
    """Join the parts of a folder and check the whole."""
    print(f"{join(folder, out)}: joined and checked")


if __name__ == "__main__":
    main()
