"""Read members of zip and tar archives in memory, without trusting them: nothing escapes, nothing explodes.

Members are never written to disk. Names that would leave the folder of the archive, links and devices, and archives
that unpack to far more than they should are refused with a `DataError` before their bytes are read.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from dialnb.errors import DataError

SMALL = 64 * 2**20  # an archive may always unpack to this much,
RATIO = 100  # or to so many times its own size,
LARGE = 8 * 2**30  # but never to more than this
BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, NotImplementedError)

Member = tuple[str, bool, Callable[[], bytes]]  # name, whether it is a plain file, its bytes


def read_members(
    path: Path, pattern: str = "*", *, strip_top: bool = False, limit: int | None = None
) -> dict[str, bytes]:
    """Members whose name matches `pattern` ("*" also crosses "/"), in sorted order.

    `strip_top` drops the first folder of every name, which hosts invent ("STAR-3058975/"); `limit` is the number of
    bytes that the whole archive may unpack to, by default 100 times its own size and at least 64 MiB.
    """
    return dict(sorted(_members(path, (pattern,), strip_top, limit)))


def members_digest(path: Path, patterns: tuple[str, ...], *, limit: int | None = None) -> str:
    r"""sha256 over the sorted lines "name\tsha256\n" of the members that match, named without their top folder."""
    found = _members(path, patterns, True, limit)
    lines = sorted(f"{name}\t{hashlib.sha256(data).hexdigest()}\n" for name, data in found)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _members(path: Path, patterns: tuple[str, ...], strip_top: bool, limit: int | None) -> Iterator[tuple[str, bytes]]:
    limit = limit or min(max(SMALL, RATIO * path.stat().st_size), LARGE)
    try:
        for name, plain, read in (_zip_members if zipfile.is_zipfile(path) else _tar_members)(path, limit):
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if not parts or parts[0] == "/" or parts[0].endswith(":") or ".." in parts:
                raise DataError(
                    f"{path} has a member named {name!r} that would leave its folder; the archive is refused"
                )
            short = "/".join(parts[1:] if strip_top else parts)
            if not any(fnmatchcase(short, pattern) for pattern in patterns):
                continue
            if not plain:
                raise DataError(f"{path} has a member {name!r} that is a link or a device; the archive is refused")
            yield short, read()
    except RuntimeError as error:  # zipfile's word for a password
        raise DataError(f"{path} cannot be read: {error}") from None
    except BROKEN as error:
        raise DataError(f"{path} is not a readable zip or tar archive: {error}. Delete it and fetch it again") from None


def _zip_members(path: Path, limit: int) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        members = [item for item in archive.infolist() if not item.is_dir()]
        _check_size(path, sum(item.file_size for item in members), limit)
        for item in members:
            kind = item.external_attr >> 28  # the file type of Unix modes; 0 where another system wrote the archive
            yield item.filename, kind in (0, 0o10), lambda item=item: archive.read(item)


def _tar_members(path: Path, limit: int) -> Iterator[Member]:
    with _decompressed(path) as stream, tarfile.open(fileobj=_Metered(stream, path, limit), mode="r|") as archive:
        for item in archive:
            _check_size(path, item.size, limit)
            if not item.isdir():
                yield item.name, item.isreg(), lambda item=item: archive.extractfile(item).read()


def _decompressed(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        start = file.read(6)
    for magic, opener in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open)):
        if start.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


class _Metered:
    """A stream that refuses to give more than `limit` bytes (tar headers and padding add a little to the members)."""

    def __init__(self, stream: BinaryIO, path: Path, limit: int) -> None:
        self.stream, self.path, self.limit, self.given = stream, path, limit, 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.given += len(data)
        _check_size(self.path, self.given, 2 * self.limit)
        return data


def _check_size(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise DataError(f"{path} unpacks to at least {size:,} bytes, more than the {limit:,} allowed; it is refused")
