"""Read members of zip and tar archives in memory: nothing is ever written to disk, and nothing explodes.

An archive that unpacks to far more than it should is refused with a `DataError` before its bytes are read; links and
devices are passed over.
"""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from dialnb.errors import DataError
from dialnb.files import digest_of

SMALL = 64 * 2**20  # an archive may always unpack to this much,
RATIO = 100  # or to so many times its own size,
LARGE = 8 * 2**30  # but never to more than this
HEADER = 512  # bytes that a tar archive spends on a member, even on an empty one
BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, RuntimeError)

Member = tuple[str, int, Callable[[], bytes]]  # name, size, what reads it


def read_members(path: Path, pattern: str = "*", *, strip_top: bool = False) -> dict[str, bytes]:
    """Members whose name matches `pattern` ("*" also crosses "/"), in sorted order.

    `strip_top` drops the first folder of every name, which hosts invent ("STAR-3058975/"). The whole archive may
    unpack to 100 times its own size, and to 64 MiB at least.
    """
    return dict(sorted(_members(path, (pattern,), strip_top)))


def members_digest(path: Path, patterns: tuple[str, ...]) -> str:
    r"""sha256 over the sorted lines "name\tsha256\n" of the members that match, named without their top folder."""
    lines = [f"{name}\t{digest_of(data)}\n" for name, data in _members(path, patterns, strip_top=True)]
    return digest_of("".join(sorted(lines)))


def _members(path: Path, patterns: tuple[str, ...], strip_top: bool) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the members that match."""
    limit = min(max(SMALL, RATIO * path.stat().st_size), LARGE)
    unpacked = 0
    try:
        for name, size, read in (_zip_members if zipfile.is_zipfile(path) else _tar_members)(path):
            unpacked += size
            if unpacked > limit:
                raise DataError(
                    f"{path} unpacks to at least {unpacked:,} bytes, more than the {limit:,} allowed; it is refused"
                )
            short = name.partition("/")[2] if strip_top else name
            if any(fnmatchcase(short, pattern) for pattern in patterns):
                yield short, read()
    except BROKEN as error:
        raise DataError(f"{path} is not a readable zip or tar archive: {error}. Delete it and fetch it again") from None


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            if not item.is_dir():
                yield item.filename, item.file_size, partial(archive.read, item)


def _tar_members(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for item in archive:
            if item.isreg() and (file := archive.extractfile(item)):
                yield item.name, item.size + HEADER, file.read
